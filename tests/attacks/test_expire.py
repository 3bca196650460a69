"""Attacks on lifetimes: what was forged, moved or stripped is refused; what has expired costs no decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headerware import (
    DROP,
    Chain,
    ConfigError,
    Context,
    ExpiredError,
    Headers,
    InterceptorError,
    Record,
    SignatureError,
    TransportHeaderError,
    WireFormatError,
)
from headerware.interceptors import Compress, Expire, Sign, Slice, expires_header
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

NOW = 1_795_392_000_000
VALUE = b"a value that compresses " * 200


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keyring: with_new_key(keyring, "k", "hmac-sha256"), create=True)
    return str(path)


def context(side: Any, after_ms: int = 0) -> Context:
    return Context(side=side, now_ms=lambda: NOW + after_ms)


def sent(*steps: Any, headers: Any = (), value: bytes | None = VALUE, topic: str = "orders") -> list[Record]:
    with Chain(steps).open(context("producer")) as session:
        made = list(session.send([Record(topic, value, b"k", Headers(headers))]))
    return [each.replace(partition=0, offset=index) for index, each in enumerate(made)]


def read(records: list[Record], *steps: Any, after_ms: int = 0) -> list[Record]:
    with Chain(steps).open(context("consumer", after_ms)) as session:
        return [each for record in records for each in session.consume([record])]


class TestForged:
    def test_a_lifetime_behind_the_signature_is_refused(self, keys: str) -> None:
        record = sent(Sign(keyring=keys, key_id="k"))[0]
        forged = record.with_headers(record.headers.add(*expires_header(1)))
        with pytest.raises(SignatureError, match="after hw"):
            read([forged], Expire(), Sign(keyring=keys))

    def test_a_lifetime_that_is_changed_or_stripped_breaks_the_signature(self, keys: str) -> None:
        record = sent(Expire(after_ms=1_000), Sign(keyring=keys, key_id="k"))[0]
        longer = [("hw.expires", b"999999999999999")]
        for headers in (longer, []):
            others = [pair for pair in record.headers if pair[0] != "hw.expires"]
            changed = record.with_headers(Headers([*headers, *others]))
            with pytest.raises(SignatureError, match="does not fit"):
                read([changed], Expire(), Sign(keyring=keys))

    def test_a_lifetime_behind_sign_cannot_be_configured(self, keys: str) -> None:
        with pytest.raises(ConfigError, match="would not cover the time"):
            Chain([Sign(keyring=keys, key_id="k"), Expire()])

    def test_a_second_lifetime_does_not_remove_a_record(self) -> None:
        headers = Headers([expires_header(NOW + 10**6), expires_header(1)])
        record = Record("orders", b"v", headers=headers)
        assert read([record], Expire()) == [record]
        with pytest.raises(InterceptorError, match="appears twice"):
            read([record], Expire(malformed="refuse"))


class TestMalformed:
    @pytest.mark.parametrize("value", [None, b"", b"-1", b"1e9", b"9" * 16, b"9" * 1_000_000, b"\xff"])
    def test_keeps_and_counts_or_refuses_without_quoting(self, value: bytes | None) -> None:
        record = Record("orders", b"v", headers=Headers([("hw.expires", value)]))
        step = Expire().open(context("consumer"))
        assert step.on_consume(record) is record
        assert step.stats()["malformed"] == 1
        with pytest.raises(InterceptorError) as refused:
            Expire(malformed="refuse").open(context("consumer")).on_consume(record)
        assert len(str(refused.value)) < 200

    def test_an_application_cannot_send_one(self) -> None:
        with pytest.raises(InterceptorError, match="without leading zeros"):
            sent(Expire(), headers=[("hw.expires", b"tomorrow")])

    @pytest.mark.parametrize("moment", [-1, 10**15, 1.5, True, "1"])
    def test_the_helper_refuses_what_cannot_be_written(self, moment: Any) -> None:
        with pytest.raises(WireFormatError, match="whole milliseconds"):
            expires_header(moment)


class TestExpired:
    def test_is_dropped_before_it_is_decompressed(self) -> None:
        bomb = sent(Compress(min_bytes=1), Expire(after_ms=1_000))[0].replace(value=b"no zstd at all")
        assert read([bomb], Compress(), Expire(), after_ms=7_000) == []

    def test_a_message_in_slices_lives_and_dies_whole(self) -> None:
        steps = (Expire(after_ms=1_000), Slice(max_bytes=1_000))
        slices = sent(*steps)
        assert len(slices) > 2
        assert [("hw.expires" in each.headers.names()) for each in slices] == [True] + [False] * (
            len(slices) - 1
        )
        assert [each.value for each in read(slices, Expire(), Slice(), after_ms=6_000)] == [VALUE]
        assert read(slices, Expire(), Slice(), after_ms=6_001) == []

    def test_an_expired_mark_on_a_later_slice_removes_nothing(self) -> None:
        slices = sent(Expire(after_ms=60_000), Slice(max_bytes=1_000))
        slices[1] = slices[1].with_headers(Headers([expires_header(1), *slices[1].headers]))
        assert [each.value for each in read(slices, Expire(), Slice())] == [VALUE]

    def test_a_slice_that_stands_alone_is_never_taken_for_a_message(self) -> None:
        slices = sent(Expire(after_ms=60_000), Slice(max_bytes=1_000))
        with pytest.raises(TransportHeaderError):
            read(slices[1:2], Expire())

    def test_tombstones_get_no_lifetime_and_never_expire(self) -> None:
        assert sent(Expire(after_ms=1), value=None)[0].headers == Headers()
        tombstone = Record("orders", None, b"k", Headers([expires_header(1)]))
        assert read([tombstone], Expire()) == [tombstone]

    def test_can_be_refused_with_its_own_error(self) -> None:
        record = sent(Expire(after_ms=1_000))[0]
        expected = r"expected an expiry time at most 5000 ms ago \(clock_skew_ms\), found 9000 ms"
        with pytest.raises(ExpiredError, match=expected):
            read([record], Expire(expired="refuse"), after_ms=10_000)

    def test_a_dead_letter_keeps_it_as_it_was(self) -> None:
        record, letters = sent(Expire(after_ms=1_000))[0], list[Record]()
        chain = Chain([Expire(expired="refuse", on_error="dead_letter")])
        own = Context(side="consumer", now_ms=lambda: NOW + 10_000, publish=letters.append)
        with chain.open(own) as session:
            assert session.consume_outcome(record) is DROP
        assert [(letter.topic, letter.value) for letter in letters] == [("orders.dead-letter", VALUE)]


class TestRules:
    def test_the_first_pattern_that_fits_counts(self) -> None:
        step = Expire(after_ms=5, after_ms_by_topic={"clicks-eu": 7, "clicks-*": 6})
        found = {topic: sent(step, topic=topic)[0].headers for topic in ("clicks-eu", "clicks-us", "orders")}
        assert {topic: int(dict(headers)["hw.expires"] or b"") - NOW for topic, headers in found.items()} == {
            "clicks-eu": 7,
            "clicks-us": 6,
            "orders": 5,
        }

    def test_a_lifetime_that_is_there_stays(self) -> None:
        given = [expires_header(42)]
        assert sent(Expire(after_ms=5), headers=given)[0].headers == Headers(given)

    @pytest.mark.parametrize("pattern", ["!orders", "orders-.*", ""])
    def test_patterns_that_cannot_work_are_refused(self, pattern: str) -> None:
        with pytest.raises(ConfigError, match="after_ms_by_topic"):
            Expire(after_ms_by_topic={pattern: 1})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"after_ms": -5}, "after_ms: expected 0 to 999999999999999 milliseconds, found -5"),
            (
                {"after_ms_by_topic": {"orders": -1}},
                r"after_ms_by_topic\.orders: expected 0 to .*found -1",
            ),
            ({"clock_skew_ms": -1}, "clock_skew_ms: expected 0 to 3600000 milliseconds, found -1"),
        ],
    )
    def test_numbers_out_of_range_are_refused_from_code_too(
        self, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ConfigError, match=message):
            Expire(**options)

    @pytest.mark.parametrize("option", ["expired", "malformed"])
    def test_words_that_do_not_exist_are_refused(self, option: str) -> None:
        with pytest.raises(ConfigError, match=option):
            Expire(**cast("dict[str, Any]", {option: "ignore"}))
