"""``headerware contract``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result

from headerware import Chain, Producer
from headerware.cli import main
from headerware.interceptors import Compress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

ORDERS = """
asyncapi: 3.0.0
info: {title: Orders, version: 1.0.0}
channels:
  orders:
    address: TOPIC
    messages:
      Order:
        contentType: application/json
        headers:
          type: object
          required: [kind]
          properties:
            kind: {enum: [open, paid], description: "The order's state."}
            attempt: {type: integer, minimum: 1}
        payload: {type: object, required: [id], properties: {id: {type: string}}}
        bindings: {kafka: {key: {type: string}}}
        x-headerware-rules:
          second-attempts-are-paid: "!('attempt' in headers) || headers.kind == 'paid'"
  others:
    address: others
    messages:
      Other:
        payload: {schemaFormat: application/vnd.google.protobuf, schema: 'message A {}'}
"""
ATTACK = "\x1b]0;owned\x07[bold]"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["contract", *arguments])


def result_of(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(autouse=True)
def _no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(ORDERS.replace("TOPIC", "orders"))
    return path


class TestCheck:
    def test_a_right_document(self, file: Path) -> None:
        result = run("check", str(file))
        assert result.exit_code == 0, result.output
        place = "#/channels/others/messages/Other/payload/schema"
        assert result.stdout.splitlines() == [
            f"{file}: ok (2 channels)",
            f"warning: {place}: schemas of format 'application/vnd.google.protobuf' are not checked",
        ]

    def test_a_wrong_document(self, file: Path) -> None:
        file.write_text(file.read_text().replace("type: integer", "type: whole"))
        result = run("check", str(file), "--json")
        error = result_of(result)["error"]
        assert result.exit_code == 1
        assert (error["type"], error["path"]) == (
            "ConfigError",
            f"{file}: #/channels/orders/messages/Order/headers",
        )

    @pytest.mark.parametrize(
        ("written", "found"),
        [
            ("asyncapi: 2.6.0", "AsyncAPI 2.6.0; AsyncAPI's own converter makes 3 of 2"),
            ("openapi: 3.0.0", "OpenAPI 3.0.0"),
            ("asyncapi: secret", "AsyncAPI of another version; AsyncAPI's own converter makes 3 of 2"),
            ("properties: {}", "a JSON Schema alone; put it into the payload of a message"),
            ("title: none", "none"),
        ],
    )
    def test_another_document_is_named(self, file: Path, written: str, found: str) -> None:
        file.write_text(file.read_text().replace("asyncapi: 3.0.0", written))
        result = run("check", str(file))
        assert (result.exit_code, result.stderr.strip().endswith(f"; found {found}")) == (1, True)

    @pytest.mark.parametrize(
        ("right", "wrong", "where"),
        [
            ("x-headerware-rules", "x-headerware-rule", "#/channels/orders/messages/Order"),
            ("payload: {type", "payloads: {type", "#/channels/orders/messages/Order"),
            ("address: others", "address: others\n    adress: x", "#/channels/others"),
        ],
    )
    def test_a_misspelt_field_is_warned_of(self, file: Path, right: str, wrong: str, where: str) -> None:
        file.write_text(file.read_text().replace(right, wrong))
        result = run("check", str(file))
        assert result.exit_code == 0
        assert (
            f"warning: {where}: '{wrong.split()[-2 if 'adress' in wrong else 0].strip(':')}' is no field"
            in (result.stdout)
        )
        assert "did you mean" in result.stdout

    @pytest.mark.parametrize(
        ("address", "told"),
        [
            ("adress: orders", ["'adress' is no field of AsyncAPI", "channel 'lost' has no address"]),
            ("address: null", []),  # of a reply
        ],
    )
    def test_a_channel_of_no_topic_is_warned_of(self, file: Path, address: str, told: list[str]) -> None:
        file.write_text(file.read_text().replace("channels:\n", f"channels:\n  lost:\n    {address}\n", 1))
        result = run("check", str(file))
        assert result.exit_code == 0, result.output
        found = [line for line in result.stdout.splitlines() if "lost" in line]
        assert len(found) == len(told)
        assert all(text in line for text, line in zip(told, found, strict=True)), found

    def test_a_field_of_the_applications_own_is_none_of_ours(self, file: Path) -> None:
        file.write_text(file.read_text().replace("contentType", "x-owner: shop\n        contentType"))
        assert "x-owner" not in run("check", str(file)).stdout

    def test_says_why_records_are_not_read(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], file: Path
    ) -> None:
        topic, servers = unique_topic("orders"), embedded_cluster.bootstrap_servers
        embedded_cluster.create_topic(topic)
        file.write_text(ORDERS.replace("TOPIC", topic))
        with Producer({"bootstrap.servers": servers}, chain=Chain([Compress(min_bytes=1)])) as producer:
            producer.produce(topic, b'{"id": "1"}' * 9)
        result = run("check", str(file), "--topic", topic, "-b", servers)
        assert f"not read: {topic}[0]@0: its headers say that the record was sent through 'compress'" in (
            result.stdout
        )

    def test_the_last_records_of_a_topic(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], tmp_path: Path
    ) -> None:
        topic, servers = unique_topic("orders"), embedded_cluster.bootstrap_servers
        embedded_cluster.create_topic(topic)
        path, config = tmp_path / "orders.yaml", tmp_path / "chain.toml"
        path.write_text(ORDERS.replace("TOPIC", topic))
        config.write_text('[[interceptors]]\ntype = "compress"\ncodec = "gzip"\nmin_bytes = 1\n')
        records = [
            {"value": b'{"id": "%d"}' % at, "key": b"k", "headers": {"kind": "open"}} for at in range(9)
        ]
        records += [{"value": b'{"secret": 1, "pad": "%s"}' % (b"x" * 99), "key": b"k", "headers": {}}] * 2
        chain = Chain([Compress(codec="gzip", min_bytes=1)])
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            assert producer.produce_many(topic, records) == [None] * 11
        arguments = ["check", str(path), "--topic", topic, "-b", servers, "-c", str(config)]
        result = run(*arguments)
        assert result.exit_code == 1, result.output
        assert f"{topic}: 11 records read, 2 break the contract" in result.stdout
        assert "Order/headers/required: 2 records, first at 0@9" in result.stdout
        assert "secret" not in result.stdout
        assert run(*arguments, "-n", "2", "--json").exit_code == 1
        found = result_of(run(*arguments, "-n", "1", "--json"))["result"]["topics"][0]
        assert (found["records"], found["broken"], found["unreadable"]) == (1, 1, 0)

    def test_a_topic_that_the_document_does_not_have(
        self, file: Path, embedded_cluster: EmbeddedCluster
    ) -> None:
        result = run("check", str(file), "--topic", "bills", "-b", embedded_cluster.bootstrap_servers)
        assert (result.exit_code, "has no channel for topic 'bills'" in result.stderr) == (1, True)


class TestDiff:
    @pytest.mark.parametrize(
        ("change", "readers", "writers"),
        [
            (("[open, paid]", "[open, paid, gone]"), False, True),
            (("required: [kind]", "required: [kind, attempt]"), True, False),
            (("minimum: 1", "maximum: 1"), False, False),
            (("title: Orders", "title: All orders"), True, True),
        ],
    )
    def test_says_for_whom_it_is_compatible(
        self, file: Path, tmp_path: Path, change: tuple[str, str], readers: object, writers: object
    ) -> None:
        new = tmp_path / "new.yaml"
        new.write_text(file.read_text().replace(*change))
        found = run("diff", str(file), str(new), "--json")
        assert {name: result_of(found)["result"][name] for name in ("readers", "writers")} == {
            "readers": readers,
            "writers": writers,
        }
        codes = [run("diff", str(file), str(new), "--for", side).exit_code for side in ("readers", "writers")]
        assert codes == [int(not readers), int(not writers)]
        assert found.exit_code == int(not (readers and writers))
        if not (readers and writers):
            assert "#/channels/orders/messages/Order/headers" in run("diff", str(file), str(new)).stdout


class TestShow:
    def test_shows_the_parts_and_what_the_chain_adds(self, file: Path, tmp_path: Path) -> None:
        config = tmp_path / "chain.toml"
        config.write_text(
            '[[interceptors]]\ntype = "contract"\nfile = "orders.yaml"\n\n'
            '[[interceptors]]\ntype = "trail"\nservice = "shop"\n'
        )
        shown = run("show", "orders", "-c", str(config))
        assert shown.exit_code == 0, shown.output
        for text in ("The order's state.", '"open" or "paid"', "second-attempts-are-paid", "hw.trail"):
            assert text in shown.stdout
        tree = yaml.safe_load(run("show", "orders", "-c", str(config), "--asyncapi").stdout)
        headers = tree["channels"]["orders"]["messages"]["Order"]["headers"]["properties"]
        assert list(headers) == ["kind", "attempt", "hw.trail"]
        (tmp_path / "all.yaml").write_text(yaml.safe_dump(tree))
        assert run("check", str(tmp_path / "all.yaml")).exit_code == 0

    def test_needs_a_document_with_the_topic(self, file: Path) -> None:
        assert run("show", "orders").exit_code == 2
        result = run("show", "bills", "--file", str(file))
        assert (result.exit_code, "has no channel for topic 'bills'" in result.stderr) == (1, True)

    def test_escapes_what_a_document_says(self, file: Path) -> None:
        tree = yaml.safe_load(file.read_text())
        message = tree["channels"]["orders"]["messages"].pop("Order")
        message["headers"]["properties"]["kind"]["description"] = ATTACK
        tree["channels"]["orders"]["messages"][ATTACK] = message
        file.write_text(yaml.safe_dump(tree))
        for arguments in (["check", str(file)], ["show", "orders", "--file", str(file)]):
            result = run(*arguments)
            assert result.exit_code == 0, result.output
            assert "\x1b" not in result.output
        assert "[bold]" in result.output
