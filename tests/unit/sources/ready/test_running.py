"""Ready sources and extractors through the runner: what was added is read, and nothing twice."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from headerware.core.errors import SourceError
from headerware.sources import NativeItem, OffsetEntry, Source
from headerware.sources.engine.decision import offset_key
from headerware.sources.ready import Files, SqlTables
from headerware.sources.runtime import RunConfig, SourceRunner, SqliteOffsets
from headerware.testing import EmbeddedCluster
from tests.waiting import until

TOPICS: Final = [f"ready-{number}" for number in range(12)]
_unused: Final = iter(TOPICS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=dict.fromkeys(TOPICS, 1)) as made:
        yield made


class Place:
    """A topic, a folder, and runs that end when everything is read."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.servers = cluster.bootstrap_servers
        self.topic = next(_unused)
        self.folder = folder / "in"
        self.folder.mkdir()
        self._offsets = SqliteOffsets(path=str(folder / "offsets.db"))

    def config(self, source: Source[Any], **options: Any) -> RunConfig:
        chain = {"interceptors": "serialize", "interceptors.serialize.value": "json"}
        return RunConfig(
            name=self.topic,
            source=source,
            topic=self.topic,
            offsets=self._offsets,
            delivery="at_least_once",
            kafka={"bootstrap.servers": self.servers, **chain},
            **options,
        )

    def run(self, source: Source[Any], **options: Any) -> list[Any]:
        """Read the source once, and return all that is in the topic."""
        SourceRunner(self.config(source, **options), once=True).run()
        return self.found()

    def _entry(self, key: str) -> OffsetEntry:
        config = self.config(Files(folder=str(self.folder)), extractor="jsonl")
        with closing(self._offsets.open({}, source=self.topic)) as opened:
            return opened.get(offset_key(config, key)) or OffsetEntry()

    def records(self, key: str) -> int:
        """Return how many records of an object are stored."""
        return self._entry(key).record_number

    def is_complete(self, key: str) -> bool:
        return self._entry(key).complete

    def found(self) -> list[Any]:
        """Return all that is in the topic."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test"})
        with closing(consumer):
            end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=60)[1]
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            found: list[Any] = []
            until(lambda: len(found) >= end, meanwhile=lambda: found.extend(consumer.consume(100, 0.1)))
        return [json.loads(message.value()) for message in found]


def parquet(table: range | pa.Table, **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"n": list(table)}) if isinstance(table, range) else table, stream, **options)
    return stream.getvalue()


@pytest.fixture
def place(cluster: EmbeddedCluster, tmp_path: Path) -> Place:
    return Place(cluster, tmp_path)


class TestFiles:
    def test_of_json_lines_go_on_where_they_have_grown(self, place: Place) -> None:
        log, source = place.folder / "a.log", Files(folder=str(place.folder), grows=True)
        log.write_text("1\n2\n3")
        (place.folder / "b.log").write_text("10\n")
        assert place.run(source, extractor="jsonl") == [1, 2, 10]
        with log.open("a") as file:
            file.write("3\n4\n")
        assert place.run(source, extractor="jsonl") == [1, 2, 10, 33, 4]
        assert place.run(source, extractor="jsonl") == [1, 2, 10, 33, 4]

    def test_of_csv_start_again_if_they_have_changed(self, place: Place) -> None:
        (place.folder / "a.csv").write_text('id,city\n1,"a\nb"\n')
        source = Files(folder=str(place.folder))
        assert place.run(source, extractor="csv") == [{"id": "1", "city": "a\nb"}]
        (place.folder / "a.csv").write_text("id\n7\n8\n")
        (place.folder / "a.csv.gz.tmp").touch()
        assert place.run(source, extractor="csv")[1:] == [{"id": "7"}, {"id": "8"}]

    def test_of_parquet_are_read_once(self, place: Place) -> None:
        pq.write_table(pa.table({"n": list(range(300))}), place.folder / "a.parquet", row_group_size=70)
        source = Files(folder=str(place.folder))
        for _ in range(2):
            assert place.run(source, extractor="parquet") == [{"n": n} for n in range(300)]


class TestDamage:
    @pytest.mark.parametrize("kept", [0.5, 0.99])
    def test_of_parquet_that_is_cut_off_is_no_end(self, place: Place, kept: float) -> None:
        whole, cut = parquet(range(100, 200)), place.folder / "b"
        (place.folder / "a").write_bytes(parquet(range(100)))
        (place.folder / "c").write_bytes(whole)
        cut.write_bytes(whole[: int(len(whole) * kept)])
        source = Files(folder=str(place.folder))
        with pytest.raises(SourceError, match=r"object 'b' .* after record 0: .* it is truncated"):
            place.run(source, extractor="parquet")
        found = place.run(source, extractor="parquet", on_object_error="skip")
        assert [row["n"] for row in found] == [*range(200)]
        assert not place.is_complete("b")
        assert place.is_complete("c")
        cut.write_bytes(whole)
        assert [row["n"] for row in place.run(source, extractor="parquet")[200:]] == [*range(100, 200)]

    def test_in_the_middle_of_parquet_sends_what_is_before_it(self, place: Place) -> None:
        whole = bytearray(parquet(range(10_000), row_group_size=1_000, compression="gzip"))
        whole[len(whole) // 2 : len(whole) // 2 + 50] = bytes(50)
        (place.folder / "a").write_bytes(whole)
        with pytest.raises(SourceError, match=r"object 'a' .* after record \d000: .* damaged"):
            place.run(Files(folder=str(place.folder)), extractor="parquet")
        found = place.found()
        assert 1_000 < len(found) < 9_000
        assert [row["n"] for row in found] == [*range(len(found))]
        assert place.records("a") == len(found)
        assert not place.is_complete("a")


class TestFullDisk:
    def test_completes_nothing_and_loses_nothing(self, place: Place) -> None:
        resource = pytest.importorskip("resource", reason="limits of files are POSIX's")
        data = {"n": list(range(20)), "large": [os.urandom(200_000) for _ in range(20)]}
        for name in ("a.gz", "b.gz"):  # what is compressed as a whole cannot be sought in, and is copied
            (place.folder / name).write_bytes(gzip.compress(parquet(pa.table(data)), 1))
        source = Files(folder=str(place.folder))
        extractor = {"type": "parquet", "columns": ["n"]}
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
        try:
            with pytest.raises(
                SourceError, match=r"object 'a.gz' .* record 0: .* no space for a copy of the object"
            ):
                place.run(source, extractor=extractor, retry_deadline_s=0.1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert place.found() == []
        assert not place.is_complete("a.gz")
        assert [row["n"] for row in place.run(source, extractor=extractor)] == [*range(20)] * 2


class Vanishing(Files, frozen=True, kw_only=True):
    """Loses a file as soon as it is listed."""

    lost: str

    def items(self, start: str | None) -> Iterator[NativeItem]:
        for item in super().items(start):
            if item.context.key == self.lost:
                (Path(self.folder) / self.lost).unlink()
            yield item


class TestNames:
    def test_that_are_not_utf_8_are_an_error_of_their_files(
        self, place: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        (place.folder / "a").write_text("1\n")
        (place.folder / os.fsdecode(b"b\xff")).write_text("2\n")
        source = Files(folder=str(place.folder))
        with pytest.raises(
            SourceError, match=r"object 'b\\udcff' .* cannot be stored: .* expected text in UTF-8"
        ):
            place.run(source, extractor="jsonl")
        assert place.run(source, extractor="jsonl", on_object_error="skip") == [1]
        assert caplog.text.count("left an object out: ") == 1


class TestChanges:
    def test_vanished_file_is_an_error_of_itself(self, place: Place) -> None:
        for name in ("a", "b", "c"):
            (place.folder / name).write_text(f'"{name}"\n')
        with pytest.raises(SourceError, match=r"object 'b' .* it has vanished since it was listed"):
            place.run(Vanishing(folder=str(place.folder), lost="b"), extractor="jsonl")
        (place.folder / "b").touch()
        source = Vanishing(folder=str(place.folder), lost="b")
        assert place.run(source, extractor="jsonl", on_object_error="skip") == ["a", "c"]

    def test_growing_file_is_read_while_it_grows(self, place: Place) -> None:
        source = Files(folder=str(place.folder), grows=True)
        quick = {"listing_pause_s": 0.02, "poll_wait_s": 0.05, "commit_interval_s": 0.05}
        runner = SourceRunner(place.config(source, extractor="jsonl", **quick))
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            with (place.folder / "a.log").open("w") as file:
                for number in range(1, 301):
                    file.write(f"{number}")
                    file.flush()  # half a line
                    file.write("000\n")
                    if number % 50 == 0:
                        file.flush()
                        until(lambda number=number: place.records("a.log") >= number)  # type: ignore[misc]
        finally:
            runner.stop()
            thread.join()
        assert place.found() == [number * 1_000 for number in range(1, 301)]


class TestTables:
    def test_go_on_behind_their_last_row(self, place: Place) -> None:
        database = place.folder / "shop.db"
        source = SqlTables(url=f"sqlite:///{database}", tables=["orders"], order_by=["id"], page_rows=2)
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("create table orders (id integer primary key)")
            connection.executemany("insert into orders values (?)", [(1,), (2,), (5,)])
            connection.commit()
            assert place.run(source) == [{"id": 1}, {"id": 2}, {"id": 5}]
            connection.executemany("insert into orders values (?)", [(6,), (9,)])
            connection.commit()
            assert [row["id"] for row in place.run(source)] == [1, 2, 5, 6, 9]
        assert [row["id"] for row in place.run(source)] == [1, 2, 5, 6, 9]

    def test_start_again_neither_for_deleted_nor_for_hidden_rows(self, place: Place) -> None:
        database = place.folder / "shop.db"
        source = SqlTables(
            url=f"sqlite:///{database}",
            tables=["orders"],
            order_by=["changed", "id"],
            where="changed < '2026-02-01'",
        )
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("create table orders (id integer primary key, changed text not null)")
            for number in range(1, 6):
                connection.execute("insert into orders values (?, '2026-01-01')", (number,))
            assert len(place.run(source)) == 5
            connection.execute("update orders set changed = '2026-03-01' where id = 5")  # it is hidden
            assert len(place.run(source)) == 5
            connection.execute("delete from orders where id >= 4")
            assert len(place.run(source)) == 5
            connection.execute("insert into orders values (9, '2026-01-02')")
            assert [row["id"] for row in place.run(source)] == [1, 2, 3, 4, 5, 9]
