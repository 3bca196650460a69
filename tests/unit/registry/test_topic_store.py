from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from headerware import Chain, Headers, Record
from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.interceptors import HeaderIds
from headerware.registry import Allocate, Block, Entry, Register, Registry, Retire, built_in, with_built_in
from headerware.registry.stores import open_store
from headerware.registry.stores.topic import Found, TopicStore, encode_change
from headerware.testing import EmbeddedCluster
from headerware.topic_table.topic import TopicWriter, UnreachableError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTEND = Path(__file__).parent / "programs" / "contend.py"
DEADLINE_S = 60.0
DAY = "2026-01-31"
BLOCK = Allocate(
    Block(network=IPv4Network("0.1.0.0/16"), owner="shop", description="a block", since=DAY), "registrar"
)
ROUNDS = 4


def register(header_id: str, name: str) -> Register:
    return Register(
        Entry(
            id=HeaderId(header_id),
            name=name,
            owner="shop",
            encoding="utf-8",
            description="a header",
            since=DAY,
        ),
        "shop",
    )


def names(first: int, last: int) -> Registry:
    """Return a registry with a block and so many names."""
    entries = [register(f"0.1.{at // 256}.{at % 256}", f"name-{at}").entry for at in range(first, last + 1)]
    return with_built_in([BLOCK.block], entries)


def conf_of(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "fetch.wait.max.ms": 20, "log_level": 0}


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("registry")
    embedded_cluster.create_topic(name)
    return name


@pytest.fixture
def make(embedded_cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., TopicStore]]:
    made: list[TopicStore] = []

    def store(cluster: EmbeddedCluster = embedded_cluster, **options: Any) -> TopicStore:
        made.append(TopicStore(conf_of(cluster), topic, **options))
        return made[-1]

    yield store
    for one in made:
        one.close()


class Writer:
    """A process that contends with others."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, name: str, rounds: int) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []
        command = [sys.executable, str(CONTEND), cluster.bootstrap_servers, topic, name, str(rounds)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def go(self) -> None:
        until(lambda: self.lines or self.process.poll() is not None, "the writer is ready")
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        assert self.process.wait(DEADLINE_S) == 0
        self._reading.join(DEADLINE_S)
        return self.lines[-1]

    def got(self) -> list[str]:
        return [line["got"] for line in self.lines if "got" in line]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))


@pytest.fixture
def start(embedded_cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., list[Writer]]]:
    """Return a function that starts writers at the same moment."""
    started: list[Writer] = []

    def writers(count: int, rounds: int = ROUNDS) -> list[Writer]:
        new = [Writer(embedded_cluster, topic, f"writer-{index}", rounds) for index in range(count)]
        started.extend(new)
        for writer in new:
            writer.go()
        return new

    yield writers
    for writer in started:
        writer.close()


def told(registry: Registry) -> dict[str, Any]:
    return {
        "entries": [[str(entry.id), entry.name] for entry in registry.entries],
        "blocks": [[str(block.network), block.owner] for block in registry.blocks],
    }


class TestContention:
    @pytest.mark.parametrize("count", [2, 5])
    def test_each_id_name_and_block_has_one_winner_on_whom_all_agree(
        self, make: Callable[..., TopicStore], start: Callable[..., list[Writer]], count: int
    ) -> None:
        early = make()
        early.apply(BLOCK)
        early.follow(lambda registry: None)
        writers = start(count)
        for writer in writers:
            writer.finish()
        wanted = [f"{what} {number}" for what in ("id", "name", "block") for number in range(ROUNDS)]
        assert Counter(got for writer in writers for got in writer.got()) == Counter(wanted)

        late = make()
        assert told(late.load()) == told(early.load())
        assert late.conflicts == early.conflicts
        assert len(late.load()) == len(built_in()) + 2 * ROUNDS
        assert told(late.load()) in [writer.lines[-1] for writer in writers], "the last one saw it all"
        for writer in writers:
            for line in writer.lines:
                if "got" in line and line["got"].startswith("block"):
                    number = int(line["got"].split()[1])
                    block = late.load().block(IPv4Network(f"0.{number + 2}.0.0/16"))
                    assert block is not None
                    assert block.owner == writer.name

    def test_the_loser_hears_that_it_lost(
        self, make: Callable[..., TopicStore], embedded_cluster: EmbeddedCluster, topic: str
    ) -> None:
        """Its look at the registry was in time, its record was not."""
        store = make()
        store.apply(BLOCK)
        loser, winner = register("0.1.0.1", "loser"), register("0.1.0.1", "winner")
        put = store._table.put_many

        def put_after_another(rows: Any, timeout_s: float = DEADLINE_S) -> int:
            make().apply(winner)
            return put(rows, timeout_s)

        store._table.put_many = put_after_another  # type: ignore[method-assign]
        with pytest.raises(RegistryError, match="another writer was first"):
            store.apply(loser)
        entry = store.load().by_id(HeaderId("0.1.0.1"))
        assert entry is not None
        assert entry.name == "winner"
        assert [(conflict.offset, conflict.change) for conflict in store.conflicts] == [(2, loser)]
        assert make().load() == store.load()

    def test_what_is_refused_at_once_is_not_written(self, make: Callable[..., TopicStore]) -> None:
        store = make()
        with pytest.raises(RegistryError):
            store.apply(register("0.1.0.1", "no block"))
        store.apply(BLOCK)
        assert store.conflicts == []

    def test_a_writer_that_is_killed_leaves_what_it_was_told_it_has(
        self, make: Callable[..., TopicStore], start: Callable[..., list[Writer]]
    ) -> None:
        store = make()
        store.apply(BLOCK)
        (writer,) = start(1, rounds=200)
        until(lambda: len(writer.got()) >= 10, "some changes")
        writer.close()
        registry = store.load()
        got = writer.got()
        names = {entry.name for entry in registry.entries}
        numbers = [int(what.split()[1]) for what in got if what.startswith("id")]
        assert [number for number in numbers if f"writer-0-{number}" not in names] == []
        for what in got:
            if what.startswith("block"):
                assert registry.block(IPv4Network(f"0.{int(what.split()[1]) + 2}.0.0/16")) is not None
        store.apply(register("0.1.127.1", "afterwards"))
        assert store.conflicts == []
        assert make().load() == store.load()


class TestStore:
    def test_keeps_what_it_is_told(self, make: Callable[..., TopicStore]) -> None:
        with make() as store:
            store.apply(BLOCK)
            store.apply(register("0.1.0.1", "first"))
            after = store.apply(Retire(HeaderId("0.1.0.1"), DAY, "shop"))
        again = make().load()
        assert again == after
        entry = again.by_name("first")
        assert entry is not None
        assert entry.retired == DAY
        assert again.block_of(HeaderId("0.1.0.1")) == BLOCK.block

    def test_poison_stops_nobody(
        self, make: Callable[..., TopicStore], embedded_cluster: EmbeddedCluster, topic: str
    ) -> None:
        store = make()
        store.apply(BLOCK)
        producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers, "log_level": 0})
        producer.produce(topic, b"garbage", b"k" * 16, partition=0)
        producer.produce(topic, bytes(900_000), b"l" * 16, partition=0)
        producer.produce(topic, None, b"m" * 16, partition=0)
        producer.produce(topic, b"x", None, partition=0)
        producer.produce(topic, encode_change(BLOCK), b"n" * 16, partition=0)
        assert producer.flush(DEADLINE_S) == 0
        store.apply(register("0.1.0.1", "first"))
        late = make()
        assert late.load() == store.load()
        assert late.load().by_name("first") is not None
        assert [conflict.offset for conflict in late.conflicts] == [1, 2, 3, 4, 5]
        assert late.conflicts == store.conflicts

    def test_header_ids_takes_up_what_it_follows(
        self, make: Callable[..., TopicStore], embedded_cluster: EmbeddedCluster, topic: str, tmp_path: Path
    ) -> None:
        writer = make()
        writer.apply(BLOCK)
        location = f"kafka://{embedded_cluster.bootstrap_servers}/{topic}?snapshot={tmp_path / 'followed'}"
        record = Record("orders", headers=Headers({"orders.total": b"1"}))
        before = set(threading.enumerate())
        with Chain([HeaderIds(registry=location, form="keys")]).open() as session:
            assert session.send([record]) == [record]
            writer.apply(register("0.1.0.1", "orders.total"))
            until(lambda: session.send([record])[0].headers.names() == ("~QAB",), "the id is used")
        until(lambda: before.issuperset(threading.enumerate()), "nobody follows any more")

    def test_follows_live(self, make: Callable[..., TopicStore]) -> None:
        heard: list[Registry] = []
        follower, writer = make(), make()
        writer.apply(BLOCK)
        follower.follow(heard.append)
        until(lambda: heard, "the first registry")
        writer.apply(register("0.1.0.1", "first"))
        until(lambda: heard[-1].by_name("first"), "the change")
        assert heard[-1] == writer.load()
        assert len(heard) == 2

    def test_five_threads_share_a_store(self, make: Callable[..., TopicStore]) -> None:
        store = make()
        store.apply(BLOCK)
        outcomes: list[bool] = []

        def race(number: int) -> None:
            for index in range(5):
                try:
                    store.apply(register(f"0.1.0.{index + 1}", f"{number}-{index}"))
                    outcomes.append(True)
                except RegistryError:
                    outcomes.append(False)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(outcomes) == {True: 5, False: 20}
        assert len(store.load()) == len(built_in()) + 5

    def test_is_opened_by_its_location(
        self, embedded_cluster: EmbeddedCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        location = f"kafka://{embedded_cluster.bootstrap_servers}/{topic}?fetch.wait.max.ms=20"
        with open_store(location) as store:
            store.apply(BLOCK)
        assert len(list((tmp_path / "headerware" / "registry").iterdir())) == 1


class TestCreating:
    def test_fills_a_topic_from_another_store(self, make: Callable[..., TopicStore]) -> None:
        blocks = [BLOCK.block]
        entries = [register("0.1.0.1", "first").entry, register("0.1.0.2", "second").entry]
        wanted = with_built_in(blocks, entries, registrar="platform")
        store = make()
        store.fill(wanted)
        store.fill(wanted)
        assert store.load() == wanted
        assert make().load() == wanted
        assert store.conflicts == []

    def test_many_changes_go_in_one(
        self, make: Callable[..., TopicStore], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[int] = []
        put = TopicWriter.put

        def counted(writer: TopicWriter, rows: Any, deadline: float) -> int:
            written.append(len(rows))
            return put(writer, rows, deadline)

        monkeypatch.setattr(TopicWriter, "put", counted)
        store = make()
        store.fill(names(1, 1_200))
        assert written == [500, 500, 201]
        assert make().load() == names(1, 1_200)
        assert store.conflicts == []

    def test_another_writer_in_the_middle_is_told_and_both_read_the_same(
        self, make: Callable[..., TopicStore], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put = TopicWriter.put
        other = make()
        other.apply(BLOCK)

        def late(writer: TopicWriter, rows: Any, deadline: float) -> int:
            monkeypatch.undo()
            other.apply(register("0.1.0.7", "somebody-else"))
            other.apply(register("0.1.1.0", "name-9"))
            return put(writer, rows, deadline)

        monkeypatch.setattr(TopicWriter, "put", late)
        store = make()
        with pytest.raises(RegistryError, match=r"another writer was first: .*; and 1 more of 20 changes"):
            store.fill(names(1, 20))
        found = store.load()
        assert found == other.load() == make().load()
        assert len(found.entries) == len(names(1, 20).entries)
        assert [each.change.entry.name for each in store.conflicts] == ["name-7", "name-9"]  # type: ignore[union-attr]
        with pytest.raises(RegistryError, match="name-7"):
            store.fill(names(1, 20))

    def test_writers_that_fill_at_once_write_each_change_once(self, make: Callable[..., TopicStore]) -> None:
        wanted, stores, refused = names(1, 600), [make() for _ in range(3)], []

        def fill(store: TopicStore) -> None:
            while True:
                try:
                    return store.fill(wanted)
                except RegistryError as error:
                    refused.append(str(error))

        with ThreadPoolExecutor(3) as threads:
            list(threads.map(fill, stores))
        assert all(text.startswith("another writer was first") for text in refused), refused
        assert [store.load() == wanted for store in stores] == [True] * 3

    def test_does_not_hand_a_registry_over(self, make: Callable[..., TopicStore]) -> None:
        store = make()
        store.apply(BLOCK)
        with pytest.raises(RegistryError, match="from 'registrar' to 'platform'"):
            store.fill(with_built_in([BLOCK.block], registrar="platform"))
        assert store.conflicts == []
        with pytest.raises(RegistryError, match="founded once, before all other changes"):
            store._write(Found("platform"))

    def test_refuses_to_forget(self, make: Callable[..., TopicStore]) -> None:
        store = make()
        store.apply(BLOCK)
        with pytest.raises(RegistryError, match="removed"):
            store.fill(with_built_in())


class TestOffline:
    @pytest.fixture
    def left(self, make: Callable[..., TopicStore], topic: str, tmp_path: Path) -> Callable[..., TopicStore]:
        """Return a function that opens a store whose brokers have gone, after it was read once."""
        with EmbeddedCluster(topics={topic: 1}) as cluster:
            with make(cluster, snapshot=tmp_path / "snapshot") as store:
                store.apply(BLOCK)
                store.apply(register("0.1.0.1", "first"))
                with pytest.raises(RegistryError):
                    store._write(register("0.1.0.1", "other"))
            opened = [
                make(cluster, snapshot=tmp_path / "snapshot", timeout_s=0.5),
                make(cluster, timeout_s=0.5),
            ]
        return lambda *, snapshot: opened[0 if snapshot else 1]

    def test_goes_on_with_the_snapshot(self, left: Callable[..., TopicStore]) -> None:
        store = left(snapshot=True)
        assert store.load().by_name("first") is not None
        assert [conflict.offset for conflict in store.conflicts] == [2]
        assert store.stale is not None
        assert (datetime.now(UTC) - store.stale).total_seconds() < DEADLINE_S

    def test_refuses_changes(self, left: Callable[..., TopicStore]) -> None:
        store = left(snapshot=True)
        with pytest.raises(UnreachableError, match="does not change while its brokers are out of reach"):
            store.apply(register("0.1.0.2", "second"))
        assert store.load().by_name("second") is None

    def test_without_a_snapshot_there_is_no_registry(self, left: Callable[..., TopicStore]) -> None:
        with pytest.raises(UnreachableError):
            left(snapshot=False).load()

    def test_a_corrupt_snapshot_counts_as_none(
        self, make: Callable[..., TopicStore], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "snapshot"
        path.write_bytes(b"\x01" * 100)
        store = make(snapshot=path)
        assert "is ignored" in caplog.text
        assert store.load() == built_in()
        store.apply(BLOCK)
        assert store.load().block(BLOCK.block.network) == BLOCK.block
