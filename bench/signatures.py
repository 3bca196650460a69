"""Rows for signatures: batches that share a signature against a signature for each record, in process.

There are two kinds of rows: the hashes, tree and path of a batch against signatures themselves, and the
complete interceptor with batches against the interceptor with a signature for each record. Both verify
records in the order of a topic, and remember nothing from one batch to the next.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from pairing import Chunk, compare
from report import Row

from headerware import Context, Headers, Record
from headerware.core.batch import Batch
from headerware.interceptors import Sign
from headerware.keyring import Key, Keyring, with_new_key
from headerware.keyring.asymmetric import SCHEMES
from headerware.keyring.merkle import VerifiedBatches, batch_signer, leaf_beginning
from headerware.keyring.signature import (
    BATCH,
    Statement,
    beginning,
    encode_stamp,
    rest_of_signed_bytes,
    signer,
    verifier,
)
from headerware.keyring.writing import edit_keyring

BATCH_RECORDS = 256
RECORDS = 16 * BATCH_RECORDS
ALONE = 64
"""How many records a chunk has if each has a signature, which takes long."""
NOTE = f"records of 147 bytes with two headers, batches of {BATCH_RECORDS}, in process"


def rows(*, pairs: int) -> Iterator[Row]:
    """Measure all rows for signatures; no broker takes part."""
    yield from _primitives(pairs)
    for algorithm in SCHEMES:
        yield from _interceptor(algorithm, pairs)


def _records(count: int) -> list[Record]:
    headers = Headers([("content-type", b"application/json"), ("tenant", b"north")])
    return [
        Record("orders", bytes(147), b"k-%d" % number, headers, 0, offset=number) for number in range(count)
    ]


def _primitives(pairs: int) -> Iterator[Row]:
    key = with_new_key(Keyring(), "bench", "ed25519").keys[0]
    statement = Statement(key.id, key.version, "cluster", "orders")
    rest = rest_of_signed_bytes()
    signed = [
        rest(encode_stamp(0, bytes(8), number), record.key, record.value, record.headers)
        for number, record in enumerate(_records(RECORDS))
    ]
    together = _batch_of(key, statement.encode(BATCH))
    alone = signer(key, beginning(key.algorithm, statement.encode()))
    verify_alone = verifier(key, beginning(key.algorithm, statement.encode()))

    def sign_batch() -> int:
        together(signed)
        return len(signed)

    def sign_each() -> int:
        for text in signed[:ALONE]:
            alone(text)
        return ALONE

    made = compare(sign_batch, sign_each, pairs=pairs)
    yield _row("sign: tree and path of a batch against Ed25519 a record", made, "at least 10", "")
    proofs, signatures = together(signed), [alone(text) for text in signed[:ALONE]]

    known = VerifiedBatches()
    verify = known.verifier(key, statement.encode(BATCH))

    def verify_batch() -> int:
        known.clear()
        assert all(verify(text, proof) for text, proof in zip(signed, proofs, strict=True))
        return len(signed)

    def verify_each() -> int:
        assert all(verify_alone(text, mark) for text, mark in zip(signed, signatures, strict=False))
        return ALONE

    seen = compare(verify_batch, verify_each, pairs=pairs)
    yield _row("verify: tree and path of a batch against Ed25519 a record", seen, "at least 20", "")

    def verify_some() -> int:
        known.clear()
        assert all(verify(text, proof) for text, proof in zip(signed[::6], proofs[::6], strict=True))
        return len(signed[::6])

    seen = compare(verify_some, verify_each, pairs=pairs)
    yield _row("verify: the same, each sixth record of a batch", seen, "", "as in one of six partitions")


def _batch_of(key: Key, statement: bytes) -> Callable[[list[bytes]], list[bytes]]:
    begun, sign = leaf_beginning(key, statement), batch_signer(key, statement)

    def together(signed: list[bytes]) -> list[bytes]:
        proofs = []
        for at in range(0, len(signed), BATCH_RECORDS):
            proofs += sign([sha256(begun + text).digest() for text in signed[at : at + BATCH_RECORDS]])
        return proofs

    return together


def _interceptor(algorithm: Any, pairs: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        keyring = str(Path(folder) / "keys.json")
        edit_keyring(keyring, lambda empty: with_new_key(empty, "bench", algorithm), create=True)

        def opened(most: int) -> Any:
            return Sign(keyring=keyring, key_id="bench", cluster="c", batch_records=most).open(Context())

        together, alone, records = opened(BATCH_RECORDS), opened(1), _records(RECORDS)

        def sign_batch() -> int:
            return len(together.on_send_batch(Batch.of(records)))

        made = compare(sign_batch, _each(alone.on_send, records[:ALONE]), pairs=pairs)
        yield _row(f"sign, {algorithm}: batches against a signature a record", made, "", "")
        signed, single = (
            list(together.on_send_batch(Batch.of(records))),
            [alone.on_send(each) for each in records[:ALONE]],
        )

        reader = opened(1)
        read, known = reader.on_consume, reader._verification._batches  # noqa: SLF001 - to forget

        def verify_batch() -> int:
            known.clear()
            for record in signed:
                read(record)
            return len(signed)

        seen = compare(verify_batch, _each(alone.on_consume, single), pairs=pairs)
        yield _row(f"verify, {algorithm}: batches against a signature a record", seen, "", "")


def _each(hook: Callable[[Record], object], records: list[Record]) -> Chunk:
    def chunk() -> int:
        for record in records:
            hook(record)
        return len(records)

    return chunk


def _row(name: str, found: Any, bar: str, note: str) -> Row:
    costs = f"{1e6 / found.ours:.2f} against {1e6 / found.reference:.1f} us a record"
    said = "; ".join(filter(None, (costs, note, NOTE)))
    return Row(name, found.ours, found.reference, "records/s", found.ratio, bar, said)
