from __future__ import annotations

import json
import re
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headerware.cli import main
from headerware.core.header_ids import HeaderId
from headerware.registry import Block, Entry, built_in, with_built_in
from headerware.registry.stores import create_store
from headerware.registry.values import NO_ID
from tests.unit.cli.conftest import run_header_ids as run

if TYPE_CHECKING:
    from pathlib import Path

DAY = "2027-01-01"


def block(network: str, owner: str) -> Block:
    return Block(network=IPv4Network(network), owner=owner, description=f"{owner}'s.", since=DAY)


def entry(header_id: str, name: str, owner: str = "orders", **other: Any) -> Entry:
    fields = {"encoding": "utf-8", "description": "One [i]of[/i] :many:.", "since": DAY, **other}
    return Entry(id=HeaderId(header_id), name=name, owner=owner, **fields)


REGISTRY = with_built_in(
    [block("0.1.0.0/16", "orders"), block("0.1.2.0/24", "refunds")],
    [
        entry("0.1.0.1", "tenant"),
        entry("0.1.0.2", "gone", retired="2027-02-01"),
        entry("0.1.0.3", "0x00000001", foreign=True),
        entry("0.1.2.1", "reason", "refunds"),
    ],
    registrar="platform",
)


def read(*arguments: str, stdin: str | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def read_json(*arguments: str) -> Any:
    return json.loads(read(*arguments, "--json"))["result"]


@pytest.fixture(autouse=True)
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place = str(tmp_path / "registry.toml")
    create_store(place, REGISTRY).close()
    monkeypatch.setenv("HEADERWARE_REGISTRY", place)
    return place


class TestLookup:
    @pytest.mark.parametrize("called", ["tenant", "0.1.0.1", "~QAB", "0x00010001", "0X10001"])
    def test_understands_a_name_and_every_form_of_an_id(self, called: str) -> None:
        lines = [line.split(maxsplit=1) for line in read("lookup", called).splitlines()]
        assert lines == [
            ["name", "tenant"],
            ["id", "0.1.0.1 (0x00010001, ~QAB as a compact key)"],
            ["value", "utf-8"],
            ["owner", "orders"],
            ["since", DAY],
            ["description", "One [i]of[/i] :many:."],
            ["block", f"0.1.0.0/16 (orders, from platform, since {DAY}): orders's."],
        ]

    def test_prefers_names_to_numbers(self) -> None:
        assert read_json("lookup", "0x00000001")["id"] == "0.1.0.3"
        assert read_json("lookup", "0x1")["entry"]["name"] == "hw.trail"

    def test_shows_the_blocks_from_the_one_that_decides_to_the_outermost(self) -> None:
        found = read_json("lookup", "reason")
        assert [(each["network"], each["owner"], each["by"]) for each in found["blocks"]] == [
            ("0.1.2.0/24", "refunds", "orders"),
            ("0.1.0.0/16", "orders", "platform"),
        ]
        assert (found["status"], found["compact_key"]) == ("registered", "~QIB")
        assert [line.split()[0] for line in read("lookup", "reason").splitlines()[-2:]] == ["block", "within"]

    def test_says_what_is_retired_and_what_is_foreign(self) -> None:
        assert "2027-02-01" in read("lookup", "gone")
        assert read_json("lookup", "gone")["status"] == "retired"
        assert "other software" in read("lookup", "0.1.0.3")

    @pytest.mark.parametrize(
        ("called", "status", "said"),
        [
            ("0.1.2.200", "unregistered", "not registered; it lies in 0.1.2.0/24 of refunds\n"),
            ("0.2.0.1", "unregistered", "lies in no block; platform allocates them\n"),
            ("0.0.200.1", "unregistered", "not registered; it lies in 0.0.0.0/16 of headerware\n"),
            ("10.255.0.1", "private", "private: anyone may use it"),
            ("~KAAAB", "private", "10.0.0.1 is private"),
            (str(NO_ID), "reserved", "stands for no id"),
        ],
    )
    def test_says_whose_an_unregistered_id_is(self, called: str, status: str, said: str) -> None:
        result = run("lookup", called)
        assert (result.exit_code, result.stderr) == (1, "")
        assert said in result.stdout
        result = run("lookup", called, "--json")
        assert (result.exit_code, result.stderr) == (1, "")
        told = json.loads(result.stdout)
        assert (told["ok"], told["error"]) == (False, None)
        assert (told["result"]["status"], told["result"]["entry"]) == (status, None)

    def test_an_id_in_no_block_has_no_empty_lines(self) -> None:
        assert run("lookup", "0.2.0.1").stdout.count("\n") == 1

    @pytest.mark.parametrize(
        ("called", "said"),
        [
            ("Tenant", "did you mean 'tenant'?"),
            ("tenat", "did you mean 'tenant'?"),
            ("zzz\x1b", "no header named 'zzz\\x1b' is registered\n"),
            ("0.0.0.256", "no header named"),
            ("~", "no header named"),
            ("0x100000000", "no header named"),
        ],
    )
    def test_of_an_unknown_name_is_one_line(self, called: str, said: str) -> None:
        result = run("lookup", called)
        assert (result.exit_code, result.stdout) == (1, "")
        assert said in result.stderr
        assert result.stderr.count("\n") == 1

    def test_knows_what_comes_with_headerware(self) -> None:
        assert read_json("lookup", "hw.sig", "--registry", "built-in")["id"] == "0.0.0.5"

    def test_reads_toml_from_another_program(self) -> None:
        text = read("export", "--format", "toml")
        assert "0.1.0.1" in read("lookup", "tenant", "--registry", "-", stdin=text)


class TestList:
    def names(self, *arguments: str) -> list[str]:
        return [each["name"] for each in read_json("list", *arguments)]

    def test_shows_what_is_in_use(self) -> None:
        assert self.names() == ["tenant", "0x00000001", "reason"]
        lines = read("list").splitlines()
        assert lines[0].split() == ["id", "name", "value", "owner", "since", "description"]
        assert lines[1] == f"0.1.0.1  tenant      utf-8  orders   {DAY}  One [i]of[/i] :many:."

    def test_shows_what_is_retired_when_asked(self) -> None:
        assert self.names("--retired") == ["tenant", "gone", "0x00000001", "reason"]
        assert f"{DAY}, retired 2027-02-01" in read("list", "--retired")

    def test_shows_one_owners(self) -> None:
        assert self.names("--owner", "refunds") == ["reason"]

    def test_shows_one_network_whoever_has_it(self) -> None:
        assert self.names("--block", "0.1.2.0/23") == ["reason"]
        assert self.names("--block", "0.1.0.0/16", "--owner", "orders") == ["tenant", "0x00000001"]

    def test_shows_what_comes_with_headerware_when_asked(self) -> None:
        ours = [each.name for each in built_in().entries]
        assert self.names("--built-in") == [*ours, "tenant", "0x00000001", "reason"]
        assert self.names("--owner", "headerware") == ours
        assert self.names("--registry", "built-in") == ours
        assert self.names("--block", "0.0.0.0/24")[0] == "hw.trail"

    def test_has_each_entry_whole(self) -> None:
        assert read_json("list", "--owner", "refunds") == [
            {
                "id": "0.1.2.1",
                "name": "reason",
                "owner": "refunds",
                "encoding": "utf-8",
                "description": "One [i]of[/i] :many:.",
                "since": DAY,
                "compact_key": "~QIB",
            }
        ]

    def test_of_nothing_is_an_empty_list(self) -> None:
        assert self.names("--owner", "nobody") == []
        assert read("list", "--owner", "nobody").count("\n") == 1

    def test_fits_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "60"}.items():
            monkeypatch.setenv(name, value)
        shown = run("list", "--retired").stdout
        assert "\x1b[" in shown
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert max(map(len, lines)) <= 60
        assert [line.split()[0] for line in lines if line.startswith("0.")] == [
            "0.1.0.1",
            "0.1.0.2",
            "0.1.0.3",
            "0.1.2.1",
        ]

    def test_of_no_network_is_wrong_use(self) -> None:
        assert run("list", "--block", "0.1.0.0").exit_code == 2


class TestLocation:
    @pytest.mark.parametrize(
        ("place", "said"),
        [
            ("none.toml", "no such file"),
            ("registry.db", "registries are no longer kept in SQLite files"),
            ("registry.yaml", "expected a registry's location"),
            ("kafka://localhost", "expected a registry's location"),
        ],
    )
    def test_that_leads_nowhere_is_one_line(self, place: str, said: str) -> None:
        result = run("list", "--registry", place)
        assert (result.exit_code, result.stdout) == (1, "")
        assert said in result.stderr
        assert result.stderr.count("\n") == 1

    @pytest.mark.parametrize("stdin", ["", "\n", "version = ", "\x00"])
    def test_standard_input_without_a_registry_is_one_line(self, stdin: str) -> None:
        result = run("list", "--registry", "-", stdin=stdin)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "standard input" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_standard_input_that_is_no_text_is_one_line(self) -> None:
        result = CliRunner().invoke(main, ["header-ids", "list", "--registry", "-"], input=b"\xff\xfe")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "byte 0" in result.stderr
