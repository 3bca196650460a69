"""Rows for chains that protect: the full chain against its primitives, expire, delay, admission, contract."""

from __future__ import annotations

import hmac
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from encryption import CHUNK, bench_records
from natively import WAYS, in_force
from pairing import Chunk, compare
from report import Row

from headerware import Chain, Context, Headers, Record
from headerware.core.headers import EMPTY
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.store import publish
from headerware.interceptors import (
    Admission,
    Compress,
    Contract,
    Delay,
    Encrypt,
    Expire,
    Sign,
    Slice,
    Trail,
)
from headerware.interceptors.encrypt.envelope import SALT_BYTES, deriver
from headerware.keyring import certify, encode_jwks, with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.ops.dictionaries import Sample, train

TOPIC = "bench"
POLICY = """
version = 1
audience = "bench"

[[issuers]]
issuer = "bench"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]

[[rules]]
effect = "allow"
subjects = ["shop*"]
topics = ["b*"]
"""


def rows(*, pairs: int) -> Iterator[Row]:
    """Measure all rows for protection; no broker takes part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keyring = folder / "keys.json"
        edit_keyring(keyring, lambda keys: with_new_key(keys, "bench", "aes-256"), create=True)
        edit_keyring(keyring, lambda keys: with_new_key(keys, "signer", "hmac-sha256"))
        edit_keyring(keyring, lambda keys: with_new_key(keys, "shop", "ed25519"))
        for together in (1, 10):
            for way, natively in WAYS.items():
                with in_force(natively):
                    yield from _full_chain(folder, bench_records(together), pairs, way)
        yield from _added(folder, bench_records(1), pairs)
        yield from _contract(folder, pairs)


def _full_chain(folder: Path, records: list[Record], pairs: int, way: str) -> Iterator[Row]:
    content = train([Sample(None, each.value, EMPTY) for each in records]).dictionary
    store = FolderDictionaries(path=str(folder / f"dictionaries-{len(records[0].value)}"))
    publish(store.open(), content, TOPIC)
    keyring = str(folder / "keys.json")
    chain = Chain(
        [
            Trail(service="bench"),
            Expire(after_ms=3_600_000),
            Compress(dictionaries=store),
            Encrypt(key_service=FileKeys(keyring=keyring), key_id="bench"),
            Slice(),
            Sign(keyring=keyring, key_id="signer"),
        ]
    )
    writing, reading = chain.open(_context("producer")), chain.open(_context("consumer"))
    wire = [each.replace(partition=0, offset=at) for at, each in enumerate(writing.send(records))]
    assert wire[0].headers.names()[3:] == ("hw.trail", "hw.expires", "hw.compress", "hw.encrypt", "hw.sig")

    def send() -> int:
        for at in range(0, CHUNK, 500):
            writing.send(records[at : at + 500])
        return CHUNK

    def consume() -> int:
        for at in range(0, CHUNK, 500):  # as consume(500) gives them
            reading.consume(wire[at : at + 500])
        return CHUNK

    limit_send, limit_consume = _limit([each.value for each in records], content.content)
    size = sum(len(each.value) for each in records) // CHUNK
    note = (
        "trail, expire, compress with a dictionary, encrypt, slice (nothing is cut), sign (HMAC); "
        f"{size}-byte values, 3 headers; the limit is bare zstd, HKDF, AES-GCM and hmac.digest; "
        f"{pairs} pairs of {CHUNK:,}, in process"
    )
    for what, ours, limit in (("send", send, limit_send), ("consume", consume, limit_consume)):
        found = compare(ours, limit, pairs=pairs)
        name = f"the full chain on {what}, {len(records[0].value):,}-byte values, against its primitives{way}"
        bar = "at least 1.0" if way else ""
        yield Row(name, found.ours, found.reference, "records/s", found.ratio, bar, note)
    if size > 1_000 and not way:
        yield _cpu(size * CHUNK / 1e6, (send, consume))


def _limit(values: list[bytes], trained: bytes) -> tuple[Chunk, Chunk]:
    dictionary = zstandard.ZstdCompressionDict(trained)
    dictionary.precompute_compress(3)
    pack = zstandard.ZstdCompressor(dict_data=dictionary).compress
    unpack = zstandard.ZstdDecompressor(dict_data=dictionary).decompress
    derive, context, nonce = deriver(os.urandom(32)), os.urandom(160), bytes(12)
    random, cipher, key, digest = os.urandom, AESGCM, os.urandom(32), hmac.digest

    def sealed(value: bytes) -> tuple[bytes, bytes]:
        salt = random(SALT_BYTES)
        content = cipher(derive(salt)[:32]).encrypt(nonce, pack(value), context)
        digest(key, content, "sha256")
        return salt, content

    ready = [sealed(value) for value in values]

    def send() -> int:
        for value in values:
            sealed(value)
        return CHUNK

    def consume() -> int:
        for salt, content in ready:
            digest(key, content, "sha256")
            unpack(cipher(derive(salt)[:32]).decrypt(nonce, content, context))
        return CHUNK

    return send, consume


def _cpu(megabytes: float, chunks: tuple[Chunk, Chunk]) -> Row:
    """Measure the CPU time for a megabyte that goes through the full chain both ways."""
    took = []
    for _ in range(5):
        began = time.process_time()
        for chunk in chunks:
            chunk()
        took.append((time.process_time() - began) * 1000 / megabytes)
    ours, published = min(took), 25.0
    note = (
        "both directions; the reference is what Kroxylicious publishes for encryption alone in a proxy: "
        "25 millicores per MB/s"
    )
    name = "the full chain: CPU a megabyte, in values of 1 KB and more"
    return Row(name, ours, published, "ms/MB", ours / published, "", note)


class _Nothing:
    """A step that does nothing."""

    def on_send(self, record: Record) -> Record:
        return record

    on_consume = on_send


def _added(folder: Path, records: list[Record], pairs: int) -> Iterator[Row]:
    """Measure the hooks of single steps against one that does nothing."""
    sign = Sign(keyring=str(folder / "keys.json"), key_id="shop", cluster="bench")
    _certify(folder)
    admission = Admission(certificate=str(folder / "shop.jwt"), policy=str(folder / "policy.toml"))
    for name, steps in (
        ("expire", [Expire(after_ms=3_600_000)]),
        ("delay, of moments that have come", [Delay(after_ms=1)]),
        ("admission, beside sign", [admission, sign]),
    ):
        context = Context(side=None, cluster_id=lambda: "bench", signed=True)
        opened: list[Any] = [step.open(context) for step in steps]
        wire = records
        for step in opened:
            wire = [step.on_send(each) for each in wire]
        time.sleep(0.01)  # until the moments have come
        for step in reversed(opened[1:]):
            wire = [step.on_consume(each) for each in wire]
        for what, given in (("on_send", records), ("on_consume", wire)):
            hook, nothing = getattr(opened[0], what), getattr(_Nothing(), what)
            found = compare(_calls(hook, given), _calls(nothing, given), pairs=pairs)
            ours, reference = 1e9 / found.ours, 1e9 / found.reference
            note = f"a call of the hook; {pairs} pairs of {CHUNK:,}, in process"
            yield Row(f"{name}: {what}", ours, reference, "ns/record", ours / reference, "", note)


HEADERS = {
    "event-id": ({"type": "string", "format": "uuid"}, "7b1a4a8e-0f0a-4b0f-9d2e-3c5d7e9f1a2b"),
    "event-type": ({"enum": ["created", "changed", "deleted"]}, "created"),
    "event-time": ({"type": "string", "format": "date-time"}, "2026-11-30T01:02:03Z"),
    "tenant": ({"type": "string", "pattern": "^[a-z0-9-]+$", "maxLength": 40}, "north-1"),
    "version": ({"type": "integer", "minimum": 1}, "3"),
    "cause": ({"type": "string", "minLength": 1}, "import"),
    "region": ({"enum": ["eu", "us"]}, "eu"),
    "source": ({"type": "string", "format": "uri"}, "https://example.org/orders"),
    "content-language": ({"type": "string", "maxLength": 12}, "en"),
    "priority": ({"type": "integer", "minimum": 0, "maximum": 9}, "4"),
}
"""The ten headers of a contract: for each its schema, and a value."""


def _contract(folder: Path, pairs: int) -> Iterator[Row]:
    """Measure the comparison of ten headers with a contract, against a step that does nothing."""
    schemas = {name: schema for name, (schema, _) in HEADERS.items()}
    message = {"headers": {"type": "object", "required": [*HEADERS][:6], "properties": schemas}}
    channels = {TOPIC: {"address": TOPIC, "messages": {"Order": message}}}
    path = folder / "contract.json"
    path.write_text(json.dumps({"asyncapi": "3.0.0", "channels": channels}))
    headers = Headers([(name, value) for name, (_, value) in HEADERS.items()])
    records = [Record(TOPIC, b"value", b"key", headers)] * CHUNK
    hook = Contract(file=str(path)).open(Context()).on_send
    found = compare(_calls(hook, records), _calls(_Nothing().on_send, records), pairs=pairs)
    ours, reference = 1e9 / found.ours, 1e9 / found.reference
    note = f"formats, a pattern, values and limits; {pairs} pairs of {CHUNK:,} calls of the hook, in process"
    name = "contract of ten headers: on_send"
    yield Row(name, ours, reference, "ns/record", ours / reference, "ours at most 2000", note)


def _calls(hook: Callable[[Record], Any], records: list[Record]) -> Chunk:
    def chunk() -> int:
        for record in records:
            hook(record)
        return CHUNK

    return chunk


def _certify(folder: Path) -> None:
    issuer = edit_keyring(
        folder / "issuer.json",
        lambda keys: with_new_key(keys, "issuer", "ed25519", use=("certify",)),
        create=True,
    )
    shop = edit_keyring(folder / "keys.json", lambda keys: keys).current_key("shop", "sign", 0)
    text = certify(issuer.keys[0], shop, issuer="bench", subject="shop-1", audience=["bench"], topics=["b*"])
    (folder / "shop.jwt").write_text(text)
    (folder / "issuer.jwks.json").write_bytes(encode_jwks(issuer, use="certify"))
    (folder / "policy.toml").write_text(POLICY)


def _context(side: Any) -> Context:
    return Context(side=side, cluster_id=lambda: "MkU3OEVBNTcwNTJENDM2Qk")
