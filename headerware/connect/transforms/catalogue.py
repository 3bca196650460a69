"""The transforms that configuration can name; plug-ins' come by the group ``headerware.transforms``."""

from __future__ import annotations

from typing import Final

from headerware.connect.catalogue import Catalogue
from headerware.connect.transforms.base import Transform

GROUP: Final = "headerware.transforms"
_HERE: Final = "headerware.connect.transforms"
_KAFKA: Final = "org.apache.kafka.connect.transforms"

_OF_KAFKA: Final = {
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
"""The modules of those that have the names of Kafka's own."""
_PACKS: Final[dict[str, str]] = {
    "ChangeCase": "packs.change_case",
    "ContentRouter": "packs.content_router",
    "FieldToHeaders": "packs.field_to_headers",
    "FilterByExpression": "packs.filter_by_expression",
    "FilterByField": "packs.filter_by_field",
    "FilterByHeader": "packs.filter_by_header",
    "Hash": "packs.hashing",
    "HeadersToField": "packs.headers_to_field",
    "KeyToValue": "packs.key_to_value",
    "OutboxRouter": "packs.outbox_router",
    "PatternRename": "packs.pattern_rename",
    "SetField": "packs.set_field",
}
"""Those of the packs, by their own names, as ``name: "packs.module"``."""

transform_type: Final[Catalogue[Transform]] = Catalogue(
    "transform",
    Transform,
    {
        **{f"{_KAFKA}.{name}": f"{_HERE}.{module}:{name}" for name, module in _OF_KAFKA.items()},
        **{name: f"{_HERE}.{module}:{name}" for name, module in _PACKS.items()},
    },
    GROUP,
    # The KIP has it, Kafka never had.
    not_in_kafka=frozenset({f"{_KAFKA}.HeaderTo"}),
    other="headerware.connect.predicates.catalogue:predicate_type",
)
"""Load the transform that a name stands for."""
