"""spec/vectors/dedup.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import InterceptorError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.dedup import Dedup
from headerware.interceptors.dedup.identity import ID_HEADER, Identity, identity_of

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "dedup.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def optional(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def stated(case: dict[str, Any]) -> Identity:
    return Identity(bytes.fromhex(case["source_hex"]), case.get("sequence"), optional(case.get("digest_hex")))


class TestDedupVectors:
    def test_covers_every_kind(self) -> None:
        assert {name: len(VECTORS[name]) for name in ("identities", "derived", "letters", "refused")} == {
            "identities": 7,
            "derived": 8,
            "letters": 8,
            "refused": 23,
        }

    @by_name("identities")
    def test_reads_the_text(self, case: dict[str, Any]) -> None:
        assert Identity.decode(case["wire"].encode()) == stated(case)

    @by_name("identities")
    def test_writes_the_text(self, case: dict[str, Any]) -> None:
        assert stated(case).encode().decode() == case["wire"]

    @by_name("derived")
    def test_makes_the_same_of_what_a_record_says(self, case: dict[str, Any]) -> None:
        step = Dedup(**{**case["options"], "id_from": tuple(case["options"]["id_from"])}).open(Context())
        headers = Headers([(name, value) for name, value in case["headers"]])
        key = None if case["key"] is None else case["key"].encode()
        sent = step.on_send(Record(case["topic"], b"v", key, headers))
        assert sent.headers == headers.add(ID_HEADER, case["wire"])

    @by_name("letters")
    def test_knows_a_record_and_its_letters_by_these(self, case: dict[str, Any]) -> None:
        headers = Headers([(name, value) for name, value in case["headers"]])
        known: list[str] = []

        def is_duplicate(identity: bytes, record: Record) -> bool:
            known.append(identity.hex())
            return False

        record = Record(case["topic"], b"v", headers=headers)
        Dedup().open(Context(is_duplicate=is_duplicate)).on_consume(record)
        assert [*known, identity_of(record).hex()] == [case["known_by_hex"]] * 2

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any]) -> None:
        value = None if case["wire"] is None else case["wire"].encode()
        with pytest.raises(WireFormatError, match=case["reason"]):
            Identity.decode(value)
        with pytest.raises(InterceptorError, match=case["reason"]):
            Dedup().open(Context()).on_consume(Record("orders", b"v", headers=Headers([(ID_HEADER, value)])))
