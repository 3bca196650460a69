"""Ready sources and extractors through the runner: what was added is read, and nothing twice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from headerware.sources import Source
from headerware.sources.ready import Files, SqlTables
from headerware.sources.runtime import RunConfig, SourceRunner, SqliteOffsets
from headerware.testing import EmbeddedCluster
from tests.waiting import until

TOPICS: Final = [f"ready-{number}" for number in range(6)]
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

    def run(self, source: Source[Any], **options: Any) -> list[Any]:
        """Read the source once, and return all that is in the topic."""
        chain = {"interceptors": "serialize", "interceptors.serialize.value": "json"}
        config = RunConfig(
            name=self.topic,
            source=source,
            topic=self.topic,
            offsets=self._offsets,
            delivery="at_least_once",
            kafka={"bootstrap.servers": self.servers, **chain},
            **options,
        )
        SourceRunner(config, once=True).run()
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test"})
        with closing(consumer):
            end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=20)[1]
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            found: list[Any] = []
            until(lambda: len(found) >= end, meanwhile=lambda: found.extend(consumer.consume(100, 0.1)))
        return [json.loads(message.value()) for message in found]


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
