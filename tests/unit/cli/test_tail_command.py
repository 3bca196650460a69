"""``headerware tail`` in pipes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from headerware import Producer, load_chain
from headerware.cli import main
from headerware.core.requirement import writer_advice
from headerware.keyring.lifecycle import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

CONFIG = """
[[interceptors]]
type = "trail"
service = "orders"

[[interceptors]]
type = "compress"

[[interceptors]]
type = "slice"
max_bytes = 2000

[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "orders-2026"
on_error = "dead_letter"

[[interceptors]]
type = "header_ids"
"""
ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
    edit_keyring(
        tmp_path / "keys.json", lambda keys: with_new_key(keys, "orders-2026", "hmac-sha256"), create=True
    )
    (tmp_path / "headerware.toml").write_text(CONFIG)
    return str(tmp_path / "headerware.toml")


class TestTail:
    @pytest.fixture(autouse=True)
    def _servers(self, embedded_cluster: EmbeddedCluster, config: str) -> None:
        self.servers, self.config = embedded_cluster.bootstrap_servers, config

    @pytest.fixture
    def topic(self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
        """Return a topic with two signed records and, of a stranger, one without a signature."""
        name = unique_topic("orders")
        embedded_cluster.create_topic(name)
        chain = load_chain(self.config)
        with Producer({"bootstrap.servers": self.servers}, chain=chain) as producer:
            for tenant in ("north", "south"):
                producer.produce(name, b'{"id": 1}' * 50, b"k", headers={"tenant": tenant})
        self.produce(name, ATTACK.encode(), key=ATTACK.encode(), headers=[(ATTACK, ATTACK.encode())])
        return name

    def produce(self, topic: str, value: bytes, **rest: Any) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        producer.produce(topic, value, **rest)
        assert producer.flush(60) == 0

    def run(self, *arguments: str) -> Result:
        fixed = ["--bootstrap-servers", self.servers, "--config", self.config]
        return CliRunner().invoke(main, ["tail", *fixed, *arguments])

    def lines(self, *arguments: str) -> list[str]:
        result = self.run("--until-end", *arguments)
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    def json(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.lines("--json", *arguments)]

    def test_shows_a_record_in_all_its_forms(self, topic: str) -> None:
        text = "\n".join(self.lines(topic, "--from", "0", "-n", "1"))
        assert text.startswith(f"{topic}[0]@0  ")
        for fact in (
            "✓ delivered",
            "hw.trail",
            "by name, 2 on the wire",
            "✓ verified, signed with orders-2026",
        ):
            assert fact in text
        assert [
            step for step in ("header_ids  ", "sign  ", "slice  ", "compress  ") if step not in text
        ] == []
        assert re.search(rf"orders  produced into mockCluster\w+/{topic}", text)

    def test_brief_is_one_line_a_record(self, topic: str) -> None:
        lines = self.lines(topic, "--brief")
        assert [line.split()[0] for line in lines] == [f"{topic}[0]@{offset}" for offset in range(3)]
        assert "→ dead letter" in lines[2]
        assert "sign: expected a signature, found no hw.sig header; likely its producer" in lines[2]
        assert f"; its dead letter would go to {topic}" in lines[2]

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--from", "500"), "no record from 500 on; --from beginning reads the complete topic"),
            (("--where", "region=eu"), "no record that fits --where from -10 on; --from beginning reads"),
        ],
    )
    def test_nothing_to_show_is_told(self, topic: str, options: tuple[str, ...], told: str) -> None:
        answer = CliRunner().invoke(main, ["tail", topic, "-b", self.servers, "--until-end", *options])
        assert (answer.exit_code, answer.stdout) == (0, "")
        assert told in answer.stderr

    def test_a_count_means_the_last_records(self, topic: str) -> None:
        lines = self.lines(topic, "--brief", "-n", "2")
        assert [line.split()[0] for line in lines] == [f"{topic}[0]@1", f"{topic}[0]@2"]

    def test_json_has_one_shape(self, topic: str) -> None:
        delivered, _, refused = self.json(topic)
        assert (delivered["ok"], refused["ok"]) == (True, False)
        result = delivered["result"]
        assert set(result) == set(refused["result"])
        assert (result["partition"], result["offset"], result["outcome"]) == (0, 0, "delivered")
        assert [step["step"] for step in result["steps"]] == ["header_ids", "sign", "slice", "compress"]
        assert result["signature"]["verified"] is True
        assert [entry["by_whom"] for entry in result["trail"]["entries"]] == ["orders"]
        assert refused["result"]["refusal"] == {
            "step": "sign",
            "type": "SignatureError",
            "reason": f"expected a signature, found no hw.sig header{writer_advice('sign')}",
        }

    def test_names_the_steps_that_did_not_run(self, topic: str) -> None:
        assert "not run: trail" in "\n".join(self.lines(topic, "-n", "1"))
        assert self.json(topic)[0]["result"]["not_run"] == ["trail"]

    def test_json_names_the_key_of_encrypted_fields(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], tmp_path: Path
    ) -> None:
        topic = unique_topic("cards")
        embedded_cluster.create_topic(topic)
        edit_keyring(tmp_path / "keys.json", lambda keys: with_new_key(keys, "cards", "aes-256"))
        (tmp_path / "fields.toml").write_text(
            '[[interceptors]]\ntype = "encrypt_fields"\nkey_id = "cards"\nfields = ["number"]\n'
            'key_service = { type = "file", keyring = "keys.json" }\n'
            '[[interceptors]]\ntype = "serialize"\nvalue = "json"\n'
        )
        chain = load_chain(str(tmp_path / "fields.toml"))
        with Producer({"bootstrap.servers": self.servers}, chain=chain) as producer:
            producer.produce(topic, {"number": "4111"}, "k")
        (found,) = self.json(topic, "--config", str(tmp_path / "fields.toml"))
        (field,) = found["result"]["encrypted_fields"]
        assert {name: field[name] for name in ("field", "decrypted", "key_id", "key_version", "topic")} == {
            "field": "number",
            "decrypted": True,
            "key_id": "cards",
            "key_version": "1",
            "topic": topic,
        }
        (application,) = found["result"]["application"]
        assert (application["size_bytes"], application["value"]["size_bytes"]) == (None, None)
        assert found["result"]["steps"][-1]["size_bytes"] is None

    def test_limit_is_another_name_of_count(self, topic: str) -> None:
        assert len(self.lines(topic, "--brief", "--limit", "1")) == 1

    def test_payloads_are_shown_only_if_they_are_asked_for(self, topic: str) -> None:
        for arguments in ((), ("--json",), ("--brief",)):
            text = "\n".join(self.lines(topic, *arguments))
            assert "north" not in text
            assert '"id"' not in text
        assert "north" in "\n".join(self.lines(topic, "--values", "text"))
        value = self.json(topic, "--values", "text")[0]["result"]["application"][0]["value"]
        assert value == {"kind": "bytes", "size_bytes": 450, "text": '{"id": 1}' * 50, "cut": False}
        value = self.json(topic, "--values", "hex")[0]["result"]["application"][0]["value"]
        assert bytes.fromhex(value["hex"]) == b'{"id": 1}' * 50

    @pytest.mark.parametrize("arguments", [(), ("--brief",), ("--values", "text"), ("--values", "hex")])
    def test_what_a_terminal_would_obey_is_escaped(self, topic: str, arguments: tuple[str, ...]) -> None:
        text = "\n".join(self.lines(topic, *arguments))
        assert [character for character in text if not character.isprintable() and character != "\n"] == []

    def test_where_names_headers_on_the_wire(self, topic: str) -> None:
        (line,) = self.lines(topic, "--brief", "--where", "tenant=south")
        assert line.startswith(f"{topic}[0]@1 ")

    def test_without_a_chain_the_wire_is_shown_as_it_is(self, topic: str) -> None:
        result = CliRunner().invoke(
            main,
            ["tail", topic, "--bootstrap-servers", self.servers, "--until-end", "--from", "0", "-n", "1"],
        )
        assert result.exit_code == 0, result.output
        assert "? not verified: it claims to be signed with orders-2026 version 1" in result.output
        assert "· as stored" in result.output
        assert "✓" not in result.output
        assert result.stderr == "no chain: name its file with -c; records are shown as they are on the wire\n"

    def test_settings_come_from_a_file_too(self, topic: str, tmp_path: Path) -> None:
        (tmp_path / "client").write_text(f"# a cluster\nbootstrap.servers = {self.servers}\n\n")
        arguments = ["tail", topic, "-F", str(tmp_path / "client"), "--brief", "--until-end"]
        assert len(CliRunner().invoke(main, arguments).stdout.splitlines()) == 3

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (("--from", "yesterday"), 2, "expected beginning, end, an offset"),
            (("--where", "=x"), 2, "expected NAME=VALUE"),
            (("--partition", "9"), 1, "none of number 9"),
            (("-X", "no.such=1"), 1, "no.such"),
        ],
    )
    def test_says_what_is_wrong(self, topic: str, arguments: tuple[str, ...], code: int, said: str) -> None:
        result = self.run(topic, *arguments)
        assert (result.exit_code, said in " ".join(result.output.split())) == (code, True)

    def test_needs_brokers(self) -> None:
        result = CliRunner().invoke(main, ["tail", "orders"])
        assert (result.exit_code, "--bootstrap-servers" in result.output) == (2, True)

    def test_follows_until_it_is_interrupted(self, topic: str) -> None:
        with self.process(topic, "--brief") as process:
            assert process.stdout is not None
            for offset in range(3):
                assert process.stdout.readline().startswith(f"{topic}[0]@{offset} ")
            self.produce(topic, b"later")
            assert process.stdout.readline().startswith(f"{topic}[0]@3 ")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""

    def test_ends_well_if_nobody_reads_any_longer(self, topic: str) -> None:
        with self.process(topic, "--brief") as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.stdout.close()
            self.produce(topic, b"later")
            assert process.wait(60) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""

    def process(self, *arguments: str) -> subprocess.Popen[str]:
        fixed = ["--bootstrap-servers", self.servers, "--config", self.config]
        return subprocess.Popen(
            [sys.executable, "-m", "headerware", "tail", *fixed, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
