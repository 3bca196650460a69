"""A record at work is hostile: what a service sends meanwhile must not suffer from its headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.carry import MAX_CARRIED_BYTES, AtWork
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import HeaderwareError, SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.compress import Compress
from headerware.interceptors.dedup import Dedup
from headerware.interceptors.header_ids import HeaderIds
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from headerware.interceptors.trail import MAX_ENTRY_BYTES, Trail, read_trail

if TYPE_CHECKING:
    from collections.abc import Sequence

HOPS = 200
MARKS = ["hw.sig", "HW.ENCRYPT", "Hw.Slice", "hw.id", "hw.claim", "hw.ids", "hw.admit", "~D", "~F", "0.0.0.4"]


def at_work(pairs: Sequence[tuple[str, bytes | None]]) -> AtWork:
    return AtWork([Record("in", b"value", headers=Headers.trusted(pairs))])


def sent(chain: Chain, pairs: Sequence[tuple[str, bytes | None]], **more: Any) -> list[Record]:
    with chain.open(Context(side="producer")) as session, at_work(pairs):
        return session.send([Record("out", b"value", **more)])


class TestMarks:
    @pytest.mark.parametrize("name", MARKS)
    def test_none_reaches_what_is_sent(self, name: str) -> None:
        steps = [Trail(service="s"), Dedup(), Compress(), Slice(), HeaderIds()]
        for chain in (Chain([Trail(service="s")], carry=["*"]), Chain(steps, carry=["*"])):
            (clean,) = sent(chain, [])
            (record,) = sent(chain, [(name, b"forged"), (name.swapcase(), b"forged")])
            assert all(value != b"forged" for _, value in record.headers)
            assert len(record.headers) == len(clean.headers)

    def test_what_a_service_sends_is_never_refused_for_it(self) -> None:
        names = [*MARKS, "", "\0", "a\0b", "\udcff", "x" * 200_000, "tenant"]
        (record,) = sent(Chain([Trail(service="s")], carry=["*"]), [(name, None) for name in names])
        assert set(record.headers.names()) == {"", "tenant", "hw.trail"}

    def test_a_record_that_was_refused_is_never_at_work(self, keys: str) -> None:
        chain = Chain([Trail(service="s"), Sign(keyring=keys, key_id="test", require="enforce")], carry=["*"])
        with chain.open(Context(side="consumer")) as session:
            (outcome,) = session.consume_outcomes([Record("in", b"v", headers=Headers({"tenant": "x"}))])
        assert isinstance(outcome, SignatureError)


class TestForgedTrails:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"2",
            b"\xff",
            b"1,at=" + b"9" * 70_000,
            b"1,at=1;by=" + b"x" * 60_000,
            b"1" + b",at=1;by=" + b"x" * 5_000 + b",at=2",
        ],
        ids=["null", "empty", "version", "binary", "too long", "a long entry", "a long first entry"],
    )
    def test_one_that_cannot_go_on_ends_and_another_begins(self, value: bytes | None) -> None:
        (record,) = sent(Chain([Trail(service="s")]), [("hw.trail", value)])
        assert [entry.by_whom for entry in read_trail(record.headers)] == ["s"]

    def test_a_long_one_is_shortened_before_it_goes_on(self) -> None:
        forged = b"1" + b",at=1;by=x" * 5_000
        (record,) = sent(Chain([Trail(service="s")]), [("hw.trail", forged)])
        found = read_trail(record.headers)
        assert (len(found), found.left_out, found[-1].by_whom) == (32, 4_969, "s")

    def test_a_loop_of_services_has_a_trail_of_bounded_size(self) -> None:
        chain = Chain([Trail(service="s" * 255, cluster="c" * 255)], carry=["*"])
        headers = Headers({"large": b"x" * 10_000})
        with chain.open() as session:
            for hop in range(HOPS):
                (read,) = session.consume([Record("loop", b"v", headers=headers)])
                with AtWork([read]):
                    (record,) = session.send([Record("loop", b"v")])
                headers = record.headers
                assert len(headers.last("hw.trail") or b"") <= 4096 + MAX_ENTRY_BYTES, hop
                assert headers.all("large") == (b"x" * 10_000,)
        found = read_trail(headers)
        assert found.left_out + len(found) == HOPS


class TestSize:
    def test_a_large_header_keeps_nothing_from_being_sent(self) -> None:
        pairs = [("tenant", b"north"), ("huge", b"x" * 900_000), ("id", b"1")]
        (record,) = sent(Chain([Trail(service="s")], carry=["*"]), pairs)
        assert record.headers.names() == ("tenant", "id", "hw.trail")

    def test_a_header_that_grows_with_every_hop_stops_at_the_limit(self) -> None:
        """A service that appends to a header of 100,000 bytes does so alone; nothing of ours repeats it."""
        chain = Chain(carry=["grows*"])
        value, sizes = b"", []
        with chain.open() as session:
            for _ in range(HOPS):
                value += b"x" * 1_000
                with at_work([("grows", value)]):
                    (record,) = session.send([Record("out")])
                value = record.headers.last("grows") or b""
                sizes.append(len(value))
        assert max(sizes) == MAX_CARRIED_BYTES // 1_000 * 1_000

    def test_many_headers_take_linear_time_and_stay_below_the_limit(self) -> None:
        pairs = [(f"x{number}", b"") for number in range(100_000)]
        (record,) = sent(Chain(carry=["x*"]), pairs)
        assert sum(map(len, record.headers.names())) <= MAX_CARRIED_BYTES


class TestTheApplicationsOwn:
    @pytest.mark.parametrize("name", ["tenant", "TENANT", "tEnAnT"])
    def test_cannot_be_doubled_by_another_case(self, name: str) -> None:
        own = Headers({"Tenant": "south"})
        (record,) = sent(Chain(carry=["*"]), [(name, b"north")], headers=own)
        assert record.headers == own

    def test_a_compact_key_of_the_application_counts_as_its_name(self) -> None:
        chain = Chain([Trail(service="s", topics=("elsewhere",))], carry=["hw.trail"])
        with chain.open() as session:
            record = session.carrying.added_to(
                Record("out", headers=Headers({"~B": "own"})), at_work([("hw.trail", b"1,at=1")])
            )
        assert record.headers.names() == ("~B",)

    def test_a_reserved_name_of_the_application_is_refused_as_ever(self) -> None:
        with pytest.raises(HeaderwareError, match="Headerware's own"):
            sent(Chain([Trail(service="s")], carry=["*"]), [("a", b"1")], headers={"HW.sig": "1"})
