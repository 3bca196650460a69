"""Consumers under faults lose nothing by restarts, refusals, interrupts and records that are tried again."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

from confluent_kafka import Message, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from headerware.clients.delivery import Commit, CommitRefused, Delivery, Pause, Resume, Seek, Store
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import HeldBackError, InterceptorError
from headerware.kafka.messages import record_of
from headerware.testing.faults import Faults

if TYPE_CHECKING:
    from headerware.core.record import Record

PARTITION: Final = ("orders", 0)
COUNT: Final = 60
MAX_LIVES: Final = 200


class Moody:
    """Refuse a few records, and hold a few back for the moment."""

    name = "moody"

    def __init__(self, dice: Random, *, refuses: float, holds: float) -> None:
        self.dice = dice
        self.refuses, self.holds = refuses, holds
        self.refused: set[int | None] = set()

    def on_consume(self, record: Record) -> Record:
        drawn = self.dice.random()
        if drawn < self.refuses:
            self.refused.add(record.offset)
            raise InterceptorError("no")
        if drawn < self.refuses + self.holds:
            raise HeldBackError("not now")
        return record


class Life:
    """A consumer of one partition from its start to its sudden end, without a client and its cluster."""

    def __init__(self, dice: Random, steps: list[object], committed: TopicPartition) -> None:
        self.dice, self.committed = dice, committed
        self.now_ms = 0
        context = Context(side="consumer", bootstrap_servers="nowhere", now_ms=lambda: self.now_ms)
        self.session = Chain(steps).open(context)
        self.delivery = Delivery(self.session, clock=lambda: self.now_ms / 1000)
        self.delivery.begin([TopicPartition(*PARTITION)])
        self.position = committed.offset
        self.delivery.positions[PARTITION] = self.position
        if self.delivery.offsets.take_unread_metadata(PARTITION):
            self.delivery.offsets.recall_watermark(PARTITION, committed, self.position, lambda: COUNT)
        self.is_paused = False
        self.got: Counter[int | None] = Counter()

    def step(self, *, interrupts: bool) -> None:
        """Read, give, let time pass, or be interrupted."""
        self.now_ms += self.dice.choice([1, 20, 300])
        if self.dice.random() < 0.6 and not self.is_paused:
            self.read(self.dice.choice([1, 1, 5]))
        if self.delivery.delayed:
            self.delivery.end_delays()
        self.carry_out()
        if self.delivery.give(self.dice.choice([1, 1, 10])) is None:
            self.got.update(message.offset() for message in self.delivery.given)
            self.delivery.given = []
        self.delivery.leaving = []
        if self.dice.random() < 0.2:
            self.delivery.tick()
        if interrupts and self.dice.random() < 0.03:
            waiting = self.delivery.first_offset(PARTITION)
            self.delivery.read_again(PARTITION, self.position if waiting is None else waiting)
        self.carry_out()

    def read(self, count: int) -> None:
        offsets = range(self.position, min(COUNT, self.position + count))
        messages = [Message("orders", 0, offset, b"key", b"value", leader_epoch=1) for offset in offsets]
        records = list(map(record_of, messages))
        for each in zip(messages, records, self.session.consume_outcomes(records), strict=True):
            self.delivery.add(*each)
        self.position = max(self.position, offsets.stop)

    def carry_out(self) -> None:
        while self.delivery.commands:
            command = self.delivery.commands.popleft()
            if isinstance(command, Seek):
                self.position = command.offset
            elif isinstance(command, Pause | Resume):
                self.is_paused = isinstance(command, Pause)
            elif isinstance(command, Store | CommitRefused):
                self.committed = command.offset
            elif isinstance(command, Commit):
                (self.committed,) = command.offsets


@given(
    seed=st.integers(0, 2**32),
    reorder_by=st.sampled_from([1, 3, 20]),
    refuses=st.sampled_from([0, 0.05]),
    holds=st.sampled_from([0, 0.07]),
    interrupts=st.booleans(),
)
def test_each_record_comes_or_is_refused(
    *, seed: int, reorder_by: int, refuses: float, holds: float, interrupts: bool
) -> None:
    dice = Random(seed)
    moody = Moody(dice, refuses=refuses, holds=holds)
    faults = Faults("consume", seed=seed, reorder=0.3, reorder_by=reorder_by, delay=0.05, double=0.05)
    committed, got = TopicPartition(*PARTITION, 0), Counter[int | None]()
    for _ in range(MAX_LIVES):
        life = Life(dice, [moody, faults] if dice.random() < 0.8 else [moody], committed)
        for _ in range(dice.randint(3, COUNT)):
            life.step(interrupts=interrupts)
        committed = life.committed
        got += life.got
        if committed.offset == COUNT:
            break
    assert committed.offset == COUNT
    assert set(range(COUNT)) == set(got) | moody.refused
