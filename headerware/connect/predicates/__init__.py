"""Connect's predicates (KIP-585); each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.connect.predicates.base import Predicate
    from headerware.connect.predicates.catalogue import predicate_type
    from headerware.connect.predicates.has_header_key import HasHeaderKey
    from headerware.connect.predicates.packs.expression import Expression
    from headerware.connect.predicates.packs.field_matches import FieldMatches
    from headerware.connect.predicates.packs.header_matches import HeaderMatches
    from headerware.connect.predicates.record_is_tombstone import RecordIsTombstone
    from headerware.connect.predicates.topic_name_matches import TopicNameMatches

__all__ = [
    "Expression",
    "FieldMatches",
    "HasHeaderKey",
    "HeaderMatches",
    "Predicate",
    "RecordIsTombstone",
    "TopicNameMatches",
    "predicate_type",
]

_HOMES: Final = {
    "Expression": "packs.expression",
    "FieldMatches": "packs.field_matches",
    "HasHeaderKey": "has_header_key",
    "HeaderMatches": "packs.header_matches",
    "Predicate": "base",
    "RecordIsTombstone": "record_is_tombstone",
    "TopicNameMatches": "topic_name_matches",
    "predicate_type": "catalogue",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
