"""The interceptor ``expire``: write a lifetime on send, drop expired records on consume (spec/expires.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, get_args

import msgspec

from headerware.core.batch import header_names
from headerware.core.errors import ConfigError, ExpiredError, InterceptorError, WireFormatError
from headerware.core.hooks import DROP, HookResult, Interceptor, Place, Role
from headerware.core.native import NativeForm, NativeState
from headerware.interceptors.times.moments import (
    EXPIRES_HEADER,
    Milliseconds,
    SendRule,
    check_rules,
    decode_moment,
    moment_of,
    require_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.headers import Headers
    from headerware.core.record import Record
    from headerware.core.services import Direction

_Expired = Literal["drop", "refuse"]
_Malformed = Literal["keep", "refuse"]
_MAX_SKEW_MS: Final = 3_600_000


class Expire(Interceptor, frozen=True, kw_only=True):
    """Give records a lifetime on send, and take expired records out of the stream on consume.

    The lifetime is the header ``hw.expires``, the last moment at which a record is worth reading. An
    application may set the header itself (:func:`expires_header`); then this step does not change it.
    Consumed records keep the header, so a forwarded record keeps its lifetime. A message in slices has one
    lifetime, and expires as a message. Tombstones get no lifetime and never expire.

    On consume an expired record is dropped before the steps to the left decode it. A consumer that builds
    a table by key keeps the previous value of that key.

    Without ``sign`` to its right, anybody who can write to a topic can choose lifetimes.

    Args:
        after_ms: how long after sending a record expires, in milliseconds by the local clock. None writes no
            lifetime.
        after_ms_by_topic: the same, by patterns of topics, such as ``{"clicks-*": 60_000}``; the first
            pattern that matches counts, and ``after_ms`` if none does.
        clock_skew_ms: how long after its expiry time a record is still delivered, in milliseconds, because
            clocks differ; an hour at most.
        expired: ``drop`` drops and counts expired records; ``refuse`` raises ExpiredError, which ``on_error``
            handles, for example with ``dead_letter``.
        malformed: what happens on consume to a record whose lifetime cannot be read: ``keep`` counts and
            delivers it, ``refuse`` raises.

    Raises:
        ConfigError: a pattern is invalid or begins with ``!``, an option has an unknown value, or a number is
            out of range.
    """

    type: ClassVar[str] = "expire"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.EXPIRE

    after_ms: Milliseconds | None = None
    after_ms_by_topic: dict[str, Milliseconds] = msgspec.field(default_factory=dict)
    clock_skew_ms: Annotated[int, msgspec.Meta(ge=0, le=_MAX_SKEW_MS)] = 5_000
    expired: _Expired = "drop"
    malformed: _Malformed = "keep"

    def __post_init__(self) -> None:
        """Refuse options that are not valid."""
        if self.expired not in get_args(_Expired):  # msgspec does not check options from code
            raise ConfigError(f"expected drop or refuse, found {self.expired!r}", path="expired")
        if self.malformed not in get_args(_Malformed):
            raise ConfigError(f"expected keep or refuse, found {self.malformed!r}", path="malformed")
        check_rules(self.after_ms, self.after_ms_by_topic)
        require_ms(self.clock_skew_ms, "clock_skew_ms", most=_MAX_SKEW_MS)

    def open(self, context: Context) -> ExpireStep:
        """Return the hooks of one session."""
        return ExpireStep(self, context)


class ExpireStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller."""

    __slots__ = ("_expired", "_malformed", "_now_ms", "_options", "_rule", "on_send", "on_send_batch")

    def __init__(self, options: Expire, context: Context) -> None:
        self._options = options
        self._now_ms = context.now_ms
        self._rule = SendRule(EXPIRES_HEADER, options.after_ms, options.after_ms_by_topic, context.now_ms)
        # Bound here, to save a call for each record.
        self.on_send: Callable[[Record], Record] = self._rule.on_send
        self.on_send_batch: Callable[[Batch], Batch] = self._rule.on_send_batch
        self._expired = self._malformed = 0

    def on_consume(self, record: Record) -> HookResult:
        """Drop or refuse an expired record; return any other as it is."""
        try:
            expires_ms = moment_of(record, EXPIRES_HEADER)
        except WireFormatError as error:
            self._malformed += 1
            if self._options.malformed == "refuse":
                raise InterceptorError(str(error)) from error
            return record
        if expires_ms is None or record.value is None:
            return record
        late_ms = self._now_ms() - expires_ms
        if late_ms <= self._options.clock_skew_ms:
            return record
        self._expired += 1
        if self._options.expired == "drop":
            return DROP
        raise ExpiredError(
            f"expected an expiry time at most {self._options.clock_skew_ms} ms ago (clock_skew_ms), "
            f"found {late_ms} ms"
        )

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Leave the records that may have expired to :meth:`on_consume`."""
        if EXPIRES_HEADER not in header_names(batch.headers):
            return batch
        since_ms = self._now_ms() - self._options.clock_skew_ms
        left = [at for at, headers in enumerate(batch.headers) if not _lives(headers, since_ms)]
        return batch.replace(not_taken=left) if left else batch

    def native_form(self, direction: Direction, topic: str) -> NativeForm:
        """Return the native form of a batch hook."""
        made_of = self._rule.after_ms(topic), self._options.clock_skew_ms

        def note(_batch: Batch, _not_taken: Sequence[int], written: int) -> None:
            self._rule.written += written

        state = NativeState("unexpired", made_of, lambda: made_of, lambda: (self._now_ms(),))
        if direction == "send":
            state = state._replace(step="expire", note=note)
        return NativeForm(lambda _batch: state)

    def overhead_bytes(self, record: Record) -> int:  # noqa: ARG002 - the same for each
        """Return an upper bound of the bytes that a lifetime adds to a record on the wire."""
        return self._rule.overhead_bytes()

    def stats(self) -> dict[str, int]:
        """Return the counts of lifetimes written, of expired records, and of unreadable lifetimes."""
        return {"written": self._rule.written, "expired": self._expired, "malformed": self._malformed}


def _lives(headers: Headers, since_ms: int) -> bool:
    """Return whether there is no lifetime, or one that has not ended before a time."""
    found = [value for name, value in headers if name == EXPIRES_HEADER]
    try:
        return len(found) < 2 and all(decode_moment(value, EXPIRES_HEADER) >= since_ms for value in found)
    except WireFormatError:
        return False
