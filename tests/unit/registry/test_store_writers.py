"""Several processes that write to one registry at once."""

from __future__ import annotations

import subprocess
import sys
import time
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

import pytest

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import Allocate, Block, Entry, Register, problems, with_built_in
from headerware.registry.stores import create_store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = "2027-01-01"
DEADLINE_S = 60.0
BLOCKS = [
    Block(network=IPv4Network(f"0.{number}.0.0/16"), owner=f"w{number}", description="Some.", since=DAY)
    for number in range(1, 6)
]

WRITER = """
import sys
from headerware.core.errors import RegistryError
from headerware.registry import Allocate, Block, Entry, Register
from headerware.registry.stores import open_store

location, number, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

def entry(id, name, owner):
    return Entry(id=id, name=name, owner=owner, encoding="bytes", description="One.", since="2027-01-01")

def attempt(what, change):
    try:
        store.apply(change)
        print(what, "won", flush=True)
    except RegistryError as error:
        print(what, "lost", str(error).splitlines()[0], flush=True)

with open_store(location) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    attempt("name", Register(entry(f"0.{number}.0.1", "contested", f"w{number}"), f"w{number}"))
    block = Block(network="0.9.0.0/16", owner=f"w{number}", description="Some.", since="2027-01-01")
    attempt("block", Allocate(block, "registrar"))
    for index in range(2, 2 + count):
        own = entry(f"0.{number}.0.{index}", f"n{number}.{index}", f"w{number}")
        attempt("own", Register(own, f"w{number}"))
"""


@pytest.fixture
def location(tmp_path: Path) -> str:
    place = str(tmp_path / "registry.toml")
    create_store(place, with_built_in(BLOCKS)).close()
    return place


Writer = subprocess.Popen[str]


@pytest.fixture
def writers(location: str) -> Iterator[list[Writer]]:
    started: list[Writer] = []
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def start(location: str, number: int, count: int) -> Writer:
    command = [sys.executable, "-c", WRITER, location, str(number), str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def let_go(writers: list[Writer]) -> None:
    """Wait until all are ready, then let them write at once."""
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()


class TestWriters:
    def test_at_once_lose_nothing_and_one_wins_each_conflict(
        self, location: str, writers: list[Writer]
    ) -> None:
        writers += [start(location, number, 6) for number in range(1, 6)]
        let_go(writers)
        said = [writer.communicate(timeout=DEADLINE_S)[0].splitlines() for writer in writers]
        assert [writer.returncode for writer in writers] == [0] * 5
        with open_store(location) as store:
            registry = store.load()
        assert problems(registry) == []
        assert all(registry.by_name(f"n{number}.{index}") for number in range(1, 6) for index in range(2, 8))
        self.one_won("name", said, getattr(registry.by_name("contested"), "owner", None))
        self.one_won("block", said, getattr(registry.block(IPv4Network("0.9.0.0/16")), "owner", None))

    def one_won(self, what: str, said: list[list[str]], owner: str | None) -> None:
        lines = {
            f"w{number}": line.removeprefix(f"{what} ")
            for number, each in enumerate(said, 1)
            for line in each
            if line.startswith(f"{what} ")
        }
        assert [writer for writer, line in lines.items() if line == "won"] == [owner]
        assert all(f"{owner}'s" in line or f"'{owner}'" in line for line in lines.values() if line != "won")

    def test_one_that_is_killed_holds_nobody_up(self, location: str, writers: list[Writer]) -> None:
        writers.append(start(location, 1, 250))
        let_go(writers)
        self.wait_for_name(location, "n1.5")
        writers[0].kill()
        writers[0].wait(timeout=DEADLINE_S)
        entry = Entry(
            id=HeaderId("0.2.0.1"), name="later", owner="w2", encoding="bytes", description="One.", since=DAY
        )
        with open_store(location) as store:
            after = store.apply(Register(entry, "w2"))
            assert store.load() == after
        written = [each.name for each in after.entries if each.name.startswith("n1.")]
        assert written == [f"n1.{index}" for index in range(2, 2 + len(written))]

    def wait_for_name(self, location: str, name: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with open_store(location) as store:
            while store.load().by_name(name) is None:
                assert time.monotonic() < deadline

    def test_a_reader_never_sees_half_a_change(self, location: str, writers: list[Writer]) -> None:
        writers.append(start(location, 1, 20))
        let_go(writers)
        seen: list[int] = []
        with open_store(location) as store:
            while writers[0].poll() is None:
                seen.append(len(store.load()))
        assert seen == sorted(seen)


class TestStart:
    def test_blocks_of_all_writers_are_there(self, location: str) -> None:
        with open_store(location) as store:
            again = Allocate(BLOCKS[0], "registrar")
            with pytest.raises(RegistryError, match=r"the block is w1's since 2027-01-01"):
                store.apply(again)
