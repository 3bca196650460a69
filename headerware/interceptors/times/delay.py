"""The interceptor ``delay``: hold records back until their not-before time (spec/expires.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, get_args

import msgspec

from headerware.core.errors import ConfigError, DelayedError, InterceptorError, WireFormatError
from headerware.core.hooks import Interceptor, Place, Role
from headerware.interceptors.times.moments import (
    NOT_BEFORE_HEADER,
    Milliseconds,
    SendRule,
    check_rules,
    moment_of,
    require_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.record import Record

_BeyondMax = Literal["refuse", "pass"]
_Malformed = Literal["keep", "refuse"]
_MAX_DELAY_MS: Final = 30 * 86_400_000


class Delay(Interceptor, frozen=True, kw_only=True):
    """Write the time before which a record must not be read, and hold the record back until then.

    The not-before time is the header ``hw.not-before``. An application may set the header itself
    (:func:`not_before_header`); then this step does not change it. Consumed records keep the header.

    A consumer that reads a record too early pauses the partition, and continues with the others. The
    order within a partition is kept, so all later records of the partition wait, too; give delayed records a
    topic of their own. Offsets are not committed past a record that waits. Share consumers and Spark cannot
    wait, and refuse a chain with this step.

    Args:
        after_ms: how long after sending a record may be read, in milliseconds by the local clock. None writes
            no header.
        after_ms_by_topic: the same, by patterns of topics; the first pattern that matches counts, and
            ``after_ms`` if none does.
        max_delay_ms: the longest delay, in milliseconds, counted from the record's timestamp or from now,
            whichever is earlier. It limits how long a forged header can block a partition. 30 days at most.
        beyond_max: what happens on consume to a record that would wait for longer: ``refuse`` raises, and
            ``on_error`` decides; ``pass`` delivers it at once.
        malformed: what happens on consume to a record whose not-before time cannot be read: ``keep`` counts
            and delivers it at once, ``refuse`` raises.

    Raises:
        ConfigError: a pattern is invalid or begins with ``!``, an option has an unknown value, a number is
            out of range, or a delay on send is above ``max_delay_ms``; on opening, the client cannot wait.
    """

    type: ClassVar[str] = "delay"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.EXPIRE
    delays: ClassVar[bool] = True

    after_ms: Milliseconds | None = None
    after_ms_by_topic: dict[str, Milliseconds] = msgspec.field(default_factory=dict)
    max_delay_ms: Annotated[int, msgspec.Meta(ge=1, le=_MAX_DELAY_MS)] = 3_600_000
    beyond_max: _BeyondMax = "refuse"
    malformed: _Malformed = "keep"

    def __post_init__(self) -> None:
        """Refuse options that are not valid."""
        if self.beyond_max not in get_args(_BeyondMax):  # options from code are not checked before
            raise ConfigError(f"expected refuse or pass, found {self.beyond_max!r}", path="beyond_max")
        if self.malformed not in get_args(_Malformed):
            raise ConfigError(f"expected keep or refuse, found {self.malformed!r}", path="malformed")
        check_rules(self.after_ms, self.after_ms_by_topic)
        require_ms(self.max_delay_ms, "max_delay_ms", least=1, most=_MAX_DELAY_MS)
        longest_ms = max([self.after_ms or 0, *self.after_ms_by_topic.values()])
        if longest_ms > self.max_delay_ms:
            raise ConfigError(
                f"expected at least {longest_ms}, the longest delay on send, found {self.max_delay_ms}; a "
                "consumer with this chain would refuse such records",
                path="max_delay_ms",
            )

    def open(self, context: Context) -> DelayStep:
        """Return the hooks of one session.

        Raises:
            ConfigError: the session belongs to a share consumer or to Spark, which cannot wait.
        """
        if context.cannot_wait is not None:
            raise ConfigError(
                f"delay holds records back, and {context.cannot_wait}; take the step out of this chain, and "
                "use a Consumer or an AsyncConsumer for such topics"
            )
        return DelayStep(self, context)


class DelayStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller."""

    __slots__ = (
        "_beyond_max",
        "_delayed",
        "_is_dry_run",
        "_malformed",
        "_now_ms",
        "_options",
        "_rule",
        "on_send",
    )

    def __init__(self, options: Delay, context: Context) -> None:
        self._options = options
        self._now_ms = context.now_ms
        self._is_dry_run = context.dry_run
        self._rule = SendRule(NOT_BEFORE_HEADER, options.after_ms, options.after_ms_by_topic, context.now_ms)
        # Bound here, to save a call for each record.
        self.on_send: Callable[[Record], Record] = self._rule.on_send
        self._delayed = self._malformed = self._beyond_max = 0

    def on_consume(self, record: Record) -> Record:
        """Return a record that may be read now; raise a DelayedError until then."""
        try:
            not_before_ms = moment_of(record, NOT_BEFORE_HEADER)
        except WireFormatError as error:
            self._malformed += 1
            if self._options.malformed == "refuse":
                raise InterceptorError(str(error)) from error
            return record
        if not_before_ms is None:
            return record
        now_ms = self._now_ms()
        if not_before_ms <= now_ms:
            return record
        # Counting from now alone would let a sequence of records block the partition one after another.
        start_ms = now_ms if record.timestamp_ms is None else min(now_ms, record.timestamp_ms)
        delay_ms = not_before_ms - start_ms
        if delay_ms > self._options.max_delay_ms:
            self._beyond_max += 1
            if self._options.beyond_max == "pass":
                return record
            raise InterceptorError(
                f"expected a delay of at most {self._options.max_delay_ms} ms from now and from the record's "
                f"timestamp (max_delay_ms), found {delay_ms} ms"
            )
        self._delayed += 1
        if self._is_dry_run:
            return record
        raise DelayedError(f"it may be read in {not_before_ms - now_ms} ms", until_ms=not_before_ms)

    def overhead_bytes(self, record: Record) -> int:  # noqa: ARG002 - the same for each
        """Return an upper bound of the bytes that a not-before time adds to a record on the wire."""
        return self._rule.overhead_bytes()

    def stats(self) -> dict[str, int]:
        """Return how many records got a not-before time, and what consuming found.

        ``delayed`` counts how often a record was held back: a record that is offered again too early counts
        again. ``beyond_max`` and ``malformed`` count the records that were refused, and those that were
        delivered because ``beyond_max`` is ``pass`` or ``malformed`` is ``keep``.
        """
        return {
            "written": self._rule.written,
            "delayed": self._delayed,
            "beyond_max": self._beyond_max,
            "malformed": self._malformed,
        }
