"""Connect's predicates (KIP-585); each is loaded when it is first asked for.

To add one: write its module, add it to the table here, and its name to the stub beside. The catalogue and
the tables in docs/connect.md follow from the table.
"""

from typing import Final

from headerware.core.lazy import lazy

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

__getattr__, __dir__, __all__ = lazy(__name__)
