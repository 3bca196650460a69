"""Commits of a consumer: send offsets to the broker, and tell interceptors which offsets were committed.

For commits that do not wait, and for the commits that librdkafka makes by itself, confluent-kafka calls a
callback, which tells the interceptors. After a commit that waits, the interceptors are told when it returns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition, cimpl

from headerware.clients.callbacks import call_back
from headerware.clients.offsets import Offsets, topic_partition_of, with_own_metadata
from headerware.clients.raw import NO_OFFSET
from headerware.core.record import Operation
from headerware.core.session import Session

CommitCallback = Callable[[KafkaError | None, list[TopicPartition]], Any]
_Committed = list[TopicPartition] | None
"""The committed offsets, with the application's own metadata; None for a commit that does not wait."""
_c_commit: Final[Any] = cimpl.Consumer.commit
_log: Final = logging.getLogger("headerware")


def commit_offsets(
    client: Any, session: Session, offsets: list[TopicPartition], *, waits: bool
) -> _Committed:
    """Commit offsets, and return them; return None if the commit does not wait."""
    return _told(session, _commit(client, session, offsets, waits=waits))


def commit_quietly(client: Any, session: Session, offsets: list[TopicPartition], *, waits: bool) -> None:
    """Commit offsets. If that fails, log it: records may repeat, and none is lost."""
    try:
        commit_offsets(client, session, offsets, waits=waits)
    except KafkaException as error:
        _log.warning("offsets were not committed, so records may repeat after a restart: %s", error)


def commit_stored(client: Any, offsets: Offsets, *, waits: bool) -> _Committed:
    """Commit the stored offsets and the watermarks, which librdkafka would not commit by itself."""
    session, held = offsets.session, offsets.take_watermarked()
    if not held:
        return _told(session, _commit(client, session, waits=waits))
    try:
        done = _commit(client, session, waits=waits) or []
    except KafkaException as error:
        if error.args[0].code() != NO_OFFSET:
            raise
        done = []
    ours = _commit(client, session, held, waits=waits)
    if ours is None:
        return None
    newer = {topic_partition_of(partition) for partition in ours}
    return _told(session, [*(each for each in done if topic_partition_of(each) not in newer), *ours])


def _commit(
    client: Any, session: Session, offsets: list[TopicPartition] | None = None, *, waits: bool
) -> _Committed:
    """Commit by confluent-kafka's method, and tell interceptors of the operation if the call waits."""
    if not waits or not session.hears_operations:
        return _c_commit(client, offsets=offsets, asynchronous=not waits)  # type: ignore[no-any-return]
    began_ns = time.time_ns()
    try:
        done: list[TopicPartition] = _c_commit(client, offsets=offsets, asynchronous=False)
    except KafkaException as error:
        _tell_operation(session, offsets or [], error.args[0], began_ns, time.time_ns())
        raise
    _tell_operation(session, done, None, began_ns, time.time_ns())
    return done


def _told(session: Session, partitions: _Committed) -> _Committed:
    """Tell interceptors of a commit that waited, because confluent-kafka calls no callback for it."""
    if partitions is None:
        return None
    own = [with_own_metadata(partition) for partition in partitions]
    _tell_committed(session, own)
    return own


def on_commit(
    offsets: Offsets,
    callback: CommitCallback | None,
    error: KafkaError | None,
    partitions: list[TopicPartition],
) -> None:
    """Tell interceptors of committed offsets, and the application of all that librdkafka reports."""
    own = [with_own_metadata(partition) for partition in partitions]
    if error is None:
        _tell_committed(offsets.session, own)
    if offsets.session.hears_operations:
        now_ns = time.time_ns()
        _tell_operation(offsets.session, own, error, now_ns, now_ns)
    if callback is not None:
        call_back(callback, error, own)


def _tell_committed(session: Session, partitions: list[TopicPartition]) -> None:
    """Tell interceptors which of the offsets were committed."""
    done = [partition for partition in partitions if partition.offset >= 0 and partition.error is None]
    if done:
        session.committed(done)


def _tell_operation(
    session: Session, partitions: list[TopicPartition], error: KafkaError | None, began_ns: int, ended_ns: int
) -> None:
    """Tell interceptors of a commit, unless there was nothing to commit."""
    if error is not None and error.code() == NO_OFFSET:
        return
    offsets = [partition for partition in partitions if partition.offset >= 0]
    failure = error or next((partition.error for partition in offsets if partition.error is not None), None)
    if offsets or failure is not None:
        session.operation(
            Operation(
                name="commit",
                began_ns=began_ns,
                ended_ns=ended_ns,
                offsets=offsets,
                error=None if failure is None else KafkaException(failure),
            )
        )
