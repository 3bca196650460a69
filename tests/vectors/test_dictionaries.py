"""spec/vectors/dictionaries.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.dictionaries import Dictionary
from headerware.dictionaries.dictionary import decode_use, dictionary_key, encode_use
from headerware.dictionaries.topic import DictionaryRows
from headerware.topic_table.rows import TableRecord

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "dictionaries.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def row(case: dict[str, Any]) -> tuple[bytes, bytes]:
    text = case.get("value")
    value = bytes.fromhex(case["value_hex"]) if text is None else text.encode()
    return case["key"].encode(), value


class TestDictionaryTopicVectors:
    def test_cover_every_kind(self) -> None:
        assert len(VECTORS["rows"]) >= 3
        assert len(VECTORS["refused"]) >= 13

    @by_name("rows")
    def test_rows_are_read(self, case: dict[str, Any]) -> None:
        key, value = row(case)
        rows = DictionaryRows()
        assert rows.apply(TableRecord(0, key, value))
        assert rows.get(key) == value
        assert rows.apply(TableRecord(1, key, None))
        assert rows.records() == []
        assert rows.uses == {}

    @by_name("rows")
    def test_rows_are_written_so(self, case: dict[str, Any]) -> None:
        key, value = row(case)
        if "value_hex" in case:
            assert dictionary_key(Dictionary(value).id) == key
        else:
            use = decode_use(key, value)
            assert (use.key, json.loads(encode_use(use))) == (key, json.loads(value))

    @by_name("refused")
    def test_others_are_no_rows(self, case: dict[str, Any]) -> None:
        rows = DictionaryRows()
        assert not rows.apply(TableRecord(0, *row(case)))
        assert rows.records() == []
