from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.interceptors.trail_entries import TrailEntry, TrailReading, encode_trail
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

    @pytest.mark.parametrize("value", [trail(), trail(None, "mirror"), trail("/job")])
    def test_is_none_where_the_trail_does_not_say(self, value: bytes) -> None:
        assert producer_of(value) == Producer(None)

    def test_is_none_without_a_trail(self) -> None:
        assert producer_name(None) == Producer(None)

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"\x01",
            b"\x02\x00\x00",
            b"\x02" + trail("shop")[1:],
            trail("shop")[:10],
            trail("shop")[:17],
            trail("shop").replace(b"shop", b"\xff\xff\xff\xff"),
            b"\x01\x00\x00\x00\x0a\xe1" + bytes(8) + b"\x00",
            b"\x01\x00\x00\x00\x05\x01" + bytes(8) + b"\x04shop",
            b"\x01\x00\x00\xff\xff\x01" + bytes(8) + b"\x04shop",
            b"\x01\x00\x00\x00\x0a\x01" + bytes(8) + b"\x04shop",
        ],
    )
    def test_tells_a_trail_that_cannot_be_read(self, value: bytes) -> None:
        assert producer_of(value) == Producer(None, malformed=True)

    @given(st.binary(max_size=300))
    def test_of_any_bytes_is_short_and_prints(self, value: bytes) -> None:
        name = producer_of(b"\x01\x00\x00" + value).name
        assert name is None or (0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable())


class TestTrailOpening:
    def test_is_the_same_at_any_time(self) -> None:
        assert trail_opening(trail("shop")) == trail_opening(trail("shop", "mirror", when_ms=5)[:40])

    def test_differs_by_service(self) -> None:
        assert trail_opening(trail("shop")) != trail_opening(trail("mall"))
