"""Offsets in a compacted topic, in the transaction of the records themselves or in one of their own."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final

from confluent_kafka import KafkaException, cimpl

from headerware.core.config import is_ours
from headerware.core.errors import RegistryError, SourceError
from headerware.kafka.admin import Admin, require_reachable
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.settings import bootstrap_servers, number
from headerware.sources.offsets import OffsetEntry, OffsetKey
from headerware.sources.runtime.stores import OffsetStore, Sign, TakenOverError, of_objects, signs_in
from headerware.topic_table import Rows, TopicTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_log: Final = logging.getLogger("headerware.sources")
_TIMEOUT_S: Final = 60.0
_FETCH_WAIT_MS: Final = 50
"""How long the brokers hold back the answer that there is nothing more; half a second by default."""
_ROOM_POLL_S: Final = 0.05
_PAUSE_S: Final = 0.05
TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
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
        self, kafka: Mapping[str, Any], *, source: str, writers: Sequence[str] = (), settled: bool = False
    ) -> _Topic:
        """Read the topic to its end, and keep what is of this source in memory, once for all writers."""
        return _Topic(self, client_settings(kafka), source, writers, settled=settled)


class _Topic:
    """The offsets of one source, as the topic had them when it was opened, and as they were kept since."""

    def __init__(
        self,
        options: TopicOffsets,
        kafka: Mapping[str, Any],
        source: str,
        writers: Sequence[str],
        *,
        settled: bool,
    ) -> None:
        self._topic: Final = options.topic
        with ExitStack() as opened:
            self._writers: Final = {
                writer: opened.enter_context(closing(_Writer(options.topic, kafka, writer)))
                for writer in writers
            }
            with _reading_errors(kafka):
                if not writers and not settled:
                    require_reachable(kafka, options.topic)  # a command that shows them does not wait
                self._entries: Final = _read(options, kafka, source, settled=settled)
            self._opened: Final = opened.pop_all()

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the entry of an object, or None."""
        found = self._entries.get(key.encoded)
        return None if found is None else OffsetEntry.from_bytes(found)

    def put(self, entries: Mapping[OffsetKey, OffsetEntry | None], writer: str | None = None) -> None:
        """Keep entries in one transaction; None removes one."""
        if not self._writers:
            raise SourceError("these offsets were opened to be read only")
        chosen = next(iter(self._writers)) if writer is None else writer
        kept = {key.encoded: None if entry is None else entry.to_bytes() for key, entry in entries.items()}
        self._writers[chosen].put(kept)
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

    def signs(self) -> list[Sign]:
        """Return when each task was at work last."""
        return signs_in(sorted(self._entries.items()))

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        self._opened.close()

    def _note(self, kept: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in kept:
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value


class _Writer:
    """The only one that writes under its name: it has ended what an earlier one was about to write."""

    def __init__(self, topic: str, kafka: Mapping[str, Any], writer: str) -> None:
        self._topic: Final = topic
        self._name: Final = writer
        self._lock: Final = Lock()
        self._is_fenced = False
        settings = {**kafka, "transactional.id": transactional_id(writer), "log_level": 0}
        try:
            self._producer: Final[Any] = cimpl.Producer(settings)
            self._producer.init_transactions(_TIMEOUT_S)
        except KafkaException as error:
            raise self._failed("no transactions for the offsets", error) from error

    def put(self, kept: Mapping[bytes, bytes | None]) -> None:
        """Write in one transaction."""
        with self._lock:
            try:
                self._producer.begin_transaction()
                for key, value in kept.items():
                    self._produce(key, value)
                self._producer.commit_transaction(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    self._producer.abort_transaction(_TIMEOUT_S)
                what = f"the offsets were not written to topic {self._topic!r}"
                raise self._failed(what, error) from error

    def close(self) -> None:
        """Disconnect."""
        # One that is fenced would try to abort, and warn that it cannot; it goes with its last reference.
        if not self._is_fenced:
            self._producer.close()

    def _produce(self, key: bytes, value: bytes | None) -> None:
        """Queue a record, when there is room for it."""
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition=0)
            except BufferError:
                self._producer.poll(_ROOM_POLL_S)
            else:
                return

    def _failed(self, what: str, error: KafkaException) -> SourceError:
        self._is_fenced = kind_of(error) is Kind.FENCED
        return taken_over(self._name) if self._is_fenced else SourceError(f"{what}: {error.args[0].str()}")


def taken_over(writer: str) -> TakenOverError:
    """Return the error of one that was fenced."""
    return TakenOverError(
        writer,
        f"another process has started as {writer!r}, or has reset its offsets, and this one ({os.getpid()}) "
        "is fenced and stops; run one process for each task, or give the sources names of their own",
    )


def transactional_id(writer: str) -> str:
    """Return the transactional id under which a task writes offsets; a later process ends an earlier one."""
    return f"headerware-source-{writer}"


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's settings without the lines of a chain and of a connector."""
    return {name: value for name, value in kafka.items() if not (is_ours(name) or name.startswith(_OURS))}


def read_sources(options: TopicOffsets, kafka: Mapping[str, Any]) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return what the topic has of each source that stores offsets there, by its name.

    Raises:
        SourceError: the topic is not there, or cannot be read.
    """
    settings = client_settings(kafka)
    with _reading_errors(settings):
        require_reachable(settings, options.topic)
        with TopicTable(
            {"fetch.wait.max.ms": _FETCH_WAIT_MS, **settings}, options.topic, rows=Rows, create=False
        ) as table:
            table.refresh(_TIMEOUT_S)
            found: dict[str, list[tuple[bytes, bytes]]] = {}
            for key, value in sorted(table.items()):
                source = _source_of(key)
                if source is not None:
                    found.setdefault(source, []).append((key, value))
    return dict(sorted(found.items()))


@contextmanager
def _reading_errors(kafka: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except RegistryError as error:
        raise SourceError(f"the offsets cannot be read from {bootstrap_servers(kafka)}: {error}") from error
    except KafkaException as error:
        raise SourceError(f"the offsets cannot be read: {error.args[0].str()}") from error


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
        return {key: value for key, value in table.items() if _source_of(key) == source}


def _await_transactions(kafka: Mapping[str, Any], topic: str) -> bool:
    """Wait for the end of transactions that are open now; return whether there were any.

    Nothing is read behind the first record of an open transaction, not even what others have committed since:
    those of a process that was killed, for instance, which are open until it is back or they are aborted.
    """
    admin = Admin(kafka, timeout_s=_TIMEOUT_S)
    # One that asks for offsets before it is connected asks again a second later, or three.
    admin.metadata(topic)
    end = admin.ends(topic, 1)[0]
    if admin.ends(topic, 1, isolation="read_committed")[0] >= end:
        return False
    wait_s = number(kafka, TRANSACTION_TIMEOUT, TRANSACTION_MS) / 1_000 + _ABORT_S
    deadline = time.monotonic() + wait_s
    _log.warning(
        "a transaction on topic %r is open; waiting for its end, for %.0f s at most, to read behind it",
        topic,
        wait_s,
    )
    while admin.ends(topic, 1, isolation="read_committed")[0] < end:
        if time.monotonic() >= deadline:
            raise SourceError(
                f"a transaction on topic {topic!r} has been open for {wait_s:.0f} s, and offsets behind it "
                "cannot be read; find and abort it with kafka-transactions"
            )
        time.sleep(_PAUSE_S)
    return True


def _source_of(key: bytes) -> str | None:
    """Return the source that a row is an offset of, or None: others may write to the topic, too."""
    try:
        source = OffsetKey.from_bytes(key).partition.get("source")
    except SourceError:
        return None
    return source if isinstance(source, str) else None
