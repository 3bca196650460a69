"""Columns over headers, and the functions of SQL with the same results."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.listener import StreamingQueryListener

from headerware import Chain
from headerware.interceptors import Compress, Trail
from headerware.interceptors.trail import TrailEntry, TrailReading, encode_trail
from headerware.spark_bridge import counters, decode, encode, header, headers_map, register_functions, trail
from headerware.spark_bridge.frames.schema import HEADERS
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VECTORS = json.loads((Path(__file__).parents[2] / "spec/vectors/trail.json").read_text(encoding="utf-8"))
ROWS: list[tuple[int, list[tuple[str, bytes | None]] | None]] = [
    (1, [("tenant", b"north"), ("tenant", b"south"), ("empty", b""), ("null", None)]),
    (2, []),
    (3, None),
]


def frame(spark: SparkSession, rows: Any) -> DataFrame:
    return spark.createDataFrame(rows, f"id int, headers {HEADERS.simpleString()}")


def wire(case: dict[str, Any]) -> bytes | None:
    """Return the value of a vector."""
    if "wire_hex" in case:
        return bytes.fromhex(case["wire_hex"])
    return None if case["wire"] is None else case["wire"].encode()


@pytest.fixture(params=["columns", "SQL"])
def select(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    """Return a function that selects each of the three from a frame, as columns or in SQL."""
    register_functions(spark)
    made: dict[str, Any] = {"header": header, "map": headers_map, "trail": trail}
    if request.param == "SQL":
        made = {
            "header": lambda name: F.expr(f"hw_header(headers, '{name}')"),
            "map": lambda: F.expr("hw_headers_map(headers)"),
            "trail": lambda: F.expr("hw_trail(headers)"),
        }
    return lambda found, what, *names: [
        row[0] for row in found.orderBy("id").select(made[what](*names)).collect()
    ]


class TestHeader:
    @pytest.mark.parametrize(
        ("name", "values"),
        [("tenant", [b"south", None, None]), ("empty", [b"", None, None]), ("null", [None] * 3)],
    )
    def test_is_the_last_of_its_name(
        self, spark: SparkSession, select: Any, name: str, values: list[bytes | None]
    ) -> None:
        assert select(frame(spark, ROWS), "header", name) == values

    def test_runs_without_python(self, spark: SparkSession) -> None:
        register_functions(spark)
        found = frame(spark, ROWS).where("hw_header(headers, 'tenant') = X'736F757468'")
        plan = found.select(header("tenant"), headers_map())._jdf.queryExecution().toString()
        assert "Python" not in plan
        assert [bytes(row.tenant) for row in found.select(header("tenant")).collect()] == [b"south"]

    def test_takes_another_column(self, spark: SparkSession) -> None:
        renamed = frame(spark, ROWS).withColumnRenamed("headers", "theirs").orderBy("id")
        assert renamed.select(header("tenant", "theirs")).first() == (b"south",)
        assert renamed.select(header("tenant", renamed.theirs)).first() == (b"south",)

    def test_of_any_name(self, spark: SparkSession) -> None:
        rows = [(1, [("it's `odd`.", b"x")])]
        assert frame(spark, rows).select(header("it's `odd`.")).first() == (b"x",)


class TestMap:
    def test_has_the_last_of_each_name(self, spark: SparkSession, select: Any) -> None:
        assert select(frame(spark, ROWS), "map") == [
            {"tenant": b"south", "empty": b"", "null": None},
            {},
            None,
        ]

    def test_of_very_many_headers_is_made_in_time(self, spark: SparkSession, select: Any) -> None:
        many = [(f"name-{number % 20_000}", b"%d" % number) for number in range(40_000)]
        (found,) = select(frame(spark, [(1, many)]), "map")
        assert len(found) == 20_000
        assert (found["name-0"], found["name-19999"]) == (b"20000", b"39999")


class TestTrail:
    def test_has_the_entries(self, spark: SparkSession, select: Any) -> None:
        entries = (
            TrailEntry(
                when_ms=1_500, by_whom="shop", produced_into_cluster="eu", produced_into_topic="orders"
            ),
            TrailEntry(when_ms=-1, by_whom="päckchen", read_from_topic="orders"),
        )
        value = encode_trail(TrailReading(entries))
        rows = [(1, [("hw.trail", b"1"), ("hw.trail", value)]), (2, [("hw.trail", b"1")]), *ROWS[1:]]
        utc = dt.UTC
        found = select(frame(spark, [(number, *row[1:]) for number, row in enumerate(rows)]), "trail")
        assert found[1:] == [[], None, None]
        assert [{**row.asDict(), "when": row.when.astimezone(utc)} for row in found[0]] == [
            {
                "when": dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, utc),
                "by_whom": "shop",
                "read_from_cluster": None,
                "read_from_topic": None,
                "produced_into_cluster": "eu",
                "produced_into_topic": "orders",
            },
            {
                "when": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, utc),
                "by_whom": "päckchen",
                "read_from_cluster": None,
                "read_from_topic": "orders",
                "produced_into_cluster": None,
                "produced_into_topic": None,
            },
        ]

    def test_is_null_if_it_is_malformed(self, spark: SparkSession, select: Any) -> None:
        rows = [(number, [("hw.trail", wire(case))]) for number, case in enumerate(VECTORS["refused"])]
        assert len(rows) > 20
        assert set(select(frame(spark, rows), "trail")) == {None}

    def test_has_no_time_that_spark_cannot_hold(self, spark: SparkSession, select: Any) -> None:
        times = 2**63 - 1, -(2**63)
        values = [encode_trail(TrailReading((TrailEntry(when_ms=time),))) for time in times]
        rows = [(number, [("hw.trail", value)]) for number, value in enumerate(values)]
        found = select(frame(spark, rows), "trail")
        assert [[entry.when for entry in each] for each in found] == [[None], [None]]

    def test_of_each_vector_has_its_entries(self, spark: SparkSession, select: Any) -> None:
        rows = [(number, [("hw.trail", wire(case))]) for number, case in enumerate(VECTORS["cases"])]
        found = select(frame(spark, rows), "trail")
        assert [len(each) for each in found] == [len(case["entries"]) for case in VECTORS["cases"]]


class TestCounters:
    CHAIN = Chain([Trail(), Compress()])
    RECORDS: tuple[Any, ...] = (
        ("orders", b"12345", []),
        ("orders", None, []),
        ("orders", b"x", [("hw.compress", b"zstd")]),
        ("orders", b"y", [("hw.trail", b"z" * 70_000)]),
    )

    def records(self, spark: SparkSession) -> DataFrame:
        columns = f"topic string, value binary, headers {HEADERS.simpleString()}"
        return spark.createDataFrame(self.RECORDS, columns).coalesce(1)

    def test_count_a_batch_by_step(self, spark: SparkSession) -> None:
        decoded = decode(self.records(spark), self.CHAIN, failures="route", cluster_id="")
        seen = Observation("orders")
        decoded.observe(seen, *counters(decoded, self.CHAIN)).collect()
        refused = Counter(row.failure.step for row in decoded.where("failure is not null").collect())
        assert refused["compress"] == 1
        assert seen.get == {
            "rows": 4 - refused.total(),
            "value_bytes": 5 if refused["trail"] else 6,
            "refused": refused.total(),
            "refused_trail": refused["trail"],
            "refused_compress": 1,
        }

    def test_count_rows_alone_where_a_refused_row_fails_the_job(self, spark: SparkSession) -> None:
        encoded = encode(self.records(spark).limit(2), self.CHAIN, cluster_id="")
        seen = Observation("orders")
        encoded.observe(seen, *counters(encoded, self.CHAIN)).collect()
        assert seen.get == {"rows": 2, "value_bytes": 5}

    @pytest.mark.one_spark
    def test_reach_the_listeners_of_a_stream(self, spark: SparkSession, tmp_path: Path) -> None:
        self.records(spark).write.parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema(self.records(spark).schema).parquet(str(tmp_path / "in"))
        decoded = decode(stream, self.CHAIN, failures="route", cluster_id="")
        seen: list[dict[str, Any]] = []

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802 - Spark's name
            def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - as above
                seen.extend(row.asDict() for row in event.progress.observedMetrics.values())

            def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802 - as above

        listener = Listener()
        spark.streams.addListener(listener)
        observed = decoded.observe("orders", *counters(decoded, self.CHAIN))
        writer = observed.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = query.lastProgress
        assert progress is not None
        told = progress["observedMetrics"]["orders"]
        assert told["rows"] + told["refused"] == 4
        assert told["refused_compress"] == 1
        until(lambda: told.asDict() in seen)
        spark.streams.removeListener(listener)
