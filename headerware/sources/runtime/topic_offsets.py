"""Offsets in a compacted topic, in the transaction of the records themselves or in one of their own."""

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
"""How long the brokers hold back the answer that there is nothing more; half a second by default."""
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
                writer: opened.enter_context(closing(_Writer(kafka, writer, options.topic)))
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
        self._writers[chosen].put(self.records(entries))
        self.committed(entries)

    def records(self, entries: Mapping[OffsetKey, OffsetEntry | None]) -> list[Record]:
        """Return the records that keep entries; None removes one."""
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
        """Return all entries of the source."""
        return of_objects(sorted(self._entries.items()))

    def signs(self) -> list[Sign]:
        """Return when each task was at work last."""
        return signs_in(sorted(self._entries.items()))

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        self._opened.close()


class _Writer:
    """The only process that writes under its name: it has ended what an earlier one was about to write."""

    def __init__(self, kafka: Mapping[str, Any], name: str, topic: str) -> None:
        self._name: Final = name
        self._topic: Final = topic
        self._lock: Final = Lock()
        settings = {**kafka, "log_level": 0}
        with self._errors("no transactions for the offsets"):
            self._sender: Final = TransactionalSender(
                settings, transactional_id(name), what=f"source task {name}"
            )

    def put(self, records: Sequence[Record]) -> None:
        """Write in one transaction."""
        with self._lock, self._errors(f"the offsets were not written to topic {self._topic!r}"):
            for error in self._sender.send(records).values():
                raise KafkaException(error)

    def close(self) -> None:
        """Disconnect."""
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
    """Return the error of a task whose transactional id another process has."""
    return OtherWriterError(
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
