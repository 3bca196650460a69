"""spec/vectors/trail-proof.json against the interceptor, and against a plain reading of spec/trail.md."""

from __future__ import annotations

import base64
import json
import struct
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headerware.core.context import Context
from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.interceptors.trail import PROOF_HEADER, TRAIL_HEADER, Trail
from headerware.interceptors.trail_proof import SignedTrailStep, prove_trail, read_proofs
from headerware.keyring import read_keyring
from tests.batches import sent_together
from tests.vectors.test_signature import headers_of, keyring_path, record_of, unhex
from tests.vectors.test_signature_batch import hash_by_the_prose, path_by_the_prose

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["keyring_path"]  # the keys are those of signature.json

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec/vectors/trail-proof.json").read_text(encoding="utf-8")
)
SIZES = {"hmac-sha256": 32, "ed25519": 64}
NULL = 0xFFFFFFFF


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def u16(number: int) -> bytes:
    return struct.pack(">H", number)


def prefixed(value: bytes | None) -> bytes:
    return struct.pack(">I", NULL) if value is None else struct.pack(">I", len(value)) + value


def digest_by_the_prose(record: dict[str, Any], salt: bytes) -> bytes:
    own = ("hw.owner", "hw.schema", "hw.source", "hw.source.key", "hw.source.record")
    out_of = ("hw.", "headerware.", "x-b3-", "x-datadog-", "uberctx-")
    named = ("traceparent", "tracestate", "baggage", "b3", "uber-trace-id", "x-amzn-trace-id")
    headers = [
        pair
        for pair in record["headers"]
        if pair[0] in own or (not pair[0].lower().startswith(out_of) and pair[0].lower() not in named)
    ]
    key, value = unhex(record["key_hex"]), unhex(record["value_hex"])
    out = b"headerware/hw.trail.proof/record/1" + salt
    out += struct.pack(">I", NULL if key is None else len(key))
    out += struct.pack(">I", NULL if value is None else len(value))
    out += struct.pack(">I", len(headers)) + (key or b"") + (value or b"")
    for name, content in headers:
        out += prefixed(name.encode()) + prefixed(unhex(content))
    return sha256(out).digest()[:16]


def links_by_the_prose(trail: str, before: bytes | None, digest: bytes) -> list[bytes]:
    """Return the links of a trail whose latest entry has this digest; ``before`` are the proofs before it."""
    start, *entries = trail.encode().split(b",")
    left = int(start.partition(b"left=")[2] or 0)
    folded, forms = forms_by_the_prose(before) if before else (b"", {})
    first = found = b""
    links = []
    for at, entry in enumerate(entries):
        number = at + 1 + (left if at else 0)
        form = (1, digest) if entry is entries[-1] else forms.get(number, (0, bytes(16)))
        if number == left + 2 and left:
            found = folded
        found = sha256(
            b"headerware/hw.trail.proof/link/1"
            + u16(number)
            + bytes([form[0]])
            + (first or bytes(32))
            + (found or bytes(32))
            + form[1]
            + entry
        ).digest()
        first = first or found
        links.append(found)
    return links


def forms_by_the_prose(layout: bytes) -> tuple[bytes, dict[int, tuple[int, bytes]]]:
    """Return the folded link, and the form and the digest of each entry by its number, salts resolved."""
    (folded,) = struct.unpack_from(">H", layout, 1)
    at = 3 + (32 if folded else 0)
    number, forms, salted = 1, dict[int, tuple[int, bytes]](), 0
    while at < len(layout):
        (head,) = struct.unpack_from(">H", layout, at)
        kind, digest = head >> 13, layout[at + 2 : at + 18]
        if kind == 7:
            forms[salted] = (1, digest)
            break
        at += 2
        if kind:
            forms[number] = (2 if head & 0x1000 else 1, digest)
            salted = number if head & 0x1000 else salted
            size = {1: 64, 2: 32}.get(kind)
            at += 16 + (2 + struct.unpack_from(">H", layout, at + 16)[0] if size is None else size)
        number = max(folded, 1) + 1 if number == 1 else number + 1
    return layout[3:35] if folded else b"", forms


def hint_by_the_prose(case: dict[str, Any]) -> int:
    return (
        int.from_bytes(sha256(b"headerware/hw.trail.proof/key/1" + key_by_the_prose(case)).digest()[:2])
        & 0xFFF
    )


def key_by_the_prose(case: dict[str, Any]) -> bytes:
    key_id: bytes = case["key_id"].encode()
    return bytes([len(key_id)]) + key_id + u16(case["key_version"])


def beginning_by_the_prose(case: dict[str, Any], kind: int) -> bytes:
    domain = b"headerware/hw.trail.proof/%d" % kind
    return domain + prefixed(case["algorithm"].encode()) + prefixed(key_by_the_prose(case))


def step_for(path: Path, case: dict[str, Any], salts: Iterator[str], **options: Any) -> SignedTrailStep:
    trail = Trail(
        service=case["service"],
        cluster="eu",
        max_entries=case.get("max_entries", 32),
        signed=True,
        keyring=str(path),
        key_id=case["key_id"],
        **options,
    )
    context = Context(now_ms=lambda: int(case["at"]))
    return SignedTrailStep(trail, context, salts=lambda _: bytes.fromhex(next(salts)))


class TestHops:
    @by_name("hops")
    def test_are_written(self, case: dict[str, Any], keyring_path: Path) -> None:
        step = step_for(keyring_path, case, iter([case["salt_hex"]]))
        sent = step.on_send(record_of(case["record"], headers_of(case["record"])))
        assert sent.headers.last(TRAIL_HEADER) == case["trail"].encode()
        assert base64.b64decode(sent.headers.last(PROOF_HEADER) or b"").hex() == case["layout_hex"]
        assert sent.headers.last(PROOF_HEADER) == case["wire"].encode()

    @by_name("hops")
    def test_are_what_the_prose_says(self, case: dict[str, Any]) -> None:
        record, salt = case["record"], bytes.fromhex(case["salt_hex"])
        digest = digest_by_the_prose(record, salt)
        assert digest.hex() == case["digest_hex"]
        before = dict(record["headers"])
        dropped = case["max_entries"] == 2
        if not dropped:  # else the entries before are not in the trail any more
            proofs = before.get(PROOF_HEADER)
            layout = base64.b64decode(bytes.fromhex(proofs)) if proofs else None
            links = links_by_the_prose(case["trail"], layout, digest)
            assert links[-1].hex() == case["link_hex"]
        assert case["signed_hex"] == beginning_by_the_prose(case, 1).hex() + case["link_hex"]
        kind = {32: 2, 64: 1}[SIZES[case["algorithm"]]]
        head = u16(kind << 13 | 0x1000 | hint_by_the_prose(case))
        layout = bytes.fromhex(case["layout_hex"])
        hop = layout[-18 - SIZES[case["algorithm"]] :]
        assert (layout[0], hop[:18]) == (1, head + salt)

    @pytest.mark.parametrize("batch", VECTORS["batches"], ids=lambda batch: batch["name"])
    def test_of_batches_are_written(self, batch: dict[str, Any], keyring_path: Path) -> None:
        salts = iter([case["salt_hex"] for case in batch["records"]])
        step = step_for(keyring_path, batch, salts, batch_records=8)
        records = [record_of(case["record"], headers_of(case["record"])) for case in batch["records"]]
        sent = sent_together(step, records)
        assert [record.headers.last(PROOF_HEADER) for record in sent] == [
            case["wire"].encode() for case in batch["records"]
        ]

    @pytest.mark.parametrize("batch", VECTORS["batches"], ids=lambda batch: batch["name"])
    def test_of_batches_are_what_the_prose_says(self, batch: dict[str, Any], keyring_path: Path) -> None:
        beginning = beginning_by_the_prose(batch, 2)
        links = []
        for case in batch["records"]:
            digest = digest_by_the_prose(case["record"], bytes.fromhex(case["salt_hex"]))
            links.append(links_by_the_prose(case["trail"], None, digest)[-1])
            assert links[-1].hex() == case["link_hex"]
        leaves = [sha256(b"\0" + beginning + link).digest() for link in links]
        key = read_keyring(keyring_path).current_key(batch["key_id"], "sign", batch["at"])
        signed = beginning + u16(len(leaves)) + hash_by_the_prose(leaves)
        signature = Ed25519PrivateKey.from_private_bytes(key.private or b"").sign(signed)
        for index, case in enumerate(batch["records"]):
            proof = u16(index) + u16(len(leaves)) + b"".join(path_by_the_prose(index, leaves)) + signature
            head = u16(4 << 13 | 0x1000 | hint_by_the_prose(batch))
            hop = head + bytes.fromhex(case["salt_hex"]) + u16(len(proof)) + proof
            assert case["layout_hex"] == (b"\1\0\0" + hop).hex()


class TestProven:
    @by_name("proven")
    def test_states(self, case: dict[str, Any], keyring_path: Path) -> None:
        record = record_of(case["record"], headers_of(case["record"]))
        found = prove_trail(record, read_keyring(keyring_path)).hops
        assert ([hop.state for hop in found], [hop.key_id for hop in found]) == (
            case["states"],
            case["key_ids"],
        )


class TestRefused:
    @by_name("refused")
    def test_proofs(self, case: dict[str, Any]) -> None:
        value = None if case["wire"] is None else case["wire"].encode()
        with pytest.raises(WireFormatError, match=case["reason"]):
            read_proofs(value)

    @by_name("refused")
    def test_prove_nothing(self, case: dict[str, Any], keyring_path: Path) -> None:
        one = VECTORS["proven"][0]["record"]
        headers = [(name, value) for name, value in headers_of(one) if name != PROOF_HEADER]
        wire = None if case["wire"] is None else case["wire"].encode()
        record = record_of(one, Headers([*headers, (PROOF_HEADER, wire)]))
        assert {hop.state for hop in prove_trail(record, read_keyring(keyring_path)).hops} == {"unproven"}


def test_covers_every_kind() -> None:
    assert {kind: len(VECTORS[kind]) for kind in ("hops", "batches", "proven", "refused")} == {
        "hops": 5,
        "batches": 1,
        "proven": 17,
        "refused": 17,
    }
