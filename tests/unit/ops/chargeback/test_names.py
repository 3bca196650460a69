from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.interceptors.trail import TrailEntry, TrailReading, encode_trail
from headerware.ops.chargeback.names import (
    MAX_NAME_CHARACTERS,
    Producer,
    owner_name,
    producer_name,
    trail_opening,
)

WHEN = 1_767_225_600_000


def trail(*services: str | None, when_ms: int = WHEN) -> bytes:
    entries = (
        TrailEntry(by_whom=service, produced_into_topic="orders", when_ms=when_ms + 1) for service in services
    )
    return encode_trail(TrailReading(tuple(entries)))


def producer_of(value: bytes) -> Producer:
    return producer_name(trail_opening(value))


class TestOwnerName:
    @pytest.mark.parametrize("value", [None, b"", b"  ", b"\t\n"])
    def test_is_none_where_nobody_is_named(self, value: bytes | None) -> None:
        assert owner_name(value) is None

    def test_is_the_text(self) -> None:
        assert owner_name("Équipe n° 1".encode()) == "Équipe n° 1"

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (b"a\x1b[2Jb", r"a\x1b[2Jb"),
            (b"a\nb", r"a\nb"),
            ("a\N{RIGHT-TO-LEFT OVERRIDE}b".encode(), r"a\u202eb"),
            (b"a\xffb", "a\N{REPLACEMENT CHARACTER}b"),
        ],
    )
    def test_shows_what_does_not_print(self, value: bytes, shown: str) -> None:
        assert owner_name(value) == shown

    def test_is_cut(self) -> None:
        assert owner_name(b"x" * 10_000_000) == "x" * (MAX_NAME_CHARACTERS - 1) + "…"

    @given(st.binary(max_size=2000))
    def test_of_any_bytes_is_short_and_prints(self, value: bytes) -> None:
        name = owner_name(value)
        assert name is None or (0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable())


class TestProducerName:
    def test_is_the_first_entrys(self) -> None:
        assert producer_of(trail("shop", "mirror")) == Producer("shop")

    @pytest.mark.parametrize("service", ["shop/nightly#12", "shop#12", "shop/a/b"])
    def test_is_the_service_of_a_job(self, service: str) -> None:
        assert producer_of(trail(service)) == Producer("shop")

    @pytest.mark.parametrize("value", [trail(), b"1;left=3", trail(None, "mirror"), trail("/job")])
    def test_is_none_where_the_trail_does_not_say(self, value: bytes) -> None:
        assert producer_of(value) == Producer(None)

    def test_is_none_without_a_trail(self) -> None:
        assert producer_name(None) == Producer(None)

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"\x01\x00\x00",
            b"2" + trail("shop")[1:],
            b"1;left=x",
            b"1;by=shop",
            b"1;left=3;by=shop",
            b"1,by=shop",
            b"1,at=5x;by=shop",
            trail("shop")[:4],
            b"1,at=5;by=" + b"s" * 256,
            b"1,at=5;by=sh op",
            b"1,at=5;by=\xff",
            b"1,at=5;by=%FF",
            b"1,at=5;by=%73hop",
            b"1\n",
        ],
    )
    def test_tells_a_trail_that_cannot_be_read(self, value: bytes) -> None:
        assert producer_of(value) == Producer(None, malformed=True)

    @given(st.binary(max_size=300))
    def test_of_any_bytes_is_short_and_prints(self, value: bytes) -> None:
        name = producer_of(b"1,at=5" + value).name
        assert name is None or (0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable())


class TestTrailOpening:
    def test_is_the_same_at_any_time(self) -> None:
        assert trail_opening(trail("shop")) == trail_opening(trail("shop", "mirror", when_ms=5)[:40])

    def test_differs_by_service(self) -> None:
        assert trail_opening(trail("shop")) != trail_opening(trail("mall"))
