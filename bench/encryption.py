"""Rows for encryption: the interceptor against the bare primitives, and a complete chain with it."""

from __future__ import annotations

import hmac
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from natively import WAYS, in_force
from pairing import compare
from report import Row
from vega_datasets import local_data

from headerware import Chain, Headers, Record
from headerware.interceptors import Compress, Encrypt, Sign, Trail
from headerware.interceptors.encrypt.envelope import SALT_BYTES, deriver
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring

CHUNK = 5_000
BATCH = 500
HEADERS = Headers(
    [
        ("content-type", b"application/json"),
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tenant", b"north"),
    ]
)


def rows(*, pairs: int) -> Iterator[Row]:
    """Measure all rows for encryption; no broker takes part."""
    with tempfile.TemporaryDirectory() as folder:
        keyring = str(Path(folder) / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "bench", "aes-256"), create=True)
        edit_keyring(keyring, lambda keys: with_new_key(keys, "signer", "hmac-sha256"))
        encrypt = Encrypt(key_service=FileKeys(keyring=keyring), key_id="bench")
        for together in (1, 10):
            records = bench_records(together)
            yield _sent(encrypt, records, pairs)
            yield _consumed(encrypt, records, pairs)
            if True in WAYS.values():
                yield from _natively(encrypt, records, pairs)
        yield _cpu(encrypt, bench_records(10))
        sign = Sign(keyring=keyring, key_id="signer")
        steps = [Trail(service="bench"), Compress(), encrypt, sign]
        for way, natively in WAYS.items():
            with in_force(natively):
                name = f"trail + compress + encrypt + sign, against the same without encrypt{way}"
                yield _chained(name, steps, [steps[0], steps[1], sign], pairs)


def bench_records(together: int) -> list[Record]:
    """Return records whose values have this many airports each."""
    rows = local_data.airports().to_dict("records")
    groups = [rows[index : index + together] for index in range(0, len(rows) - together, together)]
    values = [json.dumps(group if together > 1 else group[0]).encode() for group in groups]
    return [
        Record("bench", values[number % len(values)], b"key-%d" % number, HEADERS, 0, offset=number)
        for number in range(CHUNK)
    ]


def _bare(records: list[Record]) -> tuple[list[tuple[bytes, bytes]], Any, Any]:
    """Return ciphertexts with their salts, and the loops that encrypt and decrypt without a chain."""
    derive, context = deriver(os.urandom(32)), os.urandom(160)
    nonce, random, cipher, same = bytes(12), os.urandom, AESGCM, hmac.compare_digest
    values = [record.value for record in records]

    def encrypted() -> list[tuple[bytes, bytes]]:
        found = []
        for value in values:
            salt = random(SALT_BYTES)
            derived = derive(salt)
            found.append((salt, cipher(derived[:32]).encrypt(nonce, value, context) + derived[32:]))
        return found

    sealed = encrypted()

    def encrypt() -> int:
        for value in values:
            derived = derive(random(SALT_BYTES))
            cipher(derived[:32]).encrypt(nonce, value, context)
        return CHUNK

    def decrypt() -> int:
        for salt, content in ready:
            derived = derive(salt)
            same(derived[32:], content[1])
            cipher(derived[:32]).decrypt(nonce, content[0], context)
        return CHUNK

    ready = [(salt, (content[:-32], content[-32:])) for salt, content in sealed]
    return sealed, encrypt, decrypt


def _note(records: list[Record], pairs: int) -> str:
    size = sum(len(record.value) for record in records) // CHUNK
    return (
        f"{size}-byte values, 3 headers; bare is a random salt, HKDF from copied hash states and AES-GCM; "
        f"{pairs} pairs of {CHUNK:,}, in process"
    )


def _sent(encrypt: Encrypt, records: list[Record], pairs: int) -> Row:
    (step,) = Chain([encrypt]).open().steps
    hook = step.opened.on_send

    def ours() -> int:
        for record in records:
            hook(record)
        return CHUNK

    found = compare(ours, _bare(records)[1], pairs=pairs)
    name = f"encrypt on send against bare AES-GCM and HKDF, {len(records[0].value):,}-byte values"
    return _row(name, found.ours, found.reference, found.ratio, "at least 0.7", _note(records, pairs))


def _consumed(encrypt: Encrypt, records: list[Record], pairs: int) -> Row:
    (step,) = Chain([encrypt]).open().steps
    wire, hook = [step.opened.on_send(record) for record in records], step.opened.on_consume

    def ours() -> int:
        for record in wire:
            hook(record)
        return CHUNK

    found = compare(ours, _bare(records)[2], pairs=pairs)
    name = f"decrypt on consume against bare AES-GCM and HKDF, {len(records[0].value):,}-byte values"
    return _row(name, found.ours, found.reference, found.ratio, "at least 0.7", _note(records, pairs))


def _natively(encrypt: Encrypt, records: list[Record], pairs: int) -> Iterator[Row]:
    _, bare_encrypt, bare_decrypt = _bare(records)
    with in_force(natively=True):
        session = Chain([encrypt]).open()
        wire = session.send(records)
        session.consume(wire[:BATCH])

    def send() -> int:
        for at in range(0, CHUNK, BATCH):
            session.send(records[at : at + BATCH])
        return CHUNK

    def consume() -> int:
        for at in range(0, CHUNK, BATCH):
            session.consume(wire[at : at + BATCH])
        return CHUNK

    note = f"batches of {BATCH}; {_note(records, pairs)}"
    for what, ours, reference in (
        ("encrypt on send", send, bare_encrypt),
        ("decrypt on consume", consume, bare_decrypt),
    ):
        found = compare(ours, reference, pairs=pairs)
        name = f"{what} against bare AES-GCM and HKDF, {len(records[0].value):,}-byte values, natively"
        yield _row(name, found.ours, found.reference, found.ratio, "at least 1.2", note)


def _cpu(encrypt: Encrypt, records: list[Record]) -> Row:
    """Measure the CPU time for a megabyte that is encrypted and decrypted again."""
    (step,) = Chain([encrypt]).open().steps
    send, consume = step.opened.on_send, step.opened.on_consume
    megabytes = sum(len(record.value) for record in records) / 1e6
    took = []
    for _ in range(5):
        began = time.process_time()
        for record in records:
            consume(send(record))
        took.append((time.process_time() - began) * 1000 / megabytes)
    ours, published = min(took), 25.0
    note = "both directions; the reference is what Kroxylicious publishes for a proxy: 25 millicores per MB/s"
    name = "encrypt: CPU a megabyte, in values of 1 KB and more"
    return Row(name, ours, published, "ms/MB", ours / published, "", note)


def _chained(name: str, steps: list[Any], without: list[Any], pairs: int) -> Row:
    ours, reference = Chain(steps).open(), Chain(without).open()
    records = bench_records(10)

    def both(session: Any) -> Any:
        def chunk() -> int:
            for at in range(0, CHUNK, BATCH):  # as consume(500) gives them
                session.consume(session.send(records[at : at + BATCH]))
            return CHUNK

        return chunk

    found = compare(both(ours), both(reference), pairs=max(3, pairs // 4))
    return _row(f"both ways: {name}", found.ours, found.reference, found.ratio, "", _note(records, pairs))


def _row(name: str, ours: float, reference: float, ratio: float, bar: str, note: str) -> Row:
    return Row(name, ours, reference, "records/s", ratio, bar, note)
