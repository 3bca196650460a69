"""The predicates that configuration can name; plug-ins' come by the group ``headerware.predicates``."""

from __future__ import annotations

from typing import Final

from headerware.connect.catalogue import Catalogue
from headerware.connect.predicates.base import Predicate

GROUP: Final = "headerware.predicates"
_HERE: Final = "headerware.connect.predicates"
_KAFKA: Final = "org.apache.kafka.connect.transforms.predicates"

_OF_KAFKA: Final = {
    "HasHeaderKey": "has_header_key",
    "RecordIsTombstone": "record_is_tombstone",
    "TopicNameMatches": "topic_name_matches",
}
"""The modules of those that have the names of Kafka's own."""
_PACKS: Final[dict[str, str]] = {
    "Expression": "packs.expression",
    "FieldMatches": "packs.field_matches",
    "HeaderMatches": "packs.header_matches",
}
"""Those of the packs, by their own names, as ``name: "packs.module"``."""

predicate_type: Final[Catalogue[Predicate]] = Catalogue(
    "predicate",
    Predicate,
    {
        **{f"{_KAFKA}.{name}": f"{_HERE}.{module}:{name}" for name, module in _OF_KAFKA.items()},
        **{name: f"{_HERE}.{module}:{name}" for name, module in _PACKS.items()},
    },
    GROUP,
    other="headerware.connect.transforms.catalogue:transform_type",
)
"""Load the predicate that a name stands for."""
