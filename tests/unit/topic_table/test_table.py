from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Producer

from headerware.core.errors import RegistryError
from headerware.testing import EmbeddedCluster
from headerware.topic_table import TopicTable
from headerware.topic_table.rows import Rows, TableRecord
from headerware.topic_table.snapshot import Snapshot, write_snapshot
from headerware.topic_table.topic import TableReader, UnreachableError
from tests.scripted import script
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DEADLINE_S = 60.0
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}

Make = Callable[..., TopicTable[Rows]]


def conf_of(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "fetch.wait.max.ms": 20, "log_level": 0}


@pytest.fixture
def conf(embedded_cluster: EmbeddedCluster) -> dict[str, Any]:
    return conf_of(embedded_cluster)


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("table")
    embedded_cluster.create_topic(name)
    return name


@pytest.fixture
def make(conf: dict[str, Any], topic: str) -> Iterator[Make]:
    """Return a function that makes a table, closed when the test is over."""
    made: list[TopicTable[Rows]] = []

    def table(conf: Mapping[str, Any] = conf, topic: str = topic, **options: Any) -> TopicTable[Rows]:
        made.append(TopicTable(conf, topic, rows=Rows, **options))
        return made[-1]

    yield table
    for one in made:
        one.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("headerware-table")]


def send(conf: Mapping[str, Any], topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Write past any table."""
    servers = {"bootstrap.servers": conf["bootstrap.servers"], "log_level": 0}
    producer = Producer(servers)
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(DEADLINE_S) == 0


class TestRows:
    def test_keep_the_last_value_in_the_order_of_writing(self) -> None:
        rows = Rows()
        rows.fill([TableRecord(0, b"a", b"1"), TableRecord(1, b"b", b"1"), TableRecord(2, b"a", b"2")])
        assert rows.records() == [TableRecord(1, b"b", b"1"), TableRecord(2, b"a", b"2")]

    @pytest.mark.parametrize(
        ("record", "changes"),
        [
            (TableRecord(1, b"a", b"1"), False),
            (TableRecord(1, b"a", b"2"), True),
            (TableRecord(1, b"a", None), True),
            (TableRecord(1, b"b", None), False),
            (TableRecord(1, b"b", b""), True),
            (TableRecord(1, None, b"1"), False),
        ],
    )
    def test_tell_whether_a_row_has_changed(self, record: TableRecord, changes: bool) -> None:  # noqa: FBT001
        rows = Rows()
        rows.apply(TableRecord(0, b"a", b"1"))
        assert rows.apply(record) is changes

    def test_tell_what_is_other_than_before(self) -> None:
        before, after = Rows(), Rows()
        before.fill([TableRecord(0, b"a", b"1"), TableRecord(1, b"b", b"1"), TableRecord(2, b"c", b"1")])
        after.fill([TableRecord(5, b"a", b"1"), TableRecord(6, b"b", b"2"), TableRecord(7, b"d", b"1")])
        assert sorted(after.changes_since(before)) == [(b"b", b"2"), (b"c", None), (b"d", b"1")]


class TestReading:
    def test_an_empty_topic_is_an_empty_table(self, make: Make) -> None:
        table = make()
        assert table.refresh(DEADLINE_S)
        assert table.items() == []
        assert table.stale is None

    def test_reads_up_to_the_end_at_the_time_of_the_call(
        self, make: Make, conf: dict[str, Any], topic: str
    ) -> None:
        table = make()
        for index in range(3):
            send(conf, topic, (b"k", b"%d" % index))
            table.refresh(DEADLINE_S)
            assert table.get(b"k") == b"%d" % index

    def test_a_tombstone_removes_a_row(self, make: Make, conf: dict[str, Any], topic: str) -> None:
        send(conf, topic, (b"a", b"1"), (b"b", b"1"), (b"a", None))
        table = make()
        table.refresh(DEADLINE_S)
        assert table.items() == [(b"b", b"1")]
        assert table.get(b"a") is None

    def test_a_record_without_a_key_stops_nothing(self, make: Make, conf: dict[str, Any], topic: str) -> None:
        send(conf, topic, (b"a", b"1"), (None, b"x"), (b"b", b""))
        table = make()
        table.refresh(DEADLINE_S)
        assert table.items() == [(b"a", b"1"), (b"b", b"")]

    def test_refuses_several_partitions(self, make: Make, embedded_cluster: EmbeddedCluster) -> None:
        name = f"several-{uuid.uuid4().hex}"
        embedded_cluster.create_topic(name, partitions=2)
        table = make(topic=name)
        calls: list[Callable[[], object]] = [table.refresh, lambda: table.put(b"k", b"v", DEADLINE_S)]
        for call in calls:
            with pytest.raises(RegistryError, match="has 2 partitions, expected one"):
                call()

    def test_refuses_a_topic_that_is_not_there_and_makes_none(self, make: Make) -> None:
        table = make(topic=f"missing-{uuid.uuid4().hex}")
        for _ in range(2):
            with pytest.raises(RegistryError, match="there is no topic"):
                table.refresh(DEADLINE_S)

    def test_refuses_a_configuration_that_is_none(self) -> None:
        with pytest.raises(RegistryError, match="refuses its configuration"):
            TopicTable({"no.such.property": 1}, "t", rows=Rows)

    def test_a_producers_properties_are_no_news_to_the_consumer(
        self, make: Make, conf: dict[str, Any], capfd: pytest.CaptureFixture[str]
    ) -> None:
        loud = {name: value for name, value in conf.items() if name != "log_level"}
        table = make({**loud, "linger.ms": 5, "acks": "1", "auto.offset.reset": "latest"})
        table.put(b"k", b"v", DEADLINE_S)
        table.close()
        assert "CONFWARN" not in capfd.readouterr().err


class TestReader:
    def test_gives_what_came_before_access_was_denied(self, conf: dict[str, Any], topic: str) -> None:
        """The client gives each record once: what is not taken here never comes again."""
        reader = TableReader(conf, topic, create=False, replication_factor=-1)
        reader.begin(time.monotonic() + DEADLINE_S)
        assert reader._reader is not None
        script(reader._reader, topic, 0, 1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 2)
        assert [record.offset for record in reader.poll(0).records] == [0, 1]
        with pytest.raises(RegistryError, match="cannot be read"):
            reader.poll(0)
        assert [record.offset for record in reader.poll(0).records] == [2]
        reader.close()

    @pytest.mark.parametrize(
        ("code", "lost"),
        [
            (KafkaError._AUTO_OFFSET_RESET, True),
            (KafkaError.OFFSET_OUT_OF_RANGE, True),
            (KafkaError._TRANSPORT, False),
        ],
    )
    def test_goes_on_after_what_passes_and_says_if_its_position_is_gone(
        self, conf: dict[str, Any], topic: str, code: int, *, lost: bool
    ) -> None:
        reader = TableReader(conf, topic, create=False, replication_factor=-1)
        reader.begin(time.monotonic() + DEADLINE_S)
        assert reader._reader is not None
        script(reader._reader, topic, 0, KafkaError(code))
        assert reader.poll(0).lost is False
        assert reader.poll(0) == ([], 1, lost)
        reader.close()


class SavedRows(Rows):
    """Rows of which an earlier process has read the records before an offset."""

    served_at = -1

    def begin_serving(self, position: int) -> None:
        self.served_at = position


class TestResuming:
    def make(self, conf: dict[str, Any], topic: str, at: int) -> TopicTable[SavedRows]:
        made: list[SavedRows] = []

        def rows() -> SavedRows:
            made.append(SavedRows())
            made[-1].resume_at = -1 if made[1:] else at
            return made[-1]

        return TopicTable(conf, topic, rows=rows)

    def test_reads_on_where_the_saved_rows_end(self, conf: dict[str, Any], topic: str) -> None:
        send(conf, topic, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
        with self.make(conf, topic, 2) as table:
            assert table.refresh(DEADLINE_S)
            assert table.items() == [(b"c", b"1")]
            send(conf, topic, (b"d", b"1"))
            assert table.refresh(DEADLINE_S)
            assert table.items() == [(b"c", b"1"), (b"d", b"1")]

    def test_at_the_end_of_the_topic_nothing_is_missing(self, conf: dict[str, Any], topic: str) -> None:
        send(conf, topic, (b"a", b"1"))
        with self.make(conf, topic, 1) as table:
            assert table.refresh(DEADLINE_S)
            assert table.items() == []

    def test_a_topic_that_ends_before_is_read_from_its_beginning(
        self, conf: dict[str, Any], topic: str
    ) -> None:
        send(conf, topic, (b"a", b"1"), (b"b", b"1"))
        with self.make(conf, topic, 9) as table:
            assert table.refresh(DEADLINE_S)
            assert table.items() == [(b"a", b"1"), (b"b", b"1")]
            with table.rows() as rows:
                assert rows.served_at == 2


class TestWriting:
    def test_the_writer_sees_its_own_write(self, make: Make) -> None:
        table = make()
        assert [table.put(b"k", value, DEADLINE_S) for value in (b"1", None, b"2")] == [0, 1, 2]
        assert table.get(b"k") == b"2"

    @pytest.mark.parametrize("followed", [False, True])
    def test_many_threads_write_at_once(self, make: Make, followed: bool) -> None:  # noqa: FBT001
        table = make()
        if followed:
            table.follow()
        seen: list[bytes | None] = []

        def write(name: int) -> None:
            for index in range(10):
                key = b"%d-%d" % (name, index)
                table.put(key, b"v", DEADLINE_S)
                seen.append(table.get(key))
                table.refresh(DEADLINE_S)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [b"v"] * 50
        assert len(table.items()) == 50

    def test_what_is_too_large_is_refused_and_the_next_is_not(self, make: Make) -> None:
        table = make()
        with pytest.raises(RegistryError, match="cannot be written") as caught:
            table.put(b"k", bytes(2_000_000), DEADLINE_S)
        assert not isinstance(caught.value, UnreachableError)
        assert table.put(b"k", b"v", DEADLINE_S) == 0

    def test_nothing_is_written_later_by_itself(self, topic: str, make: Make, tmp_path: Path) -> None:
        with EmbeddedCluster(topics={topic: 1}) as cluster:
            table = make(conf_of(cluster), snapshot=tmp_path / "s")
            table.put(b"k", b"v", DEADLINE_S)
        with pytest.raises(UnreachableError, match="may have been written, or not"):
            table.put(b"k", b"w", 0.5)
        assert table.get(b"k") == b"v"


class TestFollowing:
    def test_sees_what_others_write(self, make: Make, conf: dict[str, Any], topic: str) -> None:
        table = make()
        table.follow()
        send(conf, topic, (b"k", b"v"))
        until(lambda: table.get(b"k") == b"v", "the row")
        until(lambda: table.stale is None, "up to date")

    def test_listeners_hear_each_change_in_order(self, make: Make, conf: dict[str, Any], topic: str) -> None:
        heard: list[tuple[bytes, bytes | None]] = []
        send(conf, topic, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        table = make()
        table.on_change(lambda key, value: heard.append((key, value)))
        table.follow()
        table.refresh(DEADLINE_S)
        send(conf, topic, (b"b", None), (b"b", None), (b"a", b"2"), (b"c", b"3"))
        table.refresh(DEADLINE_S)
        until(lambda: len(heard) == 4, "the changes")
        assert heard == [(b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"3")]

    def test_a_listener_that_raises_stops_nobody(self, make: Make, caplog: pytest.LogCaptureFixture) -> None:
        heard: list[bytes] = []

        def fail(key: bytes, value: bytes | None) -> None:
            raise ValueError("no luck")

        table = make()
        table.on_change(fail)
        table.on_change(lambda key, value: heard.append(key))
        table.put(b"a", b"1", DEADLINE_S)
        assert heard == [b"a"]
        assert "a listener failed" in caplog.text

    @pytest.mark.parametrize("followed", [False, True])
    def test_a_listener_may_use_the_table(self, make: Make, followed: bool) -> None:  # noqa: FBT001
        table = make()
        heard: list[tuple[bytes, bytes | None]] = []

        def copy(key: bytes, value: bytes | None) -> None:
            heard.append((key, value))
            if key == b"a":
                table.put(b"copy", value, DEADLINE_S)
                table.refresh(DEADLINE_S)

        table.on_change(copy)
        if followed:
            table.follow()
        table.put(b"a", b"1", DEADLINE_S)
        until(lambda: len(heard) == 2, "both changes")
        assert heard == [(b"a", b"1"), (b"copy", b"1")]

    def test_a_listener_may_close_the_table(self, make: Make) -> None:
        table = make()
        closed = threading.Event()

        def close(key: bytes, value: bytes | None) -> None:
            table.close()
            closed.set()

        table.on_change(close)
        table.follow()
        table.put(b"a", b"1", DEADLINE_S)
        assert closed.wait(DEADLINE_S)

    @pytest.mark.parametrize("followed", [False, True])
    @pytest.mark.parametrize("writes", [False, True])
    def test_a_topic_that_was_made_anew_is_read_anew_at_once(
        self,
        make: Make,
        caplog: pytest.LogCaptureFixture,
        followed: bool,  # noqa: FBT001
        writes: bool,  # noqa: FBT001
    ) -> None:
        """It ends before the place where reading stood, and what it held then is not what it holds."""
        table = make()
        table.put(b"stays", b"v", DEADLINE_S)
        if followed:
            table.follow()
        with table.rows() as rows:  # as if it had been read that far in another life
            rows.apply(TableRecord(0, b"gone", b"v"))
            assert table._pump._reader._reader is not None
            table._pump._reader._reader._positions[0] = 500
            table._state.position = 500
        if writes:
            assert table.put(b"new", b"v", DEADLINE_S) == 1
        else:
            assert table.refresh(DEADLINE_S)
        assert [key for key, _ in table.items()] == [b"stays", b"new"][: 1 + writes]
        assert "read from its beginning again" in caplog.text

    @pytest.mark.parametrize("followed", [False, True])
    def test_half_a_day_out_of_reach_is_a_reason_to_read_anew(
        self,
        make: Make,
        followed: bool,  # noqa: FBT001
    ) -> None:
        """What it missed may have been a tombstone, which compaction has taken away meanwhile."""
        table = make()
        table.put(b"stays", b"v", DEADLINE_S)
        with table.rows() as rows:
            rows.apply(TableRecord(0, b"gone", b"v"))
        assert table.refresh(DEADLINE_S)
        assert table.get(b"gone") == b"v"
        table._state.complete_ms = table._pump._began_ms = 0
        if followed:
            table.follow()
        assert table.refresh(DEADLINE_S)
        until(lambda: table.items() == [(b"stays", b"v")], "the row without its tombstone gone")


class TestClosing:
    def test_a_closed_table_says_so(self, make: Make) -> None:
        table = make()
        table.follow()
        table.close()
        table.close()
        for call in (table.refresh, table.follow, lambda: table.put(b"k", b"v")):
            with pytest.raises(RegistryError, match="is closed"):
                call()

    def test_whoever_waits_is_told(self, make: Make) -> None:
        table = make(NOBODY)
        table.follow()
        errors: list[Exception] = []

        def wait() -> None:
            try:
                table.refresh(60)
            except RegistryError as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(waiting.is_alive, "the thread")
        table.close()
        waiting.join(DEADLINE_S)
        assert not waiting.is_alive()
        assert len(errors) == 1

    def test_a_forked_child_is_refused(self, make: Make) -> None:
        table = make()
        table.refresh(DEADLINE_S)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                table.refresh(1)
            except RegistryError as error:
                os.write(write, str(error).encode())
            table.close()
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as answer:
            assert "before this process was forked" in answer.read()


class TestOffline:
    def test_without_a_snapshot_there_is_nothing_to_go_on_with(self, make: Make) -> None:
        table = make(NOBODY)
        with pytest.raises(UnreachableError):
            table.refresh(0.3)
        assert table.stale == datetime.fromtimestamp(0, UTC)

    def test_goes_on_with_what_it_has_read(self, topic: str, make: Make) -> None:
        with EmbeddedCluster(topics={topic: 1}) as cluster:
            table = make(conf_of(cluster))
            table.put(b"k", b"v", DEADLINE_S)
            before = datetime.now(UTC) - timedelta(milliseconds=1)  # it is kept in whole milliseconds
            table.refresh(DEADLINE_S)
        after = datetime.now(UTC)
        assert table.refresh(0.5) is False
        assert table.get(b"k") == b"v"
        assert table.stale is not None
        assert before <= table.stale <= after

    def test_goes_on_with_the_snapshot(self, make: Make, tmp_path: Path) -> None:
        path = tmp_path / "snapshot"
        first = make(snapshot=path)
        first.put(b"k", b"v", DEADLINE_S)
        first.close()
        table = make(NOBODY, snapshot=path)
        assert table.refresh(0.3) is False
        assert table.items() == [(b"k", b"v")]
        assert table.stale is not None
        assert (datetime.now(UTC) - table.stale).total_seconds() < 60

    def test_a_snapshot_of_times_to_come_is_as_old_as_now(
        self, make: Make, topic: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "snapshot"
        write_snapshot(path, Snapshot(topic, 2**63, [TableRecord(0, b"k", b"v")]))
        table = make(NOBODY, snapshot=path)
        assert table.refresh(0.3) is False
        assert table.stale is not None
        assert table.stale <= datetime.now(UTC)

    def test_a_corrupt_snapshot_is_left_aside_and_written_anew(
        self, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "snapshot"
        path.write_bytes(b"\x01 this is none")
        table = make(snapshot=path)
        assert "is ignored" in caplog.text
        assert table.items() == []
        table.put(b"k", b"v", DEADLINE_S)
        table.close()
        with pytest.raises(UnreachableError):
            make(NOBODY, snapshot=tmp_path / "none").refresh(0.3)
        again = make(NOBODY, snapshot=path)
        assert again.refresh(0.3) is False
        assert again.get(b"k") == b"v"

    def test_a_snapshot_cedes_to_the_topic(
        self, make: Make, conf: dict[str, Any], topic: str, tmp_path: Path
    ) -> None:
        """What was removed meanwhile is gone, and listeners hear of it."""
        path = tmp_path / "snapshot"
        first = make(snapshot=path)
        first.put(b"gone", b"v", DEADLINE_S)
        first.put(b"stays", b"v", DEADLINE_S)
        first.close()
        send(conf, topic, (b"gone", None))
        heard: list[tuple[bytes, bytes | None]] = []
        table = make(snapshot=path)
        table.on_change(lambda key, value: heard.append((key, value)))
        assert table.get(b"gone") == b"v"
        table.refresh(DEADLINE_S)
        assert table.items() == [(b"stays", b"v")]
        assert heard == [(b"gone", None)]

    def test_a_table_that_never_saw_the_brokers_leaves_the_snapshot_alone(
        self, make: Make, tmp_path: Path
    ) -> None:
        path = tmp_path / "snapshot"
        first = make(snapshot=path)
        first.put(b"k", b"v", DEADLINE_S)
        first.close()
        before = path.read_bytes()
        make(NOBODY, snapshot=path).close()
        assert path.read_bytes() == before

    def test_a_snapshot_that_cannot_be_written_is_reported_once(
        self, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").touch()
        table = make(snapshot=tmp_path / "file" / "snapshot")
        table.put(b"k", b"v", DEADLINE_S)
        table.refresh(DEADLINE_S)
        table.close()
        assert caplog.text.count("cannot be written") == 1

    def test_following_says_once_that_the_brokers_are_gone(
        self, topic: str, make: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        with EmbeddedCluster(topics={topic: 1}) as cluster:
            table = make(conf_of(cluster))
            table.follow()
            table.put(b"k", b"v", DEADLINE_S)
            until(lambda: table.stale is None, "up to date")
        until(lambda: table.stale is not None, "stale")
        assert table.refresh(0.2) is False
        assert caplog.text.count("the rows go on as they are") == 1
        assert table.get(b"k") == b"v"
