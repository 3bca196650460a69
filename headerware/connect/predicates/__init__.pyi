from typing import Final

from headerware.connect.predicates.base import Predicate as Predicate
from headerware.connect.predicates.catalogue import predicate_type as predicate_type
from headerware.connect.predicates.expression import Expression as Expression
from headerware.connect.predicates.field_matches import FieldMatches as FieldMatches
from headerware.connect.predicates.has_header_key import HasHeaderKey as HasHeaderKey
from headerware.connect.predicates.header_matches import HeaderMatches as HeaderMatches
from headerware.connect.predicates.record_is_tombstone import RecordIsTombstone as RecordIsTombstone
from headerware.connect.predicates.topic_name_matches import TopicNameMatches as TopicNameMatches

KAFKA_PREDICATES: Final[dict[str, str]]
OWN_PREDICATES: Final[dict[str, str]]
