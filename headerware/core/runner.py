"""Run records through the hooks of one direction, and answer failures.

The loop is plain, with one ``try`` around it: the result of a hook goes to a temporary first, so that in
the handler the record is still the last good one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any, Final, Literal

from headerware.core.dead_letter import PendingDeadLetter, known_outcome
from headerware.core.errors import HeaderwareError, InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut, Stage
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.order import stage_of
from headerware.core.record import ORIGINAL, Record
from headerware.core.record_run import RecordRun
from headerware.core.services import Direction, SendsRuns, WrapsHooks, offered
from headerware.core.step import Failures, PublishDeadLetter, Step, TellStopped, error_at, wrapped

Wrapping = tuple[Step, WrapsHooks]
"""A step that wraps the hooks of the others, and its interceptor."""
Outcome = Record | list[Record] | FanOut | HeaderwareError | PendingDeadLetter | Literal[DROP]  # type: ignore[valid-type]
"""The outcome of one record: a record, several, none yet (an empty list), dropped, refused, or not known yet.

An outcome is not known as long as a dead letter is on its way, if the context's port publishes like that.
"""

_TOPICS_LIMIT: Final = 1_000
_OWN_REFERENCES: Final = 3
"""The references held by the list, the loop over it, and the call of getrefcount."""
_log: Final = logging.getLogger("headerware")
_INCOMPLETE: Final = "a part of the message was dropped further on, and without it the others are of no use"


class TopicHooks:
    """Hold the hooks of one direction for one topic, bound once, in the order in which they run."""

    __slots__ = ("_flow", "batches", "calls", "direction", "keeps_local", "records", "runs", "steps", "topic")

    def __init__(
        self, topic: str, direction: Direction, steps: Sequence[Step], wrappings: Sequence[Wrapping] = ()
    ) -> None:
        self.topic: Final = topic
        self.direction: Final = direction
        self.records: int = 0
        self.steps: list[Step] = []
        self.calls: list[Callable[[Any], Any]] = []
        self.batches: list[Callable[[Any], Any] | None] = []
        self.runs: list[Callable[[RecordRun], RecordRun | None] | None] = []
        for step in steps if direction == "send" else reversed(steps):
            step.topics.note(topic)
            single, batch = step.hook(f"on_{direction}"), step.hook(f"on_{direction}_batch")
            if step.topics.matches(topic) and (single is not None or batch is not None):
                self.steps.append(step)
                sends_runs = offered(step.opened, SendsRuns) if direction == "send" else None
                run = None if sends_runs is None else sends_runs.send_run
                for wrapper, wraps in wrappings:
                    if wrapper is not step and step.interceptor is not None and wrapper.topics.matches(topic):
                        single = single and wraps.wrap_hook(step.name, direction, single)
                        batch = batch and wraps.wrap_hook(step.name, direction, batch)
                        run = None  # who wraps a hook sees each record
                # A wrapper of its own for each step, so that a failure is found by identity.
                own = single is not None and single not in self.calls
                self.calls.append(single if own else partial(_call, single, batch))  # type: ignore[arg-type]
                self.batches.append(batch)
                self.runs.append(run)
        self.keeps_local: bool = any(step.leaves_local(direction) for step in self.steps)
        """Whether a new record gets the local state of the one that its hook was called with."""
        self._flow: list[int] = [0] * (len(self.steps) + 1)

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
        # A step that settles has been counted on the record's way there.
        return [(step.name, count) for step, count in counts if not step.settles]

    def index(self, hook: object) -> int:
        """Return the index of a hook that is running."""
        return next(index for index, candidate in enumerate(self.calls) if candidate is hook)

    def behind(self, position: float) -> int:
        """Return the first index that runs after the step at a position of the chain."""
        sending = self.direction == "send"
        for index, step in enumerate(self.steps):
            if step.position > position if sending else step.position < position:
                return index
        return len(self.steps)


class Runner:
    """Run one direction of a session: ``send`` is left to right, ``consume`` right to left.

    ``steps`` are in the order of sending for both. ``edge`` normalises a record that comes in, or raises.
    ``wrappings`` are the steps that wrap the hooks of the others, which happens when these are bound.
    ``run_edge`` returns a run of which ``edge`` would change no record; None, or an error, for any other.
    """

    def __init__(
        self,
        direction: Direction,
        steps: Sequence[Step],
        edge: Callable[[Record], Record],
        publish_dead_letter: PublishDeadLetter,
        tell_stopped: TellStopped,
        wrappings: Sequence[Wrapping] = (),
        run_edge: Callable[[RecordRun], RecordRun | None] | None = None,
    ) -> None:
        self._direction = direction
        self._steps = steps
        self._edge = edge
        self._run_edge = run_edge
        self._failures: Final = Failures(publish_dead_letter, tell_stopped)
        self._wrappings = wrappings
        self._by_topic: dict[str, TopicHooks] = {}
        self._retired: list[TopicHooks] = []
        self._forgotten: dict[str, int] = {}
        self._lock: Final = Lock()
        self._keeps_originals = False
        self._kept_names: frozenset[str] | None = frozenset()

    def keep_originals(self, names: frozenset[str] | None = None) -> None:
        """From here on, leave in each record's local state what it was when it came in.

        With ``names``, only in that of records that have a header of one of these names.
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
        """Return the outcome of one record; raise nothing for it."""
        try:
            record = self._edge(record)
        except HeaderwareError as error:
            self._failures.refused_at_edge(record, error)
            return error
        hooks = self._by_topic.get(record.topic) or self.hooks_of(record.topic)
        hooks.records += 1
        if self._keeps_originals:
            return self._run(hooks, 0, self._with_original(record), record)
        return self._run(hooks, 0, record, record)

    def many(self, records: Sequence[Record]) -> list[Outcome]:
        """Return one outcome per record, in order; pass whole batches to hooks that prefer them."""
        if not any(step.takes_batches(self._direction) for step in self._steps):
            one = self.one
            return [one(record) for record in records]
        outcomes: list[Outcome] = [DROP] * len(records)
        batches: dict[str, list[tuple[int, Record]]] = {}
        for index, record in enumerate(records):
            try:
                admitted = self._edge(record)
            except HeaderwareError as error:
                self._failures.refused_at_edge(record, error)
                outcomes[index] = error
            else:
                batches.setdefault(admitted.topic, []).append((index, admitted))
        for topic, batch in batches.items():
            hooks = self.hooks_of(topic)
            hooks.records += len(batch)
            keeps = self._keeps_originals
            found = self._run_batch(
                hooks,
                [(self._with_original(record) if keeps else record, record) for _, record in batch],
            )
            for (index, _), outcome in zip(batch, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def run(self, run: RecordRun) -> RecordRun | None:
        """Return what becomes of a run that all steps take by columns.

        None is for any other, and where a record of it is refused: then its records go through the hooks.
        """
        hooks = self.hooks_of(run.topic)
        if self._run_edge is None or self._keeps_originals or None in hooks.runs:
            return None
        try:
            going = self._run_edge(run)
            for step in hooks.runs:
                if going is None or step is None:
                    return None
                going = step(going)
        except Exception as error:  # noqa: BLE001 - whose it is, is found one by one
            pass_on_interrupt(error)
            return None
        if going is not None:
            hooks.records += len(run)
        return going

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
        except Exception as error:  # noqa: BLE001 - what was released before it is not lost
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
        """Log the first topic if no step works on it: one letter of a pattern can switch a chain off."""
        own = [step for step in self._steps if step.interceptor is not None and not step.settles]
        if own and not self._by_topic and not any(step.topics.matches(topic) for step in own):
            patterns = sorted({pattern for step in own for pattern in step.topics.patterns})
            _log.warning(
                "no step of the chain works on topic %r, so its records pass as they are; topics: %s",
                topic,
                ", ".join(patterns),
            )

    def _add_retired(self) -> None:
        """Add up the counts of forgotten hooks, except those that another thread still runs."""
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
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is answered by its on_error
            pass_on_interrupt(error)
            index = hooks.index(hook)
            hooks.leave(index)
            return self._failed(hooks, index, error, current, original)
        index = hooks.index(hook)
        hooks.leave(index)
        return self._go_on(hooks, index, out, current, original)

    def _go_on(self, hooks: TopicHooks, index: int, out: Any, current: Record, original: Record) -> Outcome:
        """Go on behind a hook that returned anything but the next record of the same topic."""
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
            return FanOut(
                out.count, lazily, size_bytes=out.size_bytes, whole=current, last_waits=out.last_waits
            )
        if out is None or isinstance(out, str | bytes | Mapping) or not isinstance(out, Iterable):
            error = InterceptorError(
                f"returned {type(out).__name__}; expected a Record, DROP or an iterable of Records"
            )
            return self._failed(hooks, index, error, current, original)
        return self._run_list(hooks, index, out, current, original)

    def _run_list(
        self, hooks: TopicHooks, index: int, out: Iterable[Any], current: Record, original: Record
    ) -> Outcome:
        try:
            records = [_sound(record, hooks, hooks.steps[index], current) for record in out]
        except Exception as error:  # noqa: BLE001 - a generator is a hook that runs later
            pass_on_interrupt(error)
            return self._failed(hooks, index, error, current, original)
        finished: list[Record] = []
        dropped = 0
        for record in records:
            # A record of a list is one in its own right, as it is now.
            known = record.with_local(ORIGINAL, record) if self._keeps_originals else record
            outcome = known_outcome(self._next(hooks, index, known, record))
            dropped += outcome is DROP
            try:
                finished.extend(flat(outcome))
            except HeaderwareError as error:
                return error
        # If a later step holds one of them back, the whole waits.
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
            except Exception as error:  # noqa: BLE001 - a lazy split is a hook that runs later
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
        """Go on behind a step with a record that may have moved to another topic."""
        if record.topic != hooks.topic:
            return self._enter(self.hooks_of(record.topic), hooks.steps[index], record, original)
        hooks.enter(index + 1)
        return self._run(hooks, index + 1, record, original)

    def _enter(
        self, hooks: TopicHooks, step: Step, record: Record, original: Record | None = None
    ) -> Outcome:
        """Go on in the hooks of a topic with a record from a step that may not be among them."""
        index = hooks.behind(step.position)
        hooks.enter(index)
        return self._run(hooks, index, record, record if original is None else original)

    def _run_batch(self, hooks: TopicHooks, entries: list[tuple[Record, Record]]) -> list[Outcome]:
        """Run (current, original) pairs, one step after the other."""
        finished: list[Outcome] = [DROP] * len(entries)
        live = dict(enumerate(entries))
        for index in range(len(hooks.steps)):
            going = list(live.items())
            for (slot, (current, original)), out in zip(
                going, self._call_batch(hooks, index, [entry[0] for _, entry in going]), strict=True
            ):
                if out.__class__ is Record and out.topic == hooks.topic and out.headers.__class__ is Headers:
                    live[slot] = (_with_local(out, hooks, current), original)
                    continue
                hooks.leave(index)
                if isinstance(out, Exception):
                    # A skipped failure stays in the batch: the last good record goes on in its place.
                    outcome = self._failures.answer(hooks.steps[index], out, current, original)
                else:
                    outcome = self._go_on(hooks, index, out, current, original)
                if outcome is None:
                    hooks.enter(index + 1)
                else:
                    del live[slot]
                    finished[slot] = outcome
        for slot, (current, _) in live.items():
            finished[slot] = current
        return finished

    def _call_batch(self, hooks: TopicHooks, index: int, records: list[Record]) -> list[Any]:
        batch, hook = hooks.batches[index], hooks.calls[index]
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
            # One error for each record, because each gets a position of its own.
            return [wrapped(error) for _ in records]
        return outcomes

    def _failed(
        self, hooks: TopicHooks, index: int, error: Exception, current: Record, original: Record
    ) -> Outcome:
        """Do what the step's ``on_error`` says; a skipped failure goes on with the last good record."""
        outcome = self._failures.answer(hooks.steps[index], error, current, original)
        if outcome is not None:
            return outcome
        hooks.enter(index + 1)
        return self._run(hooks, index + 1, current, original)


def _add_up(counts: dict[str, int], more: list[tuple[str, int]]) -> None:
    for name, count in more:
        counts[name] = counts.get(name, 0) + count


def _attempt(hook: Callable[[Record], Any], record: Record) -> Any:
    try:
        return hook(record)
    except Exception as error:  # noqa: BLE001 - it becomes this record's outcome
        pass_on_interrupt(error)
        return error


def _sound(record: Any, hooks: TopicHooks, step: Step, current: Record) -> Record:
    """Return a record that a hook made of another, with plain headers; raise what is wrong with it."""
    if not isinstance(record, Record):
        raise InterceptorError(f"gave a {type(record).__name__} among its records; expected Records only")
    sound = _normalised(record)
    if sound.topic != hooks.topic and stage_of(step.interceptor) is not Stage.OBJECTS:
        raise InterceptorError("changed the topic; only transforms at the object stage may")
    return _with_local(sound, hooks, current)


def _with_local(record: Record, hooks: TopicHooks, current: Record) -> Record:
    """Return a record with the state of the one that it was made of, unless it has one of its own."""
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


def _call(single: Callable[..., Any] | None, batch: Callable[..., Any] | None, record: Any) -> Any:
    if single is not None:
        return single(record)
    assert batch is not None  # noqa: S101 - TopicHooks takes steps that have one of the two
    outcomes = list(batch([record]))
    if len(outcomes) != 1:
        raise ValueError(f"a batch hook gave {len(outcomes)} outcomes for 1 record")
    outcome = outcomes[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
