"""Send the lines of a stream, or all of it as one record, through a client with a chain.

A line is read when the one before is queued, and the client's queue is bounded, so memory does not grow with
the stream. A failed record does not affect the others.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import msgspec
from confluent_kafka import KafkaError, KafkaException

from headerware.clients.deliveries import too_large
from headerware.core.boundary import to_wire
from headerware.core.chain import Chain
from headerware.core.errors import ConfigError, HeaderwareError, RecordError, SerdeError
from headerware.core.headers import EMPTY, Headers
from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.core.record import Record
from headerware.kafka.errors import right_to_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.clients.producer import Producer
    from headerware.core.services import Direction

MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
"""The longest message of `slice`, and so the longest line."""
Format = Literal["bytes", "text", "json"]
"""How bytes become a key or a value: unchanged, as text, or as the value that JSON stands for."""
_FORMATS: Final = (
    "; --value-format json gives the chain the object that a line of JSON stands for, --value-format text "
    "the line as text (--key-format is the same for keys)"
)
"""Advice for a line that the chain's serializer refuses."""
_BYTES: Final = "; --value-format bytes, the default, sends a line as it is"
"""Advice for an object that nothing serializes."""
_KEPT_FAILURES: Final = 1_000
_POLL_S: Final = 0.05


class RecordTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that the records of a stream share, and how a line becomes a key and a value."""

    topic: str
    key: Any = None
    key_separator: bytes | None = None
    key_format: Format = "bytes"
    """The format of the keys before the separator."""
    value_format: Format = "bytes"
    headers: Headers = EMPTY
    partition: int | None = None
    empty_is_null: bool = False

    def record(self, text: bytes) -> Record:
        """Return the record of a line or of a whole stream.

        Raises:
            ConfigError: the text has no key separator, or a part does not have its format.
        """
        key, value = self.key, text
        if self.key_separator is not None:
            before, found, value = text.partition(self.key_separator)
            if not found:
                raise ConfigError("expected a key, the key separator and a value; found no separator")
            key = read_as(self.key_format, before, "key")
        is_null = self.empty_is_null and not value
        sent_value = None if is_null else read_as(self.value_format, value, "value")
        return Record(self.topic, sent_value, key, self.headers, self.partition)


def read_as(given: Format, text: bytes, part: str) -> Any:
    """Return a key or a value in a format.

    Raises:
        ConfigError: the text does not have this format.
    """
    if given == "bytes":
        return text
    try:
        return text.decode() if given == "text" else msgspec.json.decode(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"expected a {part} in UTF-8, found other bytes at byte {error.start}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"expected a {part} in JSON: {error}") from None


def read_records(
    stream: BinaryIO, template: RecordTemplate, *, as_one_record: bool = False
) -> Iterator[tuple[int, Record | ConfigError]]:
    """Yield the number of each line, from 1, with its record or what is wrong with it; skip empty lines."""
    if as_one_record:
        text = stream.read(MAX_RECORD_BYTES + 1)
        if text or template.empty_is_null:
            yield 1, _record_or_error(template, text)
        return
    number = 0
    while line := stream.readline(MAX_RECORD_BYTES + 2):
        number += 1
        if line != b"\n":
            yield number, _record_or_error(template, line.removesuffix(b"\n"))
        while not line.endswith(b"\n") and (line := stream.readline(MAX_RECORD_BYTES)):
            pass  # the rest of a line that is too long


def _record_or_error(template: RecordTemplate, text: bytes) -> Record | ConfigError:
    if len(text) > MAX_RECORD_BYTES:
        return ConfigError(f"expected {MAX_RECORD_BYTES:,} bytes at most")
    try:
        return template.record(text)
    except ConfigError as error:
        return error


class Failure(msgspec.Struct, frozen=True):
    """A record that was not delivered: the number of its line, and why."""

    record: int
    error: str


class DeadLettersOfLines:
    """Hears in a producer's chain why a line became a dead letter; the delivery report says only that it did.

    Args:
        chain: the chain, to which :meth:`heard_in` adds this.
    """

    name = "headerware send"

    def __init__(self, chain: Chain) -> None:
        self._topics: Final = {
            name: getattr(step, "dead_letter_topic", "")
            for name, step in zip(chain.names, chain, strict=True)
        }
        # Only header_ids must come after a step like this.
        at = next((at for at, step in enumerate(chain) if place_of(step) is Place.HEADER_IDS), len(chain))
        steps = (*chain.interceptors[:at], self, *chain.interceptors[at:])
        self.chain: Final = chain.with_interceptors(steps) if chain else chain
        """The chain with this in it; an empty chain as it is."""
        self.line: int = 0
        """The number of the line that is sent now."""
        self.reasons: Final[dict[int, str]] = {}
        """Why lines became dead letters, and where these are, by their numbers."""

    def on_commit(self, offsets: object) -> None:
        """Do nothing; a producer's chain does not call this, but every interceptor has a hook."""

    def on_stopped(
        self, direction: Direction, record: Record, step: str, outcome: str, error: BaseException | None
    ) -> None:
        """Note the reason of a dead letter."""
        if direction == "send" and outcome == "dead_lettered":
            topic = self._topics[step].replace("{topic}", record.topic)
            self.reasons[self.line] = f"{error}{_advice(error, record.value)}; it is in {topic}"


class LineSender:
    """Send records and count their delivery reports; for one caller at a time.

    Args:
        producer: the client; a thread polls it for delivery reports while the caller reads.
        dead_letters: hears in the producer's chain why lines became dead letters.
        on_failure: called for each record that was not delivered, perhaps by that thread. If it raises an
            error there, the next :meth:`send` or :meth:`finish` raises it.
    """

    def __init__(
        self,
        producer: Producer,
        on_failure: Callable[[Failure], object],
        dead_letters: DeadLettersOfLines | None = None,
    ) -> None:
        self._producer = producer
        self._dead_letters: Final = DeadLettersOfLines(Chain()) if dead_letters is None else dead_letters
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._poll_error: BaseException | None = None
        self.read: int = 0
        """Records so far."""
        self.delivered: int = 0
        """Delivered records."""
        self.failed: int = 0
        """Records that were not delivered."""
        self.failures: list[Failure] = []
        """The first 1,000 failures."""
        self._poller = threading.Thread(target=self._poll, name="headerware-send", daemon=True)
        self._poller.start()

    @property
    def unknown(self) -> int:
        """How many records have no report."""
        return self.read - self.delivered - self.failed

    def send(self, number: int, record: Record | ConfigError) -> None:
        """Queue a record; wait while the client's queue is full."""
        self._raise_poll_error()
        self.read += 1
        if isinstance(record, ConfigError):
            self._fail(number, str(record))
            return
        report = partial(self._report, number)
        self._dead_letters.line = number
        while True:
            was_empty = len(self._producer) == 0
            try:
                if not self._producer.chain:
                    record = to_wire(record)  # says what is wrong, where the raw client has a TypeError
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
                self._fail(number, f"{_text_of(error, record)}{_advice(error, record.value)}")
                return
            else:
                return

    def finish(self) -> None:
        """Wait for the reports of all records, for as long as the client tries to deliver them."""
        self._finished.set()
        self._poller.join()
        self._raise_poll_error()
        self._producer.flush()

    def _poll(self) -> None:
        try:
            while not self._finished.is_set():
                self._producer.poll(_POLL_S)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self._poll_error = error

    def _raise_poll_error(self) -> None:
        if self._poll_error is not None:
            raise self._poll_error

    def _report(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            why = f"{error.str()}{right_to_write(error, message.topic())}"
            self._fail(number, self._dead_letters.reasons.pop(number, why))
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


def _text_of(error: Exception, record: Record) -> str:
    if not isinstance(error, KafkaException):
        return str(error)
    known: KafkaError = error.args[0]
    if known.code() == KafkaError.MSG_SIZE_TOO_LARGE and repr(record.topic) not in known.str():
        known = too_large(record, "message.max.bytes, 1,000,000 unless -X message.max.bytes sets it", known)
    return str(known.str())


def _advice(error: BaseException | None, value: object) -> str:
    if isinstance(error, RecordError) and not isinstance(value, bytes | str):
        return _BYTES
    return _FORMATS if isinstance(error, SerdeError) and isinstance(value, bytes | str) else ""
