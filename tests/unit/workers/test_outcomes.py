"""What becomes of a unit, and the transaction of many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from headerware import Headers, InterceptorError, Record
from headerware.core.errors import HeaderwareError
from headerware.workers.outcomes import Outcome, transact
from headerware.workers.units import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def unit_of(*values: bytes) -> Unit:
    records = tuple(Record("orders", value, b"k", Headers(), 0, offset=at) for at, value in enumerate(values))
    return Unit(records, tuple(range(len(values))))


def dead_lettered(unit: Unit) -> Outcome:
    error = InterceptorError("not wanted").at("guard", unit.records[0])
    return Outcome.dead_lettered(unit, error, "dead", group_id="g", cluster="c", now_ms=0)


class Refuses:
    """A sender that refuses records by a rule, once for each of its answers."""

    def __init__(self, rule: Any) -> None:
        self._rule = rule
        self.sent: list[list[Record]] = []

    def send(self, records: Sequence[Record], *_: Any, **__: Any) -> Mapping[int, KafkaError]:
        unfit = {at: TOO_LARGE for at, record in enumerate(records) if self._rule(record)}
        if not unfit:
            self.sent.append([*records])
        return unfit


def run(sender: Any, outcomes: Sequence[Outcome], **options: Any) -> list[Outcome]:
    options = {"decide_again": lambda outcome, _: dead_lettered(outcome.unit), **options}
    return transact(sender, outcomes, lambda _: [], None, **options)


class TestTransact:
    def test_what_is_refused_is_decided_again_and_the_others_go(self) -> None:
        sender = Refuses(lambda record: record.value == b"large" and record.topic == "paid")
        outcomes = [
            Outcome(unit, "sent", [record.replace(topic="paid") for record in unit.records])
            for unit in (unit_of(b"a"), unit_of(b"large", b"b"))
        ]
        became = run(sender, outcomes)
        assert [each.disposition for each in became] == ["sent", "dead_letter"]
        (sent,) = sender.sent
        assert [(record.topic, record.value) for record in sent] == [
            ("paid", b"a"),
            ("dead", b"large"),
            ("dead", b"b"),
        ]

    def test_several_refusals_of_one_unit_are_told_together(self) -> None:
        told: list[Mapping[int, KafkaError]] = []
        records = [Record("paid", b"%d" % number) for number in range(3)]

        def decide_again(outcome: Outcome, errors: Mapping[int, KafkaError]) -> Outcome:
            told.append(errors)
            return dead_lettered(outcome.unit)

        sender = Refuses(lambda record: record.topic == "paid" and record.value in {b"1", b"2"})
        run(sender, [Outcome(unit_of(b"v"), "sent", records)], decide_again=decide_again)
        assert told == [{1: TOO_LARGE, 2: TOO_LARGE}]

    def test_delivery_reports_are_returned_by_outcome(self) -> None:
        """Also for an outcome without records, and not for the account."""

        class Reports:
            def send(self, records: Sequence[Record], *_: Any, delivered: dict[int, Any]) -> dict[int, Any]:
                delivered.update(enumerate(record.value for record in records))
                return {}

        outcomes = [
            Outcome(unit_of(b"v"), "sent", [Record("paid", value) for value in values])
            for values in ((b"a", b"b"), (), (b"c",))
        ]
        reports: dict[Outcome, list[Any]] = {}
        run(Reports(), outcomes, account_of=lambda *_: Record("accounts", b"{}"), reports_by_outcome=reports)
        assert list(reports.items()) == [
            (outcomes[0], [b"a", b"b"]),
            (outcomes[1], []),
            (outcomes[2], [b"c"]),
        ]

    def test_a_dead_letter_that_is_refused_becomes_a_stub(self) -> None:
        sender = Refuses(lambda record: record.value is not None)
        run(sender, [dead_lettered(unit_of(b"v"))])
        assert [record.value for record in sender.sent[0]] == [None]

    def test_a_stub_that_is_refused_is_an_error(self) -> None:
        with pytest.raises(
            HeaderwareError, match=r"^dead refuses even a stub .* orders\[0\]@0: .* max.message.bytes of dead"
        ):
            run(Refuses(lambda _: True), [dead_lettered(unit_of(b"v"))])

    def test_an_account_that_is_refused_is_an_error(self) -> None:
        sender = Refuses(lambda record: record.topic == "accounts")
        with pytest.raises(HeaderwareError, match="accounts takes no accounts"):
            run(sender, [Outcome(unit_of(b"v"), "dropped")], account_of=lambda *_: Record("accounts", b"a"))

    def test_an_account_tells_what_the_outcomes_became(self) -> None:
        told: list[list[str]] = []

        def account_of(outcomes: Sequence[Outcome], _: Any) -> Record:
            told.append([each.disposition for each in outcomes])
            return Record("accounts", b"a")

        sender = Refuses(lambda record: record.topic == "paid")
        run(sender, [Outcome(unit_of(b"v"), "sent", [Record("paid", b"v")])], account_of=account_of)
        assert told == [["sent"], ["dead_letter"]]

    def test_an_error_of_the_sender_comes_out(self) -> None:
        def send(*_: Any, **__: Any) -> Any:
            raise HeaderwareError("taken over")

        with pytest.raises(HeaderwareError, match="taken over"):
            run(SimpleNamespace(send=send), [])
