"""An interceptor needs no broker to be tested: records in, records out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from headerware_stamp import Stamp

from headerware import Chain, ConfigError, Context, Headers, InterceptorError, Record

CONTEXT = Context(now_ms=lambda: 1_700_000_000_000)
STAMPED = b"eu;1700000000000"


class TestSend:
    def test_adds_the_stamp_behind_the_applications_headers(self) -> None:
        record = Record("orders", b"v", b"k", Headers([("a", b"1")]))
        (sent,) = Chain([Stamp(text="eu")]).open(CONTEXT).send([record])
        assert tuple(sent.headers) == (("a", b"1"), ("stamp", STAMPED))
        assert (sent.value, sent.key) == (b"v", b"k")
        assert tuple(record.headers) == (("a", b"1"),)

    def test_keeps_an_earlier_stamp(self) -> None:
        record = Record("orders", b"", headers=Headers({"stamp": b"us;1"}))
        (sent,) = Chain([Stamp(text="eu")]).open(CONTEXT).send([record])
        assert sent.headers.all("stamp") == (b"us;1", STAMPED)

    def test_counts_right_from_several_threads(self) -> None:
        session = Chain([Stamp(text="eu")]).open(CONTEXT)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: session.send([Record("orders", b"")]), range(1_000)))
        assert session.stats()["stamp"]["stamped"] == 1_000

    def test_adds_no_more_than_it_says(self) -> None:
        step = Stamp(text="eu").open(CONTEXT)
        ((name, value),) = step.on_send(Record("orders", b"")).headers
        assert len(name) + len(value or b"") <= step.overhead_bytes(Record("orders", b""))


class TestConsume:
    def test_gives_the_time_of_the_last_stamp_and_leaves_it_there(self) -> None:
        record = Record("orders", b"", headers=Headers([("stamp", b"a;1"), ("stamp", STAMPED)]))
        (seen,) = Chain([Stamp(text="eu")]).open().consume([record])
        assert seen.local == {"stamp": 1_700_000_000_000}
        assert seen.headers == record.headers

    def test_a_record_without_a_stamp_is_the_very_same(self) -> None:
        record = Record("orders", b"")
        assert Chain([Stamp(text="eu")]).open().consume_outcome(record) is record

    @pytest.mark.parametrize("value", [b"", b"secret", b"secret;", b"secret;1x"])
    def test_a_header_that_is_no_stamp_is_refused_and_not_quoted(self, value: bytes) -> None:
        record = Record("orders", b"", headers=Headers({"stamp": value}), partition=1, offset=7)
        outcome = Chain([Stamp(text="eu")]).open().consume_outcome(record)
        assert isinstance(outcome, InterceptorError)
        assert str(outcome) == "stamp at orders[1]@7: header 'stamp' is no stamp"


class TestConfiguration:
    def test_finds_it_by_its_word(self) -> None:
        config = {"interceptors": "stamp", "interceptors.stamp.text": "eu", "interceptors.stamp.header": "x"}
        assert list(Chain.from_config(config)) == [Stamp(text="eu", header="x")]

    @pytest.mark.parametrize(
        ("option", "value"), [("header", "hw.stamp"), ("header", ""), ("text", ""), ("txt", "eu")]
    )
    def test_a_wrong_option_names_its_path(self, option: str, value: str) -> None:
        config = {
            "interceptors": "stamp",
            "interceptors.stamp.text": "eu",
            f"interceptors.stamp.{option}": value,
        }
        with pytest.raises(ConfigError) as caught:
            Chain.from_config(config)
        assert caught.value.path == f"interceptors.stamp.{option}"
