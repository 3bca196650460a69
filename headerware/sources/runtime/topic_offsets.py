"""Offsets in a compacted topic, in the transaction of the records or in a separate transaction."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final

from confluent_kafka import KafkaException

from headerware.core.config import is_ours
from headerware.core.errors import RegistryError, SourceError
from headerware.core.record import Record
from headerware.kafka.admin import Admin, require_reachable
from headerware.kafka.settings import bootstrap_servers, number
from headerware.sources.offsets import OffsetEntry, OffsetKey
from headerware.sources.runtime.stores import (
    OffsetStore,
    OffsetsUnavailableError,
    OtherWriterError,
    Sign,
    of_objects,
    signs_in,
)
from headerware.topic_table import Rows, TopicTable
from headerware.workers.transactions import TakenOverError, TransactionalSender, Verdict, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_log: Final = logging.getLogger("headerware.sources")
_TIMEOUT_S: Final = 60.0
_FETCH_WAIT_MS: Final = 50
"""How long the brokers delay the answer that there are no more records; half a second by default."""
_PAUSE_S: Final = 0.05
TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
TRANSACTION_MS: Final = 60_000
"""How long a transaction may be open by default."""
_ABORT_S: Final = 30.0
"""How long the brokers may take to abort a transaction that was open for too long."""
_OURS: Final = "headerware."


class TopicOffsets(OffsetStore, frozen=True, kw_only=True):
    """Store offsets in a compacted topic with one partition, which several sources may share.

    Args:
        topic: the topic.
        create: whether to create the topic if it does not exist.
        replication_factor: the replication factor of a created topic; -1 for the brokers' default.
    """

    type: ClassVar[str] = "topic"
    transactional: ClassVar[bool] = True

    topic: str = "headerware-offsets"
    create: bool = True
    replication_factor: int = -1

    def open(
        self, kafka: Mapping[str, Any], *, source: str, writers: Sequence[str] = (), settled: bool = False
    ) -> _Topic:
        """Read the topic to its end, and keep the source's entries in memory, shared by all writers."""
        return _Topic(self, client_settings(kafka), source, writers, settled=settled)


class _Topic:
    """The offsets of one source: read from the topic once, then changed by each committed transaction."""

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
                writer: opened.enter_context(closing(_Writer(kafka, writer, options.topic)))
                for writer in writers
            }
            with _reading_errors(kafka):
                if not writers and not settled:
                    require_reachable(kafka, options.topic)  # a command that shows offsets does not wait
                self._entries: Final = _read(options, kafka, source, settled=settled)
            self._opened: Final = opened.pop_all()

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the entry of a key, or None."""
        found = self._entries.get(key.encoded)
        return None if found is None else OffsetEntry.from_bytes(found)

    def put(self, entries: Mapping[OffsetKey, OffsetEntry | None], writer: str | None = None) -> None:
        """Store entries in one transaction; None removes an entry."""
        if not self._writers:
            raise SourceError("these offsets were opened without writers, so they can only be read")
        chosen = next(iter(self._writers)) if writer is None else writer
        self._writers[chosen].put(self.records(entries))
        self.committed(entries)

    def records(self, entries: Mapping[OffsetKey, OffsetEntry | None]) -> list[Record]:
        """Return the records that store entries; None removes an entry."""
        return [
            Record(self._topic, None if entry is None else entry.to_bytes(), key.encoded, partition=0)
            for key, entry in entries.items()
        ]

    def committed(self, entries: Mapping[OffsetKey, OffsetEntry | None]) -> None:
        """Note that a transaction with these entries is committed."""
        for key, entry in entries.items():
            if entry is None:
                self._entries.pop(key.encoded, None)
            else:
                self._entries[key.encoded] = entry.to_bytes()

    def items(self) -> list[tuple[OffsetKey, OffsetEntry]]:
        """Return the entries of all objects of the source."""
        return of_objects(sorted(self._entries.items()))

    def signs(self) -> list[Sign]:
        """Return the last sign of each task."""
        return signs_in(sorted(self._entries.items()))

    def close(self) -> None:
        """Close the writers; a second call does nothing."""
        self._opened.close()


class _Writer:
    """A transactional producer; it ends the open transaction of an earlier process of the same name."""

    def __init__(self, kafka: Mapping[str, Any], name: str, topic: str) -> None:
        self._name: Final = name
        self._topic: Final = topic
        self._lock: Final = Lock()
        settings = {**kafka, "log_level": 0}
        with self._errors("transactions for the offsets are not possible"):
            self._sender: Final = TransactionalSender(
                settings, transactional_id(name), what=f"source task {name}"
            )

    def put(self, records: Sequence[Record]) -> None:
        """Write records in one transaction."""
        with self._lock, self._errors(f"the offsets were not written to topic {self._topic!r}"):
            for error in self._sender.send(records).values():
                raise KafkaException(error)

    def close(self) -> None:
        """Close the producer."""
        self._sender.close()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except TakenOverError as error:
            raise taken_over(self._name) from error
        except KafkaException as error:
            failure = error.args[0]
            passes = verdict_of(failure) is Verdict.AGAIN
            made = OffsetsUnavailableError if passes else SourceError
            raise made(f"{what}: {failure.str()}") from error


def taken_over(writer: str) -> OtherWriterError:
    """Return the error of a task whose transactional id another process has taken over."""
    return OtherWriterError(
        writer,
        f"another process has started as {writer!r}, or has reset its offsets, so this process "
        f"({os.getpid()}) is fenced and stops; run one process for each task, or give each source "
        "another name",
    )


def transactional_id(writer: str) -> str:
    """Return the transactional id under which a task writes; a later process ends an earlier one."""
    return f"headerware-source-{writer}"


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's settings without the settings of a chain and of a connector."""
    return {name: value for name, value in kafka.items() if not (is_ours(name) or name.startswith(_OURS))}


def read_sources(options: TopicOffsets, kafka: Mapping[str, Any]) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return the keys and values of all entries in the topic, by the name of their source.

    Raises:
        SourceError: the topic does not exist, or cannot be read.
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
            raise RegistryError(f"topic {options.topic!r} could not be read to its end in {_TIMEOUT_S:.0f} s")
        return {key: value for key, value in table.items() if _source_of(key) == source}


def _await_transactions(kafka: Mapping[str, Any], topic: str) -> bool:
    """Wait until the transactions that are open now have ended; return whether there were any.

    A consumer reads no record after the first record of an open transaction, not even records that others
    have committed since. The transaction of a killed process, for instance, is open until the process starts
    again or the brokers abort the transaction.
    """
    admin = Admin(kafka, timeout_s=_TIMEOUT_S)
    # A client that asks for offsets before it is connected asks again only after one to three seconds.
    admin.metadata(topic)
    end = admin.ends(topic, 1)[0]
    if admin.ends(topic, 1, isolation="read_committed")[0] >= end:
        return False
    wait_s = number(kafka, TRANSACTION_TIMEOUT, TRANSACTION_MS) / 1_000 + _ABORT_S
    deadline = time.monotonic() + wait_s
    _log.warning(
        "a transaction on topic %r is open; waiting at most %.0f s for its end, to read the offsets after it",
        topic,
        wait_s,
    )
    while admin.ends(topic, 1, isolation="read_committed")[0] < end:
        if time.monotonic() >= deadline:
            raise SourceError(
                f"a transaction on topic {topic!r} has been open for {wait_s:.0f} s, and the offsets after "
                "it cannot be read; find and abort the transaction with kafka-transactions"
            )
        time.sleep(_PAUSE_S)
    return True


def _source_of(key: bytes) -> str | None:
    """Return the name of the source in an entry's key, or None for a key of another writer."""
    try:
        source = OffsetKey.from_bytes(key).partition.get("source")
    except SourceError:
        return None
    return source if isinstance(source, str) else None
