"""``headerware dev``: a cluster for as long as the command runs, and its records as the chain shows them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner

from headerware import Producer, load_chain
from headerware.cli import main
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Dev:
    """The command in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._output, self._errors = folder / "output", folder / "errors"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headerware", "dev", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        until(lambda: "export " in self.errors or self.process.poll() is not None)
        found = re.search(r"^  export HEADERWARE_BOOTSTRAP_SERVERS=(\S+)$", self.errors, re.MULTILINE)
        assert found, self.errors
        self.servers = found[1]

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Dev]]:
    monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
    started: list[Dev] = []

    def one(*arguments: str) -> Dev:
        started.append(Dev(tmp_path, *arguments))
        return started[-1]

    yield one
    for each in started:
        each.process.kill()
        each.process.wait()


def produce(servers: str, topic: str, **chain: Any) -> None:
    with Producer({"bootstrap.servers": servers}, **chain) as producer:
        producer.produce(topic, b"secret")


class TestDev:
    def test_has_the_topics_and_shows_their_records_through_the_chain(
        self, start: Callable[..., Dev], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert CliRunner().invoke(main, ["init", "--yes", "--service", "shop"]).exit_code == 0
        dev = start("orders", "payments", "-c", "headerware.toml", "--values", "text", "--json")
        produce(dev.servers, "orders", chain=load_chain("headerware.toml"))
        produce(dev.servers, "payments")
        until(lambda: len(dev.lines) == 2)
        shown = {each["result"]["topic"]: each for each in map(json.loads, dev.lines)}
        assert shown["orders"]["result"]["outcome"] == "delivered"
        assert shown["orders"]["result"]["application"][0]["value"]["text"] == "secret"
        assert shown["payments"]["result"]["outcome"] == "refused"

    def test_shows_what_is_encrypted_under_the_keys_of_subjects(
        self, start: Callable[..., Dev], tmp_path: Path
    ) -> None:
        edit_keyring(tmp_path / "k.json", lambda ring: with_new_key(ring, "cards", "aes-256"), create=True)
        path = tmp_path / "chain.toml"
        path.write_text(
            '[[interceptors]]\ntype = "encrypt"\nkey_id = "cards"\nkey_of = "header:customer"\n'
            'key_service = { type = "file", keyring = "k.json" }\n'
            'subject_keys = { type = "topic", topic = "customers" }\n'
        )
        dev = start("orders", "customers", "-c", str(path), "--json")
        with Producer({"bootstrap.servers": dev.servers}, chain=load_chain(str(path))) as producer:
            producer.produce("orders", b"secret", headers={"customer": "ann"})
        until(lambda: any('"topic":"orders"' in line.replace(" ", "") for line in dev.lines))
        found = [each["result"] for each in map(json.loads, dev.lines)]
        assert [each["outcome"] for each in found if each["topic"] == "orders"] == ["delivered"]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ends_with_its_cluster(self, start: Callable[..., Dev], number: int) -> None:
        dev = start()
        assert dev.end(number) == 0, dev.errors
        assert dev.errors.endswith("the cluster has stopped, and its records are gone\n")
        client = confluent_kafka.Producer({"bootstrap.servers": dev.servers, "log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            client.list_topics(timeout=1)

    def test_without_topics_has_one_with_the_partitions_that_were_asked_for(
        self, start: Callable[..., Dev]
    ) -> None:
        dev = start("--partitions", "3", "--brief")
        client = confluent_kafka.Producer({"bootstrap.servers": dev.servers})
        assert {
            name: len(each.partitions) for name, each in client.list_topics(timeout=30).topics.items()
        } == {"orders": 3}

    @pytest.mark.parametrize("keys", [[b"\x03"], [b"\x04"], [b" ", b"q"], [b" ", b"\x03"]])
    def test_in_a_terminal_tells_the_address_before_the_view_covers_it(
        self, keys: list[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        terminal, process_end = pty.openpty()
        command = [sys.executable, "-m", "headerware", "dev"]
        with subprocess.Popen(command, stdin=process_end, stdout=process_end, stderr=process_end) as dev:
            os.close(process_end)
            shown = b""
            for key, awaited in zip(keys, (b"press a key", b"following"), strict=False):
                while awaited not in shown:
                    shown += os.read(terminal, 65_536)
                until(lambda: not termios.tcgetattr(terminal)[3] & termios.ICANON, "it reads single keys")
                os.write(terminal, key)
            with suppress(OSError):  # the end of a terminal on Linux
                while found := os.read(terminal, 65_536):
                    shown += found
            assert dev.wait(60) == 0
        os.close(terminal)
        assert re.search(rb"export HEADERWARE_BOOTSTRAP_SERVERS=127\.0\.0\.1:\d+", shown)
        assert b"the cluster has stopped" in shown

    @pytest.mark.broker
    def test_may_be_a_real_kafka(self, start: Callable[..., Dev]) -> None:
        dev = start("orders", "--kafka", "--brief")
        produce(dev.servers, "orders")
        until(lambda: dev.lines)
        assert "orders[0]@0" in dev.lines[0]
        assert dev.end(signal.SIGINT) == 0

    def test_a_topic_may_have_its_own_number_of_partitions(self, start: Callable[..., Dev]) -> None:
        dev = start("orders:3", "payments", "--partitions", "2", "--brief")
        client = confluent_kafka.Producer({"bootstrap.servers": dev.servers})
        found = client.list_topics(timeout=30).topics.items()
        assert {name: len(each.partitions) for name, each in found} == {"orders": 3, "payments": 2}

    def test_quiet_shows_no_records(self, start: Callable[..., Dev]) -> None:
        dev = start("orders", "--quiet")
        produce(dev.servers, "orders")
        assert dev.end(signal.SIGINT) == 0, dev.errors
        assert dev.lines == []

    @pytest.mark.parametrize("name", ["bad topic!", ".", "..", "x" * 250, "orders:0", "orders:many", ""])
    def test_refuses_a_topic_that_kafka_refuses(self, name: str) -> None:
        result = CliRunner().invoke(main, ["dev", name])
        assert result.exit_code == 2, result.output
        assert "Invalid value for '[NAME[:PARTITIONS]]...'" in result.stderr

    def test_a_port_is_for_kafka_only(self) -> None:
        result = CliRunner().invoke(main, ["dev", "--port", "9092"])
        assert (result.exit_code, "--port needs --kafka" in result.stderr) == (2, True)
