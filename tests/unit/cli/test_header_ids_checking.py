from __future__ import annotations

import csv
import json
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.header_ids import HeaderId
from headerware.registry import Block, Entry, Registry, with_built_in
from headerware.registry.stores import create_store, open_store
from tests.unit.cli.conftest import run_header_ids as run

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
version = 1
registrar = "platform"

[[block]]
network = "0.1.0.0/16"
owner = "orders"
description = "Orders."
since = 2027-01-01

[[entry]]
id = "0.1.0.1"
name = "tenant"
owner = "orders"
encoding = "utf-8"
description = "Whose."
since = 2027-01-01

[[entry]]
id = "0.1.0.2"
name = "gone"
owner = "orders"
encoding = "bytes"
description = "What it was."
since = 2027-01-01
retired = 2027-02-01
"""
TENANT = TEXT.partition("[[entry]]\n")[2].partition("[[entry]]")[0]
NEW = TENANT.replace("0.1.0.1", "0.1.0.3").replace("tenant", "region")


def check_json(*arguments: str, stdin: str | None = None) -> Any:
    result = run("check", *arguments, "--json", stdin=stdin)
    told = json.loads(result.stdout)
    assert result.stderr == ""
    assert result.exit_code == (0 if told["ok"] else 1)
    assert told["error"] is None
    return told["result"]


def messages(told: Any) -> list[tuple[str, str, str]]:
    return [(problem["where"], problem["about"], problem["message"]) for problem in told["problems"]]


@pytest.fixture(autouse=True)
def registry_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADERWARE_REGISTRY", raising=False)
    (tmp_path / "before.toml").write_text(TEXT)
    path = tmp_path / "registry.toml"
    path.write_text(TEXT)
    return path


def parts(description: str = "Orders.") -> Registry:
    block = Block(
        network=IPv4Network("0.1.0.0/16"), owner="orders", description=description, since="2027-01-01"
    )
    tenant = Entry(
        id=HeaderId("0.1.0.1"),
        name="tenant",
        owner="orders",
        encoding="utf-8",
        description="Whose, or =none.",
        since="2027-01-01",
    )
    return with_built_in([block], [tenant], registrar="platform")


class TestCheck:
    def test_of_a_sound_registry_counts(self) -> None:
        result = run("check")
        assert (result.exit_code, result.stdout) == (0, "registry.toml: ok (1 block, 2 entries)\n")
        assert check_json() == {"problems": [], "changes": [], "conflicts": []}

    def test_takes_its_place_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_REGISTRY", "before.toml")
        assert run("check").stdout.startswith("before.toml: ok")

    def test_tells_all_problems_with_their_lines(self, registry_toml: Path) -> None:
        wrong = TEXT.replace('"0.1.0.1"', '"0.2.0.1"').replace('"gone"', '"Tenant"')
        registry_toml.write_text(wrong.replace("retired = 2027-02-01", "retired = 2026-02-01"))
        assert [message[:2] for message in messages(check_json())] == [
            ("registry.toml:18", "0.1.0.2"),
            ("registry.toml:10", "0.2.0.1"),
            ("registry.toml:10", "0.2.0.1"),
        ]
        result = run("check", "registry.toml")
        assert (result.exit_code, result.stderr) == (1, "Error: registry.toml: 3 problems\n")
        lines = result.stdout.splitlines()
        assert len(lines) == 3
        assert lines[2] == "registry.toml:10: 0.2.0.1: the id lies in no block; 'platform' allocates them"

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("version = ", "registry.toml:1"),
            ("version = 1\nregistrar = 'x'\nblock = [{}]\n", "registry.toml"),
        ],
    )
    def test_of_what_is_no_registry_is_a_problem(self, registry_toml: Path, text: str, place: str) -> None:
        registry_toml.write_text(text)
        ((where, about, _),) = messages(check_json("--against", "before.toml"))
        assert (where, about) == (place, "TOML")

    def test_of_what_is_not_there_is_one_line(self) -> None:
        result = run("check", "none.toml")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "Error: none.toml: No such file or directory\n"

    def test_takes_what_comes_with_headerware(self) -> None:
        assert run("check", "built-in").stdout == "built-in: ok (0 blocks, 0 entries)\n"


class TestCheckAgainst:
    def test_lists_what_changed(self, registry_toml: Path) -> None:
        changed = TEXT.replace("Whose.", "Whose order.").replace('"platform"', '"office"')
        registry_toml.write_text(f"{changed}\n[[entry]]\n{NEW}")
        result = run("check", "--against", "before.toml")
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "registry.toml: ok (1 block, 3 entries)",
            "  handed-over: registrar: from 'platform' to 'office'",
            "  reworded: 0.1.0.1: now described as 'Whose order.'",
            "  registered: 0.1.0.3: 'region', by orders",
        ]
        kinds = [change["kind"] for change in check_json("--against", "before.toml")["changes"]]
        assert kinds == ["handed-over", "reworded", "registered"]

    @pytest.mark.parametrize(
        ("written", "instead", "where", "about", "said"),
        [
            (f"[[entry]]\n{TENANT}", "", "", "0.1.0.1", "removed"),
            ('"tenant"', '"renter"', "registry.toml:10", "0.1.0.1", "name was 'tenant'"),
            ('"utf-8"', '"json"', "registry.toml:10", "0.1.0.1", "encoding was 'utf-8'"),
            ("retired = 2027-02-01\n", "", "registry.toml:18", "0.1.0.2", "cannot be undone"),
            ("2027-02-01", "2027-02-02", "registry.toml:18", "0.1.0.2", "cannot be undone"),
            ("since = 2027-01-01", "since = 2026-01-01", "registry.toml:4", "0.1.0.0/16", "since was"),
        ],
    )
    def test_refuses_what_must_never_happen(
        self, registry_toml: Path, written: str, instead: str, where: str, about: str, said: str
    ) -> None:
        registry_toml.write_text(TEXT.replace(written, instead, 1))
        assert check_json()["problems"] == []
        ((told_where, told_about, message),) = messages(check_json("--against", "before.toml"))
        assert (told_where, told_about) == (where, about)
        assert said in message

    def test_reads_the_earlier_one_from_another_program(self, registry_toml: Path) -> None:
        registry_toml.write_text(TEXT.replace('"tenant"', '"renter"'))
        result = run("check", "registry.toml", "--against", "-", stdin=TEXT)
        assert result.exit_code == 1
        assert result.stdout.startswith("registry.toml:10: 0.1.0.1: name was 'tenant'")
        assert run("check", "registry.toml", "--against", "-", stdin=registry_toml.read_text()).exit_code == 0

    def test_refuses_an_earlier_one_that_is_none(self) -> None:
        result = run("check", "--against", "-", stdin="")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "standard input: expected a registry's TOML, found nothing" in result.stderr

    def test_does_not_ask_what_was_wrong_with_the_earlier_one(self, tmp_path: Path) -> None:
        wrong = TEXT.replace('name = "gone"', 'name = "Tenant"')
        (tmp_path / "before.toml").write_text(wrong)
        ((_, _, message),) = messages(check_json("--against", "before.toml"))
        assert message.startswith("name was 'Tenant' and is now 'gone'")

    def test_tells_what_is_wrong_now_and_what_is_forbidden_at_once(self, registry_toml: Path) -> None:
        wrong = TEXT.replace('"utf-8"', '"utf8"').replace('"gone"', '"lost"')
        registry_toml.write_text(f"{wrong}\n[[entry]]\n{NEW.replace('region', '~region')}")
        told = messages(check_json("--against", "before.toml"))
        assert [(where, about) for where, about, _ in told] == [
            ("registry.toml:10", "[[entry]]"),
            ("registry.toml:27", "0.1.0.3"),
            ("registry.toml:18", "0.1.0.2"),
        ]

    def test_compares_with_any_store(self) -> None:
        create_store("released.toml", parts()).close()
        assert not check_json("--against", "released.toml")["problems"]
        assert messages(check_json("released.toml", "--against", "registry.toml"))[0][1] == "0.1.0.2"

    def test_shows_nothing_that_a_terminal_would_obey(self, registry_toml: Path, tmp_path: Path) -> None:
        evil = TEXT.replace('owner = "orders"', 'owner = "\\u001b[2J"', 1)
        (tmp_path / "before.toml").write_text(evil)
        registry_toml.write_text(TEXT.partition("[[block]]")[0])
        result = run("check", "--against", "before.toml")
        assert (result.exit_code, "\x1b" in result.output) == (1, False)
        assert "0.1.0.0/16: removed, but it is \\x1b[2J's" in result.stdout

    def test_refuses_a_block_laid_over_anothers_ids(self, registry_toml: Path) -> None:
        over = TEXT.partition("[[block]]\n")[2].partition("[[entry]]")[0]
        over = over.replace("0.1.0.0/16", "0.1.0.0/24").replace('"orders"', '"x"').replace("Orders", "X")
        registry_toml.write_text(f"{TEXT}\n[[block]]\n{over}")
        told = messages(check_json("--against", "before.toml"))
        assert {about for _, about, _ in told} == {"0.1.0.0/24", "0.1.0.1", "0.1.0.2"}
        assert len(told) == len(set(told))


class TestDiff:
    def test_tells_what_happened(self, registry_toml: Path) -> None:
        registry_toml.write_text(f"{TEXT}\n[[entry]]\n{NEW}")
        result = run("diff", "before.toml", "registry.toml")
        assert (result.exit_code, result.stdout) == (0, "registered: 0.1.0.3: 'region', by orders\n")

    def test_of_the_same_is_nothing(self) -> None:
        assert run("diff", "before.toml", "registry.toml").stdout == "no difference\n"
        assert json.loads(run("diff", "before.toml", "registry.toml", "--json").stdout)["result"] == []

    def test_of_what_is_forbidden_is_a_no(self, registry_toml: Path) -> None:
        registry_toml.write_text(TEXT.replace('"tenant"', '"renter"'))
        result = run("diff", "before.toml", "registry.toml", "--json")
        assert result.exit_code == 1
        told = json.loads(result.stdout)
        (found,) = told["result"]
        assert not told["ok"]
        assert (found["kind"], found["about"]) == ("forbidden", "0.1.0.1")

    def test_takes_one_of_both_from_another_program(self) -> None:
        assert run("diff", "-", "registry.toml", stdin=TEXT).stdout == "no difference\n"
        assert run("diff", "registry.toml", "-", stdin=TEXT).stdout == "no difference\n"
        assert run("diff", "-", "-", stdin=TEXT).exit_code == 2

    def test_needs_two_that_are_sound(self, registry_toml: Path) -> None:
        registry_toml.write_text(TEXT.replace('"utf-8"', '"utf8"'))
        result = run("diff", "before.toml", "registry.toml")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("Error: registry.toml:10:1: ")


class TestExport:
    def test_in_toml_is_a_registry_again(self, tmp_path: Path) -> None:
        assert run("export", "--output", "copy.toml").exit_code == 0
        with open_store("registry.toml") as one, open_store(str(tmp_path / "copy.toml")) as other:
            assert one.load() == other.load()
        assert run("export").stdout == (tmp_path / "copy.toml").read_text()

    def test_in_json_is_whole(self) -> None:
        found = json.loads(run("export", "--format", "json").stdout)
        assert found["registrar"] == "platform"
        assert found["entries"][0]["name"] == "hw.trail"
        assert found["entries"][-1]["retired"] == "2027-02-01"
        assert json.loads(run("export", "--json").stdout) == {
            "ok": True,
            "result": found,
            "error": None,
        }

    def test_in_csv_has_a_line_for_each_entry(self) -> None:
        create_store("parts.toml", parts()).close()
        text = run("export", "--format", "csv", "--registry", "parts.toml").stdout
        rows = list(csv.DictReader(text.splitlines()))
        assert rows[-1] == {
            "id": "0.1.0.1",
            "name": "tenant",
            "owner": "orders",
            "encoding": "utf-8",
            "description": "Whose, or =none.",
            "since": "2027-01-01",
            "retired": "",
            "foreign": "",
        }
        assert [row["foreign"] for row in rows if row["name"] == "traceparent"] == ["True"]

    def test_in_markdown_is_for_people(self) -> None:
        text = run("export", "--format", "markdown").stdout
        assert "| `0.1.0.1` | `tenant` | utf-8 | orders | 2027-01-01 | Whose. |\n" in text

    def test_that_fails_leaves_the_older_snapshot(self, registry_toml: Path, tmp_path: Path) -> None:
        (tmp_path / "snapshot.json").write_text("older")
        registry_toml.write_text(TEXT.replace('"utf-8"', '"utf8"'))
        assert run("export", "--json", "--output", "snapshot.json").exit_code == 1
        assert (tmp_path / "snapshot.json").read_text() == "older"
        registry_toml.write_text(TEXT)
        assert json.loads(run("export", "--json", "--output", "snapshot.json").stdout)["ok"]
        assert json.loads((tmp_path / "snapshot.json").read_text())["version"] == 1

    def test_into_nowhere_is_one_line(self) -> None:
        result = run("export", "--output", "nowhere/snapshot.toml")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)

    @pytest.mark.parametrize("options", [("--format", "xml"), ("--format", "csv", "--json")])
    def test_in_no_format_is_wrong_use(self, options: tuple[str, ...]) -> None:
        assert run("export", *options).exit_code == 2
