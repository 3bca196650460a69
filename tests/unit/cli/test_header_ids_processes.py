"""The commands as real processes: several at once, and behind a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

import pytest

from headerware.registry import Block, Registry, problems, with_built_in
from headerware.registry.stores import create_store, open_store

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_S = 60.0
COMMAND = [sys.executable, "-m", "headerware", "header-ids"]
WRITERS = 4


def run(location: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HEADERWARE_REGISTRY": location}
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def run_at_once(location: str, commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Start all, then wait for all; give their exit codes and what they said."""
    environment = {**os.environ, "HEADERWARE_REGISTRY": location}
    started = [
        subprocess.Popen(
            [*COMMAND, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    try:
        said = [process.communicate(timeout=DEADLINE_S) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [(process.returncode, *texts) for process, texts in zip(started, said, strict=True)]


@pytest.fixture
def location(tmp_path: Path) -> str:
    place = str(tmp_path / "registry.toml")
    orders = Block(
        network=IPv4Network("0.1.0.0/16"), owner="orders", description="Orders.", since="2026-01-31"
    )
    create_store(place, with_built_in([orders], registrar="platform")).close()
    return place


def stored(location: str) -> Registry:
    with open_store(location) as store:
        registry = store.load()
    assert problems(registry) == []
    return registry


def register(name: str) -> list[str]:
    return ["register", name, "--owner", "orders", "--encoding", "utf-8", "--description", "One."]


class TestWritersAtOnce:
    def test_register_a_name_once(self, location: str) -> None:
        ended = run_at_once(location, [register("tenant")] * WRITERS)
        assert sorted(code for code, _, _ in ended) == [0, *[1] * (WRITERS - 1)]
        for code, out, err in ended:
            assert (out if code == 0 else err).count("\n") == 1
            assert code == 0 or "the name 'tenant' is 0.1.0.1's, orders's since" in err
        assert [entry.name for entry in stored(location).entries if entry.owner == "orders"] == ["tenant"]

    def test_take_an_id_each(self, location: str) -> None:
        ended = run_at_once(location, [register(f"n{number}") for number in range(WRITERS)])
        assert [err for code, _, err in ended if code] == []
        ids = {str(entry.id) for entry in stored(location).entries if entry.owner == "orders"}
        assert ids == {f"0.1.0.{number}" for number in range(1, WRITERS + 1)}

    def test_take_a_block_each(self, location: str) -> None:
        sized = ["block", "allocate", "--size", "/24", "--by", "orders", "--description", "Some."]
        ended = run_at_once(location, [[*sized, "--owner", f"o{number}"] for number in range(WRITERS)])
        assert [err for code, _, err in ended if code] == []
        taken = {str(block.network) for block in stored(location).blocks if block.owner.startswith("o")}
        assert taken == {"0.1.0.0/16", *(f"0.1.{number}.0/24" for number in range(WRITERS))}

    def test_make_a_registry_once(self, tmp_path: Path) -> None:
        made = [
            ["init", str(tmp_path / "new.toml"), "--registrar", f"p{number}"] for number in range(WRITERS)
        ]
        ended = run_at_once("", made)
        won = [number for number, (code, _, _) in enumerate(ended) if code == 0]
        assert len(won) == 1
        assert stored(str(tmp_path / "new.toml")).registrar == f"p{won[0]}"


class TestPipes:
    def test_lead_from_one_command_to_another(self, location: str) -> None:
        run(location, *register("tenant"))
        snapshot = run(location, "export").stdout
        checked = subprocess.run(
            [*COMMAND, "check", location, "--against", "-"],
            input=snapshot.replace("tenant", "renter"),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert (checked.returncode, checked.stderr) == (1, f"Error: {location}: 1 problem\n")
        assert "name was 'renter' and is now 'tenant'" in checked.stdout

    def test_get_the_table_without_colours_or_cuts(self, location: str) -> None:
        long = ["register", "long", "--owner", "orders", "--encoding", "json", "--description", "x" * 900]
        run(location, *long)
        assert run(location, "list").stdout.splitlines()[1].split()[-1] == "x" * 900
