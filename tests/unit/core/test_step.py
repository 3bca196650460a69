"""What becomes of a record that an interceptor fails on, in both directions, and what is told about it."""

from __future__ import annotations

import logging
import re
import traceback
from types import SimpleNamespace as Hooks
from typing import TYPE_CHECKING, Any

import pytest

from headerware import (
    DROP,
    Chain,
    ConfigError,
    Context,
    Headers,
    InterceptorError,
    Record,
    Role,
    SignatureError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.session import Session

SECRET = "hunter2"
PLACED = Record("orders", b"v", partition=3, offset=42)


def failing(error: Exception, **options: Any) -> Hooks:
    def hook(record: Record) -> Record:
        raise error

    return Hooks(name="bad", on_send=hook, on_consume=hook, **options)


def appends(text: bytes) -> Hooks:
    def hook(record: Record) -> Record:
        return record.with_value(record.value + text, record.headers)

    return Hooks(on_send=hook, on_consume=hook)


def directions(session: Session) -> list[Callable[[Record], Any]]:
    return [
        session.send_outcome,
        session.consume_outcome,
        lambda record: session.send_outcomes([record])[0],
        lambda record: session.consume_outcomes([record])[0],
    ]


class TestRaise:
    @pytest.mark.parametrize("direction", range(4))
    def test_gives_the_error_with_step_and_position(self, direction: int) -> None:
        error = SignatureError("bad")
        session = Chain([failing(error)]).open()
        assert directions(session)[direction](PLACED) is error
        assert str(error) == "bad at orders[3]@42: bad"
        assert (error.step, error.topic, error.partition, error.offset) == ("bad", "orders", 3, 42)
        assert session.stats()["bad"]["failed"] == 1

    def test_send_and_consume_raise_it(self) -> None:
        session = Chain([failing(SignatureError("bad"))]).open()
        with pytest.raises(SignatureError):
            session.send([PLACED])
        with pytest.raises(SignatureError):
            session.consume([PLACED])

    def test_one_bad_record_takes_no_neighbour_along(self) -> None:
        def hook(record: Record) -> Record:
            if record.value == b"bad":
                raise SignatureError("bad")
            return record

        session = Chain([Hooks(on_send=hook)]).open()
        good = Record("orders", b"good")
        outcomes = session.send_outcomes([good, Record("orders", b"bad"), good])
        assert (outcomes[0], outcomes[2]) == (good, good)
        assert isinstance(outcomes[1], SignatureError)

    def test_one_error_object_raised_twice_has_the_position_of_each(self) -> None:
        session = Chain([failing(SignatureError("bad"))]).open()
        outcomes = session.consume_outcomes([PLACED, PLACED.replace(offset=43)])
        assert [str(outcome) for outcome in outcomes] == [
            "bad at orders[3]@42: bad",
            "bad at orders[3]@43: bad",
        ]

    def test_the_last_good_record_is_on_the_error(self) -> None:
        session = Chain([appends(b"1"), failing(SignatureError("bad")), appends(b"2")]).open()
        outcome = session.send_outcome(PLACED)
        assert isinstance(outcome, SignatureError)
        assert outcome.last_record is not None
        assert outcome.last_record.value == b"v1"


class TestForeignErrors:
    @pytest.mark.parametrize("direction", range(4))
    def test_are_wrapped_without_their_text(self, direction: int) -> None:
        session = Chain([failing(ValueError(SECRET))]).open()
        outcome = directions(session)[direction](PLACED)
        assert re.fullmatch(
            r"bad at orders\[3\]@42: raised ValueError at test_step\.py:\d+ in hook; "
            r"the cause says more",
            str(outcome),
        )
        assert SECRET not in repr(outcome)
        assert isinstance(outcome.__cause__, ValueError)

    def test_lead_to_the_place_where_they_were_raised(self) -> None:
        session = Chain([failing(ValueError(SECRET))]).open()
        outcome = session.send_outcome(PLACED)
        assert isinstance(outcome, InterceptorError)
        assert traceback.extract_tb(outcome.__traceback__)[-1].name == "hook"

    def test_of_headerware_keep_their_text(self) -> None:
        outcome = Chain([failing(ConfigError("no such key", path="a.b"))]).open().send_outcome(PLACED)
        assert str(outcome) == "bad at orders[3]@42: a.b: no such key"

    def test_are_logged_without_their_text(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, logger="headerware")
        session = Chain([failing(ValueError(SECRET), on_error="drop")]).open()
        session.send_outcome(PLACED.replace(value=SECRET.encode(), headers=Headers({"a": SECRET})))
        assert len(caplog.records) == 1
        assert SECRET not in caplog.text

    def test_that_end_the_program_are_not_caught(self) -> None:
        def hook(record: Record) -> Record:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Chain([Hooks(on_send=hook)]).open().send_outcome(PLACED)


class TestDropAndSkip:
    @pytest.mark.parametrize("direction", range(4))
    def test_drop_takes_the_record_out(self, direction: int) -> None:
        session = Chain([failing(ValueError(), on_error="drop")]).open()
        assert directions(session)[direction](PLACED) is DROP
        assert session.stats()["bad"] == {
            "sent": int(direction in {0, 2}),
            "consumed": int(direction in {1, 3}),
            "dropped": 1,
            "failed": 0,
            "skipped": 0,
            "dead_lettered": 0,
        }

    @pytest.mark.parametrize(("direction", "value"), list(enumerate([b"v12", b"v21", b"v12", b"v21"])))
    def test_skip_goes_on_with_the_last_good_record(self, direction: int, value: bytes) -> None:
        session = Chain([appends(b"1"), failing(ValueError(), on_error="skip"), appends(b"2")]).open()
        assert directions(session)[direction](PLACED).value == value
        assert session.stats()["bad"]["skipped"] == 1

    def test_observers_skip_by_default(self) -> None:
        session = Chain([failing(ValueError(), role=Role.OBSERVE)]).open()
        assert session.send_outcome(PLACED) is PLACED

    def test_protectors_raise_by_default(self) -> None:
        session = Chain([failing(ValueError(), role=Role.PROTECT)]).open()
        assert isinstance(session.send_outcome(PLACED), InterceptorError)

    def test_is_logged_once_for_each_cause(self, caplog: pytest.LogCaptureFixture) -> None:
        raised: list[Exception] = [ValueError(), ValueError(), KeyError(), ValueError(), SignatureError("x")]

        def hook(record: Record) -> Record:
            raise raised.pop()

        session = Chain([Hooks(name="bad", on_send=hook, on_error="skip")]).open()
        session.send([PLACED] * 5)
        assert len(caplog.records) == 3
        assert session.stats()["bad"]["skipped"] == 5

    def test_is_logged_for_each_reason_up_to_a_bound(self, caplog: pytest.LogCaptureFixture) -> None:
        reasons = iter(["expired", "expired", "a bad key", *(f"a bad key {number}" for number in range(20))])

        def hook(record: Record) -> Record:
            raise SignatureError(next(reasons))

        session = Chain([Hooks(name="bad", on_send=hook, on_error="drop")]).open()
        session.send([PLACED] * 23)
        assert "expired" in caplog.messages[0]
        assert "a bad key" in caplog.messages[1]
        assert len(caplog.messages) == 8
        assert session.stats()["bad"]["dropped"] == 23


class TestLegality:
    def test_skip_is_refused_for_what_protects(self) -> None:
        with pytest.raises(ConfigError, match=r"bad\.on_error: 'skip' would let an unprotected record pass"):
            Chain([failing(ValueError(), role=Role.PROTECT, on_error="skip")])

    def test_skip_is_refused_for_what_decodes(self) -> None:
        with pytest.raises(ConfigError, match=r"bad\.on_error: 'skip' would hand encoded bytes"):
            Chain([failing(ValueError(), decodes=("hw.compress",), on_error="skip")])

    @pytest.mark.parametrize("role", list(Role))
    @pytest.mark.parametrize("policy", ["raise", "drop", "dead_letter"])
    def test_all_others_are_allowed(self, role: Role, policy: str) -> None:
        assert len(Chain([failing(ValueError(), role=role, on_error=policy, decodes=("x",))])) == 1

    @pytest.mark.parametrize("policy", ["ignore", "", 5, ["skip"]])
    def test_an_unknown_policy_is_refused(self, policy: Any) -> None:
        with pytest.raises(ConfigError, match="on_error"):
            Chain([failing(ValueError(), on_error=policy)])


class TestDeadLettering:
    def test_publishes_and_drops(self) -> None:
        published: list[Record] = []
        session = Chain([failing(SignatureError("bad"), on_error="dead_letter")]).open(
            Context(publish=published.append)
        )
        assert session.consume_outcome(PLACED) is DROP
        assert [record.topic for record in published] == ["orders.dead-letter"]
        assert session.stats()["bad"]["dead_lettered"] == 1

    def test_works_in_a_batch_for_the_failed_one_alone(self) -> None:
        published: list[Record] = []
        batch = Hooks(
            name="bad",
            on_error="dead_letter",
            on_consume_batch=lambda batch: batch.replace(failures={1: SignatureError("bad")}),
        )
        given = [PLACED.replace(offset=offset) for offset in (1, 2, 3)]
        session = Chain([batch]).open(Context(publish=published.append))
        assert session.consume_outcomes(given) == [given[0], DROP, given[2]]
        assert [record.headers.last("__connect.errors.offset") for record in published] == [b"2"]

    def test_of_one_in_a_list_leaves_the_others(self) -> None:
        def refuse(record: Record) -> Record:
            if record.value == b"b":
                raise SignatureError("bad")
            return record

        published: list[Record] = []
        pieces = Hooks(on_consume=lambda r: [r.with_value(v, r.headers) for v in (b"a", b"b", b"c")])
        bad = Hooks(name="bad", on_consume=refuse, on_error="dead_letter")
        session = Chain([bad, pieces]).open(Context(publish=published.append))
        assert [record.value for record in session.consume([PLACED])] == [b"a", b"c"]
        assert [record.value for record in published] == [b"b"]
