"""Connect's single message transforms (KIP-66); each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.connect.transforms.base import PartTransform, Plan, Transform
    from headerware.connect.transforms.cast import Cast
    from headerware.connect.transforms.catalogue import transform_type
    from headerware.connect.transforms.drop_headers import DropHeaders
    from headerware.connect.transforms.extract_field import ExtractField
    from headerware.connect.transforms.filter import Filter
    from headerware.connect.transforms.flatten import Flatten
    from headerware.connect.transforms.header_from import HeaderFrom
    from headerware.connect.transforms.header_to import HeaderTo
    from headerware.connect.transforms.hoist_field import HoistField
    from headerware.connect.transforms.insert_field import InsertField
    from headerware.connect.transforms.insert_header import InsertHeader
    from headerware.connect.transforms.mask_field import MaskField
    from headerware.connect.transforms.packs.change_case import ChangeCase
    from headerware.connect.transforms.packs.content_router import ContentRouter
    from headerware.connect.transforms.packs.field_to_headers import FieldToHeaders
    from headerware.connect.transforms.packs.filter_by_expression import FilterByExpression
    from headerware.connect.transforms.packs.filter_by_field import FilterByField
    from headerware.connect.transforms.packs.filter_by_header import FilterByHeader
    from headerware.connect.transforms.packs.hashing import Hash
    from headerware.connect.transforms.packs.headers_to_field import HeadersToField
    from headerware.connect.transforms.packs.key_to_value import KeyToValue
    from headerware.connect.transforms.packs.outbox_router import OutboxRouter
    from headerware.connect.transforms.packs.pattern_rename import PatternRename
    from headerware.connect.transforms.packs.set_field import SetField
    from headerware.connect.transforms.regex_router import RegexRouter
    from headerware.connect.transforms.replace_field import ReplaceField
    from headerware.connect.transforms.set_schema_metadata import SetSchemaMetadata
    from headerware.connect.transforms.timestamp_converter import TimestampConverter
    from headerware.connect.transforms.timestamp_router import TimestampRouter
    from headerware.connect.transforms.value_to_key import ValueToKey

__all__ = [
    "Cast",
    "ChangeCase",
    "ContentRouter",
    "DropHeaders",
    "ExtractField",
    "FieldToHeaders",
    "Filter",
    "FilterByExpression",
    "FilterByField",
    "FilterByHeader",
    "Flatten",
    "Hash",
    "HeaderFrom",
    "HeaderTo",
    "HeadersToField",
    "HoistField",
    "InsertField",
    "InsertHeader",
    "KeyToValue",
    "MaskField",
    "OutboxRouter",
    "PartTransform",
    "PatternRename",
    "Plan",
    "RegexRouter",
    "ReplaceField",
    "SetField",
    "SetSchemaMetadata",
    "TimestampConverter",
    "TimestampRouter",
    "Transform",
    "ValueToKey",
    "transform_type",
]

_HOMES: Final = {
    "Cast": "cast",
    "ChangeCase": "packs.change_case",
    "ContentRouter": "packs.content_router",
    "DropHeaders": "drop_headers",
    "ExtractField": "extract_field",
    "FieldToHeaders": "packs.field_to_headers",
    "Filter": "filter",
    "FilterByExpression": "packs.filter_by_expression",
    "FilterByField": "packs.filter_by_field",
    "FilterByHeader": "packs.filter_by_header",
    "Flatten": "flatten",
    "Hash": "packs.hashing",
    "HeaderFrom": "header_from",
    "HeaderTo": "header_to",
    "HeadersToField": "packs.headers_to_field",
    "HoistField": "hoist_field",
    "InsertField": "insert_field",
    "InsertHeader": "insert_header",
    "KeyToValue": "packs.key_to_value",
    "MaskField": "mask_field",
    "OutboxRouter": "packs.outbox_router",
    "PartTransform": "base",
    "PatternRename": "packs.pattern_rename",
    "Plan": "base",
    "RegexRouter": "regex_router",
    "ReplaceField": "replace_field",
    "SetField": "packs.set_field",
    "SetSchemaMetadata": "set_schema_metadata",
    "TimestampConverter": "timestamp_converter",
    "TimestampRouter": "timestamp_router",
    "Transform": "base",
    "ValueToKey": "value_to_key",
    "transform_type": "catalogue",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
