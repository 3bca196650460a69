"""Rows that a chain refuses, alone or with the job, reported with position; and chains that cannot open."""

from __future__ import annotations

import importlib
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everyone who uses Spark writes it

from headerware import Chain, ConfigError, Consumer, PluginError, Record
from headerware.core.context import Context
from headerware.core.plugins import _entry_points
from headerware.interceptors import Sign, Slice, Trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import decode, encode, split_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from headerware.testing import KafkaBroker

pytestmark = pytest.mark.usefixtures("interpreted")

DEADLINE_S = 60.0
RECORDS = 20_000
BAD = 13_337
TOPIC = "orders"
HEADERS = "headers array<struct<key string, value binary>>"
READ = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    f"timestampType int, {HEADERS}"
)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
noise = random.Random(6).randbytes


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
    return str(path)


@pytest.fixture(scope="module")
def signing(keyring: str) -> Chain:
    return Chain([Trail(service="spark"), Sign(keyring=keyring, key_id="test")])


def wire(chain: Chain, *values: bytes | None, topic: str = TOPIC) -> list[Record]:
    """Return messages as they lie in a topic's only partition, one after the other."""
    with chain.open(Context(side="producer", pick_partition=lambda _: 0)) as session:
        sent = session.send([Record(topic, value, b"key") for value in values])
    return [record.replace(partition=0, offset=offset) for offset, record in enumerate(sent)]


def frame_of(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """Return records as the connector gives them."""
    rows = [
        (each.key, each.value, each.topic, each.partition, each.offset, NOON, 0, list(each.headers))
        for each in records
    ]
    return spark.createDataFrame(rows, READ)


def pairs(headers: Iterable[Row]) -> list[tuple[str, bytes | None]]:
    return [(header.key, None if header.value is None else bytes(header.value)) for header in headers]


@pytest.fixture(scope="module")
def tampered(spark: SparkSession, signing: Chain) -> Iterator[DataFrame]:
    """Return signed records, of which somebody has changed one."""
    number = spark.range(RECORDS, numPartitions=2)
    text = F.concat(F.lit("record "), F.col("id").cast("string"))
    plain = number.select(F.lit(TOPIC).alias("topic"), text.cast("binary").alias("value"), "id")
    placed = encode(plain, signing).withColumns({"partition": F.lit(0), "offset": F.col("id")}).drop("id")
    changed = F.when(F.col("offset") == BAD, F.expr("cast('evil' as binary)")).otherwise(F.col("value"))
    tampered = placed.withColumn("value", changed).withColumn("mine", F.col("offset") * 2).cache()
    yield tampered
    tampered.unpersist()


@pytest.fixture(scope="module")
def routed(tampered: DataFrame, signing: Chain) -> Iterator[DataFrame]:
    routed = decode(tampered, signing, failures="route", dead_letter_topic="{topic}.graves").cache()
    yield routed
    routed.unpersist()


class TestOneBadRecordAmongMany:
    def test_it_fails_alone(self, routed: DataFrame) -> None:
        good, letters = split_failures(routed)
        assert (good.count(), letters.count()) == (RECORDS - 1, 1)
        assert good.where("cast(value as string) = concat('record ', offset)").count() == RECORDS - 1

    def test_its_row_stays_as_it_came(self, routed: DataFrame, tampered: DataFrame) -> None:
        (row,) = routed.where("failure is not null").collect()
        (before,) = tampered.where(f"offset = {BAD}").collect()
        assert {name: row[name] for name in before.__fields__} == before.asDict()
        assert row.value == b"evil"

    def test_the_failure_says_which_step_and_why(self, routed: DataFrame) -> None:
        (row,) = routed.where("failure is not null").collect()
        failure = row.failure
        assert (failure.step, failure.error, failure.topic) == ("sign", "SignatureError", f"{TOPIC}.graves")
        assert failure.reason.startswith(f"sign at {TOPIC}[0]@{BAD}: the signature by key 'test'")
        assert "evil" not in failure.reason

    def test_it_fails_the_job_with_its_place_where_that_is_wanted(
        self, tampered: DataFrame, signing: Chain
    ) -> None:
        with pytest.raises(PySparkException, match=rf"SignatureError: sign at {TOPIC}\[0\]@{BAD}: the sign"):
            decode(tampered, signing).foreach(lambda _: None)

    def test_the_error_of_the_job_ends_with_the_reason_and_the_remedy(
        self, tampered: DataFrame, signing: Chain
    ) -> None:
        with pytest.raises(PySparkException) as caught:
            decode(tampered, signing).collect()
        *before, reason, remedy = str(caught.value).strip().splitlines()
        assert reason.startswith(f"headerware.core.errors.SignatureError: sign at {TOPIC}[0]@{BAD}: the sign")
        assert remedy.startswith('to keep such rows apart and go on, give failures="route"')
        assert len([line for line in before if line.startswith("  File ")]) == 1, before

    @pytest.mark.broker
    def test_its_letter_can_be_read_by_a_service(
        self,
        routed: DataFrame,
        tampered: DataFrame,
        kafka_broker: KafkaBroker,
        unique_topic: Callable[[str], str],
    ) -> None:
        graves = unique_topic("graves")
        kafka_broker.create_topic(graves)
        letters = split_failures(routed)[1].withColumn("topic", F.lit(graves))
        servers = kafka_broker.bootstrap_servers
        letters.write.format("kafka").option("kafka.bootstrap.servers", servers).save()
        conf = {"bootstrap.servers": servers, "group.id": graves, "log_level": 0}
        with Consumer(conf, chain=Chain([Trail(service="mourner")])) as consumer:
            consumer.assign([TopicPartition(graves, 0, OFFSET_BEGINNING)])
            letter = consumer.poll(DEADLINE_S)
        assert letter is not None
        (before,) = tampered.where(f"offset = {BAD}").collect()
        assert (letter.key(), letter.value()) == (None, b"evil")
        headers: list[Any] = [pair for pair in letter.headers() or [] if pair[0] != "hw.trail"]
        original = [pair for pair in pairs(before.headers) if pair[0] != "hw.trail"]
        assert headers[: len(original)] == original
        told = dict(headers[len(original) :])
        assert told["__connect.errors.topic"] == TOPIC.encode()
        assert told["__connect.errors.partition"] == b"0"
        assert told["__connect.errors.offset"] == b"%d" % BAD
        assert told["__connect.errors.stage"] == b"ON_CONSUME"
        assert told["__connect.errors.class.name"] == b"sign"


@pytest.fixture(scope="module")
def by_step(spark: SparkSession, keyring: str) -> list[Row]:
    strict = Sign(
        name="strict",
        topics=(TOPIC,),
        keyring=keyring,
        key_id="test",
        on_error="dead_letter",
        dead_letter_topic="graves",
        dead_letter_headers="spring",
    )
    lenient = Sign(name="lenient", topics=("!orders",), keyring=keyring, key_id="test", on_error="drop")
    chain = Chain([strict, lenient])
    records = [
        record.replace(value=b"changed") if record.value == b"bad" else record
        for topic in (TOPIC, "logs")
        for record in wire(chain, b"good", b"bad", topic=topic)
    ]
    return decode(frame_of(spark, records), chain, failures="route").collect()


class TestOnError:
    """A step's own options for failures hold if failures are routed."""

    def test_what_is_to_be_dropped_is_gone(self, by_step: list[Row]) -> None:
        assert [(row.topic, bytes(row.value)) for row in by_step if row.failure is None] == [
            (TOPIC, b"good"),
            ("logs", b"good"),
        ]
        assert [row.topic for row in by_step if row.failure is not None] == [TOPIC]

    def test_a_dead_letter_has_its_own_topic_and_names(self, by_step: list[Row]) -> None:
        (failure,) = (row.failure for row in by_step if row.failure is not None)
        assert (failure.step, failure.topic) == ("strict", "graves")
        told = dict(pairs(failure.headers))
        assert told["kafka_dlt-original-topic"] == TOPIC.encode()
        assert told["kafka_dlt-original-offset"] == (1).to_bytes(8, "big")


@pytest.fixture(scope="module")
def slicing(keyring: str) -> Chain:
    return Chain([Slice(max_bytes=2_200), Sign(keyring=keyring, key_id="test")])


@pytest.fixture(scope="module")
def sliced(slicing: Chain) -> list[Record]:
    """Return a whole message, an altered one, and an incomplete one."""
    sliced = wire(slicing, noise(4_000), noise(4_100), b"small", noise(4_200))
    assert len(sliced) == 10, "each large message is three slices"
    sliced[4] = sliced[4].replace(value=b"changed")
    return sliced[:-1]


@pytest.fixture(scope="module")
def glued(spark: SparkSession, slicing: Chain, sliced: list[Record]) -> list[Row]:
    glued = decode(frame_of(spark, sliced), slicing, failures="route").collect()
    return sorted(glued, key=lambda row: row.offset)


class TestSlices:
    def test_messages_that_are_whole_are_one_row(self, glued: list[Row]) -> None:
        good = [(row.offset, len(row.value)) for row in glued if row.failure is None]
        assert good == [(2, 4_000), (6, 5)]

    def test_every_slice_of_the_others_fails_as_it_came(self, glued: list[Row], sliced: list[Record]) -> None:
        bad = [row for row in glued if row.failure is not None]
        assert [row.offset for row in bad] == [3, 4, 5, 7, 8]
        for row in bad:
            assert bytes(row.value) == sliced[row.offset].value
            assert pairs(row.headers) == list(sliced[row.offset].headers)

    def test_each_says_what_was_wrong(self, glued: list[Row]) -> None:
        errors = {row.offset: row.failure.error for row in glued if row.failure is not None}
        assert errors == dict.fromkeys((3, 5, 7, 8), "ReassemblyError") | {4: "SignatureError"}
        (cut_off,) = (row.failure.reason for row in glued if row.offset == 8)
        assert 'incomplete="leave"' in cut_off

    def test_a_cut_off_message_fails_the_job(
        self, spark: SparkSession, slicing: Chain, sliced: list[Record]
    ) -> None:
        frame = frame_of(spark, [*sliced[:3], *sliced[6:]])
        with pytest.raises(PySparkException, match="the frame ends before this message does"):
            decode(frame, slicing).collect()

    def test_a_cut_off_message_can_be_left_to_a_later_read(
        self, spark: SparkSession, slicing: Chain, sliced: list[Record]
    ) -> None:
        frame = frame_of(spark, [*sliced[:3], *sliced[6:]])
        glued = decode(frame, slicing, incomplete="leave").collect()
        assert sorted((row.offset, len(row.value)) for row in glued) == [(2, 4_000), (6, 5)]


@pytest.fixture(scope="module")
def encoded(spark: SparkSession) -> list[Row]:
    """Encode rows; only the first and the last can be sent."""
    sent = [
        (TOPIC, b"good", [("a", b"1")]),
        (TOPIC, bytes(5_000), []),
        (TOPIC, b"named", [(None, b"1")]),
        (TOPIC, b"forged", [("hw.slice", b"1")]),
        (None, b"nowhere", []),
        (TOPIC, None, None),
    ]
    frame = spark.createDataFrame(sent, f"topic string, value binary, {HEADERS}").coalesce(1)
    chain = Chain([Slice(max_bytes=2_000, max_message_bytes=4_000)])
    return encode(frame, chain, failures="route").collect()


class TestEncoding:
    def test_the_others_go_on(self, encoded: list[Row]) -> None:
        good = [(row.value, pairs(row.headers)) for row in encoded if row.failure is None]
        assert good == [(b"good", [("a", b"1")]), (None, [])]

    def test_each_says_why_it_cannot_be_sent(self, encoded: list[Row]) -> None:
        reasons = {bytes(row.value): row.failure.reason for row in encoded if row.failure is not None}
        assert "max_message_bytes is 4000" in reasons.pop(bytes(5_000))
        assert set(reasons) == {b"named", b"forged", b"nowhere"}
        assert "hw.slice" in reasons[b"forged"]
        assert "topic" in reasons[b"nowhere"]
        assert "key" in reasons[b"named"] or "name" in reasons[b"named"]

    def test_they_stay_as_they_came(self, encoded: list[Row]) -> None:
        (forged,) = (row for row in encoded if row.value == b"forged")
        assert pairs(forged.headers) == [("hw.slice", b"1")]
        assert forged.failure.topic == f"{TOPIC}.dead-letter"
        assert bytes(forged.failure.value) == b"forged"


class TestChainsThatCannotOpenThere:
    """An executor lacks something that the driver has."""

    @pytest.fixture
    def frame(self, spark: SparkSession) -> DataFrame:
        return frame_of(spark, [Record(TOPIC, b"v", partition=0, offset=0)])

    def test_a_keyring_that_is_missing_is_named(self, frame: DataFrame, tmp_path: Path) -> None:
        chain = Chain([Sign(keyring=str(tmp_path / "absent-keys.json"))])
        with pytest.raises(PySparkException, match=r"KeyringError: .*absent-keys\.json"):
            decode(frame, chain).collect()

    def test_a_variable_that_is_missing_is_named(
        self, frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "chain.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\nservice = "${env:ONLY_ON_THE_DRIVER}"\n')
        monkeypatch.setenv("ONLY_ON_THE_DRIVER", "driver")
        with pytest.raises(PySparkException, match=r"chain\.toml.* no variable 'ONLY_ON_THE_DRIVER'"):
            decode(frame, path).collect()

    def test_a_plug_in_that_is_missing_is_named(
        self, frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install_plug_in(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(PySparkException, match="no interceptor type 'driver-only'"):
            decode(frame, {"interceptors": "driver-only"}).collect()

    def test_a_module_that_is_missing_is_named_with_how_to_ship_it(
        self, frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install_plug_in(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        module = importlib.import_module("headerware_driver_only")
        with pytest.raises(PySparkException, match=r"no module 'headerware_driver_only', .* Ship it by"):
            decode(frame, Chain([module.DriverOnly()])).collect()

    def test_what_is_nowhere_is_said_before_anything_runs(self, frame: DataFrame) -> None:
        with pytest.raises(PluginError, match="no interceptor type 'nowhere'"):
            decode(frame, {"interceptors": "nowhere"})


PLUG_IN = """
from headerware.core.hooks import Interceptor

class DriverOnly(Interceptor, frozen=True, kw_only=True):
    type = "driver-only"

    def on_consume(self, record):
        return record
"""


def install_plug_in(site: Path) -> None:
    """Put a plug-in's module and its installed metadata into a folder, which this process looks at anew."""
    _entry_points.cache_clear()
    (site / "headerware_driver_only.py").write_text(PLUG_IN)
    info = site / "headerware_driver_only-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: headerware-driver-only\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[headerware.interceptors]\ndriver-only = headerware_driver_only:DriverOnly\n"
    )


class TestSplitFailures:
    def test_says_what_to_do_where_there_is_no_such_column(self, spark: SparkSession) -> None:
        with pytest.raises(ConfigError, match='failures="route"'):
            split_failures(spark.range(1))
