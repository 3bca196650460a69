from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from headerware.cli.header_ids import _changed
from headerware.core.header_ids import HeaderId
from headerware.registry import Registry, Retire
from headerware.registry.stores.topic import TopicStore
from headerware.testing import EmbeddedCluster
from headerware.topic_table.topic import UnreachableError
from tests.unit.cli.conftest import run_header_ids as run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE_S = 60.0
DEFAULTS: Any = TopicStore.__init__.__kwdefaults__
TENANT = ("register", "tenant", "--owner", "orders", "--encoding", "utf-8", "--description", "T.")


def done(*arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def use(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADERWARE_REGISTRY", location)
    done("init", "--registrar", "platform")
    allocate = ("block", "allocate", "--size", "16", "--owner", "orders", "--by", "platform")
    done(*allocate, "--description", "Orders.")


@pytest.fixture
def location(
    embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> str:
    topic = unique_topic("registry")
    embedded_cluster.create_topic(topic)
    place = f"kafka://{embedded_cluster.bootstrap_servers}/{topic}?snapshot=&fetch.wait.max.ms=20"
    use(place, monkeypatch)
    return place


class TestTopic:
    def test_takes_every_change(self, location: str) -> None:
        assert done(*TENANT) == "registered 0.1.0.1 for tenant, by orders\n"
        done("retire", "tenant", "--yes", "--by", "orders")
        (entry,) = json.loads(done("list", "--retired", "--json"))["result"]
        assert (entry["id"], "retired" in entry) == ("0.1.0.1", True)
        assert done("check", location).endswith(": ok (1 block, 1 entry)\n")

    def test_is_begun_once(self, location: str) -> None:
        result = run("init", location, "--registrar", "platform")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "the topic has a registry, in which 'platform' allocates blocks" in result.stderr

    def test_refuses_what_a_file_refuses(self, location: str) -> None:
        done(*TENANT)
        result = run(*TENANT)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "'tenant' is 0.1.0.1's" in result.stderr

    def test_is_compared_with_a_file(self, location: str, tmp_path: Path) -> None:
        snapshot = str(tmp_path / "before.toml")
        done("export", "--output", snapshot)
        done(*TENANT)
        assert done("diff", snapshot, location) == "registered: 0.1.0.1: 'tenant', by orders\n"

    def test_tells_what_changed_nothing(self, location: str) -> None:
        done(*TENANT)
        brokers, _, topic = location.removeprefix("kafka://").partition("?")[0].partition("/")
        producer = Producer({"bootstrap.servers": brokers})
        producer.produce(topic, b"no change", bytes(16))
        assert producer.flush(DEADLINE_S) == 0
        told = json.loads(done("check", location, "--json"))
        (conflict,) = told["result"]["conflicts"]
        assert (told["ok"], conflict) == (True, "offset 3: damage: the value is not a JSON object")
        assert done("check", location).endswith(f"  conflict: {conflict}\n")


class TestOutOfReach:
    """The brokers are gone, and a snapshot is there."""

    @pytest.fixture
    def _gone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with EmbeddedCluster(topics={"ids": 1}) as cluster:
            place = f"kafka://{cluster.bootstrap_servers}/ids?snapshot={tmp_path / 'ids'}"
            use(f"{place}&fetch.wait.max.ms=20", monkeypatch)
            done(*TENANT)
        monkeypatch.setitem(DEFAULTS, "timeout_s", 0.5)

    @pytest.mark.usefixtures("_gone")
    def test_reads_what_is_known_with_a_warning(self, capfd: pytest.CaptureFixture[str]) -> None:
        result = run("lookup", "tenant", "--json")
        assert (result.exit_code, json.loads(result.stdout)["result"]["id"]) == (0, "0.1.0.1")
        assert result.stderr.startswith("Warning: the brokers are out of reach; this registry was read at 20")
        assert capfd.readouterr().err == ""  # where librdkafka logs

    @pytest.mark.usefixtures("_gone")
    def test_refuses_changes(self) -> None:
        result = run("register", "region", *TENANT[2:])
        assert (result.exit_code, result.stdout) == (1, "")
        assert "does not change while its brokers are out of reach" in result.stderr

    @pytest.mark.usefixtures("_gone")
    def test_tries_a_change_once_for_it_may_have_been_kept(self) -> None:
        tried: list[Registry] = []

        def change(registry: Registry) -> Retire:
            tried.append(registry)
            return Retire(HeaderId("0.1.0.1"), f"2027-01-0{len(tried)}", "orders")

        with pytest.raises(UnreachableError):
            _changed(os.environ["HEADERWARE_REGISTRY"], change)
        assert len(tried) == 1
