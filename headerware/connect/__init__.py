"""Kafka Connect in Python: headers, converters, transforms and predicates (KIP-145, KIP-66, KIP-585).

What values and schemas are made of is in :mod:`headerware.connect.data`, conversions between them are in
:mod:`headerware.connect.values`. Each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.connect.config import Check, ConfigDef, ConfigKey
    from headerware.connect.converters.base import Converter, HeaderConverter
    from headerware.connect.converters.boolean import BooleanConverter
    from headerware.connect.converters.byte_array import ByteArrayConverter
    from headerware.connect.converters.catalogue import converter_type, header_converter_type
    from headerware.connect.converters.json.converter import JsonConverter
    from headerware.connect.converters.numbers import (
        DoubleConverter,
        FloatConverter,
        IntegerConverter,
        LongConverter,
        ShortConverter,
    )
    from headerware.connect.converters.selection import converter_from, header_converter_from
    from headerware.connect.converters.simple import SimpleHeaderConverter
    from headerware.connect.converters.string import StringConverter
    from headerware.connect.data import Field, Schema, SchemaAndValue, SchemaBuilder, Struct, Type
    from headerware.connect.errors import ConnectConfigError, ConnectDataError, ConnectError, ConversionError
    from headerware.connect.headers import ConnectHeader, ConnectHeaders
    from headerware.connect.modes import Mode
    from headerware.connect.pipeline import Pipeline, Stage, StageError
    from headerware.connect.predicates.base import Predicate
    from headerware.connect.predicates.catalogue import predicate_type
    from headerware.connect.predicates.has_header_key import HasHeaderKey
    from headerware.connect.predicates.packs.expression import Expression
    from headerware.connect.predicates.packs.field_matches import FieldMatches
    from headerware.connect.predicates.packs.header_matches import HeaderMatches
    from headerware.connect.predicates.record_is_tombstone import RecordIsTombstone
    from headerware.connect.predicates.topic_name_matches import TopicNameMatches
    from headerware.connect.properties import parse_connector, parse_properties
    from headerware.connect.records import ConnectRecord, SinkRecord, SourceRecord, TimestampType
    from headerware.connect.transforms.base import PartTransform, Plan, Transform
    from headerware.connect.transforms.cast import Cast
    from headerware.connect.transforms.catalogue import transform_type
    from headerware.connect.transforms.change_case import ChangeCase
    from headerware.connect.transforms.content_router import ContentRouter
    from headerware.connect.transforms.drop_headers import DropHeaders
    from headerware.connect.transforms.extract_field import ExtractField
    from headerware.connect.transforms.field_to_headers import FieldToHeaders
    from headerware.connect.transforms.filter import Filter
    from headerware.connect.transforms.filter_by_expression import FilterByExpression
    from headerware.connect.transforms.filter_by_field import FilterByField
    from headerware.connect.transforms.filter_by_header import FilterByHeader
    from headerware.connect.transforms.flatten import Flatten
    from headerware.connect.transforms.hash import Hash
    from headerware.connect.transforms.header_from import HeaderFrom
    from headerware.connect.transforms.header_to import HeaderTo
    from headerware.connect.transforms.headers_to_field import HeadersToField
    from headerware.connect.transforms.hoist_field import HoistField
    from headerware.connect.transforms.insert_field import InsertField
    from headerware.connect.transforms.insert_header import InsertHeader
    from headerware.connect.transforms.key_to_value import KeyToValue
    from headerware.connect.transforms.mask_field import MaskField
    from headerware.connect.transforms.outbox_router import OutboxRouter
    from headerware.connect.transforms.pattern_rename import PatternRename
    from headerware.connect.transforms.regex_router import RegexRouter
    from headerware.connect.transforms.replace_field import ReplaceField
    from headerware.connect.transforms.set_field import SetField
    from headerware.connect.transforms.set_schema_metadata import SetSchemaMetadata
    from headerware.connect.transforms.timestamp_converter import TimestampConverter
    from headerware.connect.transforms.timestamp_router import TimestampRouter
    from headerware.connect.transforms.value_to_key import ValueToKey

__all__ = [
    "BooleanConverter",
    "ByteArrayConverter",
    "Cast",
    "ChangeCase",
    "Check",
    "ConfigDef",
    "ConfigKey",
    "ConnectConfigError",
    "ConnectDataError",
    "ConnectError",
    "ConnectHeader",
    "ConnectHeaders",
    "ConnectRecord",
    "ContentRouter",
    "ConversionError",
    "Converter",
    "DoubleConverter",
    "DropHeaders",
    "Expression",
    "ExtractField",
    "Field",
    "FieldMatches",
    "FieldToHeaders",
    "Filter",
    "FilterByExpression",
    "FilterByField",
    "FilterByHeader",
    "Flatten",
    "FloatConverter",
    "HasHeaderKey",
    "Hash",
    "HeaderConverter",
    "HeaderFrom",
    "HeaderMatches",
    "HeaderTo",
    "HeadersToField",
    "HoistField",
    "InsertField",
    "InsertHeader",
    "IntegerConverter",
    "JsonConverter",
    "KeyToValue",
    "LongConverter",
    "MaskField",
    "Mode",
    "OutboxRouter",
    "PartTransform",
    "PatternRename",
    "Pipeline",
    "Plan",
    "Predicate",
    "RecordIsTombstone",
    "RegexRouter",
    "ReplaceField",
    "Schema",
    "SchemaAndValue",
    "SchemaBuilder",
    "SetField",
    "SetSchemaMetadata",
    "ShortConverter",
    "SimpleHeaderConverter",
    "SinkRecord",
    "SourceRecord",
    "Stage",
    "StageError",
    "StringConverter",
    "Struct",
    "TimestampConverter",
    "TimestampRouter",
    "TimestampType",
    "TopicNameMatches",
    "Transform",
    "Type",
    "ValueToKey",
    "converter_from",
    "converter_type",
    "header_converter_from",
    "header_converter_type",
    "parse_connector",
    "parse_properties",
    "predicate_type",
    "transform_type",
]

_HOMES: Final = {
    "BooleanConverter": "converters.boolean",
    "ByteArrayConverter": "converters.byte_array",
    "Cast": "transforms.cast",
    "ChangeCase": "transforms.change_case",
    "Check": "config",
    "ConfigDef": "config",
    "ConfigKey": "config",
    "ConnectConfigError": "errors",
    "ConnectDataError": "errors",
    "ConnectError": "errors",
    "ConnectHeader": "headers",
    "ConnectHeaders": "headers",
    "ConnectRecord": "records",
    "ContentRouter": "transforms.content_router",
    "ConversionError": "errors",
    "Converter": "converters.base",
    "DoubleConverter": "converters.numbers",
    "DropHeaders": "transforms.drop_headers",
    "Expression": "predicates.packs.expression",
    "ExtractField": "transforms.extract_field",
    "Field": "data",
    "FieldMatches": "predicates.packs.field_matches",
    "FieldToHeaders": "transforms.field_to_headers",
    "Filter": "transforms.filter",
    "FilterByExpression": "transforms.filter_by_expression",
    "FilterByField": "transforms.filter_by_field",
    "FilterByHeader": "transforms.filter_by_header",
    "Flatten": "transforms.flatten",
    "FloatConverter": "converters.numbers",
    "HasHeaderKey": "predicates.has_header_key",
    "Hash": "transforms.hash",
    "HeaderConverter": "converters.base",
    "HeaderFrom": "transforms.header_from",
    "HeaderMatches": "predicates.packs.header_matches",
    "HeaderTo": "transforms.header_to",
    "HeadersToField": "transforms.headers_to_field",
    "HoistField": "transforms.hoist_field",
    "InsertField": "transforms.insert_field",
    "InsertHeader": "transforms.insert_header",
    "IntegerConverter": "converters.numbers",
    "JsonConverter": "converters.json.converter",
    "KeyToValue": "transforms.key_to_value",
    "LongConverter": "converters.numbers",
    "MaskField": "transforms.mask_field",
    "Mode": "modes",
    "OutboxRouter": "transforms.outbox_router",
    "PartTransform": "transforms.base",
    "PatternRename": "transforms.pattern_rename",
    "Pipeline": "pipeline",
    "Plan": "transforms.base",
    "Predicate": "predicates.base",
    "RecordIsTombstone": "predicates.record_is_tombstone",
    "RegexRouter": "transforms.regex_router",
    "ReplaceField": "transforms.replace_field",
    "Schema": "data",
    "SchemaAndValue": "data",
    "SchemaBuilder": "data",
    "SetField": "transforms.set_field",
    "SetSchemaMetadata": "transforms.set_schema_metadata",
    "ShortConverter": "converters.numbers",
    "SimpleHeaderConverter": "converters.simple",
    "SinkRecord": "records",
    "SourceRecord": "records",
    "Stage": "pipeline",
    "StageError": "pipeline",
    "StringConverter": "converters.string",
    "Struct": "data",
    "TimestampConverter": "transforms.timestamp_converter",
    "TimestampRouter": "transforms.timestamp_router",
    "TimestampType": "records",
    "TopicNameMatches": "predicates.topic_name_matches",
    "Transform": "transforms.base",
    "Type": "data",
    "ValueToKey": "transforms.value_to_key",
    "converter_from": "converters.selection",
    "converter_type": "converters.catalogue",
    "header_converter_from": "converters.selection",
    "header_converter_type": "converters.catalogue",
    "parse_connector": "properties",
    "parse_properties": "properties",
    "predicate_type": "predicates.catalogue",
    "transform_type": "transforms.catalogue",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
