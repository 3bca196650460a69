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
    from headerware.connect.transforms.regex_router import RegexRouter
    from headerware.connect.transforms.replace_field import ReplaceField
    from headerware.connect.transforms.set_schema_metadata import SetSchemaMetadata
    from headerware.connect.transforms.timestamp_converter import TimestampConverter
    from headerware.connect.transforms.timestamp_router import TimestampRouter
    from headerware.connect.transforms.value_to_key import ValueToKey

__all__ = [
    "Cast",
    "DropHeaders",
    "ExtractField",
    "Filter",
    "Flatten",
    "HeaderFrom",
    "HeaderTo",
    "HoistField",
    "InsertField",
    "InsertHeader",
    "MaskField",
    "PartTransform",
    "Plan",
    "RegexRouter",
    "ReplaceField",
    "SetSchemaMetadata",
    "TimestampConverter",
    "TimestampRouter",
    "Transform",
    "ValueToKey",
    "transform_type",
]

_HOMES: Final = {
    "Cast": "cast",
    "DropHeaders": "drop_headers",
    "ExtractField": "extract_field",
    "Filter": "filter",
    "Flatten": "flatten",
    "HeaderFrom": "header_from",
    "HeaderTo": "header_to",
    "HoistField": "hoist_field",
    "InsertField": "insert_field",
    "InsertHeader": "insert_header",
    "MaskField": "mask_field",
    "PartTransform": "base",
    "Plan": "base",
    "RegexRouter": "regex_router",
    "ReplaceField": "replace_field",
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
