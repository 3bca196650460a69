from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from click.testing import CliRunner, Result

from headerware import Chain, Consumer, Interceptor, Producer, Record, load_chain
from headerware.cli import main
from headerware.cli.trail import trail, trail_lines
from headerware.core.errors import HeaderwareError, WireFormatError
from headerware.interceptors import Compress, HeaderIds, Slice, Trail
from headerware.interceptors.trail import TRAIL_HEADER, TrailEntry, TrailReading, encode_trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from tests.trails import Hops
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import EmbeddedCluster, KafkaBroker

WHEN = 1_767_225_600_000
PRODUCED = TrailEntry(by_whom="shop", when_ms=WHEN, produced_into_cluster="eu", produced_into_topic="orders")
READ = TrailEntry(by_whom="ship", when_ms=WHEN + 2500, read_from_cluster="us", read_from_topic="orders")
VALUE = encode_trail(TrailReading((PRODUCED, READ), 3))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(trail, arguments)


class TestTrailOfAHeader:
    def test_is_a_timeline(self) -> None:
        result = run("--value", VALUE.decode())
        assert result.exit_code == 0
        assert [line.split() for line in result.output.splitlines()] == [
            ["2026-01-01", "00:00:00.000Z", "shop", "produced", "into", "eu/orders"],
            ["3", "entries", "left", "out", "to", "keep", "the", "trail", "short"],
            ["2026-01-01", "00:00:02.500Z", "+2.5", "s", "ship", "read", "from", "us/orders"],
        ]

    def test_from_a_file_as_json(self, tmp_path: Path) -> None:
        (tmp_path / "header").write_bytes(VALUE + b"\n")
        result = run("--file", str(tmp_path / "header"), "--json")
        found = json.loads(result.output)["result"]
        assert (found["left_out"], [entry["by_whom"] for entry in found["entries"]]) == (3, ["shop", "ship"])

    def test_as_json_escapes_what_a_terminal_would_obey(self) -> None:
        result = run("--value", "1,at=0;by=%C2%9B2J%E2%80%AE", "--json")
        assert result.output.isascii()
        assert json.loads(result.output)["result"]["entries"][0]["by_whom"] == "\x9b2J\u202e"

    def test_asks_for_no_chain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", "/nowhere/chain.toml")
        assert run("--value", VALUE.decode()).exit_code == 0

    def test_that_is_corrupt_raises_what_the_root_shows(self) -> None:
        result = run("--value", "2")
        assert isinstance(result.exception, WireFormatError)

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("--value", "1", "--file", __file__),
            ("orders", "--value", "1"),
            ("orders",),
            ("orders", "--bootstrap-servers", "x", "--offset", "1"),
            ("orders", "--bootstrap-servers", "x", "-X", "secret"),
        ],
    )
    def test_wrong_use_exits_with_2(self, arguments: tuple[str, ...]) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert "secret" not in result.output


class TestTrailLines:
    def test_stand_in_columns(self) -> None:
        lines = [line.plain for line in trail_lines(TrailReading((PRODUCED, READ)))]
        copied = "from eu/orders to us/orders: copied by something that leaves no entry"
        assert lines == [
            "2026-01-01 00:00:00.000Z          shop  produced into eu/orders",
            f"{'':34}{copied}",
            "2026-01-01 00:00:02.500Z  +2.5 s  ship  read from us/orders",
        ]

    def test_of_no_trail_say_so(self) -> None:
        assert [line.plain for line in trail_lines(TrailReading())] == ["no trail"]


class TestTrailOfATopic:
    @pytest.fixture
    def topic(self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
        name = unique_topic("trail")
        embedded_cluster.create_topic(name, partitions=2)
        self.servers = embedded_cluster.bootstrap_servers
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        headers: list[list[tuple[str, Any]] | None] = [
            [(TRAIL_HEADER, VALUE)],
            None,
            [(TRAIL_HEADER, b"9")],
        ]
        for partition in (0, 1):
            for given in headers:
                producer.produce(name, b"v", partition=partition, headers=given or [], timestamp=WHEN)
        assert producer.flush(60) == 0
        return name

    def _json(self, *arguments: str) -> list[Any]:
        result = run("--bootstrap-servers", self.servers, "--json", *arguments)
        assert result.exit_code == 0, result.output
        return [json.loads(line)["result"] for line in result.output.splitlines()]

    def test_shows_every_record_of_every_partition(self, topic: str) -> None:
        found = self._json(topic)
        assert sorted((one["partition"], one["offset"]) for one in found) == [
            (p, o) for p in (0, 1) for o in range(3)
        ]
        assert all(one["timestamp_ms"] == WHEN for one in found)

    def test_shows_the_last_ones(self, topic: str) -> None:
        assert sorted((one["partition"], one["offset"]) for one in self._json(topic, "--limit", "1")) == [
            (0, 2),
            (1, 2),
        ]

    @pytest.mark.parametrize("option", ["-n", "--count", "--limit"])
    def test_count_has_the_names_that_it_has_elsewhere(self, topic: str, option: str) -> None:
        assert len(self._json(topic, option, "1")) == 2

    def test_shows_one_place(self, topic: str) -> None:
        (found,) = self._json(topic, "--partition", "1", "--offset", "0", "--limit", "1")
        assert (found["partition"], found["offset"], found["left_out"]) == (1, 0, 3)

    @pytest.mark.parametrize("names", ["connect", "spring"])
    def test_says_what_a_dead_letter_was_made_of(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], names: Any
    ) -> None:
        topic = unique_topic("letters")
        dead = f"{topic}.dead-letter"
        for name in (topic, dead):
            embedded_cluster.create_topic(name)
        self.servers = embedded_cluster.bootstrap_servers
        settings = {"bootstrap.servers": self.servers}
        with Producer(settings, chain=Chain([Trail(service="shop")])) as producer:
            producer.produce(topic, b"v")

        class Refusing(Interceptor, frozen=True):
            def on_consume(self, record: Record) -> Record:
                raise ValueError

        refusing = Refusing(name="refusing", on_error="dead_letter", dead_letter_headers=names)
        reading = {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer(reading, chain=Chain([refusing])) as consumer:
            consumer.subscribe([topic])
            until(lambda: consumer.poll(0.1) or consumer.stats()["refusing"]["dead_lettered"])
        result = run("--bootstrap-servers", self.servers, dead)
        cluster = confluent_kafka.admin.AdminClient({**settings}).list_topics(timeout=60).cluster_id
        assert result.output.splitlines()[-1].strip() == (
            f"kept in {cluster}/{dead} as the dead letter of {topic}[0]@0"
        )
        (found,) = self._json(dead)
        assert found["dead_letter_of"] == f"{topic}[0]@0"
        assert (
            "dead letter of"
            in CliRunner()
            .invoke(
                main,
                ["tail", dead, "--bootstrap-servers", self.servers, "--until-end", "--from", "beginning"],
            )
            .output
        )

    def test_of_an_offset_past_the_end_says_where_the_end_is(self, topic: str) -> None:
        place = ("--partition", "0", "--offset", "9")
        result = run("--bootstrap-servers", self.servers, topic, *place)
        end = self._json(topic, "--partition", "0", "--limit", "1")[0]["offset"] + 1
        assert (result.exit_code, result.stdout) == (0, "")
        assert f"no record from offset 9 on: {topic}[0] ends at {end}\n" in result.stderr

    def test_of_an_empty_topic_says_so(self, embedded_cluster: EmbeddedCluster) -> None:
        embedded_cluster.create_topic("no-trails")
        result = run("--bootstrap-servers", embedded_cluster.bootstrap_servers, "no-trails")
        assert (result.exit_code, "no-trails has no records;" in result.stderr) == (0, True)

    @pytest.mark.broker
    def test_of_the_end_of_a_transaction_says_that_it_is_no_record(
        self, kafka_broker: KafkaBroker, topic: str
    ) -> None:
        servers = {"bootstrap.servers": kafka_broker.bootstrap_servers}
        kafka_broker.create_topic(topic)

        def of_the_last() -> str:
            result = run("--bootstrap-servers", kafka_broker.bootstrap_servers, topic, "--count", "1")
            assert (result.exit_code, result.stdout) == (0, "")
            return result.stderr

        with Producer({**servers, "transactional.id": topic}) as producer:
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce(topic, b"v")
            assert producer.flush(60) == 0
            assert "those of transactions that are open are not read" in of_the_last()
            producer.commit_transaction(60)
        # The mark that ends a transaction comes after the answer to who commits it.
        until(lambda: "raise --count" in of_the_last(), "the end of the transaction")

    def test_shows_corrupt_and_missing_trails_as_such(self, topic: str) -> None:
        result = run("--bootstrap-servers", self.servers, topic, "--partition", "0")
        assert result.exit_code == 0
        lines = result.output.splitlines()
        assert [line for line in lines if line.startswith(topic)] == [
            f"{topic}[0]@{offset}  2026-01-01 00:00:00.000Z" for offset in range(3)
        ]
        assert "  no trail" in lines
        assert any("corrupt: hw.trail: expected version 1, found another" in line for line in lines)
        assert any(f"produced into ?/{topic} by something that leaves no entry" in line for line in lines)

    def test_corrupt_trails_are_json_too(self, topic: str) -> None:
        place = ("--partition", "0", "--offset", "2")
        told = json.loads(run("--bootstrap-servers", self.servers, "--json", topic, *place).output)
        assert (told["ok"], told["result"]["offset"]) == (False, 2)
        assert told["error"] == {
            "type": "WireFormatError",
            "message": "hw.trail: expected version 1, found another version",
            "path": None,
        }

    @pytest.mark.parametrize("form", ["packed", "keys"])
    def test_reads_names_that_are_ids(self, topic: str, form: Any) -> None:
        chain = Chain([Trail(service="shop", cluster="eu"), HeaderIds(form=form)])
        with Producer({"bootstrap.servers": self.servers}, chain=chain) as producer:
            producer.produce(topic, b"v", partition=0)
        (found,) = self._json(topic, "--partition", "0", "--offset", "3")
        assert [entry["by_whom"] for entry in found["entries"]] == ["shop"]

    def test_marks_the_hops_of_a_signed_trail(self, topic: str, tmp_path: Path) -> None:
        hops = Hops(tmp_path)
        (tmp_path / "chain.toml").write_text(
            f"""[[interceptors]]\ntype = "trail"\nsigned = true\nkeyring = "{hops.path}"\n"""
            """require = "enforce"\n[[interceptors]]\ntype = "compress"\nmin_bytes = 1\n"""
        )
        for service, key_id in (("shop", "shop"), ("shop", "mallory")):
            trail = Trail(service=service, signed=True, keyring=hops.path, key_id=key_id)
            chain = Chain([trail, Compress(min_bytes=1)])
            with Producer({"bootstrap.servers": self.servers}, chain=chain) as producer:
                producer.produce(topic, b"v" * 100, partition=0)
        chosen = ("--config", str(tmp_path / "chain.toml"), "--partition", "0", "--offset", "2")
        corrupt, good, forged = self._json(topic, *chosen)
        assert corrupt["offset"] == 2
        assert (good["hops"][0]["state"], good["hops"][0]["key_id"], good["problem"]) == (
            "proven",
            "shop",
            None,
        )
        assert (good["verified"], forged["hops"][0]["state"]) == (None, "broken")
        assert "hop 1 of 'shop' is broken" in forged["problem"]
        result = run("--bootstrap-servers", self.servers, topic, *chosen)
        assert "as their writers claim" not in result.stderr
        assert "proven by key 'shop'" in result.stdout
        assert "(not proven: hop 1 of 'shop' is broken: key 'mallory' version 1 signed it" in result.stdout
        (plain, *_) = self._json(topic, "--partition", "0", "--offset", "3")
        assert (plain["hops"], plain["problem"]) == (None, None)

    def test_says_where_the_hops_of_a_message_in_slices_are_proven(self, topic: str, tmp_path: Path) -> None:
        signed = '[[interceptors]]\ntype = "trail"\nservice = "shop"\nsigned = true\nkeyring = "keys.json"\n'
        Hops(tmp_path)
        config = tmp_path / "chain.toml"
        config.write_text(f'{signed}[[interceptors]]\ntype = "slice"\nmax_bytes = 2000\n')
        with Producer({"bootstrap.servers": self.servers}, chain=load_chain(str(config))) as producer:
            producer.produce(topic, bytes(5000), partition=0)
        place = ("--config", str(config), "--partition", "0", "--offset", "3")
        result = run("--bootstrap-servers", self.servers, topic, *place)
        assert "(not proven: a message in slices is proven when it is complete" in result.stdout
        (found,) = self._json(topic, *place)
        assert (found["hops"], "headerware tail" in found["problem"]) == ([], True)

    @pytest.mark.parametrize("ids", [(), (HeaderIds(),)])
    def test_shows_a_message_in_slices_once(self, topic: str, ids: Any) -> None:
        chain = Chain([Trail(service="shop"), Slice(max_bytes=2000), *ids])
        with Producer({"bootstrap.servers": self.servers}, chain=chain) as producer:
            producer.produce(topic, bytes(5000), partition=0)
            producer.produce(topic, b"small", partition=0)
        sliced, small = self._json(topic, "--partition", "0", "--offset", "3")
        assert (sliced["offset"], sliced["slice"]) == (3, 0)
        assert small["offset"] == 3 + sliced["slices"]
        assert [[e["by_whom"] for e in one["entries"]] for one in (sliced, small)] == [["shop"], ["shop"]]

    def test_says_where_the_trail_of_a_message_is_that_began_before(self, topic: str) -> None:
        with Producer({"bootstrap.servers": self.servers}, chain=Chain([Slice(max_bytes=2000)])) as producer:
            producer.produce(topic, bytes(5000), partition=0)
        place = ("--partition", "0", "--offset", "4")
        result = run("--bootstrap-servers", self.servers, topic, *place)
        assert result.output.count(topic) == 1
        assert "slice 2 of " in result.output
        assert "the trail is in the first slice, at offset 3 or earlier" in result.output
        (found,) = self._json(topic, *place)
        assert (found["slice"], found["entries"]) == (1, [])

    def test_a_block_of_ids_that_is_corrupt_is_shown_as_such(self, topic: str) -> None:
        raw = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        raw.produce(topic, b"v", partition=0, headers=[("hw.ids", b"\x09")])
        assert raw.flush(60) == 0
        result = run("--bootstrap-servers", self.servers, topic, "--partition", "0", "--offset", "3")
        assert (result.exit_code, "corrupt: hw.ids" in result.output) == (0, True)

    @pytest.fixture
    def signing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """Return the file of a chain that signs."""
        monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
        edit_keyring(tmp_path / "keys.json", lambda keys: with_new_key(keys, "shop", "ed25519"), create=True)
        path = tmp_path / "chain.toml"
        path.write_text(
            '[[interceptors]]\ntype = "trail"\nservice = "shop"\n'
            '[[interceptors]]\ntype = "slice"\nmax_bytes = 2000\n'
            '[[interceptors]]\ntype = "sign"\nkeyring = "keys.json"\nkey_id = "shop"\n'
            '[[interceptors]]\ntype = "header_ids"\n'
        )
        return str(path)

    def _send(self, topic: str, signing: str, value: bytes) -> None:
        with Producer({"bootstrap.servers": self.servers}, chain=load_chain(signing)) as producer:
            producer.produce(topic, value, partition=0)

    def test_marks_a_trail_without_a_valid_signature(self, topic: str, signing: str) -> None:
        self._send(topic, signing, b"signed")
        (message,) = self._raw(topic, 3)
        copied = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        copied.produce(topic, b"forged", partition=0, headers=message.headers())
        assert copied.flush(60) == 0
        found = self._json(topic, "--partition", "0", "-c", signing, "--offset", "3", "--count", "2")
        assert [(one["offset"], one["verified"]) for one in found] == [(3, True), (4, False)]
        assert [[entry["by_whom"] for entry in one["entries"]] for one in found] == [["shop"], ["shop"]]
        result = run("--bootstrap-servers", self.servers, topic, "--partition", "0", "-c", signing)
        assert (result.exit_code, result.stderr) == (0, "")
        lines = result.output.splitlines()
        titles = [at for at, line in enumerate(lines) if line.startswith(topic)]
        marked = [lines[at + 1] == "  (not verified)" for at in titles]
        # The record at 0 has a trail of a stranger, at 1 no trail, and at 2 a corrupt one.
        assert marked == [True, False, False, False, True]

    def test_does_not_show_a_trail_that_was_added_after_signing_as_verified(
        self, topic: str, signing: str
    ) -> None:
        Path(signing).write_text('[[interceptors]]\ntype = "sign"\nkeyring = "keys.json"\nkey_id = "shop"\n')
        self._send(topic, signing, b"signed")
        (message,) = self._raw(topic, 3)
        raw = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        raw.produce(
            topic, message.value(), partition=0, headers=[*(message.headers() or []), (TRAIL_HEADER, VALUE)]
        )
        assert raw.flush(60) == 0
        (found,) = self._json(topic, "--partition", "0", "-c", signing, "--offset", "4")
        assert found["verified"] is False

    def test_verifies_the_first_slice_of_a_message(self, topic: str, signing: str) -> None:
        self._send(topic, signing, bytes(5000))
        (found,) = self._json(topic, "--partition", "0", "-c", signing, "--offset", "3")
        assert (found["slice"], found["verified"]) == (0, True)

    def test_without_a_chain_that_signs_says_that_trails_are_claims(
        self, topic: str, signing: str, tmp_path: Path
    ) -> None:
        result = run("--bootstrap-servers", self.servers, topic)
        claims = "trails are as their writers claim\n"
        assert result.stderr == f"no chain was given (-c): {claims}"
        assert "(not verified)" not in result.output
        other = tmp_path / "other.toml"
        other.write_text('[[interceptors]]\ntype = "trail"\nservice = "shop"\n')
        result = run("--bootstrap-servers", self.servers, topic, "-c", str(other))
        assert (result.exit_code, result.stderr) == (0, f"{other} does not sign {topic}: {claims}")
        assert {one["verified"] for one in self._json(topic)} == {None}

    def test_shows_claims_if_the_chain_of_the_environment_cannot_be_opened(
        self, topic: str, signing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "keys.json").unlink()
        missing = str(tmp_path / "none.toml")
        for path in (signing, missing):
            monkeypatch.setenv("HEADERWARE_CONFIG", path)
            result = run("--bootstrap-servers", self.servers, topic)
            assert result.exit_code == 0, result.output
            assert result.stderr.startswith("HEADERWARE_CONFIG: ")
            assert result.stderr.endswith(": trails are as their writers claim\n")
            assert topic in result.stdout
            assert "(not verified)" not in result.stdout
        monkeypatch.delenv("HEADERWARE_CONFIG")
        for path in (signing, missing):
            refused = run("--bootstrap-servers", self.servers, topic, "-c", path)
            assert isinstance(refused.exception, HeaderwareError)

    def _raw(self, topic: str, offset: int) -> list[confluent_kafka.Message]:
        reader = confluent_kafka.Consumer({"bootstrap.servers": self.servers, "group.id": "raw"})
        reader.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        found = reader.consume(1, 60)
        reader.close()
        return found

    def test_a_partition_that_is_not_there_is_an_error(self, topic: str) -> None:
        result = run("--bootstrap-servers", self.servers, topic, "--partition", "7")
        assert result.exit_code == 1
        assert str(result.exception) == f"{topic} has 2 partitions, none of number 7"

    def test_brokers_that_do_not_answer_are_an_error(self) -> None:
        result = run("--bootstrap-servers", "127.0.0.1:1", "orders", "--timeout", "1")
        assert result.exit_code == 1
        assert result.output.startswith("Error: orders: ")

    def test_a_property_that_librdkafka_does_not_know_is_an_error(self) -> None:
        result = run("--bootstrap-servers", "127.0.0.1:1", "orders", "-X", "no.such=1")
        assert (result.exit_code, "no.such" in result.output) == (1, True)
