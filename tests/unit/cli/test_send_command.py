"""``headerware send``: lines and files through a chain, and which records were not delivered."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from headerware import Consumer, load_chain
from headerware.cli import main
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.testing import EmbeddedCluster
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADERWARE_CONFIG", "HEADERWARE_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


class TestSend:
    @pytest.fixture(autouse=True)
    def _topic(self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> None:
        self.servers = embedded_cluster.bootstrap_servers
        self.topic = unique_topic("orders")
        embedded_cluster.create_topic(self.topic)

    def send(self, *arguments: str, stdin: bytes = b"") -> Result:
        command = ["send", self.topic, "-b", self.servers, *arguments]
        return CliRunner().invoke(main, command, input=stdin)

    def read(self, count: int, *, group: str = "reads", **chain: Any) -> list[confluent_kafka.Message]:
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": f"{group}-{self.topic}",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings, **chain) if chain else confluent_kafka.Consumer(settings)
        found: list[confluent_kafka.Message] = []
        try:
            consumer.subscribe([self.topic])
            until(lambda: len(found) == count, meanwhile=lambda: found.extend(consumer.consume(count, 0.2)))
        finally:
            consumer.close()
        return found

    @pytest.mark.parametrize("header", ["tenant: north", "tenant:north"])
    def test_refuses_a_header_with_a_colon_for_the_equals_sign(self, header: str) -> None:
        result = self.send("-H", header, stdin=b"one")

        assert result.exit_code == 2
        assert "expected NAME=VALUE, found a colon; did you mean tenant=north?" in result.output

    def test_refuses_a_space_around_a_headers_name(self) -> None:
        result = self.send("-H", "tenant = north", stdin=b"one")

        assert result.exit_code == 2
        assert "found a space around the name; did you mean tenant=...?" in result.output

    def test_an_object_that_nothing_serializes_is_told(self) -> None:
        result = self.send("--value-format", "json", stdin=b'{"id": 1}')

        assert result.exit_code == 1
        assert "is bytes, str or None, not dict; put a step that serializes into the chain" in result.stderr
        assert "--value-format bytes, the default, sends a line as it is" in result.stderr

    def test_a_record_that_is_too_large_is_told_with_its_size_and_the_limit(self) -> None:
        result = self.send("--whole", stdin=b"x" * 2_000_000)

        assert result.exit_code == 1
        assert (
            f"a record of 2000000 bytes for topic {self.topic!r} exceeds message.max.bytes" in result.stderr
        )

    def test_does_not_show_a_property_with_a_colon_for_the_equals_sign(self) -> None:
        result = self.send("-X", "sasl.password: secret", stdin=b"one")

        assert result.exit_code == 2
        assert "did you mean sasl.password=...?" in result.output
        assert "secret" not in result.output

    def test_says_that_no_step_of_the_chain_works_on_the_topic(self, tmp_path: Path) -> None:
        config = tmp_path / "headerware.toml"
        config.write_text('[[interceptors]]\ntype = "trail"\ntopics = ["payments"]\n')
        result = self.send("-c", str(config), stdin=b"one")
        assert (result.exit_code, result.stderr.splitlines()[0]) == (
            0,
            f"Warning: no step of {config} works on {self.topic}, so records are sent as they are",
        )

    def test_says_that_a_step_that_protects_does_not_work_on_the_topic(self, tmp_path: Path) -> None:
        config = tmp_path / "headerware.toml"
        edit_keyring(tmp_path / "keys.json", lambda ring: with_new_key(ring, "k", "hmac-sha256"), create=True)
        config.write_text(
            '[[interceptors]]\ntype = "trail"\n'
            '[[interceptors]]\ntype = "sign"\ntopics = ["payments"]\nkeyring = "keys.json"\nkey_id = "k"\n'
        )
        told = self.send("-c", str(config), stdin=b"one").stderr.splitlines()[0]
        assert told.startswith(
            f"Warning: records of topic '{self.topic}' pass without sign (sign is for 'paym"
        )

    def test_each_line_is_a_record(self) -> None:
        result = self.send(stdin=b"one\n\ntwo \r\n\xff")
        assert (result.exit_code, result.stdout) == (0, f"3 records delivered to {self.topic}\n")
        assert [record.value() for record in self.read(3)] == [b"one", b"two \r", b"\xff"]

    def test_records_have_key_headers_and_partition(self) -> None:
        self.send("-k", "c-1", "-H", "tenant=a=b", "-H", "none", "-H", "empty=", "-p", "0", stdin=b"x\n")
        (record,) = self.read(1)
        assert record.key() == b"c-1"
        assert record.headers() == [("tenant", b"a=b"), ("none", None), ("empty", b"")]

    def test_a_separator_divides_key_and_value(self) -> None:
        assert self.send("-K:", stdin=b"a:1\nb:2:3\nc:\n").exit_code == 0
        found = [(record.key(), record.value()) for record in self.read(3)]
        assert found == [(b"a", b"1"), (b"b", b"2:3"), (b"c", b"")]

    def test_an_empty_value_may_be_a_tombstone(self) -> None:
        self.send("-K", "::", "-Z", stdin=b"a::\n")
        assert [(record.key(), record.value()) for record in self.read(1)] == [(b"a", None)]

    def test_a_line_without_the_separator_is_not_sent_and_named(self) -> None:
        result = self.send("-K:", stdin=b"a:1\nb\n\nc:3\n")
        assert result.exit_code == 1
        assert "line 2 was not delivered: expected a key, the key separator" in result.stderr
        assert result.stdout == f"2 records delivered to {self.topic}, 1 not delivered\n"
        assert [record.key() for record in self.read(2)] == [b"a", b"c"]

    def test_a_file_may_be_one_record(self, tmp_path: Path) -> None:
        file = tmp_path / "order.json"
        file.write_bytes(b'{\n  "id": 1\n}\n')
        assert self.send("--file", str(file), "--whole").exit_code == 0
        assert [record.value() for record in self.read(1)] == [file.read_bytes()]

    def test_nothing_is_no_record(self) -> None:
        result = self.send("--whole")
        assert (result.exit_code, "there is nothing to send: the input is empty" in result.stderr) == (
            1,
            True,
        )
        assert self.send("--whole", "-Z").exit_code == 0
        assert [record.value() for record in self.read(1)] == [None]

    def test_a_partition_that_is_not_there_is_told(self) -> None:
        result = self.send("-p", "7", stdin=b"x\n")
        assert result.exit_code == 1
        assert f"{self.topic} has 1 partition, from 0 on; found partition 7" in result.stderr

    def test_goes_through_the_chain(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert CliRunner().invoke(main, ["init", "--yes", "--service", "shop"]).exit_code == 0
        assert self.send("-c", "headerware.toml", stdin=b"secret\n").exit_code == 0
        (record,) = self.read(1, chain=load_chain("headerware.toml"))
        assert record.value() == b"secret"
        (raw,) = self.read(1, group="raw")
        assert b"secret" not in (raw.value() or b"")

    CHAIN = """
[[interceptors]]
type = "serialize"
key = "string"
value = {type = "avro", schema = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'}
"""

    @pytest.mark.parametrize("format_", ["bytes", "text"])
    def test_names_the_format_that_a_chain_that_serializes_takes(self, tmp_path: Path, format_: str) -> None:
        config = tmp_path / "headerware.toml"
        config.write_text('[[interceptors]]\ntype = "serialize"\nvalue = "avro"\n')
        if format_ == "bytes":
            config.write_text('[[interceptors]]\ntype = "serialize"\nvalue = "json"\n')

        result = self.send("-c", str(config), "--value-format", format_, stdin=b'{"id": 1}')

        assert result.exit_code == 1
        assert "--value-format json gives the chain the object" in result.output

    def test_lines_of_json_are_objects_for_a_chain_that_serializes(self, tmp_path: Path) -> None:
        file = tmp_path / "chain.toml"
        file.write_text(self.CHAIN)
        lines = b'a:{"id": 1}\nb:{"id": 2\nc:{"id": "x"}\nd:null\n\xff:{"id": 3}\n'
        result = self.send(
            *("-c", str(file), "-K:", "--key-format", "text", "--value-format", "json"), stdin=lines
        )
        assert (result.exit_code, result.stdout) == (
            1,
            f"2 records delivered to {self.topic}, 3 not delivered\n",
        )
        assert "line 2 was not delivered: expected a value in JSON: Input data was truncated" in result.stderr
        assert "line 3 was not delivered: " in result.stderr
        assert (
            "line 5 was not delivered: expected a key in UTF-8, found other bytes at byte 0" in result.stderr
        )
        found: list[Any] = [(record.key(), record.value()) for record in self.read(2, chain=load_chain(file))]
        assert found == [("a", {"id": 1}), ("d", None)]
        assert [record.value() for record in self.read(2, group="raw")] != [b'{"id": 1}', b"null"]

    def test_a_file_of_json_may_be_one_object(self, tmp_path: Path) -> None:
        (tmp_path / "chain.toml").write_text(self.CHAIN)
        (tmp_path / "order.json").write_text('{\n  "id": 1\n}\n')
        options = ["--file", str(tmp_path / "order.json"), "--whole", "--value-format", "json", "-k", '"a"']
        result = self.send("-c", str(tmp_path / "chain.toml"), *options, "--key-format", "json")
        assert (result.exit_code, result.stderr) == (0, "")
        record: Any
        (record,) = self.read(1, chain=load_chain(tmp_path / "chain.toml"))
        assert (record.key(), record.value()) == ("a", {"id": 1})

    def test_what_the_chain_or_the_client_refuses_is_named(self) -> None:
        lines = b"a\n" + b"x" * 2_000_000 + b"\nb\n"
        result = self.send("--json", stdin=lines)
        answer = json.loads(result.stdout)
        facts = answer["result"]
        assert (result.exit_code, answer["ok"], result.stderr) == (1, False, "")
        assert (facts["records"], facts["delivered"], facts["failed"], facts["unknown"]) == (3, 2, 1, 0)
        assert [failure["record"] for failure in facts["failures"]] == [2]

    def test_a_topic_that_does_not_exist_is_not_made(self, embedded_cluster: EmbeddedCluster) -> None:
        missing = f"{self.topic}-missing"
        result = CliRunner().invoke(main, ["send", missing, "-b", self.servers], input=b"x\n")
        assert result.exit_code == 1
        assert "look at the name, or create the topic" in result.stderr
        embedded_cluster.create_topic(missing)  # it would be refused if there were one

    def test_a_pipe_is_sent_while_it_is_open(self) -> None:
        command = [sys.executable, "-m", "headerware", "send", self.topic, "-b", self.servers]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sending:
            assert sending.stdin is not None
            sending.stdin.write(b"first\n")
            sending.stdin.flush()
            assert [record.value() for record in self.read(1)] == [b"first"]
            sending.send_signal(signal.SIGINT)
            stdout, _ = sending.communicate(timeout=60)
        assert (sending.returncode, stdout) == (
            1,
            f"1 record delivered to {self.topic}; interrupted\n".encode(),
        )

    def test_memory_does_not_grow_with_the_input(self) -> None:
        """The client's queue is smaller than the input, so the command has to wait for room."""
        lines = b"".join(b"%d\n" % number for number in range(5_000))
        result = self.send("-X", "queue.buffering.max.messages=100", stdin=lines)
        assert (result.exit_code, result.stdout) == (0, f"5,000 records delivered to {self.topic}\n")


class TestFailures:
    def test_no_cluster_is_an_error_at_once(self) -> None:
        result = CliRunner().invoke(main, ["send", "orders", "-b", "127.0.0.1:1"], input=b"x\n")
        assert (result.exit_code, "127.0.0.1:1 cannot be reached" in result.stderr) == (1, True)

    def test_records_without_an_answer_in_time_are_named(self) -> None:
        with EmbeddedCluster(topics={"orders": 1}) as cluster:
            command = [sys.executable, "-m", "headerware", "send", "orders", "-b", cluster.bootstrap_servers]
            with subprocess.Popen(
                [*command, "--timeout", "3s"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as sending:
                assert sending.stdin is not None
                sending.stdin.write(b"a\n")
                sending.stdin.flush()
                consumer = confluent_kafka.Consumer(
                    {
                        "bootstrap.servers": cluster.bootstrap_servers,
                        "group.id": "reads",
                        "auto.offset.reset": "earliest",
                    }
                )
                consumer.subscribe(["orders"])
                until(lambda: consumer.poll(0.2) is not None)
                consumer.close()
                cluster.close()
                stdout, stderr = sending.communicate(b"b\n", timeout=120)
        assert sending.returncode == 1
        assert b"line 2 was not delivered: " in stderr
        assert stdout == b"1 record delivered to orders, 1 not delivered\n"

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["-k", "a", "-K:"], "give one"),
            (["-K", ""], "expected a text that is not empty"),
            (["-H", "=x"], "expected NAME=VALUE"),
            (["--value-format", "avro"], "'avro' is not one of 'bytes', 'text', 'json'"),
        ],
    )
    def test_wrong_use_is_told_before_anything_is_sent(self, arguments: list[str], told: str) -> None:
        result = CliRunner().invoke(main, ["send", "orders", "-b", "127.0.0.1:1", *arguments], input=b"x\n")
        assert (result.exit_code, told in result.stderr) == (2, True)
