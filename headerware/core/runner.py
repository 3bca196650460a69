"""Take records through the hooks of one direction, and answer failures.

One record goes through all hooks at once. The loop is plain, with one ``try`` around it: the result of a hook
goes to a temporary variable first, so that the handler still has the last good record.

Many records go through one step after another, as a :class:`~headerware.core.batch.Batch`. A record that a
step drops, splits, keeps or refuses leaves the batch there; the others stay together.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter, is_
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

from headerware.core.batch import Batch
from headerware.core.errors import HeaderwareError, InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut, Role, Stage
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.native import (
    Meter,
    NativeForm,
    NativeRun,
    meters_natively,
    native_module,
    offered_natively,
)
from headerware.core.order import role_of, stage_of, unprotected
from headerware.core.record import ORIGINAL, Record
from headerware.core.services import Direction, WrapsHooks
from headerware.core.step import (
    Failures,
    PendingDeadLetter,
    PublishDeadLetter,
    Step,
    TellStopped,
    error_at,
    known_outcome,
    wrapped,
)
from headerware.core.topics import TopicPatterns

Wrapping = tuple[Step, WrapsHooks]
"""A step that wraps the hooks of the others, and its interceptor."""
Outcome = Record | list[Record] | FanOut | HeaderwareError | PendingDeadLetter | Literal[DROP]  # type: ignore[valid-type]
"""The outcome of one record: a record, several, none yet (an empty list), dropped, refused, or not known yet.

An outcome is not known as long as a dead letter is on its way, if the context's port does not wait for it.
"""

_TOPICS_LIMIT: Final = 1_000
_OWN_REFERENCES: Final = 3
"""The references held by the list, the loop over it, and the call of getrefcount."""
_topic_of: Final = attrgetter("topic")
_log: Final = logging.getLogger("headerware")
BatchHook = Callable[[Batch], Batch]
"""``on_send_batch`` or ``on_consume_batch``."""
_INCOMPLETE: Final = "a later step dropped a part of the message, and the other parts are useless without it"


class _Stage(NamedTuple):
    """The steps that a batch passes together.

    They are one step that takes batches, adjacent steps that do not, or adjacent steps in native code.
    """

    first: int
    end: int
    batch: BatchHook | None
    native: NativeRun | None = None
    parts: tuple[_Stage, ...] = ()
    """What takes the batches that native code leaves: its steps, or shorter runs of them."""


class TopicHooks:
    """Hold the hooks of one direction for one topic, bound once, in the order in which they are called."""

    __slots__ = ("_flow", "calls", "direction", "keeps_local", "records", "stages", "steps", "topic")

    def __init__(
        self, topic: str, direction: Direction, steps: Sequence[Step], wrappings: Sequence[Wrapping] = ()
    ) -> None:
        self.topic: Final = topic
        self.direction: Final = direction
        self.records: int = 0
        self.steps: list[Step] = []
        self.calls: list[Callable[[Any], Any]] = []
        self.stages: list[_Stage] = []
        wrapped_steps: set[Step] = set()
        meters: dict[Step, list[Meter]] = {}
        missing: list[tuple[str, TopicPatterns]] = []
        for step in steps if direction == "send" else reversed(steps):
            step.topics.note(topic)
            single, batch = step.hook(f"on_{direction}"), step.hook(f"on_{direction}_batch")
            if single is None and batch is None:
                continue
            if step.topics.matches(topic):
                for wrapper, wraps in wrappings:
                    if wrapper is not step and step.interceptor is not None and wrapper.topics.matches(topic):
                        own = single, batch
                        single = single and wraps.wrap_hook(step.name, direction, single)
                        batch = batch and wraps.wrap_hook(step.name, direction, batch)
                        if (single, batch) != own:
                            measuring = meters_natively(wraps)
                            if measuring is None:
                                wrapped_steps.add(step)
                            else:
                                meter = measuring.native_meter(step.name, direction)
                                meters.setdefault(step, []).append(meter)
                self._add(step, single, batch)
            elif role_of(step.interceptor) is Role.PROTECT and step.topics.misses(topic):
                missing.append((step.name, step.topics))
        if missing:
            _log.warning("%s", unprotected(topic, missing))
        module, _ = native_module()
        if module is not None:
            self._join_native(module, wrapped_steps, meters)
        self.keeps_local: bool = any(step.leaves_local(direction) for step in self.steps)
        """Whether a new record gets the local state of the record that its hook was called with."""
        self._flow: list[int] = [0] * (len(self.steps) + 1)

    def _add(self, step: Step, single: Callable[[Any], Any] | None, batch: BatchHook | None) -> None:
        index = len(self.steps)
        self.steps.append(step)
        if single is None:
            assert batch is not None  # noqa: S101 - only steps with one of the two come here
            single = single_form(batch)
        # Each step gets a function of its own, so that the step of a failed function is found by identity.
        self.calls.append(single if single not in self.calls else partial(_call, single))
        if batch is None and self.stages and self.stages[-1].batch is None:
            self.stages[-1] = self.stages[-1]._replace(end=index + 1)
        else:
            self.stages.append(_Stage(index, index + 1, batch))

    def _join_native(
        self, module: Any, wrapped_steps: set[Step], meters: Mapping[Step, Sequence[Meter]]
    ) -> None:
        """Make one stage of neighbouring steps that have a native form and that nothing wraps but meters."""
        stages: list[_Stage] = []
        run: list[tuple[_Stage, NativeForm]] = []

        def joined(run: Sequence[tuple[_Stage, NativeForm]]) -> tuple[_Stage, ...]:
            """Return one stage, or the stages of all steps if native code does not pay."""
            parts = tuple(stage for stage, _ in run)
            if len(run) < 2 and not any(form.pays for _, form in run):
                return parts
            if len(run) > 1 and run[-1][1].ordered:
                # One unusual record leaves the batch to the others as a run, and then to the last.
                parts = *joined(run[:-1]), *joined(run[-1:])
            measured_by = [meters.get(self.steps[stage.first], []) for stage, _ in run]
            native = NativeRun(module, self.topic, [form for _, form in run], measured_by)
            return (_Stage(parts[0].first, parts[-1].end, None, native, parts),)

        def end_run() -> None:
            stages.extend(joined(run))
            run.clear()

        for stage in self.stages:
            step = self.steps[stage.first]
            is_ours = stage.batch is not None and step not in wrapped_steps
            offers = offered_natively(step.opened) if is_ours else None
            form = None if offers is None else offers.native_form(self.direction, self.topic)
            if form is None:
                end_run()
                stages.append(stage)
                continue
            if form.alone:
                end_run()
            run.append((stage, form))
            if form.alone or form.ordered:
                end_run()
        end_run()
        self.stages = stages

    def leave(self, index: int) -> None:
        """Note that a record got no further than a step."""
        self._flow[index + 1] -= 1

    def enter(self, index: int) -> None:
        """Note that a record came in at a step, not at the beginning."""
        self._flow[index] += 1

    def counts(self) -> list[tuple[str, int]]:
        """Count the records that each step took in, by name."""
        taken = accumulate(self._flow, initial=self.records)
        next(taken)  # before the first step
        counts = zip(self.steps, taken, strict=False)
        # A step that hears of accepted records has already counted them as a consuming step.
        return [(step.name, count) for step, count in counts if not step.hears_accepted]

    def index(self, hook: object) -> int:
        """Return the index of a hook that is running."""
        return next(index for index, candidate in enumerate(self.calls) if candidate is hook)

    def after(self, position: float) -> int:
        """Return the first index that comes after the step at a position of the chain."""
        sending = self.direction == "send"
        for index, step in enumerate(self.steps):
            if step.position > position if sending else step.position < position:
                return index
        return len(self.steps)


class Runner:
    """Take records through one direction of a session: sending is left to right, consuming right to left.

    Args:
        direction: send or consume.
        steps: the steps, in the order of sending for both directions.
        check: normalises a record that comes in, or raises.
        passes: returns whether ``check`` would leave each record of a batch as it is; False is always
            allowed.
        publish_dead_letter: publishes the dead letter of a record.
        tell_stopped: tells interceptors of a record that a step stops.
        wrappings: the steps that wrap the hooks of the others, each time that hooks are bound.
    """

    def __init__(
        self,
        direction: Direction,
        steps: Sequence[Step],
        check: Callable[[Record], Record],
        passes: Callable[[Batch], bool],
        publish_dead_letter: PublishDeadLetter,
        tell_stopped: TellStopped,
        wrappings: Sequence[Wrapping] = (),
    ) -> None:
        self._direction = direction
        self._steps = steps
        self._check = check
        self._passes = passes
        self._failures: Final = Failures(publish_dead_letter, tell_stopped)
        self._wrappings = wrappings
        self._takes_batches: Final = any(step.takes_batches(direction) for step in steps)
        self._by_topic: dict[str, TopicHooks] = {}
        self._retired: list[TopicHooks] = []
        self._forgotten: dict[str, int] = {}
        self._lock: Final = Lock()
        self._keeps_originals = False
        self._kept_names: frozenset[str] | None = frozenset()

    def keep_originals(self, names: frozenset[str] | None = None) -> None:
        """From now on, keep in each record's local state the record as it came in.

        If names are given, keep the original only for records that have one of these headers.
        """
        with self._lock:
            self._keeps_originals = True
            known = self._kept_names
            self._kept_names = None if known is None or names is None else known | names
            for hooks in self._by_topic.values():
                hooks.keeps_local = True

    def _with_original(self, record: Record) -> Record:
        names = self._kept_names
        if names is None or any(name in names for name, _ in record.headers):
            return record.with_local(ORIGINAL, record)
        return record

    def one(self, record: Record) -> Outcome:
        """Return the outcome of one record; return errors rather than raise them."""
        try:
            record = self._check(record)
        except HeaderwareError as error:
            self._failures.refused_at_boundary(record, error)
            return error
        hooks = self._by_topic.get(record.topic) or self.hooks_of(record.topic)
        hooks.records += 1
        if self._keeps_originals:
            return self._run(hooks, 0, self._with_original(record), record)
        return self._run(hooks, 0, record, record)

    def many(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Return one outcome per record, in order: a batch if each of them is one record of the same topic.

        Without a step that takes batches, the records go through the chain one by one.
        """
        if not self._takes_batches or not records:
            return list(map(self.one, records))
        batch = records if isinstance(records, Batch) else _of_one_topic(records)
        if batch is not None and self._passes(batch):
            return self._batch(batch)
        outcomes: list[Outcome] = [DROP] * len(records)
        by_topic: dict[str, tuple[list[int], list[Record]]] = {}
        for index, record in enumerate(records):
            try:
                checked = self._check(record)
            except HeaderwareError as error:
                self._failures.refused_at_boundary(record, error)
                outcomes[index] = error
                continue
            own = by_topic.get(checked.topic)
            if own is None:
                own = by_topic[checked.topic] = [], []
            own[0].append(index)
            own[1].append(checked)
        for indices, checked_records in by_topic.values():
            found = self._batch(Batch.of(checked_records))
            if len(indices) == len(records):
                return found
            for index, outcome in zip(indices, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def run_released(
        self, step: Step, release: Callable[..., Iterable[Any] | None], *arguments: Any
    ) -> list[Outcome]:
        """Run the records that a step releases on its own through the rest of the chain."""
        outcomes: list[Outcome] = []
        try:
            for item in release(*arguments) or ():
                if isinstance(item, Record):
                    record = _normalised(item)
                    outcomes.append(known_outcome(self._enter(self.hooks_of(record.topic), step, record)))
                else:
                    outcomes.extend(self._failures.released(step, item))
        except Exception as error:  # noqa: BLE001 - the records that were released before are not lost
            pass_on_interrupt(error)
            outcomes.extend(self._failures.released(step, error))
        return outcomes

    def hooks_of(self, topic: str) -> TopicHooks:
        """Return the hooks of a topic; bind them once."""
        hooks = self._by_topic.get(topic)
        if hooks is None:
            with self._lock:
                hooks = self._by_topic.get(topic)
                if hooks is None:
                    if len(self._by_topic) >= _TOPICS_LIMIT:
                        self._retired, self._by_topic = [*self._retired, *self._by_topic.values()], {}
                        self._add_retired()
                    self._warn_of_chain_elsewhere(topic)
                    hooks = TopicHooks(topic, self._direction, self._steps, self._wrappings)
                    hooks.keeps_local |= self._keeps_originals
                    self._by_topic[topic] = hooks
        return hooks

    def _warn_of_chain_elsewhere(self, topic: str) -> None:
        """Log the first topic if no step works on it: a wrong letter in a pattern can switch a chain off."""
        own = [step for step in self._steps if step.interceptor is not None and not step.hears_accepted]
        if own and not self._by_topic and not any(step.topics.matches(topic) for step in own):
            patterns = sorted({pattern for step in own for pattern in step.topics.patterns})
            _log.warning(
                "no step of the chain works on topic %r, so its records pass as they are; topics: %s",
                topic,
                ", ".join(patterns),
            )

    def _add_retired(self) -> None:
        """Add up the counts of forgotten hooks, except hooks that another thread still runs."""
        counts, kept = dict(self._forgotten), []
        for hooks in self._retired:
            if sys.getrefcount(hooks) > _OWN_REFERENCES:
                kept.append(hooks)
            else:
                _add_up(counts, hooks.counts())
        self._forgotten, self._retired = counts, kept

    def records_by_step(self) -> dict[str, int]:
        """Count the records that each step has taken in, on all topics."""
        with self._lock:
            counts = dict(self._forgotten)
            for hooks in [*self._retired, *self._by_topic.values()]:
                _add_up(counts, hooks.counts())
        return counts

    def _run(self, hooks: TopicHooks, start: int, record: Record, original: Record) -> Outcome:
        current, topic, keeps = record, record.topic, hooks.keeps_local
        hook: Any = None
        out: Any = None
        try:
            for hook in hooks.calls[start:] if start else hooks.calls:
                out = hook(current)
                if out is current:
                    continue
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
        except Exception as error:  # noqa: BLE001 - the step's on_error answers it
            pass_on_interrupt(error)
            index = hooks.index(hook)
            hooks.leave(index)
            return self._failed(hooks, index, error, current, original)
        index = hooks.index(hook)
        hooks.leave(index)
        return self._go_on(hooks, index, out, current, original)

    def _go_on(self, hooks: TopicHooks, index: int, out: Any, current: Record, original: Record) -> Outcome:
        """Go on after a hook that returned anything but the next record of the same topic."""
        step = hooks.steps[index]
        if out is DROP:
            self._failures.dropped(step, original)
            return DROP
        if isinstance(out, Record):
            try:
                sound = _sound(out, hooks, step, current)
            except HeaderwareError as wrong:
                return self._failed(hooks, index, wrong, current, original)
            return self._next(hooks, index, sound, original)
        if isinstance(out, FanOut):
            lazily = partial(self._run_lazily, hooks, index, out, current)
            return FanOut(out.count, lazily, size_bytes=out.size_bytes, whole=current)
        if (misfit := _misfit(out)) is not None:
            return self._failed(hooks, index, misfit, current, original)
        return self._run_list(hooks, index, out, current, original)

    def _run_list(
        self, hooks: TopicHooks, index: int, out: Iterable[Any], current: Record, original: Record
    ) -> Outcome:
        try:
            records = [_sound(record, hooks, hooks.steps[index], current) for record in out]
        except Exception as error:  # noqa: BLE001 - a generator is a hook that is called later
            pass_on_interrupt(error)
            return self._failed(hooks, index, error, current, original)
        finished: list[Record] = []
        dropped = 0
        for record in records:
            # From here on, each record of a list is an original: a dead letter is made of it, and not of the
            # record that came in. So the dead letter of a reassembled message has all of its content.
            known = record.with_local(ORIGINAL, record) if self._keeps_originals else record
            outcome = known_outcome(self._next(hooks, index, known, record))
            dropped += outcome is DROP
            try:
                finished.extend(flat(outcome))
            except HeaderwareError as error:
                return error
        # If a later step holds one of them back, all of them wait.
        return DROP if records and dropped == len(records) else finished

    def _run_lazily(
        self, hooks: TopicHooks, index: int, records: Iterable[Any], current: Record
    ) -> Iterator[Record]:
        step = hooks.steps[index]
        atomic = step.states("atomic")
        gone = left = False
        made: Iterator[Any] | None = None
        while True:
            try:
                made = iter(records) if made is None else made
                record = _sound(next(made), hooks, step, current)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - a lazy split is a hook that is called later
                pass_on_interrupt(error)
                step.counts["failed"] += 1
                raise error_at(error, step, current) from error.__cause__
            outcome = known_outcome(self._next(hooks, index, record, record))
            if atomic:
                gone, left = gone or outcome is DROP, left or outcome is not DROP
                if gone and left:
                    step.counts["failed"] += 1
                    raise error_at(InterceptorError(_INCOMPLETE), step, current)
            yield from flat(outcome)

    def _next(self, hooks: TopicHooks, index: int, record: Record, original: Record) -> Outcome:
        """Go on after a step with a record that may have moved to another topic."""
        if record.topic != hooks.topic:
            return self._enter(self.hooks_of(record.topic), hooks.steps[index], record, original)
        hooks.enter(index + 1)
        return self._run(hooks, index + 1, record, original)

    def _enter(
        self, hooks: TopicHooks, step: Step, record: Record, original: Record | None = None
    ) -> Outcome:
        """Go on in the hooks of a topic with a record from a step that may not be among them."""
        index = hooks.after(step.position)
        hooks.enter(index)
        return self._run(hooks, index, record, record if original is None else original)

    def _batch(self, originals: Batch) -> Sequence[Outcome]:
        """Return the outcomes of checked records of one topic."""
        hooks = self._by_topic.get(originals.topic) or self.hooks_of(originals.topic)
        hooks.records += len(originals)
        going = originals
        if self._keeps_originals:
            going = Batch.of(list(map(self._with_original, originals)))
        return _BatchPass(hooks, self._failures, self._go_on, originals, going).outcomes()

    def _failed(
        self, hooks: TopicHooks, index: int, error: Exception, current: Record, original: Record
    ) -> Outcome:
        """Do what the step's ``on_error`` says; a skipped failure goes on with the last good record."""
        outcome = self._failures.answer(hooks.steps[index], error, current, original)
        if outcome is not None:
            return outcome
        hooks.enter(index + 1)
        return self._run(hooks, index + 1, current, original)


class _BatchPass:
    """Take one batch through the hooks of its topic.

    Args:
        hooks: the hooks.
        failures: answers the failures.
        go_on: goes on after a hook that returned anything but the next record, as in :class:`Runner`.
        originals: the records as they came in.
        going: the same records, as they go to the first step.
    """

    __slots__ = ("_failures", "_finished", "_go_on", "_going", "_hooks", "_members", "_originals")

    def __init__(
        self,
        hooks: TopicHooks,
        failures: Failures,
        go_on: Callable[[TopicHooks, int, Any, Record, Record], Outcome],
        originals: Batch,
        going: Batch,
    ) -> None:
        self._hooks = hooks
        self._failures = failures
        self._go_on = go_on
        self._originals = originals
        self._going = going
        self._members: Sequence[int] = range(len(going))
        """The indices, among the originals, of the records that are still together."""
        self._finished: dict[int, Outcome] = {}
        """The outcomes of the records that have left."""

    def outcomes(self) -> Sequence[Outcome]:
        """Return one outcome per record, in order; a batch if all have come through together."""
        for stage in self._hooks.stages:
            self._go_through(stage)
        if not self._finished:
            return self._going
        outcomes = dict(zip(self._members, self._going, strict=True)) if self._members else {}
        return [outcomes[at] if at in outcomes else self._finished[at] for at in range(len(self._originals))]

    def _go_through(self, stage: _Stage) -> None:
        if stage.native is None:
            self._pass(stage)
        elif self._members and (out := stage.native(self._going)) is not None:
            self._pass(stage, out)
        else:
            for part in stage.parts:
                self._go_through(part)

    def _pass(self, stage: _Stage, out: Batch | None = None) -> None:
        """Take the records that are still together through a stage; native code has made ``out`` of them."""
        if not self._members:
            return
        before = len(self._finished)
        if out is not None:
            self._go_on_with(out, stage)
        elif stage.batch is None:
            self._give_records(stage)
        else:
            self._give_batch(stage, stage.batch)
        if len(self._finished) > before:
            self._members = [member for member in self._members if member not in self._finished]

    def _give_records(self, stage: _Stage) -> None:
        """Give each record to the hooks of some steps."""
        before = self._going.records()
        found = [
            self._given(stage, record, member) for member, record in zip(self._members, before, strict=True)
        ]
        if not all(map(is_, found, before)):  # else the columns are still right
            self._keep(found)

    def _keep(self, records: Sequence[Record | None]) -> None:
        """Go on with the records that have not left the batch."""
        if going := [record for record in records if record is not None]:
            self._going = Batch.of(going)

    def _give_batch(self, stage: _Stage, hook: BatchHook) -> None:
        """Give the batch to the hook of one step."""
        batch = self._going
        try:
            out = _from_batch(hook, batch, keeps_local=self._hooks.keeps_local)
        except Exception as error:  # noqa: BLE001 - the step's on_error answers it
            pass_on_interrupt(error)
            # One error for each record, because each gets a position of its own.
            out = batch.replace(failures={at: wrapped(error) for at in range(len(batch))})
        self._go_on_with(out, stage)

    def _go_on_with(self, out: Batch, stage: _Stage) -> None:
        """Go on with what a stage made of the batch: answer failures, and give records not taken singly."""
        batch = self._going
        if not out.failures and not out.not_taken:
            self._going = out
            return
        failures, indices = out.failures, {*out.failures, *out.not_taken}
        if not failures and len(indices) == len(batch):
            self._give_records(stage)
            return
        apart: dict[int, Record | None] = {at: batch[at] for at in sorted(indices)}
        for part in stage.parts or (stage,):
            for at, record in apart.items():
                if record is None:
                    continue
                member = self._members[at]
                if at in failures:
                    apart[at] = self._answered(part.first, failures[at], record, member)
                else:
                    apart[at] = self._given(part, record, member)
        if any(apart.values()):
            taken = out.records()
            self._keep([apart[at] if at in apart else taken[at] for at in range(len(batch))])
        elif len(apart) < len(batch):
            self._going = out.select([at for at in range(len(batch)) if at not in apart])

    def _given(self, stage: _Stage, current: Record, member: int) -> Record | None:
        """Return a record after the hooks of some steps; None if it has left the batch."""
        hooks = self._hooks
        topic, keeps = current.topic, hooks.keeps_local
        for index in range(stage.first, stage.end):
            try:
                out = hooks.calls[index](current)
                if out is current:
                    continue
                if (
                    out.__class__ is Record
                    and out.topic is topic
                    and out.headers.__class__ is Headers
                    and (not keeps or out.local is not None or current.local is None)
                ):
                    current = out
                    continue
                if (misfit := _misfit(out)) is not None:
                    raise misfit  # noqa: TRY301 - one handler for all that a hook does wrong
                if isinstance(out, Record):
                    out = _sound(out, hooks, hooks.steps[index], current)
            except Exception as error:  # noqa: BLE001 - the step's on_error answers it
                pass_on_interrupt(error)
                if self._answered(index, error, current, member) is None:
                    return None
                continue
            if not isinstance(out, Record) or out.topic != hooks.topic:
                hooks.leave(index)
                self._finished[member] = self._go_on(hooks, index, out, current, self._originals[member])
                return None
            current = out
        return current

    def _answered(self, index: int, error: Exception, current: Record, member: int) -> Record | None:
        """Return a record that a step failed on if it goes on as it was; None if it has left the batch."""
        step, original = self._hooks.steps[index], self._originals[member]
        outcome = self._failures.answer(step, error, current, original)
        if outcome is None:
            return current
        self._hooks.leave(index)
        self._finished[member] = outcome
        return None


def _of_one_topic(records: Sequence[Record]) -> Batch | None:
    """Return a batch of records that have the same topic, or None."""
    topics = list(map(_topic_of, records))
    is_one = topics.count(topics[0]) == len(topics) and set(map(type, topics)) == {str}
    return Batch.of(list(records)) if is_one else None


def _add_up(counts: dict[str, int], more: list[tuple[str, int]]) -> None:
    for name, count in more:
        counts[name] = counts.get(name, 0) + count


def _from_batch(hook: BatchHook, batch: Batch, *, keeps_local: bool) -> Batch:
    """Return the batch that a hook made of another, with plain headers; raise an error if it is wrong."""
    out: object = hook(batch)
    if out is batch:
        return batch
    if not isinstance(out, Batch):
        raise InterceptorError(f"a batch hook returned a {type(out).__name__}; expected a Batch")
    if len(out) != len(batch):
        raise InterceptorError(f"a batch hook returned {len(out)} records for {len(batch)}")
    if out.topic != batch.topic:
        raise InterceptorError("a batch hook changed the topic; only on_send and on_consume may")
    for at in (*out.failures, *out.not_taken):
        if not 0 <= at < len(batch):
            raise InterceptorError(f"a batch hook names record {at}, but the batch has {len(batch)}")
    return out.checked(batch, keeps_local=keeps_local)


def _misfit(out: Any) -> InterceptorError | None:
    """Return an error if a hook returned a value of a wrong type; else None."""
    if out is DROP or isinstance(out, Record | FanOut):
        return None
    if out is None or isinstance(out, str | bytes | Mapping) or not isinstance(out, Iterable):
        advice = "; end the hook with `return record`" if out is None else ""
        return InterceptorError(
            f"returned {type(out).__name__}; expected a Record, DROP or an iterable of Records{advice}"
        )
    return None


def _sound(record: Any, hooks: TopicHooks, step: Step, current: Record) -> Record:
    """Return a record that a hook made of another, with plain headers; raise an error if it is wrong."""
    if not isinstance(record, Record):
        raise InterceptorError(f"gave a {type(record).__name__} among its records; expected Records only")
    sound = _normalised(record)
    if sound.topic != hooks.topic and stage_of(step.interceptor) is not Stage.OBJECTS:
        raise InterceptorError("changed the topic; only transforms at the object stage may")
    return _with_local(sound, hooks, current)


def _with_local(record: Record, hooks: TopicHooks, current: Record) -> Record:
    """Return a record with the local state of the record that it was made of, unless it has its own."""
    if hooks.keeps_local and record.local is None and current.local is not None:
        return record.replace(local=current.local)
    return record


def _normalised(record: Record) -> Record:
    if not isinstance(record.topic, str):
        raise InterceptorError(f"returned a Record whose topic is a {type(record.topic).__name__}, not a str")
    if record.headers.__class__ is Headers:
        return record
    return record.with_headers(Headers(record.headers))


def flat(outcome: Outcome) -> Iterable[Record]:
    """Return the records of an outcome, or raise it if it is an error; lazy records may raise one later."""
    if outcome is DROP:
        return ()
    if isinstance(outcome, Record):
        return (outcome,)
    if isinstance(outcome, HeaderwareError):
        raise outcome
    assert isinstance(outcome, list | FanOut)  # noqa: S101 - nothing else is left
    return outcome


def single_form(hook: BatchHook) -> Callable[[Record], Any]:
    """Return a hook for single records that calls a hook for batches, with a batch of one record."""

    def single(record: Record) -> Any:
        out = _from_batch(hook, Batch.of([record]), keeps_local=False)
        if out.failures:
            raise out.failures[0]
        if out.not_taken:
            raise InterceptorError("its batch hook left a record to its single hook, and it has none")
        return out[0]

    return single


def _call(hook: Callable[[Any], Any], record: Record) -> Any:
    return hook(record)
