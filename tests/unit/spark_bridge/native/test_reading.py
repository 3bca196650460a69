"""What a task makes of the parts that it is given."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.errors import HeldBackError, SourceError
from headerware.sources import SourceConfig
from headerware.sources.extractors.json_lines import JsonLinesExtractor
from headerware.sources.ready.files import Files
from headerware.spark_bridge.native.definition import SourceDefinition
from headerware.spark_bridge.native.planner import Limits, all_tasks
from headerware.spark_bridge.native.reading import rows

if TYPE_CHECKING:
    from pathlib import Path

AS_JSON = {"interceptors": "serialize", "interceptors.serialize.value": "json"}


def read(folder: Path, kafka: dict[str, Any] | None = None, **settings: Any) -> list[dict[str, Any]]:
    definition = defined(folder, kafka, **settings)
    tasks = all_tasks(definition.config(), Limits())
    return [
        row for task in tasks for batch in rows(definition, task.parts, None) for row in batch.to_pylist()
    ]


def defined(folder: Path, kafka: dict[str, Any] | None = None, **settings: Any) -> SourceDefinition:
    config = SourceConfig(
        **{
            "name": "spool",
            "source": Files(folder=str(folder)),
            "extractor": JsonLinesExtractor(),
            "topic": "t",
            "retry_pause_s": 0.001,
            **settings,
        }
    )
    return SourceDefinition.of(config, kafka)


class TestRows:
    def test_have_the_connectors_columns(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text('{"n": 1}\n')
        (row,) = read(tmp_path, AS_JSON, partition=3)
        assert (row["topic"], row["partition"], row["key"], row["value"]) == ("t", 3, None, b'{"n":1}')
        assert {pair["key"]: pair["value"] for pair in row["headers"]} == {
            "hw.source": b"spool",
            "hw.source.key": b"a",
            "hw.source.record": b"1",
            "content-type": b"application/json",
        }
        assert row["timestamp"].timestamp() == pytest.approx((tmp_path / "a").stat().st_mtime, abs=0.001)

    def test_take_text_for_its_bytes(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text('"\\u00fc"\nnull\n')
        assert [row["value"] for row in read(tmp_path)] == ["ü".encode(), None]

    def test_need_bytes(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text('"text"\n{"secret": 1}\n')
        with pytest.raises(SourceError, match=r"the value is a dict, and rows hold bytes") as caught:
            read(tmp_path)
        assert "secret" not in str(caught.value)

    def test_of_a_large_object_come_in_several_batches(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1\n" * 25_000)
        definition = defined(tmp_path, AS_JSON)
        (task,) = all_tasks(definition.config(), Limits())
        sizes = [batch.num_rows for batch in rows(definition, task.parts, None)]
        assert sum(sizes) == 25_000
        assert len(sizes) > 1

    def test_that_nobody_wants_end_the_reading(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1\n" * 100_000)
        definition = defined(tmp_path, AS_JSON)
        (task,) = all_tasks(definition.config(), Limits())
        reading = rows(definition, task.parts, None)
        next(reading)
        reading.close()  # type: ignore[attr-defined]  # it is a generator
        assert not [thread for thread in threading.enumerate() if thread.name == "headerware-source-spool"]


class TestErrors:
    def test_of_a_record_raise(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1\nsecret\n2\n")
        with pytest.raises(SourceError, match=r"record 2 of object 'a' of source 'spool'") as caught:
            read(tmp_path, AS_JSON)
        assert "secret" not in str(caught.value)

    def test_of_a_record_become_rows_of_dead_letters(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1\nsecret\n2\n")
        found = read(tmp_path, AS_JSON, on_record_error="dead_letter")
        assert sorted((row["topic"], row["value"]) for row in found) == [
            ("t", b"1"),
            ("t", b"2"),
            ("t.dead-letter", b"secret"),
        ]
        (letter,) = (row for row in found if row["topic"] == "t.dead-letter")
        assert letter["key"] == b"a#2"

    @pytest.mark.parametrize("policy", ["raise", "skip", "drop", "dead_letter"])
    def test_of_serializing_follow_the_same_option(
        self, tmp_path: Path, policy: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}
        kafka = {
            "interceptors": "serialize",
            "interceptors.serialize.value.type": "avro",
            "interceptors.serialize.value.schema": json.dumps(schema),
        }
        (tmp_path / "a").write_text('{"n": 1}\n{"n": "secret"}\n{"n": 3}\n')
        if policy == "raise":
            with pytest.raises(SourceError, match=r"record 2 of object 'a' .* cannot be sent"):
                read(tmp_path, kafka)
            return
        with caplog.at_level(logging.WARNING):
            found = read(tmp_path, kafka, on_record_error=policy)
        topics = [row["topic"] for row in found]
        assert topics == ["t", *(["t.dead-letter"] if policy == "dead_letter" else []), "t"]
        assert ("cannot be sent" in caplog.text) is (policy == "skip")
        assert "secret" not in caplog.text

    def test_of_a_key_service_out_of_reach_raise_whatever_the_option_says(self, tmp_path: Path) -> None:
        """Spark tries the task again, as the plain runtime tries the record again."""
        (tmp_path / "a").write_text('{"n": 1}\n')
        kafka = {
            "interceptors": "encrypt_fields, serialize",
            "interceptors.encrypt_fields.fields": "n",
            "interceptors.encrypt_fields.key_id": "cards",
            "interceptors.encrypt_fields.key_service.type": "vault",
            "interceptors.encrypt_fields.key_service.url": "http://127.0.0.1:9",
            "interceptors.encrypt_fields.key_service.token": "t",
            "interceptors.encrypt_fields.key_service_timeout_ms": "200",
            "interceptors.serialize.value": "json",
        }
        with pytest.raises(HeldBackError):
            read(tmp_path, kafka, on_record_error="drop")

    @pytest.mark.parametrize("policy", ["raise", "skip", "drop"])
    def test_of_an_object_out_of_reach_are_given_up_only_by_drop(self, tmp_path: Path, policy: Any) -> None:
        """Spark tries the task again; a later listing, as skip has it, would not bring the object again."""
        (tmp_path / "a").write_text("1\n")
        definition = defined(tmp_path, AS_JSON, on_object_error=policy, retry_deadline_s=0)
        (task,) = all_tasks(definition.config(), Limits())
        (tmp_path / "a").unlink()
        (tmp_path / "a").mkdir()
        if policy == "drop":
            assert list(rows(definition, task.parts, None)) == []
            return
        with pytest.raises(SourceError, match=r"object 'a' of source 'spool'"):
            list(rows(definition, task.parts, None))

    def test_of_an_object_that_has_vanished(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1\n")
        definition = defined(tmp_path, AS_JSON)
        (task,) = all_tasks(definition.config(), Limits())
        (tmp_path / "a").unlink()
        with pytest.raises(SourceError, match=r"object 'a' .*vanished"):
            list(rows(definition, task.parts, None))
        lenient = defined(tmp_path, AS_JSON, on_object_error="drop")
        assert list(rows(lenient, task.parts, None)) == []
