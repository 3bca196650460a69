"""A connector's transforms in Spark, on written and on read records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware import Chain, ConfigError, Headers, Record
from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    SchemaBuilder,
    Struct,
    Timestamp,
)
from headerware.connect.data.schema import OPTIONAL_INT64_SCHEMA
from headerware.core.context import Context
from headerware.interceptors import Serialize, Transforms
from headerware.serdes import Connect, Json
from headerware.spark_bridge import decode, encode, split_failures
from tests.gallery import entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, Row, SparkSession

    from headerware.testing import KafkaBroker

pytestmark = pytest.mark.usefixtures("interpreted")

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "connect_spark.py"
DEADLINE_S: Final = 400.0
TOPIC: Final = "people"
PACKAGE: Final = "org.apache.kafka.connect.transforms"
READ: Final = (
    "key binary, value binary, topic string, partition int, offset long, "
    "headers array<struct<key string, value binary>>"
)
LINES: Final = f"""\
name=people
connector.class=com.example.People
connection.password=${{file:/etc/people:password}}
transforms=tombstones,mask,team,tag,route
predicates=isTombstone
predicates.isTombstone.type={PACKAGE}.predicates.RecordIsTombstone
transforms.tombstones.type={PACKAGE}.Filter
transforms.tombstones.predicate=isTombstone
transforms.mask.type={PACKAGE}.MaskField$Value
transforms.mask.fields=ssn
transforms.team.type={PACKAGE}.HeaderFrom$Value
transforms.team.fields=team
transforms.team.headers=team
transforms.team.operation=move
transforms.tag.type={PACKAGE}.InsertHeader
transforms.tag.header=checked
transforms.tag.value.literal=42
transforms.route.type={PACKAGE}.RegexRouter
transforms.route.regex=(.*)
transforms.route.replacement=eu.$1
"""
AS_JSON: Final = json.dumps(
    {"name": "people", "config": dict(line.split("=", 1) for line in LINES.splitlines()[1:])}
)
PEOPLE: Final = "topic string, value struct<id int, ssn string, team string>"
PERSON: Final = (
    SchemaBuilder.struct()
    .name("Person")
    .field("id", INT32_SCHEMA)
    .field("ssn", STRING_SCHEMA)
    .field("team", OPTIONAL_STRING_SCHEMA)
    .field("born", Date.SCHEMA)
    .field("seen", Timestamp.SCHEMA)
    .field("paid", Decimal.schema(2))
    .field("score", OPTIONAL_INT64_SCHEMA)
    .build()
)
SEEN: Final = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
BORN: Final = datetime(1815, 12, 10, tzinfo=UTC)


def person(number: int, **fields: Any) -> Struct:
    """Return a person as a connector has them."""
    values = {"id": number, "ssn": "123-45", "team": "north", "paid": Number("1.50"), "score": None}
    return Struct.of(PERSON, {**values, "born": BORN, "seen": SEEN, **fields})


def people(spark: SparkSession, *rows: tuple[Any, ...] | None) -> DataFrame:
    """Return people as a job has them: typed columns, to be written."""
    values = [(TOPIC, row and dict(zip(("id", "ssn", "team"), row, strict=True))) for row in rows]
    return spark.createDataFrame(values, PEOPLE).coalesce(1)


def wire(chain: Chain, values: Iterable[Any]) -> list[Record]:
    """Return records as they lie in a topic's only partition."""
    with chain.open(Context(side="producer")) as session:
        records = [Record(TOPIC, value) for value in values]
        return [sent.replace(partition=0, offset=at) for at, sent in enumerate(session.send(records))]


def frame_of(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """Return records as the connector gives them, in one task."""
    rows = [
        (each.key, each.value, each.topic, 0, offset, list(each.headers))
        for offset, each in enumerate(records)
    ]
    return spark.createDataFrame(rows, READ).coalesce(1)


def headers(row: Row | Any) -> dict[str, bytes]:
    """Return a row's headers by their names."""
    return {header.key: bytes(header.value) for header in row.headers}


def in_json(**options: Any) -> Chain:
    return Chain([Transforms(**options), Serialize(value=Json())])


def one(kind: str, **keys: str) -> dict[str, str]:
    """Return the lines of a list of one transform."""
    named = {f"transforms.it.{key.replace('_', '.')}": value for key, value in keys.items()}
    return {"transforms": "it", "transforms.it.type": kind, **named}


class TestRowsToWrite:
    def test_are_transformed_as_a_producers_records_are(self, spark: SparkSession) -> None:
        chain = in_json(config=LINES)
        row = encode(people(spark, (1, "123-45", "north")), chain).first()
        (sent,) = chain.open().send([Record(TOPIC, {"id": 1, "ssn": "123-45", "team": "north"})])
        assert row is not None
        assert (
            (row.topic, bytes(row.value)) == (sent.topic, sent.value) == ("eu.people", b'{"id":1,"ssn":""}')
        )
        assert [(header.key, bytes(header.value)) for header in row.headers] == list(sent.headers)
        assert headers(row) == {"team": b"north", "checked": b"42", "content-type": b"application/json"}

    def test_that_a_filter_drops_are_no_rows(self, spark: SparkSession) -> None:
        rows = encode(people(spark, (1, "x", "a"), None, (3, "x", "a")), in_json(config=LINES)).collect()
        assert [json.loads(bytes(row.value))["id"] for row in rows] == [1, 3]

    def test_get_keys_of_values_where_the_key_is_a_column_of_text(self, spark: SparkSession) -> None:
        lines = one(f"{PACKAGE}.ValueToKey", fields="id") | {
            "transforms": "it,text,plain",
            "transforms.plain.type": f"{PACKAGE}.ExtractField$Key",
            "transforms.plain.field": "id",
            "transforms.text.type": f"{PACKAGE}.Cast$Key",
            "transforms.text.spec": "id:string",
        }
        chain = Chain([Transforms(config=lines), Serialize(key="string", value=Json())])
        row = encode(people(spark, (1, "x", "a")).selectExpr("*", "'?' key"), chain).first()
        assert row is not None
        assert bytes(row.key) == b"1"

    def test_that_are_refused_fail_alone_and_say_so_as_connect_does(self, spark: SparkSession) -> None:
        lines = one(f"{PACKAGE}.Cast$Value", spec="ssn:int32")
        frame = people(spark, (1, "12", "a"), (2, "twelve", "a"), (3, "13", "a"))
        rows = encode(frame, in_json(config=lines), failures="route")
        good, letters = split_failures(rows.cache())
        assert [json.loads(bytes(row.value))["ssn"] for row in good.collect()] == [12, 13]
        (bad,) = (row.failure for row in rows.collect() if row.failure is not None)
        assert (bad.step, bad.error) == ("transforms", "TransformError")
        assert "twelve" not in bad.reason
        (letter,) = letters.collect()
        assert json.loads(bytes(letter.value)) == {"id": 2, "ssn": "twelve", "team": "a"}
        told = {name.removeprefix("__connect.errors."): value for name, value in headers(letter).items()}
        assert letter.topic == "people.dead-letter"
        assert told["stage"] == b"TRANSFORMATION"
        assert told["class.name"] == f"{PACKAGE}.Cast$Value".encode()
        assert told["exception.class.name"] == b"org.apache.kafka.connect.errors.DataException"

    def test_follow_kafka_where_the_mode_says_so(self, spark: SparkSession) -> None:
        lines = one(f"{PACKAGE}.Cast$Value", spec="id:int8")
        frame = people(spark, (300, "x", "a"))
        row = encode(frame, in_json(config=lines, mode="kafka_4_3")).first()
        assert row is not None
        assert json.loads(bytes(row.value))["id"] == 44
        (strict,) = encode(frame, in_json(config=lines), failures="route").collect()
        assert strict.failure.error == "TransformError"

    def test_are_left_alone_by_transforms_that_consume(self, spark: SparkSession) -> None:
        row = encode(people(spark, (1, "123", "a")), in_json(config=LINES, on="consume")).first()
        assert row is not None
        assert (row.topic, json.loads(bytes(row.value))["ssn"]) == (TOPIC, "123")


class TestRowsThatWereRead:
    VALUE: Final = "struct<id int, ssn string, born date, seen timestamp, paid decimal(9, 2), score bigint>"

    @pytest.fixture
    def structs(self, spark: SparkSession) -> DataFrame:
        """Return the records of a connector: JSON with schemas, and one that is not."""
        converter = Chain([Serialize(value=Connect(converter="JsonConverter"))])
        records = wire(converter, [person(1), person(2, team=None, score=7), None])
        return frame_of(spark, [*records, Record(TOPIC, b'{"id": 4}')])

    def test_become_typed_columns_of_structs(self, spark: SparkSession, structs: DataFrame) -> None:
        chain = Chain(
            [Transforms(config=LINES, on="consume"), Serialize(value=Connect(converter="JsonConverter"))]
        )
        zone = str(spark.conf.get("spark.sql.session.timeZone"))
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            rows = decode(structs, chain, value=self.VALUE, failures="route").collect()
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        good = [row for row in rows if row.failure is None]
        assert [(row.topic, row.value.id, row.value.ssn, row.value.score) for row in good] == [
            ("eu.people", 1, "", None),
            ("eu.people", 2, "", 7),
        ]
        first = good[0].value
        assert (first.born, first.paid) == (date(1815, 12, 10), Number("1.50"))
        assert first.seen.astimezone(UTC) == SEEN
        assert headers(good[0]) == {"team": b"north", "checked": b"42"}
        assert [(row.offset, row.failure.error) for row in rows if row.failure is not None] == [
            (3, "SerdeError")
        ]

    def test_become_typed_columns_of_dicts(self, spark: SparkSession) -> None:
        records = [Record(TOPIC, b'{"id": 1, "ssn": "123", "team": "a"}'), Record(TOPIC, b"null")]
        chain = in_json(config=LINES, on="consume")
        (row,) = decode(frame_of(spark, records), chain, value="struct<id int, ssn string>").collect()
        assert (row.value.id, row.value.ssn, headers(row)["team"]) == (1, "", b"a")

    def test_know_where_they_were_read(self, spark: SparkSession) -> None:
        lines = one(f"{PACKAGE}.InsertField$Value", offset_field="at", topic_field="of")
        records = [Record(TOPIC, b"{}", headers=Headers({"h": b"1,000"})) for _ in range(3)]
        chain = in_json(config=lines, on="consume")
        rows = decode(frame_of(spark, records), chain, value="struct<at bigint, of string>").collect()
        assert [tuple(row.value) for row in rows] == [(0, TOPIC), (1, TOPIC), (2, TOPIC)]
        assert [headers(row) for row in rows] == [{"h": b"1,000"}] * 3

    def test_that_are_refused_fail_alone_and_stay_as_they_came(self, spark: SparkSession) -> None:
        chain = in_json(config=one(f"{PACKAGE}.Cast$Value", spec="ssn:int32"), on="consume")
        payloads = [b'{"ssn": "1"}', b'{"ssn": "one"}', b'{"ssn": "3"}']
        frame = frame_of(spark, [Record(TOPIC, payload) for payload in payloads])
        rows = decode(frame, chain, value="struct<ssn int>", failures="route").collect()
        assert [row.value and row.value.ssn for row in rows] == [1, None, 3]
        failure = rows[1].failure
        assert (failure.step, failure.error, bytes(failure.value)) == (
            "transforms",
            "TransformError",
            b'{"ssn": "one"}',
        )
        told = {header.key: bytes(header.value) for header in failure.headers}
        assert told["__connect.errors.stage"] == b"TRANSFORMATION"
        assert told["__connect.errors.offset"] == b"1"

    def test_need_types(self, structs: DataFrame) -> None:
        with pytest.raises(ConfigError, match="'transforms' works on objects; give the type of the column"):
            decode(structs, in_json(config=LINES, on="consume"))


class TestFiles:
    """The connector's own file, named by a chain's, on its way to the workers."""

    def chain_file(self, folder: Path, name: str, text: str) -> Path:
        (folder / name).write_text(text)
        chain = folder / "chain.toml"
        chain.write_text(
            f'[[interceptors]]\ntype = "transforms"\nfile = "{name}"\n\n'
            '[[interceptors]]\ntype = "serialize"\nvalue = "json"\n'
        )
        return chain

    @pytest.mark.parametrize(("name", "text"), [("people.properties", LINES), ("people.json", AS_JSON)])
    def test_are_read_where_they_are(self, spark: SparkSession, name: str, text: str, tmp_path: Path) -> None:
        row = encode(people(spark, (1, "123", "a")), self.chain_file(tmp_path, name, text)).first()
        assert row is not None
        assert (row.topic, bytes(row.value)) == ("eu.people", b'{"id":1,"ssn":""}')

    def test_are_found_among_what_spark_shipped(
        self, spark: SparkSession, tmp_path: Path, unique_topic: Callable[[str], str]
    ) -> None:
        name = f"{unique_topic('people')}.properties"  # files that were shipped stay for the session
        chain = self.chain_file(tmp_path, name, LINES)
        (tmp_path / "shipped").mkdir()
        shipped = (tmp_path / name).rename(tmp_path / "shipped" / name)
        spark.sparkContext.addFile(str(shipped))
        row = encode(people(spark, (1, "123", "a")), chain).first()
        assert row is not None
        assert (row.topic, bytes(row.value)) == ("eu.people", b'{"id":1,"ssn":""}')

    def test_that_are_nowhere_fail_the_job_and_say_which(self, spark: SparkSession, tmp_path: Path) -> None:
        chain = self.chain_file(tmp_path, "gone.properties", LINES)
        frame = encode(people(spark, (1, "123", "a")), chain)
        (tmp_path / "gone.properties").unlink()
        with pytest.raises(Exception, match=r"gone\.properties"):
            frame.collect()


class TestExpressions:
    LINES: Final = """\
transforms=adults,route,tag
predicates=north
transforms.adults.type=FilterByExpression
transforms.adults.filter.condition=value.age >= 18
transforms.adults.missing.or.null.behavior=exclude
transforms.route.type=ContentRouter
transforms.route.topic.expression=value.team == "north" ? "cold" : "warm"
transforms.route.topic.format=${topic}-${routed}
transforms.tag.type=InsertHeader
transforms.tag.header=north
transforms.tag.value.literal=true
transforms.tag.predicate=north
predicates.north.type=Expression
predicates.north.expression=value.team == "north" && topic.endsWith("cold")
"""

    def test_filter_route_and_choose(self, spark: SparkSession) -> None:
        frame = spark.sql(
            "select 'people' topic, named_struct('age', age, 'team', team) value from values "
            "(17, 'north'), (18, 'north'), (40, 'south'), (null, 'south') as t(age, team)"
        ).coalesce(1)
        rows = encode(frame, in_json(config=self.LINES)).collect()
        found = [(row.topic, json.loads(bytes(row.value))["age"], "north" in headers(row)) for row in rows]
        assert found == [("people-cold", 18, True), ("people-warm", 40, False)]


@pytest.mark.broker
@pytest.mark.long
class TestExample:
    @pytest.mark.timeout(DEADLINE_S)
    def test_writes_what_a_producer_writes(self, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
        there = ["--bootstrap-servers", kafka_broker.bootstrap_servers]
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), *there],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert ":: loading settings" not in done.stderr, "Ivy is quiet"
        assert "3,377 airports and a tombstone were sent; Spark wrote 3,376 of them" in done.stdout
        assert "a producer with the same file wrote the same records, and refused one:" in done.stdout
        assert done.stdout.count("\n  stage: TRANSFORMATION\n") == 1
        assert entries()["connect_spark.py"].is_shown_by(done.stdout), done.stdout
        assert f"class.name: {PACKAGE}.Cast$Value" in done.stdout
