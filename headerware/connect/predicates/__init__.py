"""Connect's predicates (KIP-585); each is loaded when it is first used.

To add one, write its module, add it to a table here, and add its name to ``__init__.pyi``. The catalogue and
the tables in docs/connect.md follow from the tables here.
"""

from typing import Final

from headerware.core.lazy import lazy

KAFKA_PREDICATES: Final = {
    "HasHeaderKey": "has_header_key",
    "RecordIsTombstone": "record_is_tombstone",
    "TopicNameMatches": "topic_name_matches",
}
"""The module of each predicate that Kafka has, too."""
OWN_PREDICATES: Final = {
    "Expression": "expression",
    "FieldMatches": "field_matches",
    "HeaderMatches": "header_matches",
}
"""The module of each predicate that Kafka does not have; these behave strictly in both modes."""

__getattr__, __dir__, __all__ = lazy(__name__)
