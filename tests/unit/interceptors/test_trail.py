from __future__ import annotations

import socket
from contextlib import suppress

import msgspec
import pytest

from headerware.core.context import Context
from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.core.hooks import Place, Role
from headerware.core.order import notes
from headerware.core.record import Record
from headerware.interceptors.trail import (
    MAX_ENTRY_BYTES,
    MIN_BOUND_BYTES,
    TRAIL_HEADER,
    Trail,
    TrailEntry,
    TrailReading,
    decode_trail,
    encode_trail,
    read_trail,
)

WHEN = 1_767_225_600_000


def context(client_id: str | None = None, cluster: str | None = None) -> Context:
    ticks = iter(range(WHEN, WHEN + 10_000))
    return Context(client_id=client_id, now_ms=lambda: next(ticks), cluster_id=lambda: cluster)


def entry(**fields: str | int | None) -> TrailEntry:
    return msgspec.convert({"when_ms": WHEN, **fields}, TrailEntry)


def carrying(*entries: TrailEntry, left_out: int = 0, topic: str = "orders") -> Record:
    value = encode_trail(TrailReading(entries, left_out))
    return Record(topic, b"v", headers=Headers([("a", b"1"), (TRAIL_HEADER, value)]))


class TestCarriedOn:
    def test_is_the_last_trail_as_it_came(self) -> None:
        record = carrying(entry(by_whom="shop"))
        headers = Headers([(TRAIL_HEADER, b"2"), *record.headers, ("b", b"1")])
        assert Trail().carried_on(headers) == record.headers[-1]

    @pytest.mark.parametrize("value", [None, b"", b"2,at=1", b"1" + b"x" * 70_000, b"1,at=1;by=\xff"])
    def test_is_none_if_it_cannot_go_on(self, value: bytes | None) -> None:
        assert Trail().carried_on(Headers([(TRAIL_HEADER, value)])) is None

    def test_is_none_without_a_trail(self) -> None:
        assert Trail().carried_on(Headers({"a": "1"})) is None

    def test_keeps_the_bounds(self) -> None:
        record = carrying(*(entry(by_whom=f"service-{hop}") for hop in range(10)))
        carried = Trail(max_entries=3).carried_on(record.headers)
        assert isinstance(carried, tuple)
        name, value = carried
        found = decode_trail(value if isinstance(value, bytes) else None)
        assert (name, found.left_out) == (TRAIL_HEADER, 7)
        assert [each.by_whom for each in found] == ["service-0", "service-8", "service-9"]

    def test_is_asked_of_what_is_opened_too(self) -> None:
        record = carrying(entry(by_whom="shop"))
        assert Trail().open(context()).carried_on(record.headers) == record.headers[-1]


class TestTrailOnSend:
    def test_starts_a_trail_after_other_headers(self) -> None:
        record = Record("orders", b"v", b"k", Headers([("a", b"1")]), 3, 5)
        sent = Trail(service="shop", cluster="eu").open(context()).on_send(record)
        assert sent.headers.names() == ("a", TRAIL_HEADER)
        assert list(read_trail(sent.headers)) == [
            entry(by_whom="shop", produced_into_cluster="eu", produced_into_topic="orders")
        ]
        assert sent.replace(headers=record.headers) == record

    def test_completes_what_was_read_as_a_mirror_does(self) -> None:
        step = Trail(service="mirror", cluster="us").open(context())
        read = entry(by_whom="mirror", read_from_cluster="eu", read_from_topic="orders")
        sent = step.on_send(carrying(entry(by_whom="shop", produced_into_topic="orders"), read, topic="copy"))
        assert list(read_trail(sent.headers)) == [
            entry(by_whom="shop", produced_into_topic="orders"),
            msgspec.structs.replace(read, produced_into_cluster="us", produced_into_topic="copy"),
        ]

    def test_adds_to_a_trail_that_ends_in_production(self) -> None:
        first = entry(by_whom="shop", produced_into_topic="orders")
        sent = Trail(service="again").open(context()).on_send(carrying(first))
        assert list(read_trail(sent.headers)) == [first, entry(by_whom="again", produced_into_topic="orders")]

    def test_adds_to_an_entry_without_a_place(self) -> None:
        sent = Trail(service="shop").open(context()).on_send(carrying(entry(by_whom="odd")))
        assert len(read_trail(sent.headers)) == 2

    def test_adds_to_a_trail_without_entries(self) -> None:
        sent = Trail(service="shop").open(context()).on_send(carrying(left_out=4))
        assert read_trail(sent.headers) == TrailReading(
            (entry(by_whom="shop", produced_into_topic="orders"),), 4
        )

    def test_of_several_headers_the_last_counts_and_one_remains(self) -> None:
        one, two = (encode_trail(TrailReading((entry(by_whom=who),))) for who in "ab")
        headers = Headers([(TRAIL_HEADER, one), ("x", None), (TRAIL_HEADER, two), ("y", b"")])
        sent = Trail(service="shop").open(context()).on_send(Record("orders", b"v", headers=headers))
        assert sent.headers.names() == ("x", "y", TRAIL_HEADER)
        assert read_trail(sent.headers)[0].by_whom == "b"


class TestTrailOnConsume:
    def test_starts_a_trail_where_there_is_none(self) -> None:
        record = Trail(service="ship", cluster="eu").open(context()).on_consume(Record("orders", b"v"))
        assert list(read_trail(record.headers)) == [
            entry(by_whom="ship", read_from_cluster="eu", read_from_topic="orders")
        ]

    def test_never_starts_over_a_trail(self) -> None:
        earlier = entry(by_whom="shop", produced_into_topic="orders")
        record = Trail(service="ship").open(context()).on_consume(carrying(earlier))
        assert list(read_trail(record.headers)) == [earlier, entry(by_whom="ship", read_from_topic="orders")]

    def test_never_completes_an_entry_that_was_read(self) -> None:
        earlier = entry(by_whom="ship", read_from_topic="orders")
        record = Trail(service="bill").open(context()).on_consume(carrying(earlier))
        assert list(read_trail(record.headers)) == [earlier, entry(by_whom="bill", read_from_topic="orders")]

    def test_goes_all_the_way_through_a_mirror(self) -> None:
        clock = context()
        produced = Trail(service="shop", cluster="eu").open(clock).on_send(Record("orders", b"v"))
        mirror = Trail(service="mirror", cluster="eu").open(clock)
        out = Trail(service="mirror", cluster="us").open(clock)
        copied = out.on_send(mirror.on_consume(produced))
        read = Trail(service="ship", cluster="us").open(clock).on_consume(copied)
        assert [
            (e.by_whom, e.read_from_cluster, e.produced_into_cluster) for e in read_trail(read.headers)
        ] == [
            ("shop", None, "eu"),
            ("mirror", "eu", "us"),
            ("ship", "us", None),
        ]


class TestTrailByWhom:
    def test_is_the_service(self) -> None:
        assert self._by_whom(Trail(service="shop"), "client-1") == "shop"

    def test_is_the_client_without_a_service(self) -> None:
        assert self._by_whom(Trail(), "client-1") == "client-1"

    def test_is_the_host_without_either(self) -> None:
        assert self._by_whom(Trail(), None) == socket.gethostname()

    def test_is_cut_after_the_last_whole_character(self) -> None:
        assert self._by_whom(Trail(service="ü" * 200), None) == "ü" * (255 // len("%C3%BC"))

    def _by_whom(self, options: Trail, client_id: str | None) -> str | None:
        return read_trail(options.open(context(client_id)).on_send(Record("t", b"")).headers)[0].by_whom


class TestTrailCluster:
    def test_is_left_open_until_it_is_known(self) -> None:
        known: list[str | None] = [None, None, "abc", "never asked again"]
        step = Trail(service="shop").open(Context(cluster_id=lambda: known.pop(0)))
        found = [
            read_trail(step.on_send(Record("t", b"")).headers)[0].produced_into_cluster for _ in range(4)
        ]
        assert found == [None, None, "abc", "abc"]

    def test_named_in_the_options_is_not_asked_for(self) -> None:
        def ask() -> str | None:
            raise AssertionError

        step = Trail(cluster="eu").open(Context(cluster_id=ask))
        assert read_trail(step.on_consume(Record("t", b"")).headers)[0].read_from_cluster == "eu"

    def test_topics_beyond_what_is_remembered_stay_right(self) -> None:
        step = Trail(service="shop").open(context())
        topics = [f"t{number}" for number in range(1100)] * 2
        found = [
            read_trail(step.on_send(Record(topic, b"")).headers)[0].produced_into_topic for topic in topics
        ]
        assert found == topics
        assert len(step._produced) <= 1024


class TestTrailBounds:
    def test_keeps_the_first_and_the_latest_entries(self) -> None:
        step = Trail(service="ship", max_entries=3).open(context())
        record = Record("t0", b"")
        for number in range(10):
            record = step.on_consume(record.replace(topic=f"t{number}"))
        trail = read_trail(record.headers)
        assert [e.read_from_topic for e in trail] == ["t0", "t8", "t9"]
        assert trail.left_out == 7

    def test_holds_the_bound_in_bytes_for_entries_of_any_size(self) -> None:
        step = Trail(service="s" * 300, cluster="c" * 300, max_bytes=MIN_BOUND_BYTES).open(context())
        record = Record("t" * 300, b"")
        for _ in range(3):
            record = step.on_send(step.on_consume(record))
            assert len(record.headers.last(TRAIL_HEADER) or b"") <= MIN_BOUND_BYTES
        trail = read_trail(record.headers)
        assert (len(trail), trail.left_out) == (2, 1)

    def test_completing_holds_the_bounds_too(self) -> None:
        read = entry(by_whom="ship", read_from_topic="orders")
        sent = Trail(max_entries=2).open(context()).on_send(carrying(*[read] * 6, left_out=3))
        trail = read_trail(sent.headers)
        assert (len(trail), trail.left_out) == (2, 7)
        assert trail[-1] == msgspec.structs.replace(read, produced_into_topic="orders")

    @pytest.mark.parametrize(
        "option", [{"max_entries": 1}, {"max_bytes": MIN_BOUND_BYTES - 1}, {"max_bytes": 65_536}]
    )
    def test_refuses_bounds_that_cannot_be_held(self, option: dict[str, int]) -> None:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(option, Trail)


class TestTrailCorrupt:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"2",
            b"11,at=5",
            b" 1,at=5",
            b"1,at=5\xff",
            b"\x01\x00\x00",
            b"1" + b",at=5" * 13_107,
        ],
    )
    @pytest.mark.parametrize("hook", ["on_send", "on_consume"])
    def test_is_refused_in_both_directions(self, value: bytes | None, hook: str) -> None:
        step = Trail(service="shop").open(context())
        record = Record("orders", b"v", headers=Headers([(TRAIL_HEADER, value)]))
        with pytest.raises(WireFormatError, match=TRAIL_HEADER):
            getattr(step, hook)(record)

    def test_an_entry_that_no_bound_can_hold_is_refused(self) -> None:
        step = Trail(service="shop").open(context())
        record = Record("orders", b"v", headers=Headers([(TRAIL_HEADER, b"1,at=5;by=" + b"x" * 5_000)]))
        with pytest.raises(WireFormatError, match=r"expected entries of at most .* found a longer one"):
            step.on_send(record)

    def test_every_truncation_is_refused_or_says_less(self) -> None:
        whole = encode_trail(TrailReading((entry(by_whom="a"), entry(read_from_topic="b"))))
        read = decode_trail(whole)
        for size in range(len(whole)):
            with suppress(WireFormatError):
                found = decode_trail(whole[:size])
                assert len(found) < len(read) or len(found.entries[-1].read_from_topic or "") < 1
                assert encode_trail(found) == whole[:size]


class TestTrailAsText:
    """Applications decode every header of a record as UTF-8; some frameworks do it for them."""

    def test_reads_as_a_line(self) -> None:
        step = Trail(service="shop/nightly#7", cluster="eu").open(context())
        record = step.on_consume(step.on_send(Record("orders", b"")))
        assert (record.headers.last(TRAIL_HEADER) or b"").decode() == (
            f"1,at={WHEN};by=shop/nightly#7;into=eu/orders,at={WHEN + 1};by=shop/nightly#7;from=eu/orders"
        )

    @pytest.mark.parametrize(
        "name", ["a,b", "a;b", "a=b", "a/b", "a?b", "?", "a%b", "a b", 'a"b', "ü", "\x1b", "\ud800"]
    )
    def test_names_of_any_characters_are_printable_ascii(self, name: str) -> None:
        record = Trail(service=name, cluster=name).open(context()).on_send(Record(name, b""))
        value = record.headers.last(TRAIL_HEADER) or b""
        assert value.decode("ascii").isprintable()
        shown = name.encode("utf-8", "replace").decode()
        assert list(read_trail(record.headers)) == [
            entry(by_whom=shown, produced_into_cluster=shown, produced_into_topic=shown)
        ]


class TestTrailReading:
    def test_of_headers_without_a_trail_is_empty(self) -> None:
        assert read_trail({"a": b"1"}) == TrailReading()

    def test_counts_and_gives_its_entries(self) -> None:
        trail = TrailReading((entry(by_whom="a"), entry(by_whom="b")))
        assert (len(trail), trail[-1].by_whom, [e.by_whom for e in trail]) == (2, "b", ["a", "b"])

    def test_more_than_a_trail_holds_is_not_encoded(self) -> None:
        largest = entry(**dict.fromkeys(("by_whom", "read_from_topic", "produced_into_topic"), "x" * 255))
        with pytest.raises(WireFormatError, match="expected at most 65535 bytes, found"):
            encode_trail(TrailReading((largest,) * (65_535 // MAX_ENTRY_BYTES * 2)))

    @pytest.mark.parametrize(
        ("trail", "expected"),
        [
            (TrailReading((), -1), "0 to 65535 entries left out, found -1"),
            (TrailReading((), 65_536), "0 to 65535 entries left out, found 65536"),
            (TrailReading((entry(when_ms=2**63),)), "a time of signed 64 bits, found 9223372036854775808"),
        ],
    )
    def test_numbers_out_of_range_are_not_encoded(self, trail: TrailReading, expected: str) -> None:
        with pytest.raises(WireFormatError, match=f"expected {expected}"):
            encode_trail(trail)


class TestTrailDeclaration:
    def test_observes_from_its_place(self) -> None:
        assert (Trail.type, Trail().role, Trail.place) == ("trail", Role.OBSERVE, Place.TRAIL)


def test_check_says_whose_name_entries_have_without_a_service() -> None:
    assert notes([Trail(service="shop")]) == []
    ((name, note),) = notes([Trail()])
    assert (name, "this host's name" in note, "service = " in note) == ("trail", True, True)
