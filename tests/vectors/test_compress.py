"""spec/vectors/compress.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import CompressionError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.dictionaries import Dictionary, FolderDictionaries
from headerware.dictionaries.dictionary import COMPRESS_HEADER, id_of
from headerware.dictionaries.store import publish
from headerware.interceptors.compress import Compress

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "compress.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def optional(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def marked(case: dict[str, Any]) -> Record:
    headers = Headers([("a", b"1"), (COMPRESS_HEADER, case["header"])])
    return Record("orders", optional(case["wire_hex"]), headers=headers)


class TestCompressVectors:
    def test_covers_every_kind(self) -> None:
        assert len(VECTORS["cases"]) >= 13
        assert len(VECTORS["refused"]) >= 51

    @by_name("cases")
    def test_reads_the_bytes(self, case: dict[str, Any]) -> None:
        record = Compress().open(Context()).on_consume(marked(case))
        assert (record.value.hex(), record.headers) == (case["plain_hex"], Headers([("a", b"1")]))

    @by_name("cases")
    def test_writes_what_reads_the_same(self, case: dict[str, Any]) -> None:
        step = Compress(codec=case["codec"], min_bytes=0).open(Context())
        plain = Record("orders", bytes.fromhex(case["plain_hex"]) * 20)
        sent = step.on_send(plain)
        if plain.value:
            assert sent.headers == Headers([(COMPRESS_HEADER, case["header"])])
        assert step.on_consume(sent) == plain

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any]) -> None:
        step = Compress(max_decompressed_bytes=65_536).open(Context())
        with pytest.raises(CompressionError, match=case["reason"]):
            step.on_consume(marked(case))


def of_dictionaries(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS["dictionaries"][kind], ids=lambda case: case["name"])


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Make a store with the dictionaries of the vectors; the first one is that of orders."""
    store = FolderDictionaries(path=str(tmp_path)).open()
    for known in VECTORS["dictionaries"]["known"]:
        store.put(Dictionary(bytes.fromhex(known["hex"])))
    publish(store, Dictionary(bytes.fromhex(VECTORS["dictionaries"]["known"][0]["hex"])), "orders")
    return store


class TestDictionaryVectors:
    def test_covers_every_kind(self) -> None:
        assert len(VECTORS["dictionaries"]["cases"]) >= 5
        assert len(VECTORS["dictionaries"]["refused"]) >= 20

    @pytest.mark.parametrize("case", VECTORS["dictionaries"]["known"], ids=lambda case: case["id"])
    def test_ids_are_these(self, case: dict[str, Any]) -> None:
        assert id_of(bytes.fromhex(case["hex"])) == case["id"]

    @of_dictionaries("cases")
    def test_reads_the_bytes(self, case: dict[str, Any], store: Any) -> None:
        record = Compress(dictionaries=store).open(Context()).on_consume(marked(case))
        assert (record.value.hex(), record.headers) == (case["plain_hex"], Headers([("a", b"1")]))

    @of_dictionaries("cases")
    def test_writes_what_reads_the_same(self, case: dict[str, Any], store: Any) -> None:
        step = Compress(dictionaries=store, min_bytes=0).open(Context())
        plain = Record("orders", bytes.fromhex(case["plain_hex"]))
        sent = step.on_send(plain)
        if plain.value:
            assert sent.headers == Headers([(COMPRESS_HEADER, case["header"])])
        assert step.on_consume(sent) == plain

    @of_dictionaries("refused")
    def test_refuses(self, case: dict[str, Any], store: Any) -> None:
        step = Compress(dictionaries=store, max_decompressed_bytes=65_536).open(Context())
        with pytest.raises(CompressionError, match=case["reason"]):
            step.on_consume(marked(case))
