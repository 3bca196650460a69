"""The kinds of Kafka's errors: one table for all code that acts on an error."""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException


class Kind(Enum):
    """The meaning of an error, with the names of its codes in confluent-kafka; a code has one kind.

    A name with an underscore is librdkafka's own; the others are the brokers'.
    """

    UNFIT = "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"
    """A topic refuses one record for its size, key or time; it may accept others."""
    UNFIT_OTHER = ("_INVALID_DIFFERENT_RECORD",)
    """A topic refuses another record of the same request, and with it this one."""
    UNKNOWN_PARTITION = ("_UNKNOWN_PARTITION",)
    """A record names a partition that its topic does not have."""
    UNCONFIRMED = "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_MSG_TIMED_OUT"
    """A record may have been written, or not."""
    FORBIDDEN = (
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
    )
    """The user is not known, or lacks a right: waiting does not help."""
    REFUSED = "TOPIC_EXCEPTION", "POLICY_VIOLATION"
    """The topic's name is not valid, or a policy of the cluster forbids the request."""
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"
    """There is no such topic, or this user may not see it."""
    TOPIC_EXISTS = ("TOPIC_ALREADY_EXISTS",)
    """There is a topic of this name already."""
    FENCED = "_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"
    """A producer that was started later has the same transactional id."""
    PRODUCER_FORGOTTEN = "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE"
    """The brokers no longer know a transactional producer, or do not know its transaction."""
    MEMBER_FENCED = ("FENCED_INSTANCE_ID",)
    """A member that came later has the same ``group.instance.id``."""
    STALE_GROUP = "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"
    """The group has begun a new generation, or no longer knows the member."""
    WRONG_STATE = ("_STATE",)
    """The client's present state does not permit the call."""
    FATAL = ("_FATAL",)
    """The client can no longer be used; another error says why."""
    COORDINATOR_MOVED = "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"
    """A group's coordinator is another broker, or not ready yet."""
    LEADER_MOVED = "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"
    """A partition's leader is another broker, or not elected yet."""
    TIMED_OUT = ("_TIMED_OUT",)
    """There was no answer in time."""
    UNREACHABLE = ("_TRANSPORT",)
    """There is no connection to a broker; the text says why. The client tries again."""
    ALL_UNREACHABLE = ("_ALL_BROKERS_DOWN",)
    """There is no connection to any broker; the errors before it say why. The client tries again."""
    END_OF_PARTITION = ("_PARTITION_EOF",)
    """Nothing is left to read for now."""
    OFFSET_GONE = "_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"
    """The topic no longer has the offset at which reading should go on."""
    POLLED_TOO_LATE = ("_MAX_POLL_EXCEEDED",)
    """The consumer did not poll within ``max.poll.interval.ms``, and is out of its group until it polls."""
    OTHER = ()
    """Anything else."""


NO_ANSWER: Final = frozenset({Kind.TIMED_OUT, Kind.UNREACHABLE, Kind.ALL_UNREACHABLE})
"""The kinds of errors that mean that brokers do not answer."""


def kind_of(error: object) -> Kind:
    """Return the kind of a KafkaError, or of the KafkaError in a KafkaException; else OTHER."""
    from confluent_kafka import KafkaError as Error  # noqa: PLC0415 - slow to import

    cause = error.args[0] if isinstance(error, Exception) and error.args else error
    return _kinds().get(cause.code(), Kind.OTHER) if isinstance(cause, Error) else Kind.OTHER


def right_to_write(error: object, topic: str) -> str:
    """Return the end of a sentence that names the right to write a topic, if the user lacks it; else ""."""
    from confluent_kafka import KafkaError as Error  # noqa: PLC0415 - slow to import

    cause = error.args[0] if isinstance(error, Exception) and error.args else error
    lacks = isinstance(cause, Error) and cause.code() == Error.TOPIC_AUTHORIZATION_FAILED
    return f"; grant this user the right WRITE on {topic}" if lacks else ""


def is_fatal(error: KafkaError) -> bool:
    """Return whether a client can no longer be used; errors in messages have no flag for that."""
    return error.fatal() or kind_of(error) is Kind.FATAL


def with_text(error: KafkaError, text: str) -> KafkaException:
    """Return an exception with an error's code and a text that says more than the error's own."""
    from confluent_kafka import KafkaError as Error  # noqa: PLC0415 - slow to import
    from confluent_kafka import KafkaException as Raised  # noqa: PLC0415 - as above

    return Raised(Error(error.code(), text))


@cache
def _kinds() -> dict[int, Kind]:
    from confluent_kafka import KafkaError as Error  # noqa: PLC0415 - slow to import

    return {getattr(Error, name): kind for kind in Kind for name in kind.value}
