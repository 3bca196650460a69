"""Moments as header values, and the rules by which a sender chooses them (spec/expires.md).

A value is the milliseconds since the epoch in at most 15 ASCII digits, without a sign or leading zeros, so
that every language and every person can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from headerware.core.batch import Repeated, header_names
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, InterceptorError, WireFormatError
from headerware.core.topics import TopicPatterns, check_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.core.batch import Batch
    from headerware.core.headers import HeaderValue
    from headerware.core.record import Record

EXPIRES_HEADER: Final = "hw.expires"
NOT_BEFORE_HEADER: Final = "hw.not-before"
_MAX_DIGITS: Final = 15
MAX_MOMENT_MS: Final = 10**_MAX_DIGITS - 1
_MAX_TOPICS: Final = 1024
_FRAMING_BYTES: Final = 10
"""The largest size of a header's two lengths in the record format."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_MOMENT_MS)]


def expires_header(at_ms: int) -> tuple[str, bytes]:
    """Return the header of a record that expires.

    Pass it with a record's other headers; the interceptor ``expire`` then does not change it.

    Args:
        at_ms: the last moment at which the record is worth reading, in milliseconds since the epoch.

    Raises:
        WireFormatError: ``at_ms`` is not a whole number in range.
    """
    return EXPIRES_HEADER, encode_moment(at_ms)


def not_before_header(at_ms: int) -> tuple[str, bytes]:
    """Return the header of a record that may not be read before a moment.

    Pass it with a record's other headers; the interceptor ``delay`` then does not change it.

    Args:
        at_ms: the first moment at which the record may be read, in milliseconds since the epoch.

    Raises:
        WireFormatError: ``at_ms`` is not a whole number in range.
    """
    return NOT_BEFORE_HEADER, encode_moment(at_ms)


def encode_moment(at_ms: int) -> bytes:
    """Return the header value of a moment."""
    if type(at_ms) is not int or not 0 <= at_ms <= MAX_MOMENT_MS:
        raise WireFormatError(
            f"expected a moment in whole milliseconds since the epoch, 0 to {MAX_MOMENT_MS}, found {at_ms!r}"
        )
    return b"%d" % at_ms


def decode_moment(value: HeaderValue, name: str) -> int:
    """Return the moment in a header value; refuse a value in another than the one valid form."""
    if (
        value is None
        or not 0 < len(value) <= _MAX_DIGITS
        or not value.isdigit()
        or (value[:1] == b"0" and len(value) > 1)
    ):
        found = "null" if value is None else f"{len(value)} bytes"
        raise WireFormatError(
            f"header {name!r}: expected the milliseconds since the epoch as 1 to {_MAX_DIGITS} digits "
            f"without leading zeros, found {found}"
        )
    return int(value)


def moment_of(record: Record, name: str) -> int | None:
    """Return the moment in a record's header, or None without such a header; refuse two such headers."""
    found: int | None = None
    for pair in record.headers:
        if pair[0] == name:
            if found is not None:
                raise WireFormatError(f"header {name!r} appears twice")
            found = decode_moment(pair[1], name)
    return found


class SendRule:
    """Write a moment into each sent record that has none, by its topic; safe for several threads.

    ``after_ms_by_topic`` has times by patterns of topics; the first pattern that matches counts.
    """

    __slots__ = ("_after", "_name", "_now_ms", "written")

    def __init__(
        self,
        name: str,
        after_ms: int | None,
        after_ms_by_topic: Mapping[str, int],
        now_ms: Callable[[], int],
    ) -> None:
        rules = [(TopicPatterns([pattern]), ms) for pattern, ms in after_ms_by_topic.items()]
        self._name = name
        self._now_ms = now_ms
        self._after: BoundedCache[str, int | None] = BoundedCache(
            _MAX_TOPICS,
            lambda topic: next((ms for patterns, ms in rules if patterns.matches(topic)), after_ms),
        )
        self.written: int = 0

    def on_send(self, record: Record) -> Record:
        """Return the record with a moment; refuse a record whose own moment is malformed."""
        try:
            given = moment_of(record, self._name)
        except WireFormatError as error:
            raise InterceptorError(str(error)) from error
        after_ms = self._after[record.topic]
        # A tombstone deletes a key. If the tombstone expired, the old value would be kept for ever.
        if given is not None or after_ms is None or record.value is None:
            return record
        self.written += 1
        value = encode_moment(min(self._now_ms() + after_ms, MAX_MOMENT_MS))
        return record.with_headers(record.headers.add(self._name, value))

    def on_send_batch(self, batch: Batch) -> Batch:
        """Write the same moment into all records, or leave them to :meth:`on_send`."""
        after_ms = self.after_ms(batch.topic)
        if self._name in header_names(batch.headers):
            return batch.leave()
        if after_ms is None:
            return batch
        if None in batch.values:
            return batch.leave()
        self.written += len(batch)
        value = encode_moment(min(self._now_ms() + after_ms, MAX_MOMENT_MS))
        return batch.append_header(self._name, Repeated(value, len(batch)))

    def after_ms(self, topic: str) -> int | None:
        """Return the time until the moment for a topic's records; None if they get none."""
        return self._after[topic]

    def overhead_bytes(self) -> int:
        """Return an upper bound of the bytes that a moment adds to a record on the wire."""
        return len(self._name) + _MAX_DIGITS + _FRAMING_BYTES


def require_ms(value: object, path: str, *, least: int = 0, most: int = MAX_MOMENT_MS) -> None:
    """Refuse an option out of range: msgspec checks only options from configuration, not those from code."""
    if not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"expected {least} to {most} milliseconds, found {value!r}", path=path)


def check_rules(after_ms: int | None, after_ms_by_topic: Mapping[str, int]) -> None:
    """Refuse times that are out of range, and patterns that are invalid or exclude topics."""
    if after_ms is not None:
        require_ms(after_ms, "after_ms")
    check_patterns(after_ms_by_topic, path="after_ms_by_topic")
    for pattern, ms in after_ms_by_topic.items():
        require_ms(ms, f"after_ms_by_topic.{pattern}")
        if pattern.startswith("!"):
            raise ConfigError(
                f"expected patterns of topics to include, found {pattern!r}, which excludes topics; the "
                f"first pattern that matches counts, so write exceptions first",
                path="after_ms_by_topic",
            )
