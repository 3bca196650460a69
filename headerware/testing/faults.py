"""Faults on purpose: records that a plan drops, doubles, reorders, delays, corrupts or refuses.

Provisional: a minor release may change what is here.

:class:`Faults` is a step for chains, usually the last one, next to the wire. It plans faults for one
direction, by rates and a seed or for single records, and its ``log`` has the faults that it has done:

- ``drop``: On send the record is not sent, and its report says so. On consume it never arrives; neither the
  application nor another step is told.
- ``double``: On send the record is sent twice, as by a producer that tries again. On consume it is given
  twice with one offset, as after a restart from an earlier commit.
- ``reorder``: On consume the record comes after a few later records of its partition.
- ``delay``: On consume the record and its partition wait, and other partitions go on.
- ``corrupt``: A bit of the value, the key or a header's value flips, or a header is gone.
- ``refuse``: The hook raises an :class:`InjectedError`, and the ``on_error`` of the step decides.

The same seed plans the same faults. The plan depends on the number of a record in its topic on send, and on
its partition and offset on consume. It does not depend on threads, clocks or names of topics. So a record
that is read again, for instance after a rebalance, meets its fault again.

A producer cannot hold records back, so a plan for send has neither ``reorder`` nor ``delay``. The brokers of
an :class:`~headerware.testing.EmbeddedCluster` do this to a producer if they fail requests or answer late;
:func:`request_errors` plans their errors.

No configuration can name these steps: they have no word, and no class here is an ``Interceptor``, which a
plug-in must be. A chain with faults cannot be pickled, so that none gets into Spark's executors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import signature
from itertools import accumulate
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, NoReturn, ParamSpec, cast, get_args

from headerware.core.dead_letter import PROCESSING
from headerware.core.errors import ConfigError, DelayedError, InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, HookResult, OnError, Place
from headerware.core.record import Record
from headerware.core.services import Direction, Reassembles, TopicPartitionKey
from headerware.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from headerware.core.context import Context

FaultKind = Literal["drop", "double", "reorder", "delay", "corrupt", "refuse"]
"""The kinds of faults, in the order in which their rates share the numbers from 0 to 1."""
Part = Literal["value", "key", "headers"]
"""The parts of a record that may be corrupted."""
_KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)
_PARTS: Final[tuple[Part, ...]] = get_args(Part)
_HOLDING: Final = frozenset({"reorder", "delay"})
_MEANT: Final[Mapping[object, str]] = {
    **dict.fromkeys(("produce", "producer", "on_send"), "send"),
    **dict.fromkeys(("poll", "consumer", "on_consume"), "consume"),
    **dict.fromkeys(("dup", "duplicate", "repeat"), "double"),
    **dict.fromkeys(("lose", "loss"), "drop"),
}
"""Our words for those that others use."""
_Arguments = ParamSpec("_Arguments")


def _known_options(init: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """Return the ``__init__`` of a plan that says which option or fault an unknown one may mean."""
    known = list(signature(init).parameters)[2:]

    @wraps(init)
    def checked(*args: _Arguments.args, **options: _Arguments.kwargs) -> None:
        for option in options:
            if option not in (*known, "direction"):
                then = f"it has: {', '.join(known)}"
                hint = did_you_mean(_MEANT.get(option, option), known, then=then)
                raise TypeError(f"Faults has no option {option!r}{hint}")
        init(*args, **options)

    return checked


class InjectedError(InterceptorError):
    """A record is refused by a plan of faults."""


class Fault(NamedTuple):
    """A fault that was done.

    Args:
        kind: what was done.
        topic: the topic of the record.
        partition: its partition; None on send, unless the application chose it.
        number: its offset on consume, and its number in its topic on send, from 0.
        detail: which part was corrupted; empty for other faults.
    """

    kind: FaultKind
    topic: str
    partition: int | None
    number: int
    detail: str = ""


class Faults:
    """Do faults to the records of one direction of a chain, by a plan.

    It may be part of several chains and sessions. Their faults are then in one log, and on send their records
    are numbered together.

    Args:
        direction: ``send`` or ``consume``; the other direction passes as it is.
        seed: another seed plans other faults.
        drop, double, reorder, delay, corrupt, refuse: how many of the records meet the fault, from 0 to 1. A
            record meets one fault at most, so the rates add up to 1 at most.
        at: faults for single records, by number. ``{2: "drop"}`` drops the third record of each topic on
            send, and the records with offset 2 on consume. They take precedence over the rates.
        topics: patterns of topics, as for all interceptors.
        on_error: what happens to records that are refused, as for all interceptors.
        dead_letter_topic: the topic for ``on_error="dead_letter"``.
        name: the name of the step in errors and counters.
        delay_ms: how long a delayed record waits, by the clock of the chain's context.
        reorder_by: after how many later records of its partition at most a record comes.
        reorder_ms: how long it waits for these records at most.
        corrupts: the parts that may be corrupted.

    Raises:
        ConfigError: an option has a wrong value, or a plan for send holds records back; on opening, the
            client cannot hold records back, as a share consumer cannot.
    """

    place: ClassVar[Place | None] = Place.TRANSFORM
    """With this position a step may also come after ``sign``, which it is to put to the test."""

    @_known_options
    def __init__(
        self,
        direction: Direction,
        *,
        seed: int = 0,
        drop: float = 0,
        double: float = 0,
        reorder: float = 0,
        delay: float = 0,
        corrupt: float = 0,
        refuse: float = 0,
        at: Mapping[int, FaultKind] | None = None,
        topics: Sequence[str] = ("*",),
        on_error: OnError = "raise",
        dead_letter_topic: str = "{topic}.dead-letter",
        name: str = "faults",
        delay_ms: int = 1_000,
        reorder_by: int = 3,
        reorder_ms: int = 1_000,
        corrupts: Sequence[Part] = _PARTS,
    ) -> None:
        rates = dict(zip(_KINDS, (drop, double, reorder, delay, corrupt, refuse), strict=True))
        self.direction: Final = direction
        self.seed: Final = seed
        self.at: Final[Mapping[int, FaultKind]] = dict(at or {})
        self.topics: Final = tuple(topics)
        self.on_error: Final[OnError] = on_error
        self.dead_letter_topic: Final = dead_letter_topic
        self.name: Final = name
        self.delay_ms: Final = delay_ms
        self.reorder_by: Final = reorder_by
        self.reorder_ms: Final = reorder_ms
        self.corrupts: Final = tuple(corrupts)
        self._kinds: Final = frozenset(self.at.values()) | {kind for kind, rate in rates.items() if rate}
        self._check(rates)
        self._bounds: Final = list(zip(_KINDS, accumulate(rates.values()), strict=True))
        self.reorders: Final = "reorder" in self._kinds
        self._lock: Final = Lock()
        self._log: Final[list[Fault]] = []
        self._numbers: Final[Counter[str]] = Counter()

    def _check(self, rates: Mapping[FaultKind, float]) -> None:
        for kind, rate in rates.items():
            number: object = rate
            if not (isinstance(number, float | int) and 0 <= number <= 1):
                raise ConfigError(f"expected a rate from 0 to 1, such as 0.1, found {number!r}", path=kind)
        if sum(rates.values()) > 1 + 1e-9:  # 0.7 + 0.2 + 0.1 is a little more than 1
            raise ConfigError(f"expected rates that add up to 1 at most, found {sum(rates.values())}")
        numbers: Iterable[object] = self.at
        for each in numbers:
            if not (isinstance(each, int) and each >= 0):
                raise ConfigError(f"expected numbers of records, found {each!r}", path="at")
        for given, known, path in (
            ([self.direction], get_args(Direction), "direction"),
            (self.at.values(), _KINDS, "at"),
            (self.corrupts, _PARTS, "corrupts"),
        ):
            for each in given:
                if each not in known:
                    expected = f"expected one of {', '.join(known)}, found {each!r}"
                    raise ConfigError(f"{expected}{did_you_mean(_MEANT.get(each, each), known)}", path=path)
        for path, number in (
            ("delay_ms", self.delay_ms),
            ("reorder_by", self.reorder_by),
            ("reorder_ms", self.reorder_ms),
        ):
            if number < 1:
                raise ConfigError(f"expected 1 or more, found {number}", path=path)
        held = sorted(self._kinds & _HOLDING)
        if self.direction == "send" and held:
            raise ConfigError(
                f"a producer cannot hold records back; plan it for consume, or let an EmbeddedCluster fail "
                f"requests or answer late ({', '.join(held)})"
            )

    @property
    def log(self) -> tuple[Fault, ...]:
        """The faults that were done, in the order of their time."""
        with self._lock:
            return tuple(self._log)

    @property
    def counts(self) -> dict[str, int]:
        """How many faults of each kind were done, without the kinds that were not."""
        return dict(Counter(fault.kind for fault in self.log))

    def open(self, context: Context) -> SendFaults | ConsumeFaults:
        """Return the hooks of one session."""
        if self.direction == "send":
            return SendFaults(self, context)
        if context.cannot_wait is not None and self._kinds & _HOLDING:
            raise ConfigError(f"{self.name!r} holds records back, and {context.cannot_wait}")
        return ReorderFaults(self, context) if self.reorders else ConsumeFaults(self, context)

    def next_number(self, topic: str) -> int:
        """Return the number of the next record that is sent to a topic; any thread may call this."""
        with self._lock:
            number = self._numbers[topic]
            self._numbers[topic] += 1
        return number

    def planned(self, number: int, partition: int | None = None) -> tuple[FaultKind | None, Random]:
        """Return the fault that is planned for a record, or None, and the dice for its details."""
        dice = Random(f"{self.seed} {partition} {number}")  # noqa: S311 - a plan is no secret
        drawn = dice.random()
        by_rate = next((kind for kind, bound in self._bounds if drawn < bound), None)
        return self.at.get(number, by_rate), dice

    def note(self, fault: Fault) -> None:
        """Add a fault that was done to the log."""
        with self._lock:
            self._log.append(fault)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a chain with {self.name!r} stays in its process: faults are for tests")


class _Hooks:
    """What the hooks of both directions share."""

    def __init__(self, plan: Faults, context: Context) -> None:
        self._plan: Final = plan
        self._context: Final = context
        self._counts: Final[Counter[str]] = Counter()

    def _note(self, kind: FaultKind, record: Record, number: int, detail: str = "") -> None:
        self._counts[kind] += 1
        self._plan.note(Fault(kind, record.topic, record.partition, number, detail))

    def _damaged(self, kind: FaultKind, record: Record, number: int, dice: Random) -> Record:
        """Return a corrupted record, or raise; a record without content stays as it is."""
        if kind == "refuse":
            self._note(kind, record, number)
            raise InjectedError("refused by a plan of faults")
        damages = list(_damages(record, self._plan.corrupts))
        if not damages:
            return record
        corrupted, detail = _corrupted(record, *dice.choice(damages), dice)
        self._note(kind, record, number, detail)
        return corrupted

    def stats(self) -> dict[str, int]:
        """Return how many faults of each kind this session has done."""
        return dict(self._counts)


class SendFaults(_Hooks):
    """The hooks of a session that sends; several threads may call them at once."""

    def on_send(self, record: Record) -> HookResult:
        """Return the record, two of it, or none; raise if it is to be refused."""
        number = self._plan.next_number(record.topic)
        kind, dice = self._plan.planned(number)
        if kind is None:
            return record
        if kind == "drop":
            self._note(kind, record, number)
            return DROP
        if kind == "double":
            self._note(kind, record, number)
            partition = self._context.pick_partition(record) if record.partition is None else None
            return [record if partition is None else record.replace(partition=partition)] * 2
        return self._damaged(kind, record, number, dice)


class ConsumeFaults(_Hooks):
    """The hooks of a session that consumes; they have one caller at a time."""

    def __init__(self, plan: Faults, context: Context) -> None:
        super().__init__(plan, context)
        self._until_ms: Final[dict[tuple[str, int, int], int]] = {}
        """When each delayed record may be read."""

    def on_consume(self, record: Record) -> HookResult:
        """Return the record, two of it, or none; raise if it is to be refused, or has to wait."""
        return self._faulty(record, *self._planned(record))

    def _planned(self, record: Record) -> tuple[FaultKind | None, int, Random]:
        number = record.offset
        if number is None:
            raise InterceptorError("a plan of faults knows a consumed record by its offset, and it has none")
        kind, dice = self._plan.planned(number, record.partition)
        return kind, number, dice

    def _faulty(self, record: Record, kind: FaultKind | None, number: int, dice: Random) -> HookResult:
        if kind is None:
            return record
        if kind == "delay":
            return self._delayed(record, number)
        if kind in {"drop", "reorder"}:
            self._note(kind, record, number)
            return []  # not DROP, of which other steps would hear
        if kind == "double":
            self._note(kind, record, number)
            return [record, record]
        return self._damaged(kind, record, number, dice)

    def _delayed(self, record: Record, number: int) -> Record:
        position, now_ms = _position(record), self._context.now_ms()
        if position not in self._until_ms:
            self._note("delay", record, number)
            self._until_ms[position] = now_ms + self._plan.delay_ms
        until_ms = self._until_ms[position]
        if now_ms < until_ms:
            raise DelayedError(f"a plan of faults delays it by {until_ms - now_ms} ms", until_ms=until_ms)
        del self._until_ms[position]
        return record

    def revoke(self, partitions: list[TopicPartitionKey]) -> None:
        """Forget the delayed records of partitions that have gone to another consumer."""
        for position in [each for each in self._until_ms if each[:2] in partitions]:
            del self._until_ms[position]


class _Held:
    """A record that waits until ``count`` later ones of its partition have come, or for a moment."""

    __slots__ = ("count", "offset", "record", "until_ms")

    def __init__(self, record: Record, count: int, until_ms: int) -> None:
        self.record: Final = record
        self.offset: Final[int] = record.offset or 0
        self.count: int = count
        self.until_ms: Final = until_ms


class ReorderFaults(ConsumeFaults, Reassembles):
    """The same for a plan that reorders. The offset of a record that waits is not committed.

    A record that has waited is given together with the record for which it waited. A session gives all
    records that a hook returns together, or none of them. So if a later step refuses one of them, the others
    wait again.
    """

    def __init__(self, plan: Faults, context: Context) -> None:
        super().__init__(plan, context)
        self._held: Final[dict[TopicPartitionKey, list[_Held]]] = {}
        self._read: tuple[str, int, int] | None = None
        """The position of the record of the last call."""
        self._together: Sequence[Record] = ()
        """What that call returned, if records had waited for its record."""

    def on_consume(self, record: Record) -> HookResult:
        """Return the record, and the records that have waited for it."""
        self._read, self._together = _position(record), ()
        kind, number, dice = self._planned(record)
        out = self._faulty(record, kind, number, dice)
        partition = record.topic, record.partition or 0
        for held in self._held.get(partition, ()):
            held.count -= 1
        due = self._taken(partition, lambda held: held.count <= 0)
        if kind == "reorder":
            self._hold(record, dice.randint(1, self._plan.reorder_by))
        if not due:
            return out
        self._together = [*((out,) if isinstance(out, Record) else cast("list[Record]", out)), *due]
        return self._together

    def _hold(self, record: Record, count: int) -> None:
        until_ms = self._context.now_ms() + self._plan.reorder_ms
        own = self._held.setdefault((record.topic, record.partition or 0), [])
        own.append(_Held(record, count, until_ms))

    def _taken(self, partition: TopicPartitionKey, is_due: Callable[[_Held], bool]) -> list[Record]:
        own = self._held.get(partition, [])
        due = [held.record for held in own if is_due(held)]
        own[:] = [held for held in own if not is_due(held)]
        return due

    def on_stopped(
        self,
        direction: Direction,
        record: Record,
        step: str,
        outcome: str,
        error: BaseException | None,  # noqa: ARG002 - as the service has it
    ) -> None:
        """Hold records again that a session does not give because a step stopped one of them."""
        if direction != "consume" or step == PROCESSING or outcome not in {"refused", "held_back"}:
            return
        together, self._together = {_position(each): each for each in self._together}, ()
        stopped = _position(record)
        if together.pop(stopped, None) is None:
            return
        if outcome == "held_back" and stopped != self._read:  # only the record that was read is tried again
            together[stopped] = record
        for each in together.values():
            self._hold(each, 0)

    def poll(self, now_ms: int) -> Iterator[Record]:
        """Yield the records that have waited long enough."""
        self._together = ()
        for partition in [*self._held]:
            yield from self._taken(partition, lambda held: held.until_ms <= now_ms)

    def is_due(self) -> bool:
        """Return False, because nothing is urgent."""
        return False

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Do nothing for a record that does not come through the chain."""

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Forget the records that will be read again."""
        self._taken((topic, partition), lambda held: held.offset >= offset)

    def revoke(self, partitions: list[TopicPartitionKey]) -> None:
        """Forget the records of partitions that have gone; another consumer reads them again."""
        super().revoke(partitions)
        for partition in partitions:
            self._held.pop(partition, None)

    def safe_offset(self, topic: str, partition: int, position: int) -> int:
        """Return the smallest offset of a record that waits, or the position."""
        return min([position, *self.waiting_offsets().get((topic, partition), [])])

    def safe_offsets(self) -> dict[TopicPartitionKey, int]:
        """Return the smallest offset of the records that wait, by partition."""
        return {partition: min(offsets) for partition, offsets in self.waiting_offsets().items()}

    def waiting_offsets(self) -> dict[TopicPartitionKey, list[int]]:
        """Return the offsets of the records that wait, by partition."""
        return {partition: [held.offset for held in own] for partition, own in self._held.items() if own}

    def stats(self) -> dict[str, int]:
        """Also return how many records wait now."""
        return {**super().stats(), "pending_records": sum(map(len, self._held.values()))}


def _position(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition or 0, record.offset or 0


def _damages(record: Record, parts: Iterable[Part]) -> Iterator[tuple[str, int]]:
    """Yield what can be corrupted: a part, and the index of the header."""
    for part in parts:
        if part == "headers":
            for index, (_, value) in enumerate(record.headers):
                yield "header removed", index
                if value:
                    yield "header", index
        elif isinstance(found := getattr(record, part), bytes) and found:
            yield part, 0


def _corrupted(record: Record, damage: str, index: int, dice: Random) -> tuple[Record, str]:
    """Return a corrupted record, and which part was corrupted."""
    if damage in {"value", "key"}:
        content, bit = _flipped(getattr(record, damage), dice)
        return record.replace(**{damage: content}), f"{damage} bit {bit}"
    pairs = list(record.headers)
    name, value = pairs[index]
    if damage == "header removed":
        del pairs[index]
        return record.with_headers(Headers(pairs)), f"header {name} removed"
    changed, bit = _flipped(value or b"", dice)
    pairs[index] = name, changed
    return record.with_headers(Headers(pairs)), f"header {name} bit {bit}"


def _flipped(content: bytes, dice: Random) -> tuple[bytes, int]:
    """Return bytes of which one bit is another, and the number of the bit, most significant first."""
    bit = dice.randrange(8 * len(content))
    changed = bytearray(content)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed), bit


def request_errors(error: int, *, count: int, rate: float, seed: int = 0) -> list[int]:
    """Plan the answers to the next requests of a kind, for ``EmbeddedCluster.fail_requests``.

    Args:
        error: the code of the error, such as ``KafkaError.NOT_LEADER_FOR_PARTITION``.
        count: for how many requests; later requests succeed.
        rate: how many of them fail, from 0 to 1.
        seed: another seed plans other errors.
    """
    dice = Random(seed)  # noqa: S311 - a plan is no secret
    return [error if dice.random() < rate else 0 for _ in range(count)]
