from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from headerware.cli import main
from headerware.dictionaries import Dictionary
from headerware.testing import EmbeddedCluster
from tests.airports import airports, trained

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"airports": 2, "few": 1, "dictionaries": 1}) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for value in airports():
            producer.produce("airports", value, headers=[("content-type", b"application/json")])
        producer.produce("few", b"one")
        producer.flush()
        yield cluster


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "a.dict"
    path.write_bytes(trained().content)
    return str(path)


def run(*arguments: str, servers: EmbeddedCluster | None = None) -> Result:
    more = [] if servers is None else ["--bootstrap-servers", servers.bootstrap_servers]
    return CliRunner().invoke(main, ["dictionaries", *arguments, *more])


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.output)["result"]


class TestTrain:
    def test_writes_a_dictionary(self, cluster: EmbeddedCluster, tmp_path: Path) -> None:
        out = tmp_path / "made.dict"
        told = answer(run("train", "airports", "--out", str(out), "--json", servers=cluster))
        assert told["id"] == Dictionary(out.read_bytes()).id
        assert told["samples"] == len(airports())
        assert told["without_dictionary_bytes"] > 2.1 * told["with_dictionary_bytes"]

    def test_says_what_it_did_and_what_it_holds(self, cluster: EmbeddedCluster, tmp_path: Path) -> None:
        options = ("--content-type", "text/plain", "--out", str(tmp_path / "x"))
        refused = run("train", "airports", *options, servers=cluster)
        assert refused.exit_code == 1
        assert "at least 50 records to train on, found 0" in refused.output
        made = run("train", "airports", "--limit", "500", "--out", str(tmp_path / "x"), servers=cluster)
        assert f"headerware dictionaries publish {tmp_path / 'x'} --topic airports" in made.output
        assert made.exit_code == 0
        assert "it holds parts of the records' values" in made.output

    def test_needs_enough_records(self, cluster: EmbeddedCluster, tmp_path: Path) -> None:
        refused = run("train", "few", "--out", str(tmp_path / "x"), servers=cluster)
        assert refused.exit_code == 1
        assert not (tmp_path / "x").exists()


class TestEvaluate:
    def test_shows_figures_and_advice(self, cluster: EmbeddedCluster, file: str) -> None:
        shown = run("evaluate", "airports", "--dictionary", file, servers=cluster)
        assert shown.exit_code == 0, shown.output
        assert "3,376 records, in batches of 100:" in shown.output
        assert "Without encryption, set compression.type=zstd" in shown.output
        assert "If values are encrypted, use the dictionary" in shown.output

    def test_trains_one_if_none_is_given(self, cluster: EmbeddedCluster) -> None:
        told = answer(run("evaluate", "airports", "--json", servers=cluster))
        assert told["records"] == len(airports()) // 2
        assert len(told["figures"]) == 12


class TestPublish:
    @pytest.mark.parametrize("kind", ["topic", "folder"])
    def test_is_listed(self, cluster: EmbeddedCluster, tmp_path: Path, file: str, kind: str) -> None:
        store = {"topic": ("--store-topic", "dictionaries"), "folder": ("--folder", str(tmp_path / "new"))}[
            kind
        ]
        used = {"topic": cluster, "folder": None}[kind]
        other = tmp_path / "other.dict"
        other.write_bytes(trained(4096).content)
        first = run("publish", file, "--topic", "airports", *store, servers=used)
        assert f"values of airports are written with dictionary {trained().id}, version 1" in first.output
        told = answer(run("publish", str(other), "--topic", "airports", *store, "--json", servers=used))
        assert (told["version"], told["dictionary"]) == (2, trained(4096).id)
        typed = run(
            "publish", file, "--topic", "airports", "--content-type", "text/csv", *store, servers=used
        )
        assert "values of airports of type text/csv" in typed.output
        listed = answer(run("list", *store, "--json", servers=used))
        assert listed["dictionaries"] == {trained().id: 16_384, trained(4096).id: 4_096}
        assert [use["content_type"] for use in listed["uses"]] == [None, "text/csv"]
        shown = run("list", *store, servers=used).output
        assert "2 (current)" in shown
        assert "16,384" in shown

    def test_refuses_what_is_no_dictionary(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"secret text")
        refused = run("publish", str(path), "--topic", "t", "--folder", str(tmp_path / "f"))
        assert refused.exit_code == 1
        assert "magic number" in refused.output
        assert "secret" not in refused.output

    @pytest.mark.parametrize("store", [(), ("--folder", "a", "--store-topic", "b")])
    def test_takes_one_store(self, store: tuple[str, ...]) -> None:
        assert run("list", *store).exit_code == 2

    def test_says_which_servers_are_missing(self) -> None:
        refused = run("list", "--store-topic", "t")
        assert refused.exit_code == 2
        assert "--store-topic needs --bootstrap-servers" in refused.output
