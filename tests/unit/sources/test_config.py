from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from headerware.core.errors import ConfigError, SourceError
from headerware.core.options import PATH
from headerware.sources import IntegerKeys, ItemContext, SourceConfig
from headerware.sources.extractor import extractor_type
from headerware.sources.source import source_type
from tests.spool import Lines, Spool


class Decided(Spool, frozen=True, kw_only=True):
    fixed: ClassVar[Mapping[str, Any]] = {"extractor": Lines(), "ring_buffer": 7}


class NamesItsExtractor(Spool, frozen=True, kw_only=True):
    fixed: ClassVar[Mapping[str, Any]] = {"extractor": "lines"}


class Numbered(Spool, frozen=True, kw_only=True):
    keys: ClassVar[Any] = IntegerKeys()


class Keyless(Spool, frozen=True, kw_only=True):
    keys: ClassVar[Any] = None


class Beside(Spool, frozen=True, kw_only=True):
    folder: Annotated[str, PATH]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"spool": "Spool", "lines": "Lines"}
    for catalogue, word in ((source_type, "spool"), (extractor_type, "lines")):
        monkeypatch.setitem(catalogue._built_in, word, f"tests.spool:{kinds[word]}")
    monkeypatch.setitem(source_type._built_in, "decided", f"{__name__}:Decided")


def config(**options: Any) -> SourceConfig:
    given = {"name": "orders", "source": Spool(folder="."), "extractor": Lines(), **options}
    return SourceConfig(**given)


class TestFromTable:
    def test_finds_source_and_extractor_by_words(self) -> None:
        made = SourceConfig.from_table(
            {"name": "orders", "source": {"type": "spool", "folder": "in"}, "extractor": "LINES"}
        )
        assert made.source == Spool(folder="in")
        assert made.extractor == Lines()

    def test_fills_in_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPOOL", "incoming")
        table = {"name": "x", "source": {"type": "spool", "folder": "${env:SPOOL}"}, "extractor": "lines"}
        assert SourceConfig.from_table(table).source.folder == "incoming"

    def test_finds_files_beside_the_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(source_type._built_in, "beside", f"{__name__}:Beside")
        table = {"name": "x", "source": {"type": "beside", "folder": "in"}, "extractor": "lines"}
        made = SourceConfig.from_table(table, folder="/etc/sources")
        assert made.source.folder == str(Path("/etc/sources/in"))

    @pytest.mark.parametrize(
        ("option", "value", "place"),
        [
            ("ring_bufer", 1, r"ring_bufer: .*did you mean 'ring_buffer'"),
            ("ring_buffer", "many", r"ring_buffer: expected a whole number"),
            ("source", {"type": "spool", "foldr": "in"}, r"source\.foldr: .*did you mean 'folder'"),
            ("source", {"type": "spol"}, r"source: there is no source type 'spol'; did you mean 'spool'"),
        ],
    )
    def test_names_the_path_of_a_wrong_option(self, option: str, value: Any, place: str) -> None:
        table = {"name": "x", "source": {"type": "spool", "folder": "in"}, "extractor": "lines"}
        with pytest.raises(ConfigError, match=place):
            SourceConfig.from_table(table | {option: value})

    @pytest.mark.parametrize("value", [7, 8, 1_000])
    def test_refuses_a_users_value_for_what_the_source_decides(self, value: int) -> None:
        table = {"name": "x", "source": {"type": "decided", "folder": "in"}, "ring_buffer": value}
        with pytest.raises(
            ConfigError, match="ring_buffer: the source 'spool' sets this option itself; remove it"
        ):
            SourceConfig.from_table(table)

    def test_tells_the_file_of_a_chain_from_that_of_a_source(self) -> None:
        with pytest.raises(
            ConfigError, match=r"^interceptors: expected the configuration of a source, found a chain"
        ) as caught:
            SourceConfig.from_table({"interceptors": [{"type": "trail"}]})
        assert '"headerware.config" = "chain.toml"' in str(caught.value)


class TestFixedOptions:
    def test_are_applied(self) -> None:
        made = SourceConfig(name="x", source=Decided(folder="in"))
        assert made.extractor == Lines()
        assert made.ring_buffer == 7

    def test_are_refused_in_code(self) -> None:
        with pytest.raises(ConfigError, match="ring_buffer"):
            SourceConfig(name="x", source=Decided(folder="in"), ring_buffer=8)

    def test_survive_a_changed_copy(self) -> None:
        made = SourceConfig(name="x", source=Decided(folder="in"))
        assert msgspec.structs.replace(made, name="y").ring_buffer == 7

    def test_may_name_the_extractor(self) -> None:
        made = SourceConfig(name="x", source=NamesItsExtractor(folder="in"))
        assert made.extractor == Lines()
        assert msgspec.structs.replace(made, tasks=2).extractor == Lines()
        with pytest.raises(ConfigError, match="extractor: the source 'spool' sets this option itself"):
            msgspec.structs.replace(made, extractor=Lines(together=2))


class TestChecks:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"name": "a b"}, "name: expected 1 to 249 letters, digits"),
            ({"name": "a" * 250}, "name: expected 1 to 249 letters, digits"),
            ({"extractor": None}, "extractor: this source needs an extractor, found none"),
            ({"source": "spool"}, "source: expected a Source, found str"),
            ({"tasks": 0}, "tasks: expected at least 1"),
            ({"poll_wait_s": float("nan")}, "poll_wait_s: expected at least 0, found nan"),
            *(
                ({option: float("inf")}, rf"{option}: expected at most \d+ seconds, found inf")
                for option in ("rescan_interval_s", "listing_pause_s", "poll_wait_s", "retry_max_pause_s")
            ),
            ({"poll_wait_s": 1e300}, r"poll_wait_s: expected at most \d+ seconds, found 1e\+300"),
            ({"retry_deadline_s": float("nan")}, "retry_deadline_s: expected at least 0, found nan"),
            (
                {"retry_pause_s": 60.0},
                "retry_pause_s: expected at most retry_max_pause_s = 30.0, found 60.0",
            ),
            (
                {"retry_max_pause_s": 0.1},
                "retry_pause_s: expected at most retry_max_pause_s = 0.1, found 0.5",
            ),
            ({"partition": -1}, "partition: expected a number from 0 to 2147483647, found -1"),
            ({"partition": 2**31}, "partition: expected a number from 0 to 2147483647, found 2147483648"),
            ({"partition": "x{partition}"}, "partition: expected decimal digits and variables"),
            ({"partition": "2147483648"}, "partition: expected decimal digits and variables"),
            ({"ring_buffer": -1}, "ring_buffer: expected at least 0"),
            ({"tasks": 2, "distribution": "all"}, "distribution: .*no object may be read twice"),
            (
                {"poll_records": 9, "queue_records": 8},
                "poll_records: expected at most queue_records = 8, found 9",
            ),
            ({"topic": "{top}"}, r"topic: unknown variable \{top\}; known: name, source, topic"),
            ({"topic": "{topic"}, "topic: expected braces only around variables"),
            ({"partition": "partition}"}, "partition: expected braces only around variables"),
            ({"topic": "my topic"}, "topic: expected letters, digits, .* and variables"),
            ({"topic": "{topic} x"}, "topic: expected letters, digits, .* and variables"),
            ({"topic": ".."}, "topic: expected letters, digits, .* and variables"),
            (
                {"dead_letter_topic": "{tpic} x"},
                r"dead_letter_topic: unknown variable \{tpic\}; known: topic$",
            ),
            ({"dead_letter_topic": "{name}"}, r"dead_letter_topic: unknown variable \{name\}; known: topic$"),
            ({"dead_letter_topic": "{topic"}, "dead_letter_topic: expected braces only around variables"),
            (
                {"dead_letter_topic": "{topic} x"},
                "dead_letter_topic: expected letters, digits, .* and variables",
            ),
            (
                {"name": "n" * 249, "on_record_error": "dead_letter"},
                "dead_letter_topic: expected names of up to 249 characters, found one of 261",
            ),
            ({"dead_letter_topic": ""}, "dead_letter_topic: expected letters, digits, .* and variables"),
            ({"key_pattern": "(?P<topic>.*)"}, "key_pattern: expected groups .*, found 'topic'"),
            ({"key_pattern": "(?P<name>.)(?P<day>.)"}, "key_pattern: expected groups .*, found 'name'"),
            ({"key_pattern": "("}, "key_pattern: expected a regular expression"),
            ({"source": Keyless(folder="."), "start_key": "a"}, "start_key: .*cannot read keys from text"),
            ({"source": Numbered(folder="."), "start_key": "a"}, "start_key: .*decimal digits"),
            ({"transformers": ["nothing"]}, r"transformers\[0\]: there is no transformer type"),
        ],
    )
    def test_refuse_what_cannot_work(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            config(**options)

    def test_permit_retries_without_a_deadline(self) -> None:
        assert config(retry_deadline_s=float("inf")).retry_deadline_s == float("inf")

    def test_give_the_start_key_of_its_text(self) -> None:
        assert config(source=Numbered(folder="."), start_key="12").first_key() == 12


class TestRoute:
    def test_takes_hints(self) -> None:
        found = config().route(ItemContext(key="k", topic="hint", partition=3))
        assert found == ("hint", 3)

    def test_takes_a_partition_with_leading_zeros(self) -> None:
        made = config(topic="t", partition="{topic}")
        assert made.route(ItemContext(key="k", topic="0" * 5_000 + "2147483647")) == ("t", 2**31 - 1)

    @pytest.mark.parametrize("option", ["on_record_error", "on_object_error"])
    def test_refuses_a_topic_that_is_too_long_for_its_dead_letters(self, option: str) -> None:
        context = ItemContext(key="k", topic="t" * 240)
        assert config().route(context)[0] == "t" * 240
        with pytest.raises(
            SourceError, match=r"dead_letter_topic: expected names of up to 249 .* one of 252"
        ):
            config(**{option: "dead_letter"}).route(context)

    def test_fills_in_templates(self) -> None:
        made = config(
            topic="{source}.{name}.{day}",
            partition="{part}",
            key_pattern=r"(?P<day>[0-9-]+)/(?P<part>\d+)\.jsonl",
        )
        assert made.route(ItemContext(key="2026-11-23/4.jsonl")) == ("spool.orders.2026-11-23", 4)

    @pytest.mark.parametrize(
        ("options", "context", "message"),
        [
            ({}, {}, r"needs \{topic\}"),
            ({}, {"topic": "a b"}, "expected the name of a topic"),
            ({}, {"topic": ".."}, "expected the name of a topic"),
            ({"topic": "t", "partition": "{topic}"}, {"topic": "x"}, "expected decimal digits"),
            ({"topic": "t", "partition": "{topic}"}, {"topic": "9" * 20}, "a number up to 2147483647"),
            ({"topic": "t", "partition": "{topic}"}, {"topic": "9" * 5_000}, "a number up to 2147483647"),
            (
                {"topic": "t", "key_pattern": "x+"},
                {},
                "expected a key that key_pattern matches completely, found another",
            ),
        ],
    )
    def test_refuses_what_names_no_topic_or_partition(
        self, options: dict[str, Any], context: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(SourceError, match=message):
            config(**options).route(ItemContext(key="k", **context))
