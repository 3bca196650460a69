"""Connect's predicates (KIP-585); each is loaded when it is first asked for.

To add one: write its module, add it to the table here, and to the imports for type checkers. The catalogue,
the public names and the tables in docs/connect.md follow from the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.connect.predicates.base import Predicate as Predicate
    from headerware.connect.predicates.catalogue import predicate_type as predicate_type
    from headerware.connect.predicates.expression import Expression as Expression
    from headerware.connect.predicates.field_matches import FieldMatches as FieldMatches
    from headerware.connect.predicates.has_header_key import HasHeaderKey as HasHeaderKey
    from headerware.connect.predicates.header_matches import HeaderMatches as HeaderMatches
    from headerware.connect.predicates.record_is_tombstone import RecordIsTombstone as RecordIsTombstone
    from headerware.connect.predicates.topic_name_matches import TopicNameMatches as TopicNameMatches

KAFKA_PREDICATES: Final = {
    "HasHeaderKey": "has_header_key",
    "RecordIsTombstone": "record_is_tombstone",
    "TopicNameMatches": "topic_name_matches",
}
"""The module of each predicate that has the name of one of Kafka's."""
OWN_PREDICATES: Final = {
    "Expression": "expression",
    "FieldMatches": "field_matches",
    "HeaderMatches": "header_matches",
}
"""The module of each predicate that Kafka does not have; these behave strictly in both modes."""
_HOMES: Final = {
    **KAFKA_PREDICATES,
    **OWN_PREDICATES,
    "Predicate": "base",
    "predicate_type": "catalogue",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list, made of the table

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
