"""Typed columns: Avro and JSON become columns for Spark, and go back to the bytes that services read."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it
from pyspark.sql.types import BinaryType, LongType

from headerware import Chain, ConfigError, DeserializingConsumer, Headers, Record, load_chain
from headerware.core.context import Context
from headerware.interceptors import Compress, Serialize, Trail
from headerware.serdes import Avro, FolderSchemas, Json
from headerware.spark_bridge import avro_type, decode, encode, json_type, split_failures
from headerware.spark_bridge.frames.arrow_types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from headerware.testing import KafkaBroker

DEADLINE_S = 60.0
TOPIC = "orders"
HEADERS = "headers array<struct<key string, value binary>>"
READ = f"key binary, value binary, topic string, partition int, offset long, {HEADERS}"
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "items", "type": {"type": "array", "items": ITEM}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
# What an earlier service wrote: no notes, and a price in words.
OLD_ORDER = {**ORDER, "fields": ORDER["fields"][:4]}
PRICE_IN_WORDS = {**ORDER, "fields": [ORDER["fields"][0], {"name": "price", "type": "string"}]}
CHAIN = """
[[interceptors]]
type = "serialize"
key = "long"
value = { type = "avro", schema = "order.avsc", store = { type = "folder", path = "schemas" } }

[[interceptors]]
type = "trail"
service = "everywhere"

[[interceptors]]
type = "compress"
"""
PLACED = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
ITEMS = [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}]


def order(number: int, **fields: Any) -> dict[str, Any]:
    """Return an order as an application has it."""
    price = Decimal(number).scaleb(-2)
    return {"id": number, "price": price, "placed": PLACED, "items": ITEMS, "note": None, **fields}


ORDERS = [order(1), order(200, note="a note " * 200), order(-3, items=[])]


def plain(value: Row | None) -> dict[str, Any] | None:
    """Return a typed value as an application has it; Spark gives instants in the machine's own zone."""
    if value is None:
        return None
    found = value.asDict(recursive=True)
    return {**found, "placed": found["placed"].astimezone(UTC)}


def wire(chain: Chain, *records: Record) -> list[Record]:
    """Return records as they lie in a topic's only partition, one after the other."""
    with chain.open(Context(side="producer")) as session:
        return [sent.replace(partition=0, offset=offset) for offset, sent in enumerate(session.send(records))]


def in_avro(schema: dict[str, Any], home: Path) -> Chain:
    """Return the chain of a service that has a schema of its own for values, and the common store."""
    store = FolderSchemas(path=str(home / "schemas"))
    return Chain([Serialize(value=Avro(schema=schema, store=store))])


def frame_of(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """Return records as the connector returns them, in one task; their offsets are indices in the list."""
    rows = [
        (each.key, each.value, each.topic, 0, offset, list(each.headers))
        for offset, each in enumerate(records)
    ]
    return spark.createDataFrame(rows, READ).coalesce(1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("platform")
    (folder / "order.avsc").write_text(json.dumps(ORDER))
    (folder / "chain.toml").write_text(CHAIN)
    return folder


@pytest.fixture(scope="module")
def chain_file(home: Path) -> Path:
    return home / "chain.toml"


@pytest.fixture(scope="module")
def records(home: Path, chain_file: Path) -> list[Record]:
    """Return the records of services: orders, one by an older schema, a tombstone, and two bad ones."""
    old = {name: field for name, field in order(4).items() if name != "note"}
    written = [
        *wire(load_chain(chain_file), *(Record(TOPIC, each, each["id"]) for each in ORDERS)),
        *wire(
            in_avro(OLD_ORDER, home),
            Record(TOPIC, old, bytes(7) + b"\4"),
        ),
        Record(TOPIC, None, bytes(7) + b"\5"),
        *wire(
            in_avro(PRICE_IN_WORDS, home),
            Record(TOPIC, {"id": 6, "price": "six"}, bytes(7) + b"\6"),
        ),
        *wire(load_chain(chain_file), Record(TOPIC, order(7), 7)),
    ]
    return [*written[:-1], written[-1].replace(value=written[-1].value[:9])]


@pytest.fixture(scope="module")
def decoded(spark: SparkSession, records: list[Record], chain_file: Path) -> DataFrame:
    return decode(
        frame_of(spark, records), chain_file, value=avro_type(ORDER), key="bigint", failures="route"
    )


@pytest.fixture(scope="module")
def rows(decoded: DataFrame) -> list[Row]:
    return sorted(decoded.collect(), key=lambda row: row.offset)


class TestDecodeAvro:
    def test_the_columns_have_the_types(self, decoded: DataFrame) -> None:
        kinds = {field.name: field.dataType for field in decoded.schema}
        assert kinds["value"] == avro_type(ORDER)
        assert kinds["key"] == LongType()
        assert decoded.columns == ["key", "value", "topic", "partition", "offset", "headers", "failure"]

    def test_objects_are_what_services_wrote(self, rows: list[Row]) -> None:
        assert [(row.key, plain(row.value)) for row in rows[:3]] == [(each["id"], each) for each in ORDERS]

    def test_the_schema_is_found_through_the_headers(self, rows: list[Row]) -> None:
        assert (rows[3].key, plain(rows[3].value)) == (4, order(4))

    def test_a_tombstone_is_null(self, rows: list[Row]) -> None:
        assert (rows[4].key, rows[4].value, rows[4].failure) == (5, None, None)

    def test_what_does_not_fit_fails_alone_and_says_where(self, rows: list[Row]) -> None:
        row = rows[5]
        assert (row.key, row.value) == (None, None)
        assert row.failure.step == "serialize"
        assert row.failure.reason.startswith(f"serialize at {TOPIC}[0]@5: the value does not fit its column")
        assert "price" in row.failure.reason
        assert "six" not in row.failure.reason

    def test_what_cannot_be_read_fails_alone(self, rows: list[Row]) -> None:
        assert [row.offset for row in rows if row.failure is not None] == [5, 6]
        assert rows[6].failure.error == "SerdeError"

    def test_the_letters_have_the_bytes_as_they_came(self, decoded: DataFrame, records: list[Record]) -> None:
        letters = sorted(split_failures(decoded)[1].collect(), key=lambda row: row.key)
        for letter, record in zip(letters, records[5:], strict=True):
            assert (bytes(letter.key), bytes(letter.value)) == (record.key, record.value)
            original = [(header.key, header.value) for header in letter.headers[: len(record.headers)]]
            assert Headers(original) == record.headers

    def test_spark_calculates_with_them(self, decoded: DataFrame) -> None:
        good = decoded.where("failure is null and value is not null")
        (row,) = good.selectExpr(
            "sum(value.price) total", "sum(size(value.items)) items", "max(value.note) note"
        ).collect()
        assert (row.total, row.items) == (Decimal("2.02"), 6)
        assert row.note == "a note " * 200


class TestParts:
    """A part without a type holds bytes, whatever the chain has a serde for."""

    @pytest.mark.parametrize("typed", ["key", "value"])
    def test_one_part_may_be_typed_alone(
        self, spark: SparkSession, records: list[Record], chain_file: Path, typed: str
    ) -> None:
        kind: Any = {"key": {"key": LongType()}, "value": {"value": avro_type(ORDER)}}[typed]
        (row,) = decode(frame_of(spark, records[:1]), chain_file, **kind).collect()
        if typed == "key":
            assert (row.key, bytes(row.value)) == (1, records[0].value)
        else:
            assert (bytes(row.key), plain(row.value)) == (records[0].key, ORDERS[0])

    def test_without_types_the_rest_of_the_chain_is_run(
        self, spark: SparkSession, records: list[Record], chain_file: Path
    ) -> None:
        frame = decode(frame_of(spark, records[:3]), chain_file)
        assert [frame.schema[name].dataType for name in ("key", "value")] == [BinaryType(), BinaryType()]
        rows = frame.collect()
        assert "hw.compress" in records[1].headers.names(), "the large one is"
        for row, sent in zip(rows, records, strict=False):
            names = [header.key for header in row.headers]
            assert "hw.compress" not in names
            assert "hw.schema" in names, "for whoever deserializes it later"
            assert bytes(row.key) == sent.key
        assert b"a note a note" in bytes(rows[1].value)


@pytest.mark.broker
class TestEncodeAvro:
    def test_services_read_what_spark_calculated(
        self,
        spark: SparkSession,
        kafka_broker: KafkaBroker,
        unique_topic: Callable[[str], str],
        records: list[Record],
        chain_file: Path,
    ) -> None:
        topic = unique_topic("typed")
        kafka_broker.create_topic(topic)
        source = decode(frame_of(spark, records[:5]), chain_file, value=avro_type(ORDER), key="bigint")
        doubled = source.selectExpr(
            f"'{topic}' topic",
            "key",
            "if(value is null, null, named_struct('id', value.id, 'price', "
            "cast(value.price * 2 as decimal(9, 2)), 'placed', value.placed, 'items', value.items, "
            "'note', value.note)) value",
        )
        servers = kafka_broker.bootstrap_servers
        wire = encode(doubled, chain_file)
        assert [wire.schema[name].dataType for name in ("key", "value")] == [BinaryType(), BinaryType()]
        wire.write.format("kafka").option("kafka.bootstrap.servers", servers).save()

        conf = {"bootstrap.servers": servers, "group.id": topic, "log_level": 0}
        found: dict[Any, Any] = {}
        deadline = time.monotonic() + DEADLINE_S
        with DeserializingConsumer(conf, chain=load_chain(chain_file)) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while len(found) < 5:
                assert time.monotonic() < deadline, found
                message = consumer.poll(1)
                if message is not None:
                    found[message.key()] = message.value()
        expected = {each["id"]: {**each, "price": each["price"] * 2} for each in [*ORDERS, order(4)]}
        assert found == expected | {5: None}


class TestObjectsThatNoSchemaTakes:
    def test_the_row_fails_alone(self, spark: SparkSession, home: Path) -> None:
        chain = in_avro(PRICE_IN_WORDS, home)
        frame = spark.sql(
            "select 'orders' topic, encode(concat('k', id), 'utf-8') key, "
            "named_struct('id', id, 'price', if(id = 1, null, 'words')) value from range(3)"
        )
        rows = encode(frame, chain, failures="route").collect()
        assert [bytes(row.key) for row in rows if row.failure is None] == [b"k0", b"k2"]
        (bad,) = (row for row in rows if row.failure is not None)
        assert (bytes(bad.key), bad.failure.step) == (b"k1", "serialize")
        assert bytes(bad.failure.value) == b'{"id":1,"price":null}', "a letter has the object as JSON"


JSON_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
}


class TestJson:
    def test_it_goes_both_ways(self, spark: SparkSession) -> None:
        chain = Chain([Serialize(value=Json()), Trail(service="spark"), Compress()])
        kind = json_type(JSON_ORDER)
        objects = [(TOPIC, {"id": 1, "price": 1.5, "tags": ["a", "b"]}), (TOPIC, {"id": 2}), (TOPIC, None)]
        frame = spark.createDataFrame(objects, f"topic string, value {kind.simpleString()}").coalesce(1)
        wire = encode(frame, chain).collect()
        assert json.loads(bytes(wire[0].value)) == {"id": 1, "price": 1.5, "tags": ["a", "b"]}
        assert {header.key: header.value for header in wire[0].headers}["content-type"] == b"application/json"
        assert wire[2].value is None

        records = [
            Record(
                TOPIC,
                row.value and bytes(row.value),
                headers=Headers([(h.key, h.value) for h in row.headers]),
            )
            for row in wire
        ]
        records += [Record(TOPIC, b'{"id": "one"}'), Record(TOPIC, b'{"id": 1')]
        rows = decode(frame_of(spark, records), chain, value=kind, failures="route").collect()
        good = [row.value for row in rows if row.failure is None]
        assert [value and value.asDict() for value in good] == [
            {"id": 1, "price": 1.5, "tags": ["a", "b"]},
            {"id": 2, "price": None, "tags": None},
            None,
        ]
        reasons = {row.offset: row.failure.reason for row in rows if row.failure is not None}
        assert set(reasons) == {3, 4}
        assert "id: expected" in reasons[3]


class TestRefusals:
    """All before anything runs."""

    @pytest.fixture
    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], READ)

    def test_a_type_without_a_step_that_serializes(self, frame: DataFrame) -> None:
        with pytest.raises(ConfigError, match="value: the chain has no 'serialize' step"):
            decode(frame, Chain([Trail()]), value=avro_type(ORDER))

    def test_a_type_that_is_none(self, frame: DataFrame, chain_file: Path) -> None:
        with pytest.raises(ConfigError, match="key: 'no such type' is not a type in Spark's DDL"):
            decode(frame, chain_file, key="no such type")

    def test_objects_without_a_step_that_serializes(self, spark: SparkSession) -> None:
        frame = spark.createDataFrame([], "topic string, value struct<id: bigint>")
        with pytest.raises(ConfigError, match="column value: expected binary or string, found struct"):
            encode(frame, Chain([Trail()]))


class TestArrowTypes:
    TYPES = (
        "boolean, tinyint, smallint, int, bigint, float, double, decimal(12,3), string, binary, date, "
        "timestamp, timestamp_ntz, interval day to second, void, array<int>, map<string;timestamp>, "
        "struct<a:int;b:array<string>>"
    )

    def test_are_those_that_spark_gives(self, spark: SparkSession) -> None:
        kinds = [kind.replace(";", ",") for kind in self.TYPES.split(", ")]
        columns = [F.lit(None).cast(kind).alias(f"c{number}") for number, kind in enumerate(kinds)]
        frame = spark.range(1).select(*columns)
        (row,) = frame.mapInArrow(arrow_schemas, "written binary").collect()
        given = pa.ipc.read_schema(pa.py_buffer(bytes(row.written)))
        ours = arrow_schema(frame.schema.json())
        # Since 4.2 timestamps have the session's zone, which says nothing of the instant.
        assert [in_utc(field.type) for field in given] == ours.types

    @pytest.mark.parametrize("kind", ["variant", "interval year to month", "array<variant>"])
    def test_one_that_cannot_hold_objects_is_refused_before_anything_runs(
        self, spark: SparkSession, chain_file: Path, kind: str
    ) -> None:
        frame = spark.createDataFrame([], READ)
        with pytest.raises(ConfigError, match=r"^value: a column of the type .* cannot hold objects"):
            decode(frame, chain_file, value=kind)
        typed = frame.withColumn("value", F.lit(None).cast(kind))
        with pytest.raises(ConfigError, match=r"^column value: a column of the type .* cannot hold objects"):
            encode(typed, chain_file)

    def test_a_column_of_another_type_is_carried_along(self, spark: SparkSession) -> None:
        frame = frame_of(spark, [Record(TOPIC, b"v")]).withColumn("own", F.parse_json(F.lit('{"a": 1}')))
        (row,) = (
            decode(frame, Chain([Compress()])).select(F.variant_get("own", "$.a", "int").alias("a")).collect()
        )
        assert row.a == 1


def arrow_schemas(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the schema of each batch."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"written": [batch.schema.serialize().to_pybytes()]})


def in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return pa.map_(kind.key_type, in_utc(kind.item_type)) if pa.types.is_map(kind) else kind
