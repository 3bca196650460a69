"""Connect's single message transforms (KIP-66); each is loaded when it is first used.

To add one, write its module, add it to a table here, and add its name to ``__init__.pyi``. The catalogue and
the tables in docs/connect.md follow from the tables here.
"""

from typing import Final

from headerware.core.lazy import lazy

KAFKA_TRANSFORMS: Final = {
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
    "RegexRouter": "regex_router",
    "ReplaceField": "replace_field",
    "SetSchemaMetadata": "set_schema_metadata",
    "TimestampConverter": "timestamp_converter",
    "TimestampRouter": "timestamp_router",
    "ValueToKey": "value_to_key",
}
"""The module of each transform that Kafka has, too, or that a KIP describes."""
OWN_TRANSFORMS: Final = {
    "ChangeCase": "change_case",
    "ContentRouter": "content_router",
    "FieldToHeaders": "field_to_headers",
    "FilterByExpression": "filter_by_expression",
    "FilterByField": "filter_by_field",
    "FilterByHeader": "filter_by_header",
    "Hash": "hash",
    "HeadersToField": "headers_to_field",
    "KeyToValue": "key_to_value",
    "OutboxRouter": "outbox_router",
    "PatternRename": "pattern_rename",
    "SetField": "set_field",
}
"""The module of each transform that Kafka does not have; these behave strictly in both modes."""

__getattr__, __dir__, __all__ = lazy(__name__)
