"""Fold records through the hooks of one direction, and do what failures ask for.

The loop is plain, with one ``try`` around it: what a hook gives goes to a temporary first, so that in
the handler the record is still the last good one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Final, Literal

from headerware.core.errors import HeaderwareError, InterceptorError
from headerware.core.failure import Failures, placed, wrapped
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut, Place, Stage
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.order import place_of, stage_of
from headerware.core.plan import Direction, Plan, Step
from headerware.core.record import Record

Outcome = Record | list[Record] | FanOut | HeaderwareError | Literal[DROP]  # type: ignore[valid-type]
"""What became of one record: it, several, none yet (an empty list), dropped, or refused."""

_PLANS_LIMIT: Final = 1_000
_OWN_REFERENCES: Final = 3
"""Those of the list, of the loop over it and of the call that asks."""
_INCOMPLETE: Final = "a slice was dropped further on, and without it nobody can glue the message"


class Fold:
    """Run one direction of a session.

    Args:
        direction: ``send`` (left to right) or ``consume`` (right to left).
        steps: the session's steps, in the order of sending.
        edge: normalises a record that comes in; raises where it may not.
        bury: publishes the dead letter of ``(original, error, step)``; raises where it cannot,
            and gives False for what is a dead letter already.
    """

    def __init__(
        self,
        direction: Direction,
        steps: Sequence[Step],
        edge: Callable[[Record], Record],
        bury: Callable[[Record, InterceptorError, Step], bool],
    ) -> None:
        self._direction = direction
        self._steps = steps
        self._edge = edge
        self._failures: Final = Failures(bury)
        self._plans: dict[str, Plan] = {}
        self._retired: list[Plan] = []
        self._forgotten: dict[str, int] = {}
        self._lock: Final = Lock()

    def one(self, record: Record) -> Outcome:
        """Return what became of one record; never raises for it."""
        try:
            record = self._edge(record)
        except HeaderwareError as error:
            return error
        plan = self._plans.get(record.topic) or self.plan(record.topic)
        plan.records += 1
        return self._fold(plan, 0, record, record)

    def many(self, records: Sequence[Record]) -> list[Outcome]:
        """Return one outcome per record, in order; whole batches go where a hook would rather have them."""
        if not any(step.takes_batches(self._direction) for step in self._steps):
            one = self.one
            return [one(record) for record in records]
        outcomes: list[Outcome] = [DROP] * len(records)
        batches: dict[str, list[tuple[int, Record]]] = {}
        for index, record in enumerate(records):
            try:
                admitted = self._edge(record)
            except HeaderwareError as error:
                outcomes[index] = error
            else:
                batches.setdefault(admitted.topic, []).append((index, admitted))
        for topic, batch in batches.items():
            plan = self.plan(topic)
            plan.records += len(batch)
            found = self._fold_batch(plan, 0, [(record, record) for _, record in batch])
            for (index, _), outcome in zip(batch, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def onward(
        self, step: Step, release: Callable[..., Iterable[Any] | None], *arguments: Any
    ) -> list[Outcome]:
        """Take what a step releases on its own through the rest of the chain."""
        outcomes: list[Outcome] = []
        try:
            for item in release(*arguments) or ():
                if isinstance(item, Record):
                    record = _normalised(item)
                    outcomes.append(self._enter(self.plan(record.topic), step, record))
                else:
                    outcomes.extend(self._failures.released(step, item))
        except Exception as error:  # noqa: BLE001 - what was released before it is not lost
            pass_on_interrupt(error)
            outcomes.extend(self._failures.released(step, error))
        return outcomes

    def plan(self, topic: str) -> Plan:
        """Return the plan of a topic, made once."""
        plan = self._plans.get(topic)
        if plan is None:
            with self._lock:
                plan = self._plans.get(topic)
                if plan is None:
                    if len(self._plans) >= _PLANS_LIMIT:
                        self._retired, self._plans = [*self._retired, *self._plans.values()], {}
                        self._add_retired()
                    plan = self._plans[topic] = Plan(topic, self._direction, self._steps)
        return plan

    def _add_retired(self) -> None:
        """Add up forgotten plans, but for those with which another thread still works, and so counts."""
        counts, kept = dict(self._forgotten), []
        for plan in self._retired:
            if sys.getrefcount(plan) > _OWN_REFERENCES:
                kept.append(plan)
            else:
                _add_up(counts, plan.counts())
        self._forgotten, self._retired = counts, kept

    def records_by_step(self) -> dict[str, int]:
        """Count the records that each step's plans have taken in."""
        with self._lock:
            counts = dict(self._forgotten)
            for plan in [*self._retired, *self._plans.values()]:
                _add_up(counts, plan.counts())
        return counts

    def _fold(self, plan: Plan, start: int, record: Record, original: Record) -> Outcome:
        current, topic, keeps = record, record.topic, plan.keeps_local
        hook: Any = None
        out: Any = None
        try:
            for hook in plan.hooks[start:] if start else plan.hooks:
                out = hook(current)
                if (
                    out.__class__ is not Record
                    or out.topic is not topic
                    or out.headers.__class__ is not Headers
                    or (keeps and out.local is None and current.local is not None)
                ):
                    break
                current = out
            else:
                return current
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is answered by its on_error
            pass_on_interrupt(error)
            index = plan.index(hook)
            plan.leave(index)
            return self._failed(plan, index, error, current, original)
        index = plan.index(hook)
        plan.leave(index)
        return self._branch(plan, index, out, current, original)

    def _branch(self, plan: Plan, index: int, out: Any, current: Record, original: Record) -> Outcome:
        """Go on behind a hook that gave anything but the next record of the same topic."""
        step = plan.steps[index]
        if out is DROP:
            step.counts["dropped"] += 1
            return DROP
        if isinstance(out, Record):
            try:
                sound = _sound(out, plan, step, current)
            except HeaderwareError as wrong:
                return self._failed(plan, index, wrong, current, original)
            return self._next(plan, index, sound, original)
        if isinstance(out, FanOut):
            lazily = partial(self._lazily, plan, index, out, current)
            return FanOut(out.count, lazily, size_bytes=out.size_bytes)
        if out is None or isinstance(out, str | bytes | Mapping) or not isinstance(out, Iterable):
            error = InterceptorError(
                f"returned {type(out).__name__}; expected a Record, DROP or an iterable of Records"
            )
            return self._failed(plan, index, error, current, original)
        return self._eagerly(plan, index, out, current, original)

    def _eagerly(
        self, plan: Plan, index: int, out: Iterable[Any], current: Record, original: Record
    ) -> Outcome:
        try:
            records = [_sound(record, plan, plan.steps[index], current) for record in out]
        except Exception as error:  # noqa: BLE001 - a generator is a hook that runs later
            pass_on_interrupt(error)
            return self._failed(plan, index, error, current, original)
        finished: list[Record] = []
        dropped = 0
        for record in records:
            outcome = self._next(plan, index, record, record)
            dropped += outcome is DROP
            try:
                finished.extend(flat(outcome))
            except HeaderwareError as error:
                return error
        # Where one of them waits further on, so does the whole.
        return DROP if records and dropped == len(records) else finished

    def _lazily(self, plan: Plan, index: int, records: Iterable[Any], current: Record) -> Iterator[Record]:
        step = plan.steps[index]
        whole = place_of(step.interceptor) is Place.SLICE
        gone = left = False
        made: Iterator[Any] | None = None
        while True:
            try:
                made = iter(records) if made is None else made
                record = _sound(next(made), plan, step, current)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - cutting is a hook that runs later
                pass_on_interrupt(error)
                step.counts["failed"] += 1
                raise placed(error, step, current) from error.__cause__
            outcome = self._next(plan, index, record, record)
            if whole:
                gone, left = gone or outcome is DROP, left or outcome is not DROP
                if gone and left:
                    step.counts["failed"] += 1
                    raise placed(InterceptorError(_INCOMPLETE), step, current)
            yield from flat(outcome)

    def _next(self, plan: Plan, index: int, record: Record, original: Record) -> Outcome:
        """Go on behind a step with a record that may have moved to another topic."""
        if record.topic != plan.topic:
            return self._enter(self.plan(record.topic), plan.steps[index], record, original)
        plan.enter(index + 1)
        return self._fold(plan, index + 1, record, original)

    def _enter(self, plan: Plan, step: Step, record: Record, original: Record | None = None) -> Outcome:
        """Go on in a topic's plan with a record that comes from a step elsewhere."""
        index = plan.behind(step.position)
        plan.enter(index)
        return self._fold(plan, index, record, record if original is None else original)

    def _fold_batch(self, plan: Plan, start: int, entries: list[tuple[Record, Record]]) -> list[Outcome]:
        """Take (current, original) pairs through, a step at a time."""
        finished: list[Outcome] = [DROP] * len(entries)
        live = dict(enumerate(entries))
        for index in range(start, len(plan.steps)):
            going = list(live.items())
            for (slot, (current, original)), out in zip(
                going, self._step_batch(plan, index, [entry[0] for _, entry in going]), strict=True
            ):
                if out.__class__ is Record and out.topic == plan.topic and out.headers.__class__ is Headers:
                    live[slot] = (_with_local(out, plan, current), original)
                    continue
                plan.leave(index)
                if isinstance(out, Exception):
                    # A skipped failure stays in the batch: the last good record goes on in its place.
                    outcome = self._failures.answer(plan.steps[index], out, current, original)
                else:
                    outcome = self._branch(plan, index, out, current, original)
                if outcome is None:
                    plan.enter(index + 1)
                else:
                    del live[slot]
                    finished[slot] = outcome
        for slot, (current, _) in live.items():
            finished[slot] = current
        return finished

    def _step_batch(self, plan: Plan, index: int, records: list[Record]) -> list[Any]:
        batch, hook = plan.batches[index], plan.hooks[index]
        if batch is None:
            return [_attempt(hook, record) for record in records]
        if not records:
            return []
        try:
            outcomes = list(batch(records))
            if len(outcomes) != len(records):
                problem = f"a batch hook gave {len(outcomes)} outcomes for {len(records)} records"
                raise InterceptorError(problem)  # noqa: TRY301 - one handler for all that a hook does wrong
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is answered by its on_error
            pass_on_interrupt(error)
            # An error of its own for each record, for each gets a position of its own.
            return [wrapped(error) for _ in records]
        return outcomes

    def _failed(self, plan: Plan, index: int, error: Exception, current: Record, original: Record) -> Outcome:
        """Do what the step's ``on_error`` says; a skipped failure goes on with the last good record."""
        outcome = self._failures.answer(plan.steps[index], error, current, original)
        if outcome is not None:
            return outcome
        plan.enter(index + 1)
        return self._fold(plan, index + 1, current, original)


def _add_up(counts: dict[str, int], more: list[tuple[str, int]]) -> None:
    for name, count in more:
        counts[name] = counts.get(name, 0) + count


def _attempt(hook: Callable[[Record], Any], record: Record) -> Any:
    try:
        return hook(record)
    except Exception as error:  # noqa: BLE001 - it becomes this record's outcome
        pass_on_interrupt(error)
        return error


def _sound(record: Any, plan: Plan, step: Step, current: Record) -> Record:
    """Return a record that a hook made of another, with plain headers; raise what is wrong with it."""
    if not isinstance(record, Record):
        raise InterceptorError(f"gave a {type(record).__name__} among its records; expected Records only")
    sound = _normalised(record)
    if sound.topic != plan.topic and stage_of(step.interceptor) is not Stage.OBJECTS:
        raise InterceptorError("changed the topic; only transforms at the object stage may")
    return _with_local(sound, plan, current)


def _with_local(record: Record, plan: Plan, current: Record) -> Record:
    """Return a record with the state of the one that it was made of, unless it has one of its own."""
    if plan.keeps_local and record.local is None and current.local is not None:
        return record.replace(local=current.local)
    return record


def _normalised(record: Record) -> Record:
    if not isinstance(record.topic, str):
        raise InterceptorError(f"returned a Record whose topic is a {type(record.topic).__name__}, not a str")
    if record.headers.__class__ is Headers:
        return record
    return record.with_headers(Headers(record.headers))


def flat(outcome: Outcome) -> Iterable[Record]:
    """Return the records of an outcome.

    Raises:
        HeaderwareError: the outcome is one, or a lazy cut meets one.
    """
    if outcome is DROP:
        return ()
    if isinstance(outcome, Record):
        return (outcome,)
    if isinstance(outcome, HeaderwareError):
        raise outcome
    assert isinstance(outcome, list | FanOut)  # noqa: S101 - nothing else is left
    return outcome
