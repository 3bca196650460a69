"""Connect's predicates (KIP-585); each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.connect.predicates.base import Predicate
    from headerware.connect.predicates.catalogue import predicate_type
    from headerware.connect.predicates.has_header_key import HasHeaderKey
    from headerware.connect.predicates.record_is_tombstone import RecordIsTombstone
    from headerware.connect.predicates.topic_name_matches import TopicNameMatches

__all__ = [
    "HasHeaderKey",
    "Predicate",
    "RecordIsTombstone",
    "TopicNameMatches",
    "predicate_type",
]

_HOMES: Final = {
    "HasHeaderKey": "has_header_key",
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
