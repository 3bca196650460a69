"""Offsets in a compacted topic, in the transaction of the records themselves or in one of their own."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition, cimpl
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its stub

from headerware.clients.settings import connection_settings, number
from headerware.core.config import is_ours
from headerware.core.errors import RegistryError, SourceError
from headerware.sources.offsets import OffsetEntry, OffsetKey
from headerware.sources.runtime.stores import OffsetStore, of_objects
from headerware.topic_table import Rows, TopicTable

if TYPE_CHECKING:
    from collections.abc import Iterable

_log: Final = logging.getLogger("headerware.sources")
_TIMEOUT_S: Final = 60.0
_FETCH_WAIT_MS: Final = 50
"""How long the brokers hold back the answer that there is nothing more; half a second by default."""
_ROOM_POLL_S: Final = 0.05
_PAUSE_S: Final = 0.05
TRANSACTION_MS: Final = 60_000
"""How long a transaction may be open, if no setting says otherwise."""
_ABORT_S: Final = 30.0
"""How long it may take the brokers to abort a transaction that was open for too long."""
_OURS: Final = "headerware."


class TopicOffsets(OffsetStore, frozen=True, kw_only=True):
    """Keep offsets in a compacted topic with one partition, which several sources may share.

    Args:
        topic: the topic.
        create: whether to create the topic if it is not there.
        replication_factor: of a created topic; -1 leaves it to the brokers.
    """

    type: ClassVar[str] = "topic"
    transactional: ClassVar[bool] = True

    topic: str = "headerware-offsets"
    create: bool = True
    replication_factor: int = -1

    def open(
        self, kafka: Mapping[str, Any], *, source: str, writer: str | None, settled: bool = False
    ) -> _Topic:
        """Read the topic to its end, and keep what is of this source."""
        return _Topic(self, client_settings(kafka), source, writer, settled=settled)


class _Topic:
    """The offsets of one source, as the topic had them when it was opened, and as they were kept since."""

    def __init__(
        self,
        options: TopicOffsets,
        kafka: Mapping[str, Any],
        source: str,
        writer: str | None,
        *,
        settled: bool,
    ) -> None:
        self._topic: Final = options.topic
        self._kafka: Final = kafka
        self._writer: Final = writer
        self._lock = Lock()
        self._producer: Any = None
        if writer is not None:
            self._producer = _fencing(kafka, writer)
        try:
            self._entries = _read(options, kafka, source, settled=settled)
        except RegistryError as error:
            self.close()
            servers = kafka.get("bootstrap.servers") or kafka.get("metadata.broker.list")
            raise SourceError(f"the offsets cannot be read from {servers}: {error}") from error

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the entry of an object, or None."""
        found = self._entries.get(key.encoded)
        return None if found is None else OffsetEntry.from_bytes(found)

    def put(self, entries: Mapping[OffsetKey, OffsetEntry | None]) -> None:
        """Keep entries in one transaction; None removes one."""
        if self._producer is None:
            raise SourceError("these offsets were opened to be read only")
        kept = {key.encoded: None if entry is None else entry.to_bytes() for key, entry in entries.items()}
        with self._lock:
            try:
                self._producer.begin_transaction()
                for key, value in kept.items():
                    self._produce(key, value)
                self._producer.commit_transaction(_TIMEOUT_S)
            except KafkaException as error:
                failure = error.args[0]
                if failure.txn_requires_abort():
                    self._producer.abort_transaction(_TIMEOUT_S)
                raise SourceError(
                    f"the offsets were not written to topic {self._topic!r}: {failure.str()}"
                ) from error
        self._note(kept.items())

    def records(self, entries: Mapping[OffsetKey, OffsetEntry]) -> list[tuple[str, bytes, bytes]]:
        """Return the topic, the key and the value of each record that keeps an entry."""
        return [(self._topic, key.encoded, entry.to_bytes()) for key, entry in entries.items()]

    def committed(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Note that a transaction with these entries is committed."""
        self._note((key.encoded, entry.to_bytes()) for key, entry in entries.items())

    def items(self) -> list[tuple[OffsetKey, OffsetEntry]]:
        """Return all entries of the source."""
        return of_objects(sorted(self._entries.items()))

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _produce(self, key: bytes, value: bytes | None) -> None:
        """Queue a record, when there is room for it."""
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition=0)
            except BufferError:
                self._producer.poll(_ROOM_POLL_S)
            else:
                return

    def _note(self, kept: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in kept:
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value


def transactional_id(writer: str) -> str:
    """Return the transactional id under which a task writes offsets; a later process ends an earlier one."""
    return f"headerware-source-{writer}"


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's settings without the lines of a chain and of a connector."""
    return {name: value for name, value in kafka.items() if not (is_ours(name) or name.startswith(_OURS))}


def _read(
    options: TopicOffsets, kafka: Mapping[str, Any], source: str, *, settled: bool
) -> dict[bytes, bytes]:
    with TopicTable(
        {"fetch.wait.max.ms": _FETCH_WAIT_MS, **kafka},
        options.topic,
        rows=Rows,
        create=options.create,
        replication_factor=options.replication_factor,
    ) as table:
        table.refresh(_TIMEOUT_S)
        if settled and _await_transactions(kafka, options.topic) and not table.refresh(_TIMEOUT_S):
            raise RegistryError(f"the brokers do not show topic {options.topic!r} to its end")
        return {key: value for key, value in table.items() if _is_of(key, source)}


def _await_transactions(kafka: Mapping[str, Any], topic: str) -> bool:
    """Wait for the end of transactions that are open now; return whether there were any.

    Nothing is read behind the first record of an open transaction, not even what others have committed since:
    those of a process that was killed, for instance, which are open until it is back or they are aborted.
    """
    admin = AdminClient({**connection_settings(kafka), "log_level": 0})
    end = _end(admin, topic, IsolationLevel.READ_UNCOMMITTED)
    if _end(admin, topic, IsolationLevel.READ_COMMITTED) >= end:
        return False
    wait_s = number(kafka, "transaction.timeout.ms", TRANSACTION_MS) / 1_000 + _ABORT_S
    deadline = time.monotonic() + wait_s
    _log.warning(
        "a transaction on topic %r is open; waiting for its end, for %.0f s at most, to read behind it",
        topic,
        wait_s,
    )
    while _end(admin, topic, IsolationLevel.READ_COMMITTED) < end:
        if time.monotonic() >= deadline:
            raise SourceError(
                f"a transaction on topic {topic!r} has been open for {wait_s:.0f} s, and offsets behind it "
                "cannot be read; find and abort it with kafka-transactions"
            )
        time.sleep(_PAUSE_S)
    return True


def _end(admin: AdminClient, topic: str, isolation: IsolationLevel) -> int:
    latest: Any = OffsetSpec
    try:
        (asked,) = admin.list_offsets(
            {TopicPartition(topic, 0): latest.latest()}, isolation_level=isolation, request_timeout=_TIMEOUT_S
        ).values()
        return int(asked.result().offset)
    except KafkaException as error:
        raise SourceError(f"the offsets cannot be read: {error.args[0].str()}") from error


def _is_of(key: bytes, source: str) -> bool:
    """Return whether a row is an offset of a source; others may write to the topic, too."""
    try:
        return OffsetKey.from_bytes(key).partition.get("source") == source
    except SourceError:
        return False


def _fencing(kafka: Mapping[str, Any], writer: str) -> Any:
    """Return a producer that has ended what an earlier process of this name was about to write."""
    settings = {**kafka, "transactional.id": transactional_id(writer), "log_level": 0}
    try:
        producer = cimpl.Producer(settings)
        producer.init_transactions(_TIMEOUT_S)
    except KafkaException as error:
        raise SourceError(f"no transactions for the offsets: {error.args[0].str()}") from error
    return producer
