"""The predicates that configuration can name; plug-ins are in the group ``headerware.predicates``."""

from __future__ import annotations

from typing import Final

from headerware.connect.catalogue import Catalogue, class_paths
from headerware.connect.predicates.base import Predicate

_KAFKA: Final = "org.apache.kafka.connect.transforms.predicates"
CLASSES: Final = {
    f"{_KAFKA}.HasHeaderKey": "has_header_key",
    f"{_KAFKA}.RecordIsTombstone": "record_is_tombstone",
    f"{_KAFKA}.TopicNameMatches": "topic_name_matches",
    "Expression": "expression",
    "FieldMatches": "field_matches",
    "HeaderMatches": "header_matches",
}
"""The modules of our own predicates, by the names that configuration has for them."""

predicate_type: Final[Catalogue[Predicate]] = Catalogue(
    "predicate",
    Predicate,
    class_paths("headerware.connect.predicates", CLASSES),
    "headerware.predicates",
    other="headerware.connect.transforms.catalogue:transform_type",
)
"""Load the predicate that a name stands for."""
