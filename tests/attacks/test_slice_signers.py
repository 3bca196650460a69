"""All slices of a message have one signer: what another signed, or nobody, is not put in and does no harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ReassemblyError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from headerware.interceptors.slice.header import SliceHeader
from headerware.keyring import Keyring, encode_keyring, with_new_key

WHOLE = Record("orders", bytes(range(250)) * 12, b"k-1", Headers([("tenant", b"blue")]), partition=3)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    ring = with_new_key(with_new_key(Keyring(), "ours", "hmac-sha256"), "theirs", "ed25519")
    path = tmp_path / "keys.json"
    path.write_bytes(encode_keyring(ring))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def reader(keys: str) -> Session:
    return reading(keys)


def reading(keys: str, **options: Any) -> Session:
    chain = Chain([Slice(expire_ms=1_000), Sign(keyring=keys, **options)])
    return chain.open(Context(side="consumer", now_ms=lambda: 1_000))


def split(keys: str, key_id: str = "ours") -> list[Record]:
    with Chain([Slice(max_bytes=1_500), Sign(keyring=keys, key_id=key_id)]).open(Context()) as session:
        return [piece.replace(offset=10 + at) for at, piece in enumerate(session.send([WHOLE]))]


def signed_again(keys: str, key_id: str | None, piece: Record, value: bytes | None = None) -> Record:
    """Return a slice with the position of a genuine one, from somebody else."""
    bare = piece.replace(headers=Headers(piece.headers[:-1]), value=value or piece.value, offset=None)
    if key_id is None:
        return bare.replace(offset=piece.offset)
    (signed,) = (Sign(keyring=keys, key_id=key_id).open(Context()).on_send(bare),)
    return signed.replace(offset=piece.offset)


def taken(session: Session, *records: Record) -> list[Record]:
    return session.consume(list(records))


@pytest.mark.parametrize("signer", ["theirs", "ours", None])
class TestForeignSlices:
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_are_not_reassembled(self, keys: str, signer: str | None, at: int) -> None:
        pieces = split(keys)
        pieces[at] = signed_again(keys, signer, pieces[at], bytes(len(pieces[at].value)))
        assert taken(reading(keys, require="off"), *pieces) == []

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_do_not_harm_the_message(self, keys: str, signer: str | None, at: int) -> None:
        pieces = split(keys)
        foreign = signed_again(keys, signer, pieces[at], bytes(len(pieces[at].value)))
        (seen,) = taken(reading(keys, require="off"), foreign, *pieces)
        assert (seen.value, seen.headers) == (WHOLE.value, WHOLE.headers)

    def test_that_are_refused_do_not_take_the_message_along(self, keys: str, signer: str | None) -> None:
        session = reading(keys, require="off")
        first, *rest = split(keys)
        assert taken(session, first) == []
        with pytest.raises(ReassemblyError):
            session.consume([signed_again(keys, signer, first, b"of another length")])
        (seen,) = taken(session, *rest)
        assert seen.value == WHOLE.value

    def test_are_given_up_on_their_own(self, keys: str, signer: str | None) -> None:
        session = reading(keys, require="off")
        pieces = split(keys)
        taken(session, signed_again(keys, signer, pieces[0]), *pieces)
        (error,) = session.poll(10_000)
        assert isinstance(error, ReassemblyError)
        assert session.safe_offset("orders", 3, 99) == 99


class TestWholeMessages:
    def test_are_verified_as_their_first_slice(self, keys: str, reader: Session) -> None:
        pieces = split(keys)
        (seen,) = taken(reader, *pieces)
        assert seen.verified is not None
        assert (seen.verified.key_id, seen.verified.topic, seen.verified.sequence) == ("ours", "orders", 0)

    def test_claim_nothing_where_nobody_signed(self, keys: str) -> None:
        bare = [signed_again(keys, None, piece) for piece in split(keys)]
        (seen,) = taken(reading(keys, require="off"), *bare)
        assert seen.verified is None

    def test_of_two_messages_that_mingle(self, keys: str, reader: Session) -> None:
        ours, theirs = split(keys), split(keys, "theirs")
        mingled = [piece for pair in zip(ours, theirs, strict=True) for piece in pair]
        seen = taken(reader, *mingled)
        assert [record.verified and record.verified.key_id for record in seen] == ["ours", "theirs"]

    def test_reordered(self, keys: str, reader: Session) -> None:
        (seen,) = taken(reader, *reversed(split(keys)))
        assert seen.value == WHOLE.value

    def test_a_slice_with_another_index_or_count_is_not_its_signers(self, keys: str, reader: Session) -> None:
        piece = split(keys)[1]
        header = SliceHeader.decode(piece.headers.last("hw.slice"))
        for changed in ((header.index - 1, header.count), (header.index, header.count + 1)):
            forged = SliceHeader(header.message_id, *changed, header.total_bytes + 1, header.slice_bytes)
            pairs = [("hw.slice", _encoded(forged)), piece.headers[-1]]
            outcome = reader.consume_outcome(piece.replace(headers=Headers(pairs)))
            assert "does not fit the record" in str(outcome)

    def test_wait_with_the_memory_of_what_was_added(self, keys: str) -> None:
        piece, *_ = split(keys)
        session = reading(keys, uncovered="pass")
        taken(session, piece.replace(headers=piece.headers.add("n" * 1_000, bytes(50_000))))
        assert session.stats()["slice"]["pending_bytes"] > 50_000


def _encoded(header: SliceHeader) -> bytes:
    try:
        return header.encode()
    except Exception:  # noqa: BLE001 - numbers that no writer would write
        return b"AQ=="
