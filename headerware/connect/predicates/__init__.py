"""Connect's predicates (KIP-585); each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.connect.catalogue import exports
from headerware.connect.predicates.catalogue import CLASSES
from headerware.core.lazy import lazy

_HOMES: Final = {**exports(CLASSES), "Predicate": "base", "predicate_type": "catalogue"}

if TYPE_CHECKING:
    from headerware.connect.predicates.base import Predicate as Predicate
    from headerware.connect.predicates.catalogue import predicate_type as predicate_type
    from headerware.connect.predicates.expression import Expression as Expression
    from headerware.connect.predicates.field_matches import FieldMatches as FieldMatches
    from headerware.connect.predicates.has_header_key import HasHeaderKey as HasHeaderKey
    from headerware.connect.predicates.header_matches import HeaderMatches as HeaderMatches
    from headerware.connect.predicates.record_is_tombstone import RecordIsTombstone as RecordIsTombstone
    from headerware.connect.predicates.topic_name_matches import TopicNameMatches as TopicNameMatches
else:
    __all__ = list(_HOMES)

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
