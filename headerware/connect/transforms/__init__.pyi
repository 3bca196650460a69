from typing import Final

from headerware.connect.transforms.base import PartTransform as PartTransform
from headerware.connect.transforms.base import Plan as Plan
from headerware.connect.transforms.base import Transform as Transform
from headerware.connect.transforms.cast import Cast as Cast
from headerware.connect.transforms.catalogue import transform_type as transform_type
from headerware.connect.transforms.change_case import ChangeCase as ChangeCase
from headerware.connect.transforms.content_router import ContentRouter as ContentRouter
from headerware.connect.transforms.drop_headers import DropHeaders as DropHeaders
from headerware.connect.transforms.extract_field import ExtractField as ExtractField
from headerware.connect.transforms.field_to_headers import FieldToHeaders as FieldToHeaders
from headerware.connect.transforms.filter import Filter as Filter
from headerware.connect.transforms.filter_by_expression import FilterByExpression as FilterByExpression
from headerware.connect.transforms.filter_by_field import FilterByField as FilterByField
from headerware.connect.transforms.filter_by_header import FilterByHeader as FilterByHeader
from headerware.connect.transforms.flatten import Flatten as Flatten
from headerware.connect.transforms.hash import Hash as Hash
from headerware.connect.transforms.header_from import HeaderFrom as HeaderFrom
from headerware.connect.transforms.header_to import HeaderTo as HeaderTo
from headerware.connect.transforms.headers_to_field import HeadersToField as HeadersToField
from headerware.connect.transforms.hoist_field import HoistField as HoistField
from headerware.connect.transforms.insert_field import InsertField as InsertField
from headerware.connect.transforms.insert_header import InsertHeader as InsertHeader
from headerware.connect.transforms.key_to_value import KeyToValue as KeyToValue
from headerware.connect.transforms.mask_field import MaskField as MaskField
from headerware.connect.transforms.outbox_router import OutboxRouter as OutboxRouter
from headerware.connect.transforms.pattern_rename import PatternRename as PatternRename
from headerware.connect.transforms.regex_router import RegexRouter as RegexRouter
from headerware.connect.transforms.replace_field import ReplaceField as ReplaceField
from headerware.connect.transforms.set_field import SetField as SetField
from headerware.connect.transforms.set_schema_metadata import SetSchemaMetadata as SetSchemaMetadata
from headerware.connect.transforms.timestamp_converter import TimestampConverter as TimestampConverter
from headerware.connect.transforms.timestamp_router import TimestampRouter as TimestampRouter
from headerware.connect.transforms.value_to_key import ValueToKey as ValueToKey

KAFKA_TRANSFORMS: Final[dict[str, str]]
OWN_TRANSFORMS: Final[dict[str, str]]
