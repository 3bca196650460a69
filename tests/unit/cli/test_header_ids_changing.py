from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headerware.cli.free_ids import next_id
from headerware.cli.header_ids import _changed
from headerware.core.errors import RegistryError
from headerware.registry import Entry, Register, Registry, problems
from headerware.registry.stores import open_store
from tests.unit.cli.conftest import run_header_ids as run

DAY = "2027-01-01"
ORDERS = ("block", "allocate", "0.1.0.0/16", "--owner", "orders", "--by", "platform", "--description", "O.")
TENANT = ("register", "tenant", "--owner", "orders", "--encoding", "utf-8", "--description", "T.")


def done(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def done_json(*arguments: str) -> Any:
    return json.loads(done(*arguments, "--json"))["result"]


def refused(*arguments: str) -> str:
    """Return the one line with which a command was refused."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def wrong_use(*arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a registry, and the one that commands find without being told."""
    place = str(tmp_path / "registry.toml")
    monkeypatch.setenv("HEADERWARE_REGISTRY", place)
    done("init", "--registrar", "platform")
    return place


def stored(location: str) -> Registry:
    with open_store(location) as store:
        registry = store.load()
    assert problems(registry) == []
    return registry


class TestInit:
    def test_makes_an_empty_registry(self, location: str) -> None:
        registry = stored(location)
        assert (registry.registrar, [str(block.network) for block in registry.blocks]) == (
            "platform",
            ["0.0.0.0/16"],
        )

    def test_makes_registry_toml_where_nothing_else_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("HEADERWARE_REGISTRY", raising=False)
        made = done_json("init", "--registrar", "platform")
        assert made == {"location": "registry.toml", "registrar": "platform"}
        assert stored("registry.toml").registrar == "platform"

    def test_leaves_what_is_there(self, location: str) -> None:
        before = Path(location).read_bytes()
        assert "exists, and is not overwritten" in refused("init", location, "--registrar", "other")
        assert Path(location).read_bytes() == before

    @pytest.mark.parametrize("place", ["built-in", "registry.txt", "-"])
    def test_needs_a_place_that_can_be_written(self, place: str) -> None:
        assert "expected" in refused("init", place, "--registrar", "platform")

    def test_needs_the_folder(self, tmp_path: Path) -> None:
        place = tmp_path / "absent" / "registry.toml"
        told = refused("init", str(place), "--registrar", "platform")
        assert f"{place}: there is no folder {place.parent}" in told

    def test_needs_a_registrar(self, tmp_path: Path) -> None:
        assert "--registrar" in wrong_use("init", str(tmp_path / "new.toml"))
        assert not (tmp_path / "new.toml").exists()


class TestAllocate:
    def test_hands_a_block_over(self, location: str) -> None:
        assert done(*ORDERS, "--since", DAY) == "allocated 0.1.0.0/16 to orders, by platform\n"
        block = stored(location).blocks[-1]
        assert (str(block.network), block.owner, block.description, block.since) == (
            "0.1.0.0/16",
            "orders",
            "O.",
            DAY,
        )

    def test_is_of_today_unless_told_otherwise(self, location: str) -> None:
        before = datetime.now(UTC).date().isoformat()
        block = done_json(*ORDERS)
        assert before <= block["since"] <= datetime.now(UTC).date().isoformat()

    def test_takes_the_next_free_block_of_a_size(self, location: str) -> None:
        sized = ("block", "allocate", "--by", "platform", "--description", "Some.")
        taken = [
            done_json(*sized, "--owner", f"o{size}", "--size", f"/{size}")["network"] for size in (16, 24, 16)
        ]
        assert taken == ["0.1.0.0/16", "0.2.0.0/24", "0.3.0.0/16"]

    def test_takes_the_next_free_block_of_a_size_within_another(self, location: str) -> None:
        done(*ORDERS)
        sized = ("block", "allocate", "--owner", "refunds", "--by", "orders", "--description", "R.")
        made = done_json(*sized, "--size", "24", "--within", "0.1.8.0/21")
        assert made["network"] == "0.1.8.0/24"

    def test_is_for_the_owner_around_it_alone(self, location: str) -> None:
        done(*ORDERS)
        part = ("block", "allocate", "0.1.2.0/24", "--owner", "x", "--description", "X.")
        assert "'orders' may" in refused(*part, "--by", "platform")
        done(*part, "--by", "orders")

    def test_of_a_size_needs_room(self, location: str) -> None:
        sized = ("block", "allocate", "--owner", "x", "--size", "16", "--description", "X.")
        assert "'x' owns no block to allocate from; the registrar is" in refused(*sized, "--by", "x")
        assert "in 10.0.0.0/8" in refused(*sized, "--by", "platform", "--within", "10.0.0.0/8")
        assert len(stored(location).blocks) == 1

    def test_tells_several_rules_in_one_line(self, location: str) -> None:
        wrong = ("block", "allocate", "10.0.0.0/16", "--owner", " ", "--by", "x", "--description", " ")
        said = refused(*wrong)
        assert "'platform' may" in said
        assert "private" in said
        assert "and 1 more" in said

    @pytest.mark.parametrize(
        "where",
        [
            (),
            ("0.1.0.0/16", "--size", "16"),
            ("0.1.0.0/16", "--within", "0.0.0.0/8"),
            ("--within", "0.1.0.0/16"),
            ("0.1.0.1/16",),
            ("0.1.0.0",),
            ("0.1.0.0/255.255.0.0",),
            ("::/64",),
            ("orders",),
            ("--size", "/0"),
            ("--size", "/33"),
            ("--size", "256"),
        ],
    )
    def test_of_no_block_is_wrong_use(self, location: str, where: tuple[str, ...]) -> None:
        common = ("--owner", "x", "--by", "platform", "--description", "X.")
        wrong_use("block", "allocate", *where, *common)
        assert len(stored(location).blocks) == 1


class TestBlockList:
    def test_says_who_has_what_from_whom(self, location: str) -> None:
        done(*ORDERS, "--since", DAY)
        part = ("block", "allocate", "0.1.2.0/24", "--owner", "x", "--by", "orders", "--since", DAY)
        done(*part, "--description", "[b]X.[/b]")
        found = done_json("block", "list")
        assert [(block["network"], block["owner"], block["by"]) for block in found] == [
            ("0.0.0.0/16", "headerware", "headerware"),
            ("0.1.0.0/16", "orders", "platform"),
            ("0.1.2.0/24", "x", "orders"),
        ]
        lines = done("block", "list").splitlines()
        assert lines[2].split() == ["0.1.0.0/16", "orders", "platform", DAY, "O."]
        assert lines[3].endswith("  [b]X.[/b]")

    def test_shows_those_of_one_owner(self, location: str) -> None:
        done(*ORDERS)
        assert [block["owner"] for block in done_json("block", "list", "--owner", "orders")] == ["orders"]


class TestRegister:
    @pytest.fixture(autouse=True)
    def _block(self, location: str) -> None:
        done(*ORDERS, "--since", DAY)

    def test_takes_the_id_that_it_is_given(self, location: str) -> None:
        assert done(*TENANT, "--id", "0.1.0.9") == "registered 0.1.0.9 for tenant, by orders\n"
        entry = stored(location).by_name("tenant")
        assert entry is not None
        assert (str(entry.id), entry.owner, entry.encoding, entry.description, entry.foreign) == (
            "0.1.0.9",
            "orders",
            "utf-8",
            "T.",
            False,
        )

    def test_takes_the_next_free_id_otherwise(self, location: str) -> None:
        done(*TENANT, "--id", "0.1.0.1")
        made = done_json("register", "b", *TENANT[2:])
        assert (made["id"], made["compact_key"]) == ("0.1.0.2", "~QAC")
        assert done_json("register", "c", *TENANT[2:], "--in", "0.1.7.0/24")["id"] == "0.1.7.1"

    def test_marks_names_of_others(self, location: str) -> None:
        done(*TENANT, "--foreign", "--since", DAY)
        entry = stored(location).by_name("tenant")
        assert entry is not None
        assert (entry.foreign, entry.since) == (True, DAY)

    def test_refuses_a_name_that_is_taken(self, location: str) -> None:
        done(*TENANT, "--since", DAY)
        said = refused(*TENANT)
        assert "'tenant' is 0.1.0.1's, orders's since 2027-01-01" in said
        assert len(stored(location).entries_in(stored(location).blocks[-1].network)) == 1

    def test_refuses_an_id_that_is_taken(self, location: str) -> None:
        done(*TENANT, "--id", "0.1.0.1")
        assert "'tenant'" in refused("register", "other", *TENANT[2:], "--id", "0.1.0.1")

    def test_refuses_who_owns_no_block_there(self, location: str) -> None:
        other = ("register", "tenant", "--owner", "x", "--encoding", "bytes", "--description", "T.")
        assert "'x' owns no block: have one allocated" in refused(*other)
        assert "which is orders's" in refused(*other, "--id", "0.1.0.1")
        assert "'orders' owns no block in 0.2.0.0/16" in refused(*TENANT, "--in", "0.2.0.0/16")

    @pytest.mark.parametrize(
        "options",
        [
            ("--id", "0.1.0.1", "--in", "0.1.0.0/16"),
            ("--id", "0.1.0.256"),
            ("--id", "tenant"),
            ("--encoding", "utf8"),
            ("--since", "yesterday"),
        ],
    )
    def test_with_wrong_options_is_wrong_use(self, location: str, options: tuple[str, ...]) -> None:
        wrong_use(*TENANT, *options)
        assert stored(location).by_name("tenant") is None

    @pytest.mark.parametrize("name", ["~x", "0.1.0.7", "", "hw.mine", "a\x1b[31m", "x" * 250])
    def test_refuses_a_name_that_is_none(self, location: str, name: str) -> None:
        assert "\x1b" not in refused("register", name, *TENANT[2:])


class TestRetire:
    @pytest.fixture(autouse=True)
    def _entry(self, location: str) -> None:
        done(*ORDERS, "--since", DAY)
        done(*TENANT, "--since", DAY)

    @pytest.mark.parametrize("called", ["tenant", "0.1.0.1", "~QAB", "0x00010001"])
    def test_takes_a_name_or_an_id(self, location: str, called: str) -> None:
        said = done("retire", called, "--yes", "--by", "orders", "--date", "2027-02-03")
        assert said == "retired 0.1.0.1, tenant, from 2027-02-03, by orders\n"
        entry = stored(location).by_name("tenant")
        assert entry is not None
        assert entry.retired == "2027-02-03"

    def test_without_a_terminal_needs_yes(self, location: str) -> None:
        wrong_use("retire", "tenant", "--by", "orders")
        entry = stored(location).by_name("tenant")
        assert entry is not None
        assert entry.retired is None

    def test_gives_the_entry_as_it_is_then(self, location: str) -> None:
        made = done_json("retire", "tenant", "--yes", "--by", "orders", "--date", "2027-02-03")
        assert (made["id"], made["name"], made["retired"]) == ("0.1.0.1", "tenant", "2027-02-03")

    def test_is_for_its_owner_and_for_good(self, location: str) -> None:
        assert "'orders' may" in refused("retire", "tenant", "--yes", "--by", "platform", "--date", DAY)
        done("retire", "tenant", "--yes", "--by", "orders", "--date", DAY)
        assert "for good" in refused("retire", "tenant", "--yes", "--by", "orders", "--date", "2027-03-01")

    def test_leaves_name_and_id_taken(self, location: str) -> None:
        done("retire", "tenant", "--yes", "--by", "orders", "--date", DAY)
        assert "never used again" in refused(*TENANT)
        assert done_json("register", "other", *TENANT[2:])["id"] == "0.1.0.2"

    def test_of_what_is_not_registered_is_refused(self, location: str) -> None:
        assert "did you mean 'tenant'" in refused("retire", "Tenant", "--yes", "--by", "orders")
        assert "not registered" in refused("retire", "0.1.0.2", "--yes", "--by", "orders")


class TestWriterInBetween:
    """Somebody else writes between the look at the registry and the change."""

    @pytest.fixture(autouse=True)
    def _block(self, location: str) -> None:
        done(*ORDERS, "--since", DAY)

    def proposed(self, registry: Registry, theirs: str) -> Register:
        """Propose the next free id, and let somebody else register it first."""
        entry = Entry(
            id=next_id(registry, "orders"),
            name="mine",
            owner="orders",
            encoding="bytes",
            description="M.",
            since=DAY,
        )
        if registry.by_name(theirs) is None:
            done("register", theirs, *TENANT[2:])
        return Register(entry, "orders")

    def test_takes_an_id_away_and_the_next_one_is_taken(self, location: str) -> None:
        made, after = _changed(location, lambda registry: self.proposed(registry, "theirs"))
        assert str(made.entry.id) == "0.1.0.2"
        assert after == stored(location)

    def test_takes_the_name_away_and_that_is_refused(self, location: str) -> None:
        with pytest.raises(RegistryError, match=r"'mine' is 0\.1\.0\.1's"):
            _changed(location, lambda registry: self.proposed(registry, "mine"))
        assert [entry.name for entry in stored(location).entries if entry.owner == "orders"] == ["mine"]
