from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from headerware.core.errors import DictionaryError, WireFormatError
from headerware.core.header_text import encode_text
from headerware.dictionaries import Dictionary, Use
from headerware.dictionaries.dictionary import (
    MAX_DICTIONARY_BYTES,
    MAX_VERSIONS,
    Version,
    checked_id,
    decode_mark,
    decode_use,
    encode_mark,
    encode_use,
    use_key,
)
from tests.airports import trained

ID = "00112233445566778899aabbccddeeff"
SINCE = "2026-01-31T00:00:00Z"


class TestDictionary:
    def test_is_named_by_its_content(self) -> None:
        assert trained().id == hashlib.sha256(trained().content).hexdigest()[:32]
        assert trained(4096).id != trained().id

    def test_does_not_show_its_content(self) -> None:
        assert repr(trained()) == f"Dictionary({trained().id}, 16384 bytes)"

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"", "magic number"),
            (b"some text", "magic number"),
            (b"\x37\xa4\x30\xec" + bytes(100), "zstd's id, by which frames name it"),
            (b"\x37\xa4\x30\xec" + bytes(MAX_DICTIONARY_BYTES), "at most 262,144 bytes, found 262,148"),
        ],
    )
    def test_refuses_what_is_none(self, content: bytes, problem: str) -> None:
        with pytest.raises(DictionaryError, match=problem):
            Dictionary(content)


class TestMark:
    def test_names_a_dictionary(self) -> None:
        assert decode_mark(encode_mark(ID)) == ID
        assert len(encode_mark(ID)) == 24

    @pytest.mark.parametrize(
        ("layout", "problem"),
        [
            (bytes([2]) + bytes(16), "expected layout 1, found 2"),
            (bytes([1]) + bytes(15), "expected 17 bytes, found 16"),
            (bytes([1]) + bytes(17), "expected 17 bytes, found 18"),
        ],
    )
    def test_refuses_another_layout(self, layout: bytes, problem: str) -> None:
        with pytest.raises(WireFormatError, match=problem):
            decode_mark(encode_text(layout))

    def test_an_id_has_one_spelling(self) -> None:
        assert checked_id(ID) == ID
        for other in (ID.upper(), ID[:-1], f"{ID}0", f"{ID}\n", "../" + ID[3:]):
            with pytest.raises(DictionaryError, match="32 digits"):
                checked_id(other)


class TestUse:
    def test_has_a_new_number_for_a_new_dictionary(self) -> None:
        first = Use.first("orders", None, ID, SINCE)
        assert first.next(ID, SINCE) is first
        second = first.next(trained().id, SINCE)
        assert [(each.number, each.dictionary) for each in second.versions] == [(1, ID), (2, trained().id)]

    def test_remembers_so_many_versions(self) -> None:
        use = Use.first("orders", None, ID, SINCE)
        for number in range(MAX_VERSIONS):
            use = use.next(f"{number:032x}", SINCE)
        assert len(use.versions) == MAX_VERSIONS
        assert use.current.number == MAX_VERSIONS + 1

    def test_takes_a_content_type_without_parameters(self) -> None:
        use = Use.first("orders", "Application/JSON; charset=utf-8", ID, SINCE)
        assert use.key == b"use/orders/application/json"

    @pytest.mark.parametrize(
        ("topic", "kind"), [("a/b", None), ("..", None), ("", None), ("a", "json"), ("a", "a/b/c")]
    )
    def test_refuses_what_cannot_be(self, topic: str, kind: str | None) -> None:
        with pytest.raises(DictionaryError, match="no such use"):
            Use.first(topic, kind, ID, SINCE)

    def test_reads_what_it_writes(self) -> None:
        use = Use.first("orders", "text/csv", ID, SINCE).next(trained().id, SINCE)
        assert decode_use(use.key, encode_use(use)) == use

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"topic": "other"}, "another key"),
            ({"version": 2}, "version"),
            ({"more": 1}, "unknown field"),
            ({"versions": []}, "versions"),
            ({"versions": [Version(2, ID, SINCE), Version(1, ID, SINCE)]}, "do not rise"),
            ({"versions": [{"number": 1, "dictionary": "../x", "since": SINCE}]}, "dictionary"),
        ],
    )
    def test_refuses_what_is_none(self, change: dict[str, Any], problem: str) -> None:
        use = Use.first("orders", None, ID, SINCE)
        value = msgspec.json.encode({**msgspec.to_builtins(use), **change})
        with pytest.raises(WireFormatError, match=problem):
            decode_use(use_key("orders", None), value)
