"""One interceptor in one session, and the answer of its ``on_error`` to a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal

from headerware.core.boundary import undecoded_before
from headerware.core.errors import (
    DeadLetterError,
    DelayedError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    KeyringError,
    ReassemblyError,
    cause_of,
    position,
    raised_at,
)
from headerware.core.hooks import DROP, states
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record
from headerware.core.services import (
    AddsBytes,
    Direction,
    SurroundsProcessing,
    offered,
)
from headerware.core.topics import TopicPatterns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.context import Publication
    from headerware.core.hooks import OnError

TellStopped = Callable[["Record", str, str, BaseException | None], None]
"""Tells interceptors of a record that a step stops: ``(record, step's name, outcome, error)``."""
PublishDeadLetter = Callable[["Record", InterceptorError, "Step"], Generator["Publication", None, bool]]
"""Publishes the dead letter of ``(original, error, step)``; yields its parts that are on their way.

It raises if the dead letter cannot be stored, and returns False if the original gets no dead letter.
"""
_Refusal = InterceptorError | Literal[DROP]  # type: ignore[valid-type]
"""The outcome of a record that does not go on: it is refused, or dropped."""

_COUNTS: Final = ("dropped", "failed", "skipped", "dead_lettered")
BOUNDARY: Final = "chain"
"""The name of the session's own checks."""
_MAX_REASONS: Final = 8
"""How many reasons of one kind of failure are logged; a text may name a key or a size that a sender chose."""
_IMMUTABLE: Final = "immutable type: 'Record'"
"""The text of msgspec's error if a hook assigns to an attribute of a record."""
_RETURN_ANOTHER: Final = (
    "a record cannot be changed: return another, by record.replace(value=...) or "
    "record.with_headers(record.headers.append(...))"
)
_log: Final = logging.getLogger("headerware")


class Overhead:
    """Return an upper bound of the bytes that the steps to the right of a step add to a record.

    A step that goes on in another session has the right-hand sides of both sessions, until the earlier
    session is closed.
    """

    __slots__ = ("rights",)

    def __init__(self) -> None:
        self.rights: tuple[Sequence[Step], ...] = ()

    def __call__(self, record: Record) -> int:
        return max((_added_bytes(right, record) for right in self.rights), default=0)

    def drop(self, right: Sequence[Step]) -> None:
        """Forget one of the right-hand sides."""
        self.rights = tuple(other for other in self.rights if other is not right)


def _added_bytes(steps: Sequence[Step], record: Record) -> int:
    return sum(
        adding.overhead_bytes(record)
        for step in steps
        if (adding := offered(step.opened, AddsBytes)) is not None and step.topics.matches(record.topic)
    )


class LoggedReasons:
    """The first few logged reasons of each kind of failure, so that many failures do not fill a log."""

    __slots__ = ("_reasons",)

    def __init__(self) -> None:
        self._reasons: dict[object, set[str]] = {}

    def is_new(self, kind: object, reason: str = "") -> bool:
        """Return whether to log this, and remember it."""
        reasons = self._reasons.setdefault(kind, set())
        if reason in reasons or len(reasons) >= _MAX_REASONS:
            return False
        reasons.add(reason)
        return True

    def is_new_error(self, error: BaseException) -> bool:
        """Return whether to log an error; all errors with the same step and cause are one kind."""
        kind = getattr(error, "step", None), type(error.__cause__ or error)
        return self.is_new(kind, getattr(error, "message", "") or str(error))


class Step:
    """Hold one interceptor of one session: its configuration, and the object with its hooks.

    ``position`` counts from the left. ``accepts_for`` is the step whose ``on_accepted`` this one calls, and
    whose counters it shares. ``earlier`` is the step of an earlier session whose opened object goes on here.
    """

    __slots__ = (
        "counts",
        "earlier",
        "hears_accepted",
        "interceptor",
        "logged",
        "name",
        "on_error",
        "opened",
        "overhead",
        "position",
        "topics",
    )

    def __init__(
        self,
        *,
        position: float,
        name: str,
        interceptor: object,
        opened: Any,
        topics: TopicPatterns,
        on_error: OnError,
        accepts_for: Step | None = None,
        earlier: Step | None = None,
    ) -> None:
        self.position: Final = position
        self.name: Final = name
        self.interceptor: Final = interceptor
        self.opened: Final = opened
        self.topics: Final = topics
        self.on_error: Final = on_error
        self.hears_accepted: Final = accepts_for is not None
        self.earlier: Step | None = earlier
        shared = accepts_for or earlier
        self.counts: Final[dict[str, int]] = shared.counts if shared else dict.fromkeys(_COUNTS, 0)
        self.logged: Final[LoggedReasons] = earlier.logged if earlier else LoggedReasons()
        self.overhead: Overhead = earlier.overhead if earlier else Overhead()

    def hook(self, name: str) -> Callable[..., Any] | None:
        """Return a hook of the opened object, or None."""
        found: Callable[..., Any] | None = getattr(self.opened, name, None)
        return found

    def states(self, capability: str) -> bool:
        """Return whether the interceptor states a capability, such as ``atomic``."""
        return states(self.interceptor, capability)

    def leaves_local(self, direction: Direction) -> bool:
        """Return whether the interceptor leaves state in ``record.local`` that later steps must keep."""
        if direction == "send":
            return self.states("acknowledges_own")
        surrounds = offered(self.opened, SurroundsProcessing) is not None
        return self.hears_accepted or surrounds or self.states("verifies")

    def accepting(self, position: float) -> Step | None:
        """Return a step that calls ``on_accepted`` of this step at the end of consuming; None without one."""
        one, many = self.hook("on_accepted"), self.hook("on_accepted_batch")
        if one is None and many is None:
            return None
        return Step(
            position=position,
            name=self.name,
            interceptor=self.interceptor,
            opened=SimpleNamespace(on_consume=one, on_consume_batch=many),
            topics=TopicPatterns(["*"]),  # a transform may have moved the record
            on_error=self.on_error,
            accepts_for=self,
        )

    def takes_batches(self, direction: Direction) -> bool:
        """Return whether the step has an interceptor that takes batches."""
        return self.interceptor is not None and self.hook(f"on_{direction}_batch") is not None


class PendingDeadLetter:
    """The outcome of a record whose dead letter was sent and may not be stored yet.

    It has one caller at a time. It is small, because a consumer may have a thousand of them on their way.

    Args:
        sending: sends the dead letter. It yields each part that is on its way, goes on when that part is
            stored, and returns whether there was anything to send.
        answer: returns the record's outcome, from the step, the error and the original, and from what
            ``sending`` returned or raised.
        step: the step that refused the record.
        error: its error.
        original: the record as it came in.
    """

    __slots__ = ("_answer", "_error", "_original", "_outcome", "_part", "_sending", "_step")

    def __init__(
        self,
        sending: Generator[Publication, None, bool],
        answer: Callable[[Step, InterceptorError, Record, bool, Exception | None], Any],
        step: Step,
        error: InterceptorError,
        original: Record,
    ) -> None:
        self._sending: Final = sending
        self._answer: Final = answer
        self._step: Final = step
        self._error: Final = error
        self._original: Final = original
        self._part: Publication | None = None
        self._outcome: Any = None
        self._go_on()

    def done(self) -> bool:
        """Send the next part if the last one is stored; return whether the outcome is known."""
        while self._outcome is None and (self._part is None or self._part.done()):
            self._go_on()
        return self._outcome is not None

    def outcome(self) -> Any:
        """Return the record's outcome, which is DROP or an InterceptorError; wait for it."""
        while self._outcome is None:
            self._go_on()  # it waits for the part that it has sent
        return self._outcome

    def _go_on(self) -> None:
        published = False
        unstored: Exception | None = None
        try:
            self._part = next(self._sending)
        except StopIteration as ended:
            published = bool(ended.value)
            if ended.value is None:  # an interrupt: it is not known whether it was stored
                unstored = DeadLetterError("an interrupt came while it was sent")
        except Exception as error:  # noqa: BLE001 - the answer judges any failure to publish
            pass_on_interrupt(error)
            unstored = error
        else:
            return
        self._outcome = self._answer(self._step, self._error, self._original, published, unstored)


def known_outcome(outcome: Any) -> Any:
    """Return an outcome; wait for one that is not known yet."""
    return outcome.outcome() if isinstance(outcome, PendingDeadLetter) else outcome


class Failures:
    """Answer the failures of one direction of a session."""

    __slots__ = ("_publish_dead_letter", "_tell_stopped")

    def __init__(self, publish_dead_letter: PublishDeadLetter, tell_stopped: TellStopped) -> None:
        self._publish_dead_letter = publish_dead_letter
        self._tell_stopped = tell_stopped

    def answer(
        self, step: Step, error: Exception, current: Record, original: Record
    ) -> _Refusal | PendingDeadLetter | None:
        """Return the outcome of a record that a step failed on; None if it goes on as it was.

        ``current`` is the last good record, and ``original`` the record as it came in, for the dead letter.
        The outcome is pending as long as the dead letter is on its way.
        """
        refused = error_at(_for_lack_of_steps(error, step, current), step, current)
        if step.on_error == "skip":
            self._note(step, "skipped", refused, original)
            return None
        if step.on_error == "dead_letter" and not isinstance(refused, HeldBackError):
            pending = self._dead_letter(step, refused, original)
            if pending.done():
                return pending.outcome()
            # The dead letter has the stack trace. To keep the frames of many errors would cost the most here.
            for raised in (refused, refused.__cause__):
                if raised is not None:
                    raised.__traceback__ = None
            return pending
        return self._refused(step, refused, original)

    def dropped(self, step: Step, original: Record) -> None:
        """Count a record that a step dropped on purpose."""
        step.counts["dropped"] += 1
        self._tell_stopped(original, step.name, "dropped", None)

    def refused_at_boundary(self, record: Record, error: HeaderwareError) -> None:
        """Note a record that no step has seen, because it is malformed."""
        self._tell_stopped(record, BOUNDARY, "refused", error)

    def released(self, step: Step, error: Any) -> list[_Refusal]:
        """Answer an error among the records that a step releases; the record of the error is not known."""
        if not isinstance(error, Exception):
            error = InterceptorError(f"released a {type(error).__name__}; expected Records and errors only")
        refused = error if isinstance(error, InterceptorError) else wrapped(error)
        refused.step = refused.step or step.name
        if step.on_error == "skip":
            self._note(step, "skipped", refused, None)
            return []
        if step.on_error == "dead_letter" and isinstance(refused, ReassemblyError) and refused.arrived:
            return self._refused_with_all(step, refused, refused.arrived())
        return [self._refused(step, refused)]

    def _refused_with_all(
        self, step: Step, error: ReassemblyError, originals: Iterable[Record]
    ) -> list[_Refusal]:
        """Make a dead letter of each record given up with an error; if one is held back, hold back all."""
        told: list[_Refusal] = []
        for original in originals:
            refusal = self._refused(step, error, original)
            if refusal is error:
                told = [error]
            elif isinstance(refusal, InterceptorError):
                refusal.offset = min(error.offsets, default=refusal.offset)  # all of them come again
                return [refusal]
        error.arrived = None
        return told

    def _refused(self, step: Step, error: InterceptorError, original: Record | None = None) -> _Refusal:
        if isinstance(error, HeldBackError):
            return self._failed(step, error, original)
        if step.on_error == "drop":
            self._note(step, "dropped", error, original)
            return DROP
        if step.on_error == "dead_letter" and original is not None:
            return self._dead_letter(step, error, original).outcome()
        return self._failed(step, error, original)

    def _dead_letter(self, step: Step, error: InterceptorError, original: Record) -> PendingDeadLetter:
        """Send the dead letter of a record."""
        sending = self._publish_dead_letter(original, error, step)
        return PendingDeadLetter(sending, self._dead_letter_outcome, step, error, original)

    def _dead_letter_outcome(
        self,
        step: Step,
        error: InterceptorError,
        original: Record,
        published: bool,  # noqa: FBT001 - what the generator returned
        unstored: Exception | None,
    ) -> _Refusal:
        """Return the outcome of a record whose dead letter is stored, or could not be, or cannot exist."""
        if published:
            self._note(step, "dead_lettered", error, original)
            return DROP
        if unstored is None:
            return self._failed(step, error, original)
        if _refuses_unavailable(step):
            self._note_unavailable(step, unstored, original)
            return self._failed(step, error, original)
        return self._failed(step, not_stored(unstored, error).at(step.name, original), original)

    def _note_unavailable(self, step: Step, unstored: Exception, original: Record) -> None:
        """Count a dead letter that was given up, and log the first one of each cause."""
        step.counts["dead_letters_lost"] = step.counts.get("dead_letters_lost", 0) + 1
        if step.logged.is_new(("unavailable", cause_of(unstored))):
            where = position(original.topic, original.partition, original.offset)
            _log.warning(
                "%s: the dead letter of %s could not be stored (%s), so the record is refused "
                "(dead_letter_unavailable = 'refuse'; further ones are only counted)",
                step.name,
                where,
                cause_of(unstored),
            )

    def _failed(self, step: Step, error: InterceptorError, original: Record | None) -> InterceptorError:
        step.counts["failed"] += not isinstance(error, DelayedError)
        outcome = "held_back" if isinstance(error, HeldBackError) else "refused"
        self._tell_stopped(original or _record_at(error), step.name, outcome, error)
        return error

    def _note(self, step: Step, count: str, error: InterceptorError, original: Record | None) -> None:
        """Count a record that a step skipped, dropped or dead-lettered, and log each reason once."""
        step.counts[count] += 1
        self._tell_stopped(original or _record_at(error), step.name, count, error)
        if step.logged.is_new_error(error):
            _log.warning("%s (%s; further ones for this reason are only counted)", error, count)


def _for_lack_of_steps(error: Exception, step: Step, record: Record) -> Exception:
    """Return the error, or an error that names the steps that the record needs and the chain lacks."""
    lacking = undecoded_before(getattr(step.interceptor, "decodes", ()), record.headers)
    if lacking is None or isinstance(error, HeldBackError | KeyringError):
        return error
    lacking.__cause__ = error
    return lacking


def _refuses_unavailable(step: Step) -> bool:
    return getattr(step.interceptor, "dead_letter_unavailable", "hold") == "refuse"


def _record_at(error: InterceptorError) -> Record:
    """Return the last record of an error, or a record without content at its position."""
    return error.last_record or Record(error.topic or "", partition=error.partition, offset=error.offset)


def wrapped(error: Exception) -> InterceptorError:
    """Wrap an exception of a hook; its text stays in the cause, because it may quote a payload."""
    if isinstance(error, InterceptorError):
        wrapper = error.again()
    elif isinstance(error, KeyringError):
        wrapper = HeldBackError(str(error))
    elif isinstance(error, HeaderwareError):
        wrapper = InterceptorError(str(error))
    else:
        changed = isinstance(error, AttributeError) and str(error) == _IMMUTABLE
        advice = _RETURN_ANOTHER if changed else "the cause says more"
        wrapper = InterceptorError(f"raised {type(error).__name__}{raised_at(error)}; {advice}")
    wrapper.__cause__ = error
    return wrapper.with_traceback(error.__traceback__)


def error_at(error: Exception, step: Step, record: Record) -> InterceptorError:
    """Return an error with its position; an error with the position of another record is made again."""
    if isinstance(error, InterceptorError) and error.last_record is None:
        return error.at(step.name, record)
    return wrapped(error).at(step.name, record)


def not_stored(error: Exception, reason: InterceptorError) -> DeadLetterError:
    """Return the error for a dead letter that could not be stored."""
    # Only the texts of our own errors are known to quote no payload.
    said = f": {error}" if isinstance(error, HeaderwareError) else "; the cause says more"
    failure = DeadLetterError(
        f"the dead letter could not be stored ({type(error).__name__}{said}), so the record stays where "
        f"it is; it was refused because: {reason}"
    )
    failure.unfit = isinstance(error, DeadLetterError) and error.unfit
    failure.__cause__ = error
    return failure
