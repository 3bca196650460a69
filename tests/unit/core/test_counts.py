"""What each interceptor has taken in: a record that went no further does not count to the right of that."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.core.batch import Batch
from headerware.core.chain import Chain
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record
from tests.batches import answered

RECORD = Record(topic="orders", value=b"v")


class Step:
    """Do as it is told on send."""

    def __init__(self, name: str, does: Any = None, on_error: str | None = None) -> None:
        self.name, self._does, self.on_error = name, does, on_error

    def on_send(self, record: Record) -> Any:
        return record if self._does is None else self._does(record)


class Batched(Step):
    def on_send_batch(self, batch: Batch) -> Batch:
        answers = []
        for record in batch:
            try:
                answers.append(self.on_send(record))
            except ValueError as error:
                answers.append(error)
        return answered(batch, answers)


def refuse(record: Record) -> Record:
    raise ValueError


def sent(*steps: Step, records: int = 2) -> list[int]:
    session = Chain(steps).open()
    for outcome in session.send_outcomes([RECORD] * records):
        if isinstance(outcome, FanOut):
            list(outcome)
    return [counts["sent"] for counts in session.stats().values()]


@pytest.mark.parametrize("kind", [Step, Batched])
class TestCounts:
    @pytest.mark.parametrize(
        ("does", "on_error", "expected"),
        [
            (None, None, [2, 2, 2]),
            (lambda _: DROP, None, [2, 2, 0]),
            (lambda _: [], None, [2, 2, 0]),
            (refuse, None, [2, 2, 0]),
            (refuse, "drop", [2, 2, 0]),
            (refuse, "skip", [2, 2, 2]),
            (lambda record: [record, record, record], None, [2, 2, 6]),
            (lambda record: FanOut(3, lambda: iter([record] * 3)), None, [2, 2, 6]),
            (lambda record: record.replace(topic="".join(record.topic)), None, [2, 2, 2]),
        ],
    )
    def test_are_of_records_that_came_that_far(
        self, kind: type[Step], does: Any, on_error: str | None, expected: list[int]
    ) -> None:
        assert sent(Step("first"), kind("middle", does, on_error), Step("last")) == expected

    def test_survive_more_topics_than_plans_are_kept(self, kind: type[Step]) -> None:
        session = Chain([kind("only")]).open()
        for number in range(1_500):
            session.send_outcomes([RECORD.replace(topic=f"orders-{number}")])
        assert session.stats()["only"]["sent"] == 1_500
