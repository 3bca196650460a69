"""The interceptor ``delay``: records that wait for their moment in their partition (spec/expires.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

import msgspec

from headerware.core.errors import ConfigError, DelayedError, InterceptorError, WireFormatError
from headerware.core.hooks import Interceptor, Place, Role
from headerware.interceptors.times.moments import (
    NOT_BEFORE_HEADER,
    Milliseconds,
    SendRule,
    check_rules,
    moment_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.record import Record

_BeyondMax = Literal["refuse", "pass"]
_Malformed = Literal["keep", "refuse"]
_DAY_MS = 86_400_000


class Delay(Interceptor, frozen=True, kw_only=True):
    """Give records a first moment on send, and hold them back until then on consume.

    The moment is the header ``hw.not-before``. An application may set it itself
    (:func:`not_before_header`); then nothing here changes it. The header stays on the record.

    A consumer that reads a record before its moment pauses the partition, and continues with the others. The
    order within a partition is kept, so all later records of the partition wait, too; give delayed records a
    topic of their own. Offsets are not committed past a record that waits. Share consumers and Spark cannot
    wait, and refuse a chain with this step.

    Args:
        after_ms: how long after sending a record may be read, in milliseconds by the clock here. None writes
            no moment.
        after_ms_by_topic: the same for topics by patterns; the first that fits counts, and ``after_ms`` if
            none does.
        max_delay_ms: how long a record may hold its partition, in milliseconds from now and from its own
            timestamp, whichever is earlier. So a forged moment holds nothing for ever.
        beyond_max: what happens on consume to a record that would wait for longer: ``refuse`` raises, and
            ``on_error`` decides; ``pass`` delivers it at once.
        malformed: what happens on consume to a record whose moment cannot be read: ``keep`` counts and
            delivers it at once, ``refuse`` raises.

    Raises:
        ConfigError: a pattern that matches no topic, an option that does not exist, or a delay on send above
            ``max_delay_ms``; on opening, a client that cannot wait.
    """

    type: ClassVar[str] = "delay"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.EXPIRE
    delays: ClassVar[bool] = True

    after_ms: Milliseconds | None = None
    after_ms_by_topic: dict[str, Milliseconds] = msgspec.field(default_factory=dict)
    max_delay_ms: Annotated[int, msgspec.Meta(ge=1, le=30 * _DAY_MS)] = 3_600_000
    beyond_max: _BeyondMax = "refuse"
    malformed: _Malformed = "keep"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.beyond_max not in get_args(_BeyondMax):  # in code it was not checked before
            raise ConfigError(f"refuse or pass, not {self.beyond_max!r}", path="beyond_max")
        if self.malformed not in get_args(_Malformed):
            raise ConfigError(f"keep or refuse, not {self.malformed!r}", path="malformed")
        check_rules(self.after_ms_by_topic)
        longest_ms = max([self.after_ms or 0, *self.after_ms_by_topic.values()])
        if longest_ms > self.max_delay_ms:
            raise ConfigError(
                f"is {self.max_delay_ms}, and a record is to wait for {longest_ms} ms, which a consumer with "
                f"this chain would not do",
                path="max_delay_ms",
            )

    def open(self, context: Context) -> DelayStep:
        """Return the hooks of one session.

        Raises:
            ConfigError: it is the session of a share consumer or of Spark, which cannot wait.
        """
        if context.cannot_wait is not None:
            raise ConfigError(
                f"holds records back until their moment, and {context.cannot_wait}; take the step out of "
                f"this chain, and use a Consumer or an AsyncConsumer for such topics"
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
        self.on_send: Callable[[Record], Record] = self._rule.on_send
        self._delayed = self._malformed = self._beyond_max = 0

    def on_consume(self, record: Record) -> Record:
        """Return a record whose moment has come; raise a DelayedError for any other."""
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
        # From its timestamp, too: else each of many records could hold the partition once more.
        sent_ms = now_ms if record.timestamp_ms is None else min(now_ms, record.timestamp_ms)
        if not_before_ms - sent_ms > self._options.max_delay_ms:
            self._beyond_max += 1
            if self._options.beyond_max == "pass":
                return record
            raise InterceptorError(
                f"is not to be read for {not_before_ms - now_ms} ms, and for {not_before_ms - sent_ms} ms "
                f"after its timestamp; max_delay_ms is {self._options.max_delay_ms}"
            )
        self._delayed += 1
        if self._is_dry_run:
            return record
        raise DelayedError(f"is not to be read for {not_before_ms - now_ms} ms", until_ms=not_before_ms)

    def overhead_bytes(self, record: Record) -> int:  # noqa: ARG002 - the same for each
        """Return an upper bound of the bytes that a moment adds to a record on the wire."""
        return self._rule.overhead_bytes()

    def stats(self) -> dict[str, int]:
        """Count moments written, records that had to wait, and those beyond the bound or unreadable."""
        return {
            "written": self._rule.written,
            "delayed": self._delayed,
            "beyond_max": self._beyond_max,
            "malformed": self._malformed,
        }
