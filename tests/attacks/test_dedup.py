"""Forged identities: behind ``sign`` they drop no genuine record, and floods of them stay within bounds."""

from __future__ import annotations

import os
import tracemalloc
from itertools import count
from typing import TYPE_CHECKING

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import InterceptorError, SignatureError
from headerware.core.header_text import encode_text
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.interceptors.dedup.identity import ID_HEADER, Identity
from headerware.interceptors.dedup.interceptor import Dedup, DedupStep
from headerware.interceptors.dedup.windows import MAX_PRODUCERS
from headerware.interceptors.sign import Sign

if TYPE_CHECKING:
    from pathlib import Path

GOOD = bytes(range(16))
OFFSETS = count()


def come(producer: bytes, sequence: int) -> Record:
    """Return a record of this identity, at a position of its own."""
    value = Identity.numbered(producer, sequence).encode()
    return Record("orders", b"v", headers=Headers([(ID_HEADER, value)]), partition=0, offset=next(OFFSETS))


def is_dropped(step: DedupStep, producer: bytes, sequence: int) -> bool:
    return step.on_accepted(step.on_consume(come(producer, sequence))) is DROP  # type: ignore[arg-type]  # none is dropped before


def marked(*values: bytes | None) -> Record:
    return Record("orders", b"secret", headers=Headers([("a", b"1"), *((ID_HEADER, v) for v in values)]))


class TestDedupFloods:
    def test_of_sequences_push_out_no_other_producer(self) -> None:
        step = Dedup(window=100, max_identities=1_000).open(Context())
        assert not is_dropped(step, GOOD, 7)
        for sequence in range(50_000):
            is_dropped(step, b"\xff" * 16, sequence)
        assert is_dropped(step, GOOD, 7)

    def test_of_producers_push_out_those_not_heard_of_for_longest(self) -> None:
        step = Dedup().open(Context())
        for sequence in range(MAX_PRODUCERS * 2):
            is_dropped(step, os.urandom(16), 0)
            if sequence % (MAX_PRODUCERS // 2) == 0:
                is_dropped(step, GOOD, sequence)
        assert is_dropped(step, GOOD, 0)

    def test_of_producers_forget_a_silent_one_whose_copies_then_pass(self) -> None:
        step = Dedup().open(Context())
        is_dropped(step, GOOD, 7)
        for _ in range(MAX_PRODUCERS):
            is_dropped(step, os.urandom(16), 0)
        assert not is_dropped(step, GOOD, 7)

    @pytest.mark.parametrize("producers", [1, 50, 5_000, 1_000_000])
    def test_leave_memory_flat(self, producers: int) -> None:
        step = Dedup(window=1_000, max_identities=10_000).open(Context())
        record = come(GOOD, 0)
        tracemalloc.start()
        try:
            for number in range(60_000):
                source = (number % producers).to_bytes(16)
                value = Identity.numbered(source, number).encode()
                step.on_consume(record.replace(offset=number, headers=Headers.trusted([(ID_HEADER, value)])))
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Two dicts for each of up to 10,000 producers, or 10,000 entries of some 120 bytes.
        assert taken < 10_000_000

    def test_of_the_largest_sequences_shut_out_no_other(self) -> None:
        step = Dedup(window=10).open(Context())
        for sequence in (2**64 - 1, 0, 2**63, 1, 2**64 - 2):
            assert not is_dropped(step, GOOD, sequence)
        for sequence in (0, 1, 2**63, 2**64 - 2, 2**64 - 1):
            assert is_dropped(step, GOOD, sequence)


class TestDedupMalformed:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (None, "expected base64, found null"),
            (b"", "expected base64 .*"),
            (encode_text(b"\x02" + bytes(25)), "expected version 1, found 2"),
            (encode_text(b"\x01\x03" + bytes(24)), "expected kind 1 or 2, found 3"),
            (encode_text(b"\x01\x01" + bytes(23)), "expected 26 bytes, found 25"),
            (encode_text(b"\x01\x01" + bytes(25)), "expected 26 bytes, found 27"),
            (encode_text(b"\x01\x01" + bytes(1_000_000)), "expected 26 bytes, found 1000002"),
            (b"\x01\x01" + bytes(24), "expected base64 .*"),
            (Identity.numbered(GOOD, 1).encode() + b"=", "expected base64 .*"),
            (Identity.numbered(GOOD, 1).encode()[:-1], "expected base64 .*"),
        ],
    )
    def test_an_identity_that_cannot_be_read_is_refused(self, value: bytes | None, reason: str) -> None:
        with pytest.raises(
            InterceptorError, match=rf"^its hw\.id cannot be read: (header 'hw\.id': )?{reason}$"
        ):
            Dedup().open(Context()).on_consume(marked(value))

    @pytest.mark.parametrize("same", [True, False])
    def test_two_identities_are_refused(self, same: bool) -> None:  # noqa: FBT001 - a case
        one, other = (Identity.numbered(GOOD, n).encode() for n in (0, 0 if same else 1))
        step = Dedup().open(Context())
        with pytest.raises(InterceptorError, match=r"^expected one hw\.id header, found 2$"):
            step.on_consume(marked(one, other))
        assert not is_dropped(step, GOOD, 0), "what is refused is not remembered"
        assert not is_dropped(step, GOOD, 1)

    def test_a_bad_one_takes_no_neighbour_along(self, tmp_path: Path) -> None:
        for store in (None, str(tmp_path / "ids.db")):
            with Chain([Dedup(store=store)]).open() as session:
                outcomes = session.consume_outcomes([come(GOOD, 0), marked(b"\x01"), come(GOOD, 1)])
            assert [type(outcome) for outcome in outcomes] == [Record, InterceptorError, Record]
            assert "secret" not in str(outcomes[1])


class TestDedupForgeries:
    @pytest.fixture
    def sign(self, keys: str) -> Sign:
        return Sign(keyring=keys, key_id="k")

    def test_without_a_signature_are_refused_before_they_are_remembered(self, sign: Sign) -> None:
        with Chain([Dedup(), sign]).open() as session:
            real = session.send([Record("orders", b"real")])[0]
            assert real.headers.names() == (ID_HEADER, "hw.sig")
            forged = Record("orders", b"forged", headers=Headers(real.headers[:1]), partition=0, offset=0)
            with pytest.raises(SignatureError, match="expected a signature"):
                session.consume([forged])
            with pytest.raises(SignatureError, match="does not fit the record"):
                session.consume([real.replace(value=b"forged", partition=0, offset=1)])
            assert [r.value for r in session.consume([real.replace(partition=0, offset=2)])] == [b"real"]

    def test_with_another_identity_under_a_signature_are_refused(self, sign: Sign) -> None:
        with Chain([Dedup(), sign]).open() as session:
            real = session.send([Record("orders", b"real")])[0]
            other = (ID_HEADER, Identity.numbered(GOOD, 1).encode())
            with pytest.raises(SignatureError):
                session.consume([real.replace(headers=Headers([other, real.headers[1]]), offset=3)])

    def test_behind_the_signature_are_refused(self, sign: Sign) -> None:
        with Chain([Dedup(), sign]).open() as session:
            real = session.send([Record("orders", b"real")])[0]
            other = (ID_HEADER, Identity.numbered(GOOD, 1).encode())
            with pytest.raises(SignatureError, match=r"begins with hw\."):
                session.consume([real.replace(headers=Headers([*real.headers, other]), offset=3)])

    def test_without_sign_drop_the_real_record(self) -> None:
        with Chain([Dedup()]).open() as session:
            real = session.send([Record("orders", b"real")])[0]
            forged = real.replace(value=b"forged", partition=0, offset=0)
            found = session.consume([forged, real.replace(partition=0, offset=1)])
            assert [record.value for record in found] == [b"forged"]
