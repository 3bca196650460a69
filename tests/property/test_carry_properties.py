"""What is carried on, whatever the headers, the patterns and the application say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from headerware.core.boundary import is_own
from headerware.core.carry import MAX_CARRIED_BYTES, AtWork
from headerware.core.chain import Chain
from headerware.core.headers import EMPTY, Headers
from headerware.core.patterns import fits
from headerware.core.record import Record
from headerware.interceptors import Trail

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN = st.sampled_from(["tenant", "Tenant", "TENANT", "x-a", "X-A", "x-b", "id", "", "ß", "SS", "a\0b"])
OWN = st.sampled_from(
    ["hw.sig", "HW.SIG", "hw.trail", "Hw.Trail", "hw.encrypt", "hw.ids", "~B", "~D", "0.0.0.2"]
)
VALUES = st.none() | st.binary(max_size=4) | st.just(b"x" * 9_000)
PAIRS = st.lists(st.tuples(PLAIN | OWN | st.text(max_size=4), VALUES), max_size=8)
"""Headers of records that were read, which anybody may have written."""
SENDABLE = st.lists(st.tuples(PLAIN.filter(lambda name: "\0" not in name), VALUES), max_size=4)
PATTERNS = st.lists(
    st.sampled_from(["*", "tenant", "x-*", "?w.*", "*.sig", "~*", "!id", "!x-a", "hw.owner"]), max_size=4
)
CHAINS = st.builds(
    lambda carry, trails: Chain([Trail(service="s")] if trails else [], carry=carry), PATTERNS, st.booleans()
)


def carried(chain: Chain, works: Sequence[list[tuple[str, bytes | None]]], own: Headers) -> Headers:
    with chain.open() as session:
        at_work = AtWork([Record("in", headers=Headers.trusted(pairs)) for pairs in works])
        record = session.carrying.added_to(Record("out", headers=own), at_work)
    assert record.headers[: len(own)] == tuple(own)
    return Headers.trusted(record.headers[len(own) :])


class TestCarry:
    @given(CHAINS, st.lists(PAIRS, min_size=1, max_size=3), SENDABLE)
    def test_what_the_application_sets_stays_first_and_alone_in_any_case(
        self, chain: Chain, works: list[list[tuple[str, bytes | None]]], own: list[tuple[str, bytes | None]]
    ) -> None:
        added = carried(chain, works, Headers(own))
        assert not {name.casefold() for name, _ in own} & {name.casefold() for name in added.names()}

    @given(CHAINS, st.lists(PAIRS, min_size=1, max_size=3))
    def test_marks_never_go_on(self, chain: Chain, works: list[list[tuple[str, bytes | None]]]) -> None:
        names = set(carried(chain, works, EMPTY).names())
        assert {name for name in names if is_own(name)} <= {"hw.trail"}
        assert ("hw.trail" in names) <= (len(chain) == 1 == len(works))

    @given(CHAINS, st.lists(PAIRS, min_size=1, max_size=3))
    def test_all_that_goes_on_fits_a_pattern_and_was_in_every_record(
        self, chain: Chain, works: list[list[tuple[str, bytes | None]]]
    ) -> None:
        added = carried(chain, works, EMPTY)
        stated = chain.carry or ()
        included = [each for each in stated if not each.startswith("!")] or (["*"] if stated else [])
        excluded = [each[1:] for each in stated if each.startswith("!")]
        for name in set(added.names()) - {"hw.trail"}:
            assert any(fits(pattern, name) for pattern in included)
            assert not any(fits(pattern, name) for pattern in excluded)
            for pairs in works:
                assert added.all(name) == Headers.trusted(pairs).all(name)

    @given(CHAINS, PAIRS)
    def test_a_record_can_always_be_sent_and_stays_small(
        self, chain: Chain, pairs: list[tuple[str, bytes | None]]
    ) -> None:
        with chain.open() as session, AtWork([Record("in", headers=Headers.trusted(pairs))]):
            (record,) = session.send([Record("out", b"value")])
        size = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
        assert size <= MAX_CARRIED_BYTES + 4_096 + len("hw.trail")
