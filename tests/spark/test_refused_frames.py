"""Errors of decode and encode before anything runs, and unusual frames that are accepted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware import Chain, ConfigError, Headers, Record
from headerware.core.context import Context
from headerware.interceptors import Audit, Compress, Dedup, Delay, Serialize, Slice, Trail
from headerware.serdes import Json
from headerware.spark_bridge import decode, decode_stateful, encode, foreach_batch, kafka_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

TOPIC = "orders"
HEADERS = "headers array<struct<key string, value binary>>"
READ = f"key binary, value binary, topic string, partition int, offset long, {HEADERS}"
LEAST = f"topic string, value binary, {HEADERS}"
ALONE = Chain([Trail(service="spark"), Compress()])
noise = random.Random(7).randbytes


def empty(spark: SparkSession, schema: str) -> DataFrame:
    return spark.createDataFrame([], schema)


def frame_of(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """Return records as the connector returns them; their offsets are their indices in the list."""
    rows = [
        (each.key, each.value, each.topic, 0, offset, list(each.headers))
        for offset, each in enumerate(records)
    ]
    return spark.createDataFrame(rows, READ)


def pairs(row: Row) -> list[tuple[str, bytes | None]]:
    return [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers]


class TestFramesToDecode:
    @pytest.mark.parametrize(
        ("schema", "says"),
        [
            ("topic string, value binary", r"column headers: there is none; .*includeHeaders"),
            (f"value binary, {HEADERS}", "column topic: there is none; .*Found: value, headers"),
            (f"topic string, {HEADERS}", "column value: there is none"),
            (f"topic string, value string, {HEADERS}", "column value: expected binary, found string"),
            (f"{LEAST}, key string", "column key: expected binary, found string"),
            (f"{LEAST}, partition long", "column partition: expected int, found bigint"),
            (f"{LEAST}, offset int", "column offset: expected bigint, found int"),
            (f"{LEAST}, timestamp long", "column timestamp: expected timestamp, found bigint"),
            (f"{LEAST}, timestampType string", "column timestampType: expected int, found string"),
            ("topic string, value binary, headers map<string, binary>", "column headers: expected array"),
            (
                "topic string, value binary, headers array<struct<key string, value string>>",
                "column headers: expected array<struct<key:string,value:binary>>",
            ),
            (
                "topic string, value binary, headers array<struct<value binary, key string>>",
                "column headers: expected array<struct<key:string,value:binary>>",
            ),
            (f"{LEAST}, failure string", "column failure: the bridge has a column of this name"),
            (f"{LEAST}, Failure string", "column Failure: the bridge has a column of this name"),
            (f"{LEAST}, `dotted.name` int", "column dotted.name: .*rename it"),
            (f"{LEAST}, _hw_status int", "column _hw_status: the bridge has a column of this name"),
        ],
    )
    def test_what_cannot_be_decoded_is_refused(self, spark: SparkSession, schema: str, says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            decode(empty(spark, schema), ALONE)

    def test_a_column_source_of_the_users_own_is_kept(self, spark: SparkSession) -> None:
        orders = spark.sql("select 'orders' topic, 'tea' value, 'shop-7' source")
        (row,) = decode(encode(orders, ALONE), ALONE).collect()
        assert (bytes(row.value), row.source) == (b"tea", "shop-7")

    def test_a_column_source_of_a_stream_of_batches_is_refused(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        checkpoint, files = str(tmp_path / "checkpoint"), str(tmp_path / "files")
        spark.sql("select 'orders' topic, binary('v') value, 'shop-7' source").withColumn(
            "headers", F.lit(None).cast(HEADERS.partition(" ")[2])
        ).write.parquet(files)
        work = foreach_batch(ALONE, lambda rows, batch: None, checkpoint=checkpoint)
        stream = spark.readStream.schema(f"{LEAST}, source string").parquet(files).writeStream
        query = stream.foreachBatch(work).option("checkpointLocation", checkpoint).start()
        with pytest.raises(StreamingQueryException, match="column source: the bridge has a column of this"):
            query.awaitTermination()

    def test_columns_that_stand_there_twice_are_refused(self, spark: SparkSession) -> None:
        doubled = empty(spark, LEAST).selectExpr("*", "value")
        with pytest.raises(ConfigError, match="column value: there are several of this name"):
            decode(doubled, ALONE)

    @pytest.mark.parametrize("step", [Slice(), Dedup()])
    @pytest.mark.parametrize("missing", ["partition", "offset"])
    def test_slices_and_repeats_need_their_places(
        self, spark: SparkSession, step: Slice | Dedup, missing: str
    ) -> None:
        frame = empty(spark, READ).drop(missing)
        with pytest.raises(ConfigError, match=f"column {missing}: there is none; slices and repeats"):
            decode(frame, Chain([step]))

    def test_what_the_connector_alone_gives_is_not_needed(self, spark: SparkSession) -> None:
        assert decode(empty(spark, LEAST), ALONE).columns == ["topic", "value", "headers"]

    @pytest.mark.parametrize("step", [Slice(), Dedup()])
    def test_a_stream_whose_rows_need_others_is_refused(
        self, spark: SparkSession, tmp_path: Path, step: Slice | Dedup
    ) -> None:
        stream = spark.readStream.schema(READ).parquet(str(tmp_path))
        assert decode(stream, ALONE).isStreaming
        with pytest.raises(ConfigError, match=rf"chain: the chain has '{step.type}'.*foreach_batch\(\)"):
            decode(stream, Chain([step]))


class TestFramesToEncode:
    @pytest.mark.parametrize(
        ("schema", "says"),
        [
            ("value binary", "column topic: there is none"),
            ("topic string", "column value: there is none"),
            ("topic string, value int", "column value: expected binary or string, found int"),
            ("topic string, value string, key int", "column key: expected binary or string, found int"),
            ("topic string, value string, partition string", "column partition: expected int, found string"),
            ("topic string, value string, headers string", "column headers: expected array"),
            ("topic string, value string, `dotted.name` int", "column dotted.name: .*rename it"),
            ("topic string, value string, failure int", "column failure: the bridge has a column"),
        ],
    )
    def test_what_cannot_be_encoded_is_refused(self, spark: SparkSession, schema: str, says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            encode(empty(spark, schema), ALONE)

    @pytest.mark.parametrize(
        ("identity", "says"),
        [
            (None, r"identity: the chain has 'dedup'.*identity=\[\.\.\.\]"),
            (["n", "absent"], "identity: there is no column absent; found: topic, value, n"),
            ([], "identity: there is no column named"),
        ],
    )
    def test_rows_without_an_identity_are_refused(
        self, spark: SparkSession, identity: list[str] | None, says: str
    ) -> None:
        with pytest.raises(ConfigError, match=says):
            encode(empty(spark, "topic string, value string, n int"), Chain([Dedup()]), identity=identity)


class TestChains:
    def test_with_a_step_that_cannot_work_are_refused_at_the_call(self, spark: SparkSession) -> None:
        frame, delay, audit = empty(spark, READ), Chain([Delay(after_ms=5)]), Chain([Audit()])
        kafka = {"kafka.bootstrap.servers": "localhost:9"}
        reading = r"interceptors\.delay: 'delay' holds records back"
        with pytest.raises(ConfigError, match=reading):
            decode(frame, delay)
        with pytest.raises(ConfigError, match=reading):
            decode_stateful(frame, delay)
        with pytest.raises(ConfigError, match=reading):
            foreach_batch(delay, lambda rows, batch: None, checkpoint="here")
        counting = r"interceptors\.audit: 'audit' cannot count here"
        with pytest.raises(ConfigError, match=counting):
            decode(frame, audit)
        with pytest.raises(ConfigError, match=counting):
            encode(frame, audit)
        with pytest.raises(ConfigError, match=counting):
            kafka_sink(kafka, audit)

    @pytest.mark.parametrize("chain", [None, 7, [Trail()], {"trail"}])
    def test_what_is_no_chain_is_refused(self, spark: SparkSession, chain: Any) -> None:
        with pytest.raises(ConfigError, match="chain: expected a Chain, a mapping, or a path to TOML"):
            decode(empty(spark, LEAST), chain)

    def test_a_file_that_is_not_there_is_named(self, spark: SparkSession, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read"):
            decode(empty(spark, LEAST), tmp_path / "absent.toml")

    def test_a_wrong_option_is_named(self, spark: SparkSession) -> None:
        with pytest.raises(ConfigError, match=r"interceptors\.trail\.servise"):
            encode(empty(spark, LEAST), {"interceptors": "trail", "interceptors.trail.servise": "x"})


ODD = [
    Record(TOPIC, b"v", b"k", Headers([("a", None), ("a", b""), ("", b"1")])),
    Record(TOPIC, b"", b"", Headers()),
    Record(TOPIC, None, None, Headers([("hw.compress", b"\x01")])),
]


class TestEmptyChain:
    def test_rows_pass_as_they_are(self, spark: SparkSession) -> None:
        frame = frame_of(spark, ODD)
        assert decode(frame, Chain([])).collect() == frame.collect()

    def test_disabled_chains_do_the_same(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        frame = frame_of(spark, ODD)
        both = encode(decode(frame, Chain([Compress(), Slice()])), {"interceptors": "compress,slice"})
        expected = [row.asDict() | {"partition": None} for row in frame.collect()]
        assert [row.asDict() for row in both.collect()] == expected

    def test_disabled_chains_still_serialize(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        frame = spark.sql("select 'orders' topic, named_struct('id', 1) value")
        (row,) = encode(frame, Chain([Serialize(value=Json()), Compress(min_bytes=0)])).collect()
        assert bytes(row.value) == b'{"id":1}'
        assert [header.key for header in row.headers] == ["content-type"]


class TestNullHeaders:
    def test_are_no_headers(self, spark: SparkSession) -> None:
        rows = [(TOPIC, b"v", None), (TOPIC, b"w", [("a", None)])]
        decoded = decode(spark.createDataFrame(rows, LEAST), Chain([Compress()])).collect()
        assert [(bytes(row.value), pairs(row)) for row in decoded] == [(b"v", []), (b"w", [("a", None)])]


class TestRepeats:
    def test_each_record_comes_once_from_its_first_place(self, spark: SparkSession) -> None:
        chain = Chain([Dedup(), Slice(max_bytes=2_000)])
        with chain.open(Context(side="producer")) as session:
            sent = session.send([Record(TOPIC, noise(size), b"k") for size in (10, 4_000, 20)])
        bare = Record(TOPIC, b"without an identity", b"k")
        records = [*sent, bare, *reversed(sent), *sent, bare]
        rows = sorted(decode(frame_of(spark, records), chain).collect(), key=lambda row: row.offset)
        assert len(sent) == 5, "the large one is three slices"
        found = [(row.offset, len(row.value)) for row in rows]
        assert found == [(0, 10), (3, 4_000), (4, 20), (5, len(bare.value)), (16, len(bare.value))]
        assert rows[0].__fields__ == ["key", "value", "topic", "partition", "offset", "headers"]


class TestIdentities:
    @pytest.fixture
    def time_zone(self, spark: SparkSession) -> Iterator[Callable[[str], None]]:
        """Return a function that sets the session's time zone; it goes back to what it was."""
        key = "spark.sql.session.timeZone"
        before = str(spark.conf.get(key))
        yield lambda name: spark.conf.set(key, name)
        spark.conf.set(key, before)

    @pytest.mark.parametrize("column", ["at", "noted"])
    def test_instants_name_a_row_to_the_microsecond_in_every_time_zone(
        self, spark: SparkSession, time_zone: Callable[[str], None], column: str
    ) -> None:
        found = []
        for zone in ("UTC", "Asia/Kathmandu"):
            time_zone(zone)
            frame = spark.sql(
                "select 'orders' topic, 'v' value, null `a key`, timestamp_micros(id) at, "
                "to_timestamp_ntz(concat('2026-01-01 00:00:00.00000', id)) noted from range(3)"
            )
            wire = encode(frame, Chain([Dedup()]), identity=[column, "a key"], job="nightly")
            found.append([dict(pairs(row))["hw.id"] for row in wire.collect()])
        assert found[0] == found[1]
        assert len(set(found[0])) == 3

    def test_dedup_names_rows_itself_as_in_a_service(self, spark: SparkSession) -> None:
        chain = Chain([Dedup(id_from=("order-id",))])
        records = [Record("orders", b"v", headers=Headers([("order-id", text)])) for text in (b"1", b"2")]
        wire = encode(frame_of(spark, records).drop("partition", "offset"), chain)
        with chain.open() as session:
            sent = session.send(records)
        assert [pairs(row) for row in wire.collect()] == [list(record.headers) for record in sent]
