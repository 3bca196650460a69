"""spec/vectors/source.json, written as sources do, and read as the spec says."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headerware.core.errors import ConfigError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.sources import (
    Extracted,
    IntegerKeys,
    ItemContext,
    NativeItem,
    Source,
    SourceConfig,
    Split,
    TextKeys,
    Transformer,
)
from headerware.sources.engine.records import RecordMaker, source_dead_letter
from tests.spool import Lines

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "source.json").read_text(encoding="utf-8")
)
NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
NUMBER = re.compile(r"(?:(0|[1-9][0-9]{0,18})\+)?([1-9][0-9]{0,18})(?:\.([1-9][0-9]{0,18}))?")


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


class Named(Source[Any], frozen=True, kw_only=True):
    """A source whose keys are text."""

    type: ClassVar[str] = "named"
    keys: ClassVar[Any] = TextKeys()


class Numbered(Named, frozen=True, kw_only=True):
    """A source whose keys are integers."""

    keys: ClassVar[Any] = IntegerKeys()


class Unnamed(Named, frozen=True, kw_only=True):
    """A source whose keys have no text."""

    keys: ClassVar[Any] = None


SOURCES: dict[str, Named] = {"text": Named(), "integer": Numbered()}


class Twelve(Transformer[bytes, list[bytes]], frozen=True, kw_only=True):
    """Splits each record into twelve."""

    def transform(self, given: bytes) -> list[bytes]:
        return [given] * 12


def config_of(case: dict[str, Any]) -> SourceConfig:
    source = SOURCES.get(case.get("key_type", "text"), Unnamed())
    transformers = [Twelve()] if "index" in case else []
    return SourceConfig(
        name=case["source"], source=source, extractor=Lines(), topic="t", transformers=transformers
    )


def key_of(case: dict[str, Any]) -> Any:
    if case["key"] is None:  # the name of a file with other bytes, as Python has it
        return bytes.fromhex(case["key_hex"]).decode("utf-8", "surrogateescape")
    return ast.literal_eval(case["key"]) if case.get("key_type", "").endswith("writes it") else case["key"]


def maker(case: dict[str, Any]) -> RecordMaker:
    config, begin = config_of(case), case["part_begin"]
    split = None if begin is None else Split(begin, begin + 1)
    item = NativeItem(ItemContext(key=key_of(case)))
    made = RecordMaker(config, item, config.new_transformers().__enter__(), split)
    made.route()
    return made


def made(case: dict[str, Any], found: Extracted) -> Record:
    records, _ = maker(case).make(case["number"], found)
    record: Record = records[case.get("index", 1) - 1]
    return record


def stated(record: Record) -> list[list[str]]:
    pairs = [(name, value or b"") for name, value in record.headers if name.startswith("hw.")]
    return [[name, value.decode()] for name, value in pairs]


def place(text: str) -> tuple[int | None, int, int | None] | None:
    """Read hw.source.record as the spec has it."""
    found = NUMBER.fullmatch(text)
    if found is None or max(int(number or 0) for number in found.groups()) >= 2**63:
        return None
    begin, number, index = (None if each is None else int(each) for each in found.groups())
    assert number is not None
    return begin, number, index


class TestSourceVectors:
    def test_covers_every_kind(self) -> None:
        kinds = ("records", "letters", "malformed", "names")
        assert [len(VECTORS[kind]) for kind in kinds] == [18, 4, 18, 5]

    @by_name("records")
    def test_writes_the_headers(self, case: dict[str, Any]) -> None:
        record = made(case, Extracted(b"value"))
        assert stated(record) == case["headers"]

    @by_name("records")
    def test_reads_the_headers(self, case: dict[str, Any]) -> None:
        headers = dict(case["headers"])
        assert NAME.fullmatch(headers["hw.source"])
        assert place(headers["hw.source.record"]) == (case["part_begin"], case["number"], case.get("index"))

    @by_name("records")
    def test_come_behind_what_the_object_has(self, case: dict[str, Any]) -> None:
        own = [("hw.source.record", b"0"), ("content-type", b"text/csv")]
        record = made(case, Extracted(b"value", headers=Headers(own)))
        assert record.headers.names() == ("content-type", *(name for name, _ in own), *dict(case["headers"]))
        assert record.headers.last("content-type") == b"text/csv"
        assert record.headers.last("hw.source.record") == dict(case["headers"])["hw.source.record"].encode()

    @by_name("letters")
    def test_writes_dead_letters(self, case: dict[str, Any]) -> None:
        config, key, number = config_of(case), key_of(case), case["number"]
        made = source_dead_letter(config, key, number, topic="t", reason="it is bad", raw=None)
        assert made.key == case["letter_key"].encode()
        assert stated(made) == case["headers"]
        assert made.headers.last("__connect.errors.stage") == b"SOURCE"

    @by_name("malformed")
    def test_reads_nothing_else(self, case: dict[str, Any]) -> None:
        assert place(case["wire"]) is None

    @pytest.mark.parametrize("name", VECTORS["names"])
    def test_refuses_names(self, name: str) -> None:
        with pytest.raises(ConfigError, match="name"):
            SourceConfig(name=name, source=Named(), extractor=Lines(), topic="t")
