"""``headerware keys erase``, ``erased``, ``readmit`` and ``rewrap-subjects`` on the embedded cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headerware import Producer
from headerware.cli import main
from headerware.core.errors import InterceptorError, ShreddedError
from headerware.keyring import with_deletion, with_new_key, with_rotation
from headerware.keyring.subjects.receipt import RECEIPT_USE
from headerware.keyring.subjects.rows import SECRET, SUBJECT_KEY
from headerware.keyring.writing import edit_keyring
from tests.airports import airports
from tests.subjects import World, record_of, refusal_of


@pytest.fixture
def config(world: World) -> Path:
    path = world.folder / "chain.toml"
    path.write_text(
        "[[interceptors]]\n"
        'type = "encrypt"\n'
        'key_service = { type = "file", keyring = "keys.json" }\n'
        'key_id = "customers"\n'
        'key_of = "header:customer"\n'
        f'subject_keys = {{ type = "topic", topic = "{world.topic}", '
        'config = { "fetch.wait.max.ms" = 20 } }\n'
    )
    edit_keyring(
        world.folder / "audit.json",
        lambda ring: with_new_key(ring, "audit", "ed25519", use=(RECEIPT_USE,)),
        create=True,
    )
    return path


def run(world: World, *arguments: str | Path, stdin: str | None = None) -> Result:
    given = ["keys", *map(str, arguments), "--bootstrap-servers", world.servers]
    return CliRunner().invoke(main, given, input=stdin)


def done(world: World, *arguments: str | Path, stdin: str | None = None) -> Any:
    result = run(world, *arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["result"]


class TestErasing:
    def test_nobody_can_read_the_subject(self, world: World, config: Path) -> None:
        [ann] = world.open().send([record_of("ann")])
        found = done(world, "erase", config, "ann", "--yes")
        assert (found["receipt"]["topic"], found["receipt"]["keys"], found["removed"]) == (world.topic, 1, 1)
        assert isinstance(refusal_of(world.open(), ann), ShreddedError)

    def test_the_name_comes_from_standard_input_and_is_not_shown(self, world: World, config: Path) -> None:
        result = run(world, "erase", config, "-", "--yes", stdin="green.gables\n")
        assert result.exit_code == 0, result.output
        assert "green" not in result.output
        with pytest.raises(InterceptorError, match="was erased"):
            world.open().send([record_of("green.gables")])

    def test_a_second_time_changes_nothing(self, world: World, config: Path) -> None:
        first = done(world, "erase", config, "ann", "--yes")["receipt"]
        second = done(world, "erase", config, "ann", "--yes")["receipt"]
        assert second == {**first, "offset": None}

    def test_a_subject_without_a_key_is_mentioned(self, world: World, config: Path) -> None:
        world.open().send([record_of("ann")])
        result = run(world, "erase", config, "anne", "--yes", "--out", world.folder / "receipt.json")
        assert result.exit_code == 0
        assert "it had no key" in result.output
        result = run(world, "erase", config, "ann", "--yes", "--out", world.folder / "receipt.json")
        assert "it had no key" not in result.output

    def test_a_name_that_is_not_utf_8_is_refused(self, world: World, config: Path) -> None:
        result = run(world, "erase", config, "green\udcff", "--yes")
        assert result.exit_code == 2
        assert "expected a subject in UTF-8" in result.output
        assert "green" not in result.output

    def test_it_asks_first(self, world: World, config: Path) -> None:
        result = run(world, "erase", config, "ann")
        assert result.exit_code == 2
        assert "give --yes" in result.output

    def test_a_chain_without_subjects_is_refused(self, world: World) -> None:
        path = world.folder / "plain.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\nservice = "orders"\n')
        result = run(world, "erase", path, "ann", "--yes")
        assert result.exit_code == 1
        assert "expected an interceptor with subject_keys" in result.output


class TestTail:
    def test_shows_what_a_subject_may_be_read(self, world: World, config: Path) -> None:
        servers = {"bootstrap.servers": world.servers, "log_level": 0}
        with Producer({**servers, "headerware.config": str(config)}) as producer:
            producer.produce(f"{world.topic}.orders", b"a book", headers={"customer": "ann"})
        arguments = ("-c", str(config), "-b", world.servers, "-n", "1", "--values", "text", "--json")
        result = CliRunner().invoke(main, ["tail", f"{world.topic}.orders", *arguments])
        assert result.exit_code == 0, result.output
        assert "a book" in result.output

    def test_leaves_the_files_and_topics_of_applications_alone(self, world: World, config: Path) -> None:
        topic, servers = f"{world.topic}.orders", {"bootstrap.servers": world.servers, "log_level": 0}
        with Producer({**servers, "headerware.config": str(config)}) as producer:
            producer.produce(topic, b"a book", headers={"customer": "ann"})
        file = world.folder / "keys.db"
        config.write_text(config.read_text().replace("config =", f'file = "{file}", create = true, config ='))
        arguments = ("-c", str(config), "-b", world.servers, "-n", "1", "--values", "text", "--json")
        result = CliRunner().invoke(main, ["tail", topic, *arguments])
        assert "a book" in result.output
        assert not file.exists()

    def test_proofs_of_trails_are_shown_if_the_values_are_encrypted_for_subjects(
        self, world: World, config: Path
    ) -> None:
        edit_keyring(
            world.folder / "shop.json", lambda ring: with_new_key(ring, "shop", "ed25519"), create=True
        )
        trail = '[[interceptors]]\ntype = "trail"\nservice = "shop"\nsigned = true\nkeyring = "shop.json"\n'
        config.write_text(trail + config.read_text())
        topic, servers = f"{world.topic}.orders", {"bootstrap.servers": world.servers, "log_level": 0}
        with Producer({**servers, "headerware.config": str(config)}) as producer:
            producer.produce(topic, b"a book", headers={"customer": "ann"})
        result = CliRunner().invoke(main, ["trail", topic, "-c", str(config), "-b", world.servers])
        assert result.exit_code == 0, result.output
        assert "proven by key 'shop'" in result.output


class TestReadingThroughTheChain:
    """Commands other than ``tail`` that read a topic with the chain of its readers."""

    def test_a_contract_is_compared_with_what_subjects_may_be_read(self, world: World, config: Path) -> None:
        topic, servers = f"{world.topic}.orders", {"bootstrap.servers": world.servers, "log_level": 0}
        with Producer({**servers, "headerware.config": str(config)}) as producer:
            producer.produce(topic, b'{"id": 1}', headers={"customer": "ann"})
        contract = world.folder / "orders.yaml"
        contract.write_text(
            "asyncapi: 3.0.0\ninfo: {title: Orders, version: 1.0.0}\ndefaultContentType: application/json\n"
            f"channels:\n  orders:\n    address: {topic}\n"
            "    messages: {Order: {payload: {properties: {id: {type: integer}}}}}\n"
        )
        arguments = ("--topic", topic, "-c", str(config), "-b", world.servers)
        result = CliRunner().invoke(main, ["contract", "check", str(contract), *arguments])
        assert result.exit_code == 0, result.output
        assert "1 record read, 0 break the contract\n" in result.output

    def test_a_dictionary_is_trained_on_what_subjects_may_be_read(self, world: World, config: Path) -> None:
        topic, servers = f"{world.topic}.orders", {"bootstrap.servers": world.servers, "log_level": 0}
        with Producer({**servers, "headerware.config": str(config)}) as producer:
            for value in airports():
                producer.produce(topic, value, headers={"customer": "ann"})
        arguments = ("-c", str(config), "-b", world.servers, "--out", str(world.folder / "a.dict"), "--json")
        result = CliRunner().invoke(main, ["dictionaries", "train", topic, *arguments])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["result"]["samples"] == len(airports())


class TestExplaining:
    def test_measures_a_chain_whose_sample_has_no_subject(self, world: World, config: Path) -> None:
        result = CliRunner().invoke(main, ["explain", str(config), "orders", "--open"])
        assert result.exit_code == 0, result.output
        assert "growth:" in result.output


class TestReceipts:
    def erase(self, world: World, config: Path) -> Path:
        receipt = world.folder / "receipt.json"
        arguments = ("--sign-with", "audit", "--keyring", world.folder / "audit.json", "--out", receipt)
        done(world, "erase", config, "ann", "--yes", *arguments)
        return receipt

    def test_a_signed_receipt_is_verified(self, world: World, config: Path) -> None:
        world.open().send([record_of("ann")])
        receipt = self.erase(world, config)
        found = done(
            world, "erased", config, receipt, "--keyring", world.folder / "audit.json", "--subject", "ann"
        )
        assert (found["problem"], found["signature"]) == (None, True)

    def test_a_changed_receipt_is_refused(self, world: World, config: Path) -> None:
        receipt = self.erase(world, config)
        plain = json.loads(receipt.read_bytes())
        receipt.write_text(json.dumps({**plain, "keys": 7}))
        result = run(world, "erased", config, receipt, "--keyring", world.folder / "audit.json")
        assert result.exit_code == 1
        assert "was changed" in result.output

    def test_a_signature_of_a_key_for_records_is_refused(self, world: World, config: Path) -> None:
        edit_keyring(world.folder / "audit.json", lambda ring: with_new_key(ring, "orders", "ed25519"))
        arguments = ("--sign-with", "orders", "--keyring", world.folder / "audit.json")
        result = run(world, "erase", config, "ann", "--yes", *arguments)
        assert result.exit_code == 1
        assert RECEIPT_USE in result.output

    def test_another_subject_is_refused(self, world: World, config: Path) -> None:
        result = run(world, "erased", config, self.erase(world, config), "--subject", "bob")
        assert result.exit_code == 1
        assert "another subject" in result.output

    def test_a_key_that_was_written_back_is_found(self, world: World, config: Path) -> None:
        world.open().send([record_of("ann")])
        rows = [(key, value) for _, key, value in world.rows() if key[0] == SUBJECT_KEY]
        receipt = self.erase(world, config)
        world.write(*rows)
        result = run(world, "erased", config, receipt)
        assert result.exit_code == 1
        assert "still have a row" in result.output
        done(world, "erase", config, "ann", "--yes")
        assert done(world, "erased", config, receipt)["problem"] is None

    def test_something_else_is_no_receipt(self, world: World, config: Path) -> None:
        result = run(world, "erased", config, config)
        assert result.exit_code == 1
        assert "is no receipt" in result.output


class TestReadmitting:
    def test_the_subject_gets_a_new_key(self, world: World, config: Path) -> None:
        [before] = world.open().send([record_of("ann")])
        done(world, "erase", config, "ann", "--yes")
        done(world, "readmit", config, "ann")
        session = world.open()
        [after] = session.send([record_of("ann")])
        assert session.consume([after])[0].value == b"secret"
        assert isinstance(refusal_of(session, before), ShreddedError)

    def test_a_subject_that_was_not_erased_is_refused(self, world: World, config: Path) -> None:
        result = run(world, "readmit", config, "ann")
        assert result.exit_code == 1
        assert "no erasure of this subject" in result.output


class TestRewrapping:
    def test_records_and_keys_stay_as_they_are(self, world: World, config: Path) -> None:
        [before] = world.open().send([record_of("ann")])
        edit_keyring(world.keyring, lambda ring: with_rotation(ring, "customers"))
        assert done(world, "rewrap-subjects", config)["secrets"] == 2
        edit_keyring(world.keyring, lambda ring: with_deletion(ring, "customers", version=1))
        session = world.open()
        assert session.consume([before])[0].value == b"secret"
        session.send([record_of("ann")])
        kinds = [key[0] for _, key, _ in world.rows()]
        assert (kinds.count(SUBJECT_KEY), kinds.count(SECRET)) == (1, 4)
