from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.context import Context
from headerware.core.errors import SignatureError, WireFormatError
from headerware.core.header_text import encode_text
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.sign import Sign, SignStep
from headerware.keyring import Key, Keyring, encode_keyring, with_new_key
from headerware.keyring.merkle import node_number, tree
from headerware.keyring.signature import STAMP_BYTES, Statement, decode_statement, rest_of_signed_bytes
from tests.batches import sent_together

if TYPE_CHECKING:
    from pathlib import Path

payloads = st.none() | st.binary(max_size=40)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8).filter(
    lambda name: not name.startswith("hw.")
)
pairs = st.lists(st.tuples(names, payloads), max_size=5)
records = st.builds(
    lambda value, key, headers: Record("orders", value, key, Headers(headers), partition=0, offset=1),
    payloads,
    payloads,
    pairs,
)


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> SignStep:
    path: Path = tmp_path_factory.mktemp("sign") / "keys.json"
    key = Key(
        id="k",
        version=1,
        algorithm="hmac-sha256",
        status="active",
        created=datetime(2026, 1, 1, tzinfo=UTC),
        secret=bytes(range(32)),
    )
    path.write_bytes(encode_keyring(Keyring(keys=(key,))))
    path.chmod(0o600)
    return Sign(keyring=str(path), key_id="k").open(Context(now_ms=lambda: 1000))


class TestSignProperties:
    @given(record=records)
    def test_round_trip(self, step: SignStep, record: Record) -> None:
        assert step.on_consume(step.on_send(record)).replace(local=None) == record

    @given(record=records, garbage=st.binary(max_size=200))
    def test_garbage_is_a_signature_error(self, step: SignStep, record: Record, garbage: bytes) -> None:
        with pytest.raises(SignatureError):
            step.on_consume(record.with_headers(record.headers.add("hw.sig", garbage)))
        with pytest.raises(SignatureError):
            step.on_consume(record.with_headers(record.headers.add("hw.sig", encode_text(garbage))))

    @given(record=records, garbage=st.binary(max_size=120))
    def test_garbage_behind_a_true_statement_is_a_signature_error(
        self, step: SignStep, record: Record, garbage: bytes
    ) -> None:
        value = Statement("k", 1, "", "orders").encode() + garbage
        with pytest.raises(SignatureError):
            step.on_consume(record.with_headers(record.headers.add("hw.sig", encode_text(value))))

    @given(record=records, other=records)
    def test_a_signature_fits_no_other_record(self, step: SignStep, record: Record, other: Record) -> None:
        moved = other.with_headers(Headers([*other.headers, step.on_send(record).headers[-1]]))
        if other == record:
            assert step.on_consume(moved).replace(local=None) == record
        else:
            with pytest.raises(SignatureError):
                step.on_consume(moved)

    @given(record=records, data=st.data())
    def test_an_altered_signature_is_refused(
        self, step: SignStep, record: Record, data: st.DataObject
    ) -> None:
        signed = step.on_send(record)
        value = bytearray(signed.headers[-1][1] or b"")
        at = data.draw(st.integers(0, len(value) - 1))
        value[at] ^= data.draw(st.integers(1, 255))
        with pytest.raises(SignatureError):
            step.on_consume(signed.with_headers(Headers([*record.headers, ("hw.sig", bytes(value))])))


class TestSignatureLayout:
    @given(first=st.tuples(payloads, payloads, pairs), second=st.tuples(payloads, payloads, pairs))
    def test_different_records_are_laid_out_differently(
        self,
        first: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]],
        second: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]],
    ) -> None:
        rest, stamp = rest_of_signed_bytes(), bytes(STAMP_BYTES)
        same = rest(stamp, first[0], first[1], Headers(first[2])) == rest(
            stamp, second[0], second[1], Headers(second[2])
        )
        assert same == (first == second)

    @given(
        statement=st.builds(
            Statement,
            st.text(min_size=1, max_size=50),
            st.integers(0, 65535),
            st.text(max_size=50),
            st.text(max_size=50),
        ),
        tail=st.binary(min_size=STAMP_BYTES + 1, max_size=100),
    )
    def test_statement_ends_where_it_says(self, statement: Statement, tail: bytes) -> None:
        encoded = statement.encode()
        assert decode_statement(encoded + tail) == (statement, len(encoded))

    @given(value=st.binary(max_size=300))
    def test_garbage_is_a_wire_format_error_or_a_statement(self, value: bytes) -> None:
        try:
            statement, end = decode_statement(value)
        except WireFormatError:
            return
        assert statement.encode() == value[:end]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Sign:
    path: Path = tmp_path_factory.mktemp("sign") / "keys.json"
    path.write_bytes(encode_keyring(with_new_key(Keyring(), "k", "ed25519")))
    path.chmod(0o600)
    return Sign(keyring=str(path), key_id="k", batch_records=40)


class TestBatchProperties:
    @given(batch=st.lists(records, min_size=2, max_size=60), data=st.data())
    def test_any_records_in_any_order_verify(
        self, shared: Sign, batch: list[Record], data: st.DataObject
    ) -> None:
        sender, reader = (shared.open(Context(now_ms=lambda: 1000)) for _ in range(2))
        signed = sent_together(sender, batch)
        for at in data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=80)):
            out = signed[at]
            assert isinstance(out, Record)
            assert reader.on_consume(out).replace(local=None) == batch[at]

    @given(
        batch=st.lists(records, min_size=2, max_size=20, unique_by=lambda record: record.value),
        data=st.data(),
    )
    def test_what_was_verified_lets_no_other_record_pass(
        self, shared: Sign, batch: list[Record], data: st.DataObject
    ) -> None:
        """Each record with the proof of each other one, whatever the reader has met before."""
        sender, reader = (shared.open(Context(now_ms=lambda: 1000)) for _ in range(2))
        signed = [out for out in sent_together(sender, batch) if isinstance(out, Record)]
        places = st.integers(0, len(batch) - 1)
        for mine, other in data.draw(st.lists(st.tuples(places, places), max_size=30)):
            swapped = signed[mine].with_headers(
                Headers([*signed[mine].headers[:-1], signed[other].headers[-1]])
            )
            if mine == other:
                reader.on_consume(swapped)
            else:
                with pytest.raises(SignatureError):
                    reader.on_consume(swapped)

    @given(count=st.integers(2, 300))
    def test_places_are_those_of_the_tree(self, count: int) -> None:
        _, paths = tree([index.to_bytes(32, "big") for index in range(count)])
        found = [node_number(index.to_bytes(2, "big") + count.to_bytes(2, "big")) for index in range(count)]
        assert [end - 4 for _, end in found] == [len(path) for path in paths]
        leaves = {place for place, _ in found}
        assert len(leaves) == count
        # each place is the root, or a child of one that is no leaf
        assert not any(place >> up in leaves for place in leaves for up in range(1, place.bit_length()))
