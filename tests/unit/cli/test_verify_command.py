"""``headerware verify``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from headerware import Chain, Producer, load_chain
from headerware.cli import main
from headerware.interceptors import HeaderIds, Sign
from headerware.keyring.lifecycle import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

CONFIG = """
[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "orders-2026"
batch_records = 8

[[interceptors]]
type = "header_ids"
"""
ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[bold]"


class TestVerify:
    @pytest.fixture(autouse=True)
    def _setting(
        self, embedded_cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
        edit_keyring(
            tmp_path / "keys.json", lambda keys: with_new_key(keys, "orders-2026", "ed25519"), create=True
        )
        (tmp_path / "headerware.toml").write_text(CONFIG)
        self.cluster, self.servers = embedded_cluster, embedded_cluster.bootstrap_servers
        self.config = str(tmp_path / "headerware.toml")

    @pytest.fixture
    def topic(self, unique_topic: Callable[[str], str]) -> str:
        name = unique_topic("orders")
        self.cluster.create_topic(name, partitions=2)
        with Producer({"bootstrap.servers": self.servers}, chain=load_chain(self.config)) as producer:
            records = [{"value": b"%d" % number, "partition": number % 2} for number in range(20)]
            assert producer.produce_many(name, records) == [None] * 20
        return name

    def produce(self, topic: str, value: bytes, **rest: Any) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        producer.produce(topic, value, **rest)
        assert producer.flush(60) == 0

    def run(self, topic: str, *arguments: str) -> Result:
        fixed = ["--bootstrap-servers", self.servers, "--config", self.config]
        return CliRunner().invoke(main, ["verify", topic, *fixed, *arguments])

    def test_all_verify(self, topic: str) -> None:
        result = self.run(topic)
        assert result.exit_code == 0, result.output
        assert f"{topic}: 20 records, 20 verified, 0 refused, 0 unsigned" in result.stdout
        assert "orders-2026 version 1, producer " in result.stdout
        assert ": 20 records, sequences 0 to 19  [0]" in result.stdout
        assert "[0] 0..9, [1] 0..9" in result.stdout
        assert result.stderr == ""

    @pytest.mark.parametrize(
        ("step", "found"),
        [
            ('type = "compress"', "found no such step; name another file"),
            (
                'type = "sign"\nkeyring = "keys.json"\ntopics = ["bills"]',
                "found one for 'bills' only; add the topic to its topics",
            ),
        ],
    )
    def test_a_chain_without_sign_for_the_topic_is_told(
        self, topic: str, tmp_path: Path, step: str, found: str
    ) -> None:
        (tmp_path / "headerware.toml").write_text(f"[[interceptors]]\n{step}\n")
        result = self.run(topic)
        told = f"expected a chain with sign for topic '{topic}', {found}, or verify by --keyring FILE"
        assert (result.exit_code, told in result.stderr) == (1, True)

    def test_what_to_look_at_for_unsigned_records_is_told(self, topic: str) -> None:
        self.produce(topic, b"unsigned", partition=1)
        result = self.run(topic)
        assert result.exit_code == 1
        assert "likely its producer has no chain, or a chain without 'sign' for this topic" in result.stdout

    @pytest.mark.parametrize("form", ["keyring", "public", "jwks"])
    def test_a_keyring_alone_verifies(
        self, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
    ) -> None:
        keyring = tmp_path / ("keys.json" if form == "keyring" else "public.json")
        if form != "keyring":
            export = [
                "keys",
                "export-public",
                "--keyring",
                str(tmp_path / "keys.json"),
                "--out",
                str(keyring),
            ]
            assert CliRunner().invoke(main, [*export, *(["--jwks"] if form == "jwks" else [])]).exit_code == 0
        monkeypatch.setenv("HEADERWARE_CONFIG", "/does/not/exist.toml")  # it is another topic's
        verify = ["verify", topic, "--bootstrap-servers", self.servers, "--keyring", str(keyring)]
        result = CliRunner().invoke(main, verify)
        assert (result.exit_code, "20 records, 20 verified" in result.stdout) == (0, True), result.output
        self.produce(topic, b"unsigned", partition=1)
        assert "20 verified, 0 refused, 1 unsigned" in CliRunner().invoke(main, verify).stdout

    def test_a_keyring_with_a_registry_of_ids(
        self, unique_topic: Callable[[str], str], tmp_path: Path
    ) -> None:
        name, registry = unique_topic("orders"), str(tmp_path / "ids.toml")
        for line in (
            f"init {registry} --registrar platform",
            f"block allocate 0.1.0.0/24 --owner o --by platform --description O. --registry {registry}",
            f"register tenant --owner o --encoding utf-8 --description T. --registry {registry}",
        ):
            assert CliRunner().invoke(main, ["header-ids", *line.split()]).exit_code == 0, line
        self.cluster.create_topic(name)
        chain = Chain(
            [Sign(keyring=str(tmp_path / "keys.json"), key_id="orders-2026"), HeaderIds(registry=registry)]
        )
        with Producer({"bootstrap.servers": self.servers}, chain=chain) as producer:
            producer.produce(name, b"v", headers={"tenant": "north"})
        verify = [
            "verify",
            name,
            "--bootstrap-servers",
            self.servers,
            "--keyring",
            str(tmp_path / "keys.json"),
        ]
        assert "1 refused" in CliRunner().invoke(main, verify).stdout
        assert CliRunner().invoke(main, [*verify, "--registry", registry]).exit_code == 0

    def test_a_keyring_and_a_chain_are_wrong_use(self, topic: str, tmp_path: Path) -> None:
        assert self.run(topic, "--keyring", str(tmp_path / "keys.json")).exit_code == 2
        assert self.run(topic, "--registry", "built-in").exit_code == 2
        result = CliRunner().invoke(main, ["verify", topic, "--bootstrap-servers", self.servers])
        assert (result.exit_code, "expected --keyring, or --config" in result.stderr) == (2, True)

    def test_the_variable_of_keyrings_counts_less_than_a_chain(
        self, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_KEYRING", str(tmp_path / "keys.json"))
        verify = ["verify", topic, "--bootstrap-servers", self.servers]
        assert CliRunner().invoke(main, verify).exit_code == 0
        (tmp_path / "empty.toml").write_text("")
        by_chain = CliRunner().invoke(main, [*verify, "-c", str(tmp_path / "empty.toml")])
        assert by_chain.exit_code == 1
        assert "sign" in by_chain.stderr

    def test_json_has_all(self, topic: str) -> None:
        result = self.run(topic, "--json")
        found = json.loads(result.stdout)
        assert (result.exit_code, found["ok"]) == (0, True)
        (signer,) = found["result"]["signers"]
        assert (signer["records"], signer["gaps"], signer["missing"]) == (20, 0, 0)
        assert signer["partitions"]["1"] == {"records": 10, "first": 0, "last": 9}

    def test_a_stranger_makes_it_fail_and_cannot_draw_on_the_terminal(self, topic: str) -> None:
        self.produce(topic, b"unsigned", partition=1)
        self.produce(topic, b"forged", partition=0, headers=[(ATTACK, b"x"), ("hw.sig", ATTACK.encode())])
        result = self.run(topic)
        assert result.exit_code == 1
        assert "20 verified, 1 refused, 1 unsigned" in result.stdout
        assert "expected base64" in result.stdout
        assert "[0] 10..10" in result.stdout
        assert not [c for c in result.stdout if not (c.isprintable() or c == "\n")]
        found = json.loads(self.run(topic, "--json").stdout)
        assert (found["ok"], found["result"]["refused"], found["result"]["unsigned"]) == (False, 1, 1)

    def test_gaps_are_told(self, topic: str) -> None:
        result = self.run(topic, "--partition", "0")
        assert "10 records, sequences 0 to 18, 9 missing in 9 gaps  [0] 0..9" in result.stdout

    def test_part_of_a_topic(self, topic: str) -> None:
        self.produce(topic, b"unsigned", partition=1)
        assert self.run(topic, "--partition", "0").exit_code == 0
        result = self.run(topic, "--partition", "1", "--from", "-3")
        assert "3 records, 2 verified, 0 refused, 1 unsigned" in result.stdout

    def test_an_empty_topic_verifies(self, unique_topic: Callable[[str], str]) -> None:
        name = unique_topic("empty")
        self.cluster.create_topic(name)
        result = self.run(name)
        assert (result.exit_code, "0 records" in result.stdout) == (0, True)

    def test_wrong_use(self, topic: str) -> None:
        assert self.run(topic, "--from", "yesterday").exit_code == 2
        assert CliRunner().invoke(main, ["verify", topic, "--config", self.config]).exit_code == 2
        assert CliRunner().invoke(main, ["verify", topic, "--bootstrap-servers", "x:1"]).exit_code == 2

    def test_a_chain_that_does_not_sign_is_named(self, topic: str, tmp_path: Path) -> None:
        (tmp_path / "other.toml").write_text('[[interceptors]]\ntype = "compress"\n')
        result = self.run(topic, "--config", str(tmp_path / "other.toml"))
        assert result.exit_code == 1
        assert "a chain with sign" in result.stderr

    def test_an_unknown_topic_is_named(self, topic: str) -> None:
        result = self.run(topic, "--partition", "7")
        assert (result.exit_code, "none of number 7" in result.stderr) == (1, True)
