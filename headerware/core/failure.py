"""What a step's ``on_error`` makes of a failure: raise, skip, drop or a dead letter."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal

from headerware.core.errors import (
    DeadLetterError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    KeyringError,
    raised_at,
)
from headerware.core.hooks import DROP
from headerware.core.interrupts import pass_on_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.plan import Step
    from headerware.core.record import Record

Answer = InterceptorError | Literal[DROP]  # type: ignore[valid-type]
"""A record is refused, or taken out."""

_log: Final = logging.getLogger("headerware")


class Failures:
    """Answer the failures of one direction of a session.

    Args:
        bury: publishes the dead letter of ``(original, error, step)``; raises where it cannot, and gives
            False for what is a dead letter already.
    """

    __slots__ = ("_bury",)

    def __init__(self, bury: Callable[[Record, InterceptorError, Step], bool]) -> None:
        self._bury = bury

    def answer(self, step: Step, error: Exception, current: Record, original: Record) -> Answer | None:
        """Return what became of a record that a step failed on; None where it goes on as it was.

        Args:
            step: the step.
            error: what its hook raised.
            current: the last good record.
            original: the record as it came in, for the dead letter.
        """
        refused = placed(error, step, current)
        if step.on_error == "skip":
            self._note(step, "skipped", refused)
            return None
        return self._refused(step, refused, original)

    def released(self, step: Step, error: Any) -> list[Answer]:
        """Answer an error among what a step releases; it belongs to no record that is at hand."""
        if not isinstance(error, Exception):
            error = InterceptorError(f"released a {type(error).__name__}; expected Records and errors only")
        refused = error if isinstance(error, InterceptorError) else wrapped(error)
        refused.step = refused.step or step.name
        if step.on_error == "skip":
            self._note(step, "skipped", refused)
            return []
        return [self._refused(step, refused)]

    def _refused(self, step: Step, error: InterceptorError, original: Record | None = None) -> Answer:
        if isinstance(error, HeldBackError):
            step.counts["failed"] += 1
            return error
        if step.on_error == "drop":
            self._note(step, "dropped", error)
            return DROP
        if step.on_error == "dead_letter" and original is not None:
            try:
                buried = self._bury(original, error, step)
            except Exception as unburied:  # noqa: BLE001 - any failure to publish holds the record back
                pass_on_interrupt(unburied)
                step.counts["failed"] += 1
                return _unpublished(unburied, error).at(step.name, original)
            if buried:
                self._note(step, "dead_lettered", error)
                return DROP
        step.counts["failed"] += 1
        return error

    def _note(self, step: Step, count: str, error: InterceptorError) -> None:
        """Count what is passed over, and log it once per cause."""
        step.counts[count] += 1
        cause = type(error.__cause__ or error).__name__
        if cause not in step.warned:
            step.warned.add(cause)
            _log.warning("%s (%s; further ones of this kind are only counted)", error, count)


def wrapped(error: Exception) -> InterceptorError:
    """Wrap what a hook raised; its text stays in the cause, for it may quote a payload."""
    if isinstance(error, InterceptorError):
        wrapped = error.again()
    elif isinstance(error, KeyringError):
        wrapped = HeldBackError(str(error))
    elif isinstance(error, HeaderwareError):
        wrapped = InterceptorError(str(error))
    else:
        wrapped = InterceptorError(f"raised {type(error).__name__}{raised_at(error)}; the cause says more")
    wrapped.__cause__ = error
    return wrapped.with_traceback(error.__traceback__)


def placed(error: Exception, step: Step, record: Record) -> InterceptorError:
    """Return an error its position; one that has met a record before is another's, and is made again."""
    if isinstance(error, InterceptorError) and error.last_record is None:
        return error.at(step.name, record)
    return wrapped(error).at(step.name, record)


def _unpublished(error: Exception, reason: InterceptorError) -> DeadLetterError:
    # Only the texts of our own errors are known to quote no payload.
    said = f": {error}" if isinstance(error, HeaderwareError) else "; the cause says more"
    failure = DeadLetterError(
        f"the dead letter could not be stored ({type(error).__name__}{said}), so the record stays where "
        f"it is; it was refused because: {reason}"
    )
    failure.unfit = isinstance(error, DeadLetterError) and error.unfit
    failure.__cause__ = error
    return failure
