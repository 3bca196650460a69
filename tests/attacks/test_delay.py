"""Attacks on moments: nothing waits beyond the bound; forged and malformed headers are refused or ignored."""

from __future__ import annotations

from typing import Any

import pytest

from headerware import Chain, ConfigError, Context, DelayedError, Headers, InterceptorError, Record
from headerware.interceptors import Delay, Slice, not_before_header

NOW = 1_795_392_000_000
HOUR_MS = 3_600_000


def judged(record: Record, step: Delay, *, now_ms: int = NOW) -> Record:
    return step.open(Context(side="consumer", now_ms=lambda: now_ms)).on_consume(record)


def record(not_before_ms: int, *, timestamp_ms: int | None = NOW) -> Record:
    headers = Headers([not_before_header(not_before_ms)])
    return Record("orders", b"v", b"k", headers, partition=0, offset=7, timestamp_ms=timestamp_ms)


class TestFarFuture:
    def test_is_refused_at_once(self) -> None:
        with pytest.raises(InterceptorError, match=r"at most 3600000 ms .*\(max_delay_ms\)") as refused:
            judged(record(10**15 - 1), Delay())
        assert not isinstance(refused.value, DelayedError)

    def test_is_delivered_at_once_if_told_so(self) -> None:
        far = record(10**15 - 1)
        assert judged(far, Delay(beyond_max="pass")) is far

    def test_records_of_one_time_hold_a_partition_for_the_bound_at_most_in_all(self) -> None:
        flood = [record(NOW + number * HOUR_MS) for number in range(1, 1_000)]
        now_ms = NOW
        for each in flood:
            try:
                judged(each, Delay(), now_ms=now_ms)
            except DelayedError as waiting:
                now_ms = waiting.until_ms
            except InterceptorError:
                continue
        assert now_ms <= NOW + HOUR_MS

    @pytest.mark.parametrize("ahead_hours", [0, 1, 5])
    def test_timestamps_of_the_future_hold_it_for_as_long_as_the_broker_takes_them(
        self, ahead_hours: int
    ) -> None:
        sent = range(ahead_hours + 1)  # the broker refuses what is further ahead
        now_ms = NOW
        for each in [record(NOW + (at + 1) * HOUR_MS, timestamp_ms=NOW + at * HOUR_MS) for at in sent]:
            with pytest.raises(DelayedError) as waiting:
                judged(each, Delay(), now_ms=now_ms)
            now_ms = waiting.value.until_ms
        assert now_ms == NOW + (ahead_hours + 1) * HOUR_MS

    def test_a_timestamp_in_the_future_gains_nothing_for_a_record_alone(self) -> None:
        with pytest.raises(InterceptorError) as refused:
            judged(record(NOW + 2 * HOUR_MS, timestamp_ms=NOW + 2 * HOUR_MS), Delay())
        assert not isinstance(refused.value, DelayedError)

    @pytest.mark.parametrize("timestamp_ms", [None, NOW, NOW + 4_500])
    def test_is_measured_from_now_or_from_an_earlier_timestamp(self, timestamp_ms: int | None) -> None:
        with pytest.raises(InterceptorError) as refused:
            judged(record(NOW + 5_000, timestamp_ms=timestamp_ms), Delay(max_delay_ms=1_000))
        assert str(refused.value) == (
            "expected a delay of at most 1000 ms from now and from the record's timestamp (max_delay_ms), "
            "found 5000 ms"
        )

    def test_a_sender_that_asks_for_too_much_is_told(self) -> None:
        with pytest.raises(ConfigError, match="max_delay_ms"):
            Delay(after_ms=HOUR_MS + 1)
        with pytest.raises(ConfigError, match="max_delay_ms"):
            Delay(after_ms_by_topic={"orders": HOUR_MS + 1})


class TestNumbers:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"after_ms": -5}, r"after_ms: expected 0 to 999999999999999 milliseconds, found -5"),
            ({"after_ms": 0.5}, r"after_ms: expected 0 to 999999999999999 milliseconds, found 0\.5"),
            (
                {"after_ms_by_topic": {"orders": -1}},
                r"after_ms_by_topic\.orders: expected 0 to .*found -1",
            ),
            ({"max_delay_ms": 0}, "max_delay_ms: expected 1 to 2592000000 milliseconds, found 0"),
            ({"max_delay_ms": 2_592_000_001}, "max_delay_ms: expected 1 to 2592000000 milliseconds"),
        ],
    )
    def test_out_of_range_are_refused_from_code_too(self, options: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            Delay(**options)


class TestMalformed:
    @pytest.mark.parametrize("value", [None, b"", b"later", b"9" * 16, b"-5", b"9" * 1_000_000])
    def test_holds_nothing(self, value: bytes | None) -> None:
        odd = Record("orders", b"v", headers=Headers([("hw.not-before", value)]))
        assert judged(odd, Delay()) is odd
        with pytest.raises(InterceptorError, match=r"hw\.not-before"):
            judged(odd, Delay(malformed="refuse"))

    def test_two_moments_hold_nothing(self) -> None:
        one = not_before_header(NOW + 1_000)
        odd = Record("orders", b"v", headers=Headers([one, one]))
        assert judged(odd, Delay()) is odd


class TestWait:
    @pytest.mark.parametrize("policy", ["drop", "dead_letter", "raise"])
    def test_on_error_neither_drops_nor_passes_a_record_that_waits(self, policy: Any) -> None:
        letters: list[Record] = []
        own = Context(side="consumer", now_ms=lambda: NOW, publish=letters.append)
        with Chain([Delay(on_error=policy)]).open(own) as session:
            outcome = session.consume_outcome(record(NOW + 5))
        assert isinstance(outcome, DelayedError)
        assert (outcome.until_ms, letters) == (NOW + 5, [])

    def test_each_time_that_a_record_is_held_back_counts(self) -> None:
        step = Delay().open(Context(side="consumer", now_ms=lambda: NOW))
        for _ in range(3):
            with pytest.raises(DelayedError):
                step.on_consume(record(NOW + 5))
        assert step.stats()["delayed"] == 3

    def test_slices_are_not_held_one_by_one(self) -> None:
        chain: Any = Chain([Delay(after_ms=1_000), Slice(max_bytes=1_000)])
        with chain.open(Context(side="producer", now_ms=lambda: NOW)) as session:
            slices = list(session.send([Record("orders", b"v" * 5_000, b"k")]))
        with chain.open(Context(side="consumer", now_ms=lambda: NOW)) as session:
            outcomes = [
                session.consume_outcome(each.replace(partition=0, offset=at))
                for at, each in enumerate(slices)
            ]
        assert [isinstance(outcome, DelayedError) for outcome in outcomes] == [False] * (len(slices) - 1) + [
            True
        ]

    def test_a_client_that_cannot_wait_refuses_the_chain(self) -> None:
        with pytest.raises(ConfigError, match="nobody waits"):
            Chain([Delay()]).open(Context(side="consumer", cannot_wait="nobody waits"))
