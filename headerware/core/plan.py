"""What a topic's records go through: hooks bound once, in order."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal

from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.core.topics import TopicPatterns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.hooks import OnError

Direction = Literal["send", "consume"]
_COUNTS: Final = ("dropped", "failed", "skipped", "dead_lettered")


class Step:
    """One interceptor in one session: what it was configured as, and what it opened into.

    Args:
        position: where it stands in the chain, from the left.
        name: what errors and statistics call it.
        interceptor: the configured interceptor.
        opened: the object with the hooks.
        topics: where it works.
        on_error: what happens to records that it fails on, resolved from its role.
        counts: its counters; None makes new ones.
    """

    __slots__ = ("counts", "interceptor", "name", "on_error", "opened", "position", "topics", "warned")

    def __init__(
        self,
        *,
        position: float,
        name: str,
        interceptor: object,
        opened: Any,
        topics: TopicPatterns,
        on_error: OnError,
        counts: dict[str, int] | None = None,
    ) -> None:
        self.position: Final = position
        self.name: Final = name
        self.interceptor: Final = interceptor
        self.opened: Final = opened
        self.topics: Final = topics
        self.on_error: Final = on_error
        self.counts: Final[dict[str, int]] = counts or dict.fromkeys(_COUNTS, 0)
        self.warned: set[str] = set()

    def hook(self, name: str) -> Callable[..., Any] | None:
        """Return a hook or service of the opened object, or None."""
        found: Callable[..., Any] | None = getattr(self.opened, name, None)
        return found

    def settling(self, position: float) -> Step | None:
        """Return the step that runs this one's ``settle`` at the end of consuming; None if it has none."""
        single, batch = self.hook("settle"), self.hook("settle_batch")
        if single is None and batch is None:
            return None
        return Step(
            position=position,
            name=self.name,
            interceptor=self.interceptor,
            opened=SimpleNamespace(on_consume=single, on_consume_batch=batch),
            topics=TopicPatterns(["*"]),  # a transform may have moved the record
            on_error=self.on_error,
            counts=self.counts,
        )

    def takes_batches(self, direction: Direction) -> bool:
        """Return whether it would rather have many records at once."""
        return self.hook(f"on_{direction}_batch") is not None


class Plan:
    """The hooks of one direction for one topic, in the order in which they run."""

    __slots__ = ("_flow", "batches", "direction", "hooks", "keeps_local", "records", "steps", "topic")

    def __init__(self, topic: str, direction: Direction, steps: Sequence[Step]) -> None:
        self.topic: Final = topic
        self.direction: Final = direction
        self.records: int = 0
        self.steps: list[Step] = []
        self.hooks: list[Callable[[Any], Any]] = []
        self.batches: list[Callable[[Any], Any] | None] = []
        for step in steps if direction == "send" else reversed(steps):
            step.topics.note(topic)
            single, batch = step.hook(f"on_{direction}"), step.hook(f"on_{direction}_batch")
            if step.topics.matches(topic) and (single is not None or batch is not None):
                self.steps.append(step)
                # A wrapper of its own for each place, so that a failure is found by identity.
                own = single is not None and single not in self.hooks
                self.hooks.append(single if own else partial(_call, single, batch))  # type: ignore[arg-type]
                self.batches.append(batch)
        self.keeps_local: Final[bool] = direction == "consume" and any(map(_relies_on_local, self.steps))
        """Whether a record that a hook makes anew has to keep the state of the one that came."""
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
        # What settles has been counted on its way.
        counts = zip(self.steps, taken, strict=False)
        return [(step.name, count) for step, count in counts if step.position > -1]

    def index(self, hook: object) -> int:
        """Find the place of a hook that is running."""
        return next(index for index, candidate in enumerate(self.hooks) if candidate is hook)

    def behind(self, position: float) -> int:
        """Return the first index that runs after the step at a position of the chain."""
        sending = self.direction == "send"
        for index, step in enumerate(self.steps):
            if step.position > position if sending else step.position < position:
                return index
        return len(self.steps)


def _relies_on_local(step: Step) -> bool:
    """Return whether a step settles, or says what it has verified."""
    return step.position < -1 or place_of(step.interceptor) is Place.SIGN


def _call(single: Callable[..., Any] | None, batch: Callable[..., Any] | None, record: Any) -> Any:
    if single is not None:
        return single(record)
    assert batch is not None  # noqa: S101 - a plan takes steps that have one of the two
    outcomes = list(batch([record]))
    if len(outcomes) != 1:
        raise ValueError(f"a batch hook gave {len(outcomes)} outcomes for 1 record")
    outcome = outcomes[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
