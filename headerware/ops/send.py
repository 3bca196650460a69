"""Send the lines of a stream, or all of it as one record, through a client with a chain.

A line is read when the one before is queued, and the client's queue is bounded, so memory does not grow with
the stream. A failed record does not affect the others.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
from confluent_kafka import KafkaException

from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.clients.producer import Producer

MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
"""The longest message of `slice`, and so the longest line."""
_KEPT_FAILURES: Final = 1_000
_POLL_S: Final = 0.05


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What the records of a stream are made of."""

    topic: str
    key: bytes | None = None
    key_separator: bytes | None = None
    headers: Headers = EMPTY
    partition: int | None = None
    empty_is_null: bool = False

    def record(self, text: bytes) -> Record:
        """Return the record of a line or of a whole stream.

        Raises:
            ConfigError: the text has no key separator.
        """
        key, value = self.key, text
        if self.key_separator is not None:
            key, found, value = text.partition(self.key_separator)
            if not found:
                raise ConfigError("expected a key, the key separator and a value; found no separator")
        wire = None if self.empty_is_null and not value else value
        return Record(self.topic, wire, key, self.headers, self.partition)


def read_records(
    stream: BinaryIO, form: Form, *, whole: bool = False
) -> Iterator[tuple[int, Record | ConfigError]]:
    """Yield the number of each line, from 1, with its record or what is wrong with it; skip empty lines."""
    if whole:
        text = stream.read(MAX_RECORD_BYTES + 1)
        yield 1, _made(form, text)
        return
    number = 0
    while line := stream.readline(MAX_RECORD_BYTES + 2):
        number += 1
        yield from [] if line == b"\n" else [(number, _made(form, line.removesuffix(b"\n")))]
        while not line.endswith(b"\n") and (line := stream.readline(MAX_RECORD_BYTES)):
            pass  # the rest of a line that is too long


def _made(form: Form, text: bytes) -> Record | ConfigError:
    if len(text) > MAX_RECORD_BYTES:
        return ConfigError(f"expected {MAX_RECORD_BYTES:,} bytes at most")
    try:
        return form.record(text)
    except ConfigError as error:
        return error


class Failure(msgspec.Struct, frozen=True):
    """A record that was not delivered: the number of its line, and why."""

    record: int
    error: str


class Sending:
    """Send records and count their delivery reports; for one caller at a time.

    Args:
        producer: the client, whose reports a thread takes while the caller waits for the next line.
        on_failure: called for each record that was not delivered, perhaps on that thread.
    """

    def __init__(self, producer: Producer, on_failure: Callable[[Failure], object]) -> None:
        self._producer = producer
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="headerware-send", daemon=True)
        self._poller.start()
        self.read: int = 0
        """How many records there were."""
        self.delivered: int = 0
        """How many of them were delivered."""
        self.failed: int = 0
        """How many were not."""
        self.failures: list[Failure] = []
        """The first of those that were not."""

    @property
    def unknown(self) -> int:
        """How many records have no report."""
        return self.read - self.delivered - self.failed

    def send(self, number: int, record: Record | ConfigError) -> None:
        """Queue a record; wait while the client's queue is full."""
        self.read += 1
        if isinstance(record, ConfigError):
            self._fail(number, str(record))
            return
        report = partial(self._report, number)
        while True:
            was_empty = len(self._producer) == 0
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    on_delivery=report,
                    headers=record.headers,
                )
            except BufferError as error:
                if was_empty:  # the record is too large for an empty queue, too
                    self._fail(number, str(error))
                    return
                self._producer.poll(_POLL_S)
            except (HeaderwareError, KafkaException, TypeError) as error:
                self._fail(number, _text_of(error))
                return
            else:
                return

    def finish(self) -> None:
        """Wait for the reports of all records, for as long as the client tries to deliver them."""
        self._finished.set()
        self._poller.join()
        self._producer.flush()

    def _poll(self) -> None:
        while not self._finished.is_set():
            self._producer.poll(_POLL_S)

    def _report(self, number: int, error: Any, _: object) -> None:
        if error is not None:
            self._fail(number, error.str())
            return
        with self._lock:
            self.delivered += 1

    def _fail(self, number: int, error: str) -> None:
        failure = Failure(number, error)
        with self._lock:
            self.failed += 1
            if self.failed <= _KEPT_FAILURES:
                self.failures.append(failure)
        self._on_failure(failure)


def _text_of(error: Exception) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else str(error)
