"""Messages in slices over micro-batches with Spark's own state: whole, once, and the same in a replay."""

from __future__ import annotations

import os
import pickle
import time
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, ConfigError, Headers, Producer
from headerware.core.context import Context
from headerware.core.record import Record
from headerware.interceptors import Compress, Dedup, Serialize, Slice, Trail
from headerware.spark_bridge import decode, kafka_source
from headerware.spark_bridge.chain_source import chain_source
from headerware.spark_bridge.decoding import DecodePlan
from headerware.spark_bridge.frames.schema import Status, with_status
from headerware.spark_bridge.stateful import (
    _from_ipc,
    _merged,
    _split,
    _to_ipc,
    decode_stateful,
    decode_to_ipc,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headerware.testing import KafkaBroker

pytestmark = pytest.mark.usefixtures("interpreted", "two_partitions_of_state")

DEADLINE_S = 240.0
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
WIRE = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestampType", pa.int32()),
    ("score", pa.float64()),
    ("count", pa.int64()),
    ("day", pa.date32()),
    ("seen", pa.timestamp("us", "UTC")),
    ("tags", pa.list_(pa.string())),
])  # fmt: skip
COLUMNS = (
    "topic string, partition int, offset long, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, timestamp timestamp, timestampType int, "
    "score double, count long, day date, seen timestamp, tags array<string>"
)
# What pandas would change: NaN beside null, integers beside null, times beyond its nanoseconds.
USERS: tuple[dict[str, Any], ...] = (
    {"score": float("nan"), "count": 2**60 + 1, "day": date(1, 1, 1), "seen": None, "tags": ["a", None]},
    {"score": None, "count": None, "day": None, "seen": datetime(9000, 1, 1, tzinfo=UTC), "tags": []},
)
LIMITS = Slice(max_bytes=1_000)
SENDS = Chain([Compress(min_bytes=100_000), LIMITS])


def cut(value: bytes) -> list[Record]:
    """Return a message in its slices, as a service sends them."""
    with_headers = Record("orders", value, b"k", Headers([("own", b"\xff"), ("own", None)]))
    slices = SENDS.open(Context(side="producer")).send([with_headers])
    assert len(slices) > 2
    return slices


class Stream:
    """A topic as files, each of which is a micro-batch, and the queries that read it one after the other."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files = 0
        self.batches: list[tuple[int, list[Any]]] = []
        (folder / "topic").mkdir()

    def add(self, *placed: tuple[int, int, Record]) -> None:
        """Add a micro-batch: partition, offset and record of each row."""
        rows = [
            {
                "topic": record.topic,
                "partition": partition,
                "offset": offset,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
                "timestamp": datetime(2026, 1, 31, tzinfo=UTC),
                "timestampType": 0,
                **USERS[offset % 2],
            }
            for partition, offset, record in placed
        ]
        file = self.folder / "topic" / f"{self.files}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, WIRE), file)
        os.utime(file, (self.files, self.files))
        self.files += 1

    def frame(self) -> DataFrame:
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / "topic"))

    def start(self, frame: DataFrame, fails_at: int = -1, **trigger: Any) -> StreamingQuery:
        def keep(batch: DataFrame, batch_id: int) -> None:
            self.batches.append((batch_id, batch.collect()))
            if batch_id == fails_at:
                raise RuntimeError("the driver dies before the batch is committed")

        writer = frame.writeStream.foreachBatch(keep).trigger(**trigger)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def rows(self) -> list[Any]:
        return [row for _, rows in self.batches for row in rows]


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def finish(spark: SparkSession, stream: Stream, frame: DataFrame, fails_at: int = -1) -> StreamingQuery:
    """Process all new files, and end."""
    with setting(spark, EMPTY_BATCHES, "false"):
        query = stream.start(frame, fails_at, availableNow=True)
    try:
        assert query.awaitTermination(int(DEADLINE_S))
    finally:
        query.stop()
    return query


def bytes_of(rows: list[Any]) -> list[Any]:
    """Return the parts that must be the same in a replay; headers contain wall-clock time."""
    return sorted((row.partition, row.offset, row.value or b"", bool(row.failure)) for row in rows)


class Story(NamedTuple):
    """The results for a topic with slices in three micro-batches, and a crash in the second."""

    whole: bytes
    slices: list[Record]
    bad: list[Record]
    batches: list[tuple[int, list[Any]]]
    state_rows: list[int]
    """How many there were after each batch that was committed."""

    def failed(self, partition: int) -> list[Any]:
        last = [rows for number, rows in self.batches if number == 1][-1]
        return sorted(
            (row for row in last if row.failure and row.partition == partition), key=lambda r: r.offset
        )


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    stream = Stream(spark, tmp_path_factory.mktemp("story"))
    whole = os.urandom(2_000)
    slices, bad, left_behind = cut(whole), cut(os.urandom(2_000)), cut(os.urandom(2_000))
    plain, tombstone = Record("orders", b"\x00plain"), Record("orders", None, b"k")
    stream.add(
        *[(0, 0, plain), (0, 1, slices[0])],
        *[(1, 0, slices[0]), (1, 1, bad[0])],
        (2, 0, left_behind[0]),
    )
    stream.add(
        *[(1, 3, bad[1].replace(value=b"cut short")), (1, 2, slices[1])],
        *[(0, 3, tombstone), (0, 2, slices[1])],
        (2, 30_000, plain),
    )
    old, new = SENDS, Chain([Trail(service="new"), *SENDS])
    with pytest.raises(StreamingQueryException, match="the driver dies"):
        finish(spark, stream, decode_stateful(stream.frame(), old, failures="route"), fails_at=1)
    stream.add(*((partition, 4 + n, each) for n, each in enumerate(slices[2:]) for partition in (0, 1)))
    with_more = stream.frame().withColumn("added", F.lit(7))
    query = finish(spark, stream, decode_stateful(with_more, new, failures="route"))
    state_rows = [progress["stateOperators"][0]["numRowsTotal"] for progress in query.recentProgress]
    return Story(whole, slices, bad, stream.batches, state_rows)


class TestStraddlingSlices:
    def test_a_message_comes_whole_and_once_in_each_partition(self, story: Story) -> None:
        whole = [(number, row) for number, rows in story.batches for row in rows if row.value == story.whole]
        assert sorted((number, row.partition) for number, row in whole) == [(2, 0), (2, 1)]

    def test_it_has_its_own_headers_and_the_place_of_its_last_slice(self, story: Story) -> None:
        row = max(story.batches[-1][1], key=lambda row: row.partition)
        assert [(each.key, each.value) for each in row.headers][:2] == [("own", b"\xff"), ("own", None)]
        assert (row.topic, row.partition, row.offset) == ("orders", 1, 1 + len(story.slices))

    def test_rows_that_stand_alone_come_in_their_own_batch(self, story: Story) -> None:
        numbered = [rows for number, rows in story.batches if number == 0]
        assert [(row.offset, bytes(row.value)) for row in numbered[0]] == [(0, b"\x00plain")]

    def test_columns_of_the_user_stay_exact(self, story: Story) -> None:
        rows = [row for _, rows in story.batches for row in rows]
        assert {row.offset % 2 for row in rows} == {0, 1}
        for row in rows:
            expected = USERS[row.offset % 2]
            assert repr(row.score) == repr(expected["score"])
            assert (row["count"], row.day, row.tags) == (expected["count"], expected["day"], expected["tags"])
            seen = expected["seen"]
            assert row.seen == (seen and datetime.fromtimestamp(seen.timestamp()))  # noqa: DTZ006 - as pyspark
            assert row.timestampType == 0

    def test_a_tombstone_stays_one(self, story: Story) -> None:
        (row,) = [row for row in story.batches[1][1] if row.offset == 3 and row.partition == 0]
        assert (row.value, row.key, row.failure) == (None, b"k", None)


class TestRestart:
    def test_a_replayed_batch_gives_the_same(self, story: Story) -> None:
        first, second = [rows for number, rows in story.batches if number == 1]
        assert bytes_of(first) == bytes_of(second)

    def test_slices_that_waited_go_through_the_new_chain(self, story: Story) -> None:
        assert "hw.trail" in {each.key for each in story.batches[-1][1][0].headers}

    def test_the_frame_may_have_got_columns_since(self, story: Story) -> None:
        assert [row.added for row in story.batches[-1][1]] == [7, 7]
        assert {row.added for row in story.failed(1) if row.offset == 1} == {None}

    def test_nothing_is_left_in_the_state(self, story: Story) -> None:
        assert story.state_rows[0] > 0
        assert story.state_rows[-1] == 0


class TestGivingUp:
    def test_a_bad_slice_takes_only_its_own_message_along(self, story: Story) -> None:
        assert [(row.offset, row.failure.error) for row in story.failed(1)] == [
            (1, "ReassemblyError"),
            (3, "ReassemblyError"),
        ]

    def test_the_slice_that_had_waited_is_as_it_came(self, story: Story) -> None:
        row = story.failed(1)[0]
        assert row.value == row.failure.value == story.bad[0].value
        assert [(each.key, each.value) for each in row.headers] == list(story.bad[0].headers)

    def test_the_reason_says_what_is_wrong_and_nothing_of_the_payload(self, story: Story) -> None:
        reason = story.failed(1)[1].failure.reason
        assert "slice 1 has 9 bytes" in reason
        assert "cut short" not in reason

    def test_a_message_is_left_behind_by_offsets(self, story: Story) -> None:
        (row,) = story.failed(2)
        assert (row.offset, "max_gap" in row.failure.reason) == (0, True)

    def test_time_alone_gives_up_where_nothing_comes(self, spark: SparkSession, tmp_path: Path) -> None:
        stream = Stream(spark, tmp_path)
        stream.add((0, 0, cut(os.urandom(2_000))[0]))
        chain = Chain([Slice(expire_ms=100)])
        frame = decode_stateful(stream.frame(), chain, failures="route")
        query = stream.start(frame, processingTime="0 seconds")
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not stream.rows() and time.monotonic() < deadline and query.isActive:
                time.sleep(0.1)
        finally:
            query.stop()
        (row,) = stream.rows()
        assert "expire_ms" in row.failure.reason
        assert stream.batches[0] == (0, [])

    def test_a_refused_row_fails_the_query_unless_it_is_routed(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        stream = Stream(spark, tmp_path)
        stream.add((0, 0, cut(os.urandom(2_000))[1].replace(value=b"cut short")))
        with pytest.raises(StreamingQueryException, match="slice 1 has 9 bytes"):
            finish(spark, stream, decode_stateful(stream.frame(), SENDS))


@pytest.mark.broker
class TestRealBroker:
    def test_typed_messages_come_whole_from_small_batches(
        self, spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
    ) -> None:
        topic = f"stateful-{tmp_path.name}"
        kafka_broker.create_topic(topic, partitions=2)
        servers = kafka_broker.bootstrap_servers
        texts = ["long" * 500 if n % 3 == 0 else "short" for n in range(12)]
        chain = Chain([Serialize(value="json"), LIMITS])
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            for n, text in enumerate(texts):
                producer.produce(topic, {"n": n, "text": text}, key=b"k", partition=n % 2)
            assert producer.flush(60) == 0
        options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 9,
        }
        stream = Stream(spark, tmp_path)
        read = kafka_source(spark.readStream, options)
        query = finish(spark, stream, decode_stateful(read, chain, value="n long, text string"))
        assert len(stream.batches) > 1
        assert sorted((row.value.n, row.value.text) for row in stream.rows()) == list(enumerate(texts))
        assert query.recentProgress[-1]["stateOperators"][0]["numRowsTotal"] == 0


class TestChecks:
    @pytest.fixture
    def frame(self, spark: SparkSession, tmp_path: Path) -> DataFrame:
        return Stream(spark, tmp_path).frame()

    def test_a_batch_frame_is_for_decode(self, spark: SparkSession) -> None:
        with pytest.raises(ConfigError, match=r"use decode\(\)"):
            decode_stateful(spark.createDataFrame([], COLUMNS), SENDS)

    def test_a_chain_without_slices_is_for_decode(self, frame: DataFrame) -> None:
        with pytest.raises(ConfigError, match=r"no 'slice' step.*use decode\(\)"):
            decode_stateful(frame, Chain([Trail(service="s")]))

    def test_dedup_is_for_foreach_batch(self, frame: DataFrame) -> None:
        with pytest.raises(ConfigError, match=r"foreach_batch\(\).*dropDuplicatesWithinWatermark"):
            decode_stateful(frame, Chain([Dedup(), LIMITS]))

    @pytest.mark.parametrize("name", ["partition", "offset"])
    def test_a_missing_place_is_named(self, frame: DataFrame, name: str) -> None:
        with pytest.raises(ConfigError, match=f"column {name}"):
            decode_stateful(frame.drop(name), SENDS)

    def test_another_state_store_is_refused_with_the_line_to_set(
        self, spark: SparkSession, frame: DataFrame
    ) -> None:
        other = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        with (
            setting(spark, PROVIDER, other),
            pytest.raises(ConfigError, match=r"spark\.conf\.set\(.*RocksDB"),
        ):
            decode_stateful(frame, SENDS)

    def test_a_slice_without_its_place_is_refused_alone(self, frame: DataFrame) -> None:
        source, loaded = chain_source(SENDS)
        plan = DecodePlan(frame, source, loaded, failures="route")
        spec = plan.task_spec(job="j").replace(schema=with_status(plan.schema, typed=False).json())
        first = cut(os.urandom(2_000))[0]
        headers = [{"key": name, "value": value} for name, value in first.headers]
        row = {"topic": "orders", "value": first.value, "headers": headers}
        begun = decode_to_ipc(pickle.dumps(spec), pickle.dumps(16_384))
        ((placed,),) = [batch.to_pylist() for batch in begun([pa.RecordBatch.from_pylist([row], WIRE)])]
        assert (placed["topic"], placed["partition"], placed["status"]) == ("orders", -1, Status.DONE)
        (found,) = next(_from_ipc(placed["rows"])).to_pylist()
        assert "without its partition and offset" in found["failure"]["reason"]

    def test_decode_names_this_form_for_streams_with_slices(self, frame: DataFrame) -> None:
        with pytest.raises(ConfigError, match=r"decode_stateful\(\)"):
            decode(frame, SENDS)


class TestPacks:
    def test_rows_come_back_as_they_were(self) -> None:
        batch = pa.RecordBatch.from_pylist([{"score": float("nan"), "count": None, "value": b""}])
        (found,) = _from_ipc(_to_ipc(batch.slice(0, 1)))
        assert repr(found.to_pylist()) == repr(batch.to_pylist())
        assert found.schema == batch.schema

    def test_packs_of_one_schema_are_joined_up_to_a_size(self) -> None:
        small = [pa.RecordBatch.from_pylist([{"value": bytes(100), "at": at}]) for at in range(5)]
        other = pa.RecordBatch.from_pylist([{"value": b""}])
        found = list(_merged(map(_to_ipc, [*small, other]), 250))
        assert [each.num_rows for each in found] == [3, 2, 1]
        assert [row["at"] for each in found[:2] for row in each.to_pylist()] == [0, 1, 2, 3, 4]

    def test_a_piece_of_a_large_batch_takes_no_more_than_its_rows(self) -> None:
        batch = pa.RecordBatch.from_pylist([{"value": bytes(1_000)} for _ in range(100)])
        found = list(_split(batch, 10_000))
        assert sum(each.num_rows for each in found) == 100
        assert max(len(_to_ipc(each)) for each in found) < 12_000

    def test_a_row_above_the_limit_is_a_piece(self) -> None:
        batch = pa.RecordBatch.from_pylist([{"value": bytes(1_000)}, {"value": b""}])
        assert [each.num_rows for each in _split(batch, 1)] == [1, 1]
