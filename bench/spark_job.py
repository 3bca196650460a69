"""One job of the Spark bench: ``spark_job.py WHAT JSON`` prints its result as the last line, in JSON."""

from __future__ import annotations

import hmac
import json
import os
import shutil
import statistics
import sys
import threading
import time
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pandas as pd
import psutil
import pyarrow as pa
import zstandard
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from vega_datasets import local_data

from headerware import Chain, Producer
from headerware.interceptors import Compress, Dedup, Encrypt, Sign, Slice, Trail
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.ops.compaction import Rule
from headerware.sources import SourceConfig
from headerware.sources.extractors import JsonLinesExtractor
from headerware.sources.ready import Files
from headerware.spark_bridge import (
    configure,
    copy_topic,
    decode,
    encode,
    foreach_batch,
    functions,
    kafka_sink,
    register_source,
)

KEY = b"k" * 32
PARTS = 8
LINES = 1_000_000
COPIED = 400_000
EARLY = 10
"""Later memory is compared with the memory after a tenth of the records."""


def main() -> None:
    what, arguments = sys.argv[1], json.loads(sys.argv[2])
    cores, executors = arguments.pop("cores"), arguments.pop("executors", 0)
    master = f"local-cluster[{executors},1,1024]" if executors else f"local[{cores}]"
    builder = configure(SparkSession.builder.master(master).appName("bench"))
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps(JOBS[what](spark, Path(arguments.pop("folder")), **arguments)))
    spark.stop()


def chain(folder: Path) -> Chain:
    keyring = str(folder / "keys.json")
    sign = Sign(keyring=keyring, key_id="bench", require="enforce")
    return Chain([Trail(service="bench"), Compress(codec="zstd"), sign])


# Input: ten airports a record, as rows of the connector, plain and as they are on the wire


def prepare(spark: SparkSession, folder: Path, *, rows: int) -> dict[str, Any]:
    edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "bench", "hmac-sha256"), create=True)
    airports = local_data.airports().to_dict("records")
    values = [json.dumps(airports[at : at + 10]).encode() for at in range(0, 3000, 10)]
    table = spark.createDataFrame(
        [(index, value) for index, value in enumerate(values)], "n int, value binary"
    )
    plain = (
        spark.range(rows)
        .withColumn("n", (F.col("id") % len(values)).cast("int"))
        .join(F.broadcast(table), "n")
        .select(
            F.lit("bench").alias("topic"),
            F.col("id").cast("string").cast("binary").alias("key"),
            "value",
            F.array(header("tenant", "north"), header("content-type", "application/json")).alias("headers"),
            F.lit(0).alias("partition"),
            F.col("id").alias("offset"),
            F.current_timestamp().alias("timestamp"),
            F.lit(0).alias("timestampType"),
        )
    )
    plain.repartition(PARTS).write.parquet(str(folder / "plain"))
    read = spark.read.parquet(str(folder / "plain"))
    encode(read, chain(folder), job="bench").withColumn("partition", F.lit(0)).write.parquet(
        str(folder / "wire")
    )
    return {"bytes": sum(map(len, values)) // len(values)}


def header(name: str, value: str) -> Any:
    return F.struct(F.lit(name).alias("key"), F.lit(value).cast("binary").alias("value"))


# The reference: an identity over the columns, with only the primitives on the values


def bare_decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    decompress = zstandard.ZstdDecompressor().decompress
    for batch in batches:
        at = batch.schema.get_field_index("value")
        values = []
        for value in batch.column(at).to_pylist():
            hmac.digest(KEY, value, "sha256")
            values.append(decompress(value))
        yield batch.set_column(at, "value", pa.array(values, pa.binary()))


def bare_encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    compress = zstandard.ZstdCompressor(3).compress
    for batch in batches:
        at = batch.schema.get_field_index("value")
        values = []
        for value in batch.column(at).to_pylist():
            compressed = compress(value)
            hmac.digest(KEY, compressed, "sha256")
            values.append(compressed)
        yield batch.set_column(at, "value", pa.array(values, pa.binary()))


def decode_by_hand(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the chain's work by hand, for this one topic: with headers, without failures."""
    decompress = zstandard.ZstdDecompressor().decompress
    for batch in batches:
        values, headers = [], []
        columns = (batch[name].to_pylist() for name in ("key", "value", "headers"))
        for key, value, pairs in zip(*columns, strict=True):
            covered = b"".join(pair["key"].encode() + pair["value"] for pair in pairs[:-1])
            digest = hmac.digest(KEY, key + value + covered, "sha256")
            hmac.compare_digest(digest, a2b_base64(pairs[-1]["value"])[-32:])
            values.append(decompress(value))
            kept = [pair for pair in pairs if pair["key"] not in {"hw.sig", "hw.compress", "hw.trail"}]
            trail = next(pair["value"] for pair in pairs if pair["key"] == "hw.trail")
            kept.append({"key": "hw.trail", "value": trail + b",at=%d" % (time.time_ns() // 1_000_000)})
            headers.append(kept)
        at, of_headers = (batch.schema.get_field_index(name) for name in ("value", "headers"))
        decoded = batch.set_column(at, "value", pa.array(values, pa.binary()))
        yield decoded.set_column(of_headers, "headers", pa.array(headers, batch.schema.field("headers").type))


class Cost(NamedTuple):
    """The time that some work took, in seconds."""

    time: float
    cpu: float
    """Of this process, its JVM and the Python workers."""
    workers: float
    """The CPU of the Python workers alone."""


@contextmanager
def cost(found: list[Cost]) -> Iterator[None]:
    """Add the time of the body to a list."""
    began, (cpu, workers) = time.perf_counter(), spent()
    yield
    took, (cpu_now, workers_now) = time.perf_counter() - began, spent()
    found.append(Cost(took, cpu_now - cpu, workers_now - workers))


def spent() -> tuple[float, float]:
    """Return the CPU seconds so far: of this process with its children, and of the Python workers alone."""
    seconds = {"java": 0.0, "others": 0.0}
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            is_ours = process == me or process.name() == "java"
            seconds["java" if is_ours else "others"] += sum(
                process.cpu_times()[:4]
            )  # with children that ended
    return sum(seconds.values()), seconds["others"]


def ran(frame: DataFrame) -> Cost:
    """Compute all of a frame, and return the time that it took."""
    found: list[Cost] = []
    with cost(found):
        frame.write.format("noop").mode("overwrite").save()
    return found[0]


def pairs_of(
    ours: Callable[[], Cost], reference: Callable[[], Cost], rows: int, pairs: int
) -> dict[str, Any]:
    for warm_up in (ours, reference):
        warm_up()
    mine, theirs = [], []
    for index in range(pairs):
        if index % 2:
            theirs.append(reference())
            mine.append(ours())
        else:
            mine.append(ours())
            theirs.append(reference())
    ratios = [b.time / a.time for a, b in zip(mine, theirs, strict=True)]
    return {
        "ours": rows / statistics.median(each.time for each in mine),
        "reference": rows / statistics.median(each.time for each in theirs),
        "ratio": statistics.median(ratios),
        "rows": rows,
        "ours_cpu_us": statistics.median(each.cpu for each in mine) * 1e6 / rows,
        "reference_cpu_us": statistics.median(each.cpu for each in theirs) * 1e6 / rows,
    }


def paired_decode(spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    wire = spark.read.parquet(str(folder / "wire"))
    bare = wire.mapInArrow(bare_decode, wire.schema)
    return pairs_of(lambda: ran(decode(wire, chain(folder))), lambda: ran(bare), wire.count(), pairs)


def paired_by_hand(spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    wire = spark.read.parquet(str(folder / "wire"))
    by_hand = wire.mapInArrow(decode_by_hand, wire.schema)
    return pairs_of(lambda: ran(decode(wire, chain(folder))), lambda: ran(by_hand), wire.count(), pairs)


def paired_encode(spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    plain = spark.read.parquet(str(folder / "plain"))
    bare = plain.mapInArrow(bare_encode, plain.schema)
    return pairs_of(lambda: ran(encode(plain, chain(folder))), lambda: ran(bare), plain.count(), pairs)


def paired_with_itself(spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    wire = spark.read.parquet(str(folder / "wire"))
    bare = wire.mapInArrow(bare_decode, wire.schema)
    return pairs_of(lambda: ran(bare), lambda: ran(bare), wire.count(), pairs)


# Columns of headers, against what one would write by hand


def header_by_hand(_: Path) -> Any:
    return F.expr("try_element_at(filter(headers, each -> each.key = 'tenant'), -1).value")


def map_by_hand(_: Path) -> Any:
    @F.pandas_udf("map<string,binary>")
    def headers_map(headers: pd.Series) -> pd.Series:
        return headers.map(lambda each: {pair["key"]: pair["value"] for pair in each})

    return headers_map("headers")


def trail_by_hand(_: Path) -> Any:
    def hop(text: str) -> dict[str, Any]:
        parts = dict(part.split("=", 1) for part in text.split(";"))
        when = pd.Timestamp(int(parts["at"]), unit="ms", tz="UTC")
        places = (unquote(parts.get(name, "")) or None for name in ("by", "from", "into"))
        return {"when": when, **dict(zip(("by_whom", "from_place", "into_place"), places, strict=True))}

    @F.pandas_udf("array<struct<when:timestamp,by_whom:string,from_place:string,into_place:string>>")
    def trail(values: pd.Series) -> pd.Series:
        return values.map(lambda value: [hop(text) for text in value.decode().split(",")[1:]])

    found = F.expr("try_element_at(filter(headers, each -> each.key = 'hw.trail'), -1).value")
    return trail(found)


def verified_by_hand(folder: Path) -> Any:
    del folder

    @F.pandas_udf("string")
    def verified(key: pd.Series, value: pd.Series, headers: pd.Series) -> pd.Series:
        def key_id(key: bytes, value: bytes, pairs: list[dict[str, Any]]) -> str:
            covered = b"".join(pair["key"].encode() + pair["value"] for pair in pairs[:-1])
            digest = hmac.digest(KEY, key + value + covered, "sha256")
            hmac.compare_digest(digest, a2b_base64(pairs[-1]["value"])[-32:])
            return "bench"

        return pd.Series([key_id(*row) for row in zip(key, value, headers, strict=True)])

    return verified("key", "value", "headers")


BY_HAND: dict[str, tuple[Callable[[Path], Any], str]] = {
    "header": (header_by_hand, "against filter() and try_element_at() in SQL"),
    "headers_map": (map_by_hand, "against a pandas UDF that makes a dict of each row"),
    "trail": (trail_by_hand, "against a pandas UDF that splits the text, without a check of it"),
    "verified": (
        verified_by_hand,
        "against a pandas UDF that makes an HMAC over key, value and headers and returns the key's id",
    ),
}


def paired_column(name: str, spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    wire = spark.read.parquet(str(folder / "wire"))
    make, by_hand = BY_HAND[name]
    reference = wire.select(make(folder))
    if name == "verified":
        signing = Chain(list(chain(folder))[-1:])
        signed = encode(spark.read.parquet(str(folder / "plain")), signing, job="bench")
        signed.withColumn("partition", F.lit(0)).write.parquet(str(folder / "signed"))
        wire = spark.read.parquet(str(folder / "signed"))
        ours = decode(wire, signing, verified=True).select("verified.key_id")
        reference = wire.select(make(folder))
    elif name == "header":
        ours = wire.select(functions.header("tenant"))
    else:
        ours = wire.select(getattr(functions, name)())
    return {**pairs_of(lambda: ran(ours), lambda: ran(reference), wire.count(), pairs), "by_hand": by_hand}


def rate(spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    wire = spark.read.parquet(str(folder / "wire"))
    rows = wire.count()
    decoded = decode(wire, chain(folder))
    ran(decoded)
    return {"rate": rows / statistics.median(ran(decoded).time for _ in range(pairs))}


# Sources: JSON lines as rows of the connector, against a data source that does the same by hand


def spool(spark: SparkSession, folder: Path) -> int:
    """Register both sources of one large file, and return how many lines it has."""
    file = folder / "spool" / "airports.jsonl"
    if not file.exists():
        file.parent.mkdir()
        text = local_data.airports().to_json(orient="records", lines=True)
        lines = text.encode().splitlines(keepends=True)
        with file.open("wb") as opened:
            for _ in range(LINES // len(lines)):
                opened.writelines(lines)
    config = SourceConfig(
        name="bench",
        source=Files(folder=str(file.parent)),
        extractor=JsonLinesExtractor(values="bytes"),
        topic="bench",
    )
    register_source(spark, config)
    spark.dataSource.register(LinesByHand)
    with file.open("rb") as opened:
        return sum(1 for _ in opened)


class LinesByHand(DataSource):
    """A data source by hand for this one file: equal parts, JSON checked, and the headers of a source."""

    @classmethod
    def name(cls) -> str:
        return "by-hand"

    def schema(self) -> str:
        pairs = "array<struct<key string, value binary>>"
        return f"key binary, value binary, headers {pairs}, topic string, partition int, timestamp timestamp"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _LinesReader(self.options["path"], int(self.options["parts"]))


class _LinesReader(DataSourceReader):
    def __init__(self, path: str, parts: int) -> None:
        self.path, self.parts = path, parts

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        file_stat = Path(self.path).stat()
        size = file_stat.st_size
        begin, end = (size * part // self.parts for part in (partition.value, partition.value + 1))
        check = msgspec.json.Decoder(msgspec.Raw).decode
        modified = file_stat.st_mtime_ns // 1_000
        with Path(self.path).open("rb") as file:
            if begin:
                file.seek(begin - 1)
                file.readline()
            position, number, lines = file.tell(), 0, []
            for line in file:
                if position >= end:
                    break
                position += len(line)
                value = line.strip()
                check(value)
                lines.append(value)
                if len(lines) == 10_000:
                    yield self._batch(lines, number, modified)
                    number, lines = number + len(lines), []
            if lines:
                yield self._batch(lines, number, modified)

    def _batch(self, lines: list[bytes], number: int, modified: int) -> pa.RecordBatch:
        count = len(lines)
        names = ["hw.source", "hw.source.key", "hw.source.record", "content-type"]
        values: list[bytes] = []
        for at in range(number + 1, number + 1 + count):
            values += (b"bench", b"airports.jsonl", b"%d" % at, b"application/json")
        pairs = pa.StructArray.from_arrays(
            [pa.array(names * count, pa.string()), pa.array(values, pa.binary())], ["key", "value"]
        )
        offsets = pa.array(range(0, 4 * count + 1, 4), pa.int32())
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.nulls(count, pa.binary()),
                "value": pa.array(lines, pa.binary()),
                "headers": pa.ListArray.from_arrays(offsets, pairs),
                "topic": pa.repeat(pa.scalar("bench"), count),
                "partition": pa.nulls(count, pa.int32()),
                "timestamp": pa.repeat(pa.scalar(modified, pa.timestamp("us", tz="UTC")), count),
            }
        )


def source_frame(spark: SparkSession) -> DataFrame:
    return spark.read.format("headerware-objects").option("source", "bench").load()


def paired_source(spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    rows = spool(spark, folder)
    file = str(folder / "spool" / "airports.jsonl")
    by_hand = spark.read.format("by-hand").option("parts", spark.sparkContext.defaultParallelism).load(file)
    ours = source_frame(spark)
    return pairs_of(lambda: ran(ours), lambda: ran(by_hand), rows, pairs)


def source_rate(spark: SparkSession, folder: Path, *, pairs: int) -> dict[str, Any]:
    rows = spool(spark, folder)
    ours = source_frame(spark)
    ran(ours)
    return {"rate": rows / statistics.median(ran(ours).time for _ in range(pairs))}


# Memory: the Python workers are watched while many records go through


def memory(spark: SparkSession, folder: Path, *, rows: int) -> dict[str, Any]:
    wire = spark.read.parquet(str(folder / "wire"))
    # One task for all records, so that one worker sees them.
    repeated = [wire] * (rows // wire.count())
    records = repeated[0]
    for frame in repeated[1:]:
        records = records.union(frame)
    seen: list[int] = []
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(seen, over))
    watcher.start()
    ran(decode(records.coalesce(1), chain(folder)))
    over.set()
    watcher.join()
    early = max(seen[: len(seen) // EARLY])
    late = max(seen[-len(seen) // EARLY :])
    return {"early": early, "end": late, "peak": max(seen), "early_rows": rows // EARLY}


def watch(seen: list[int], over: threading.Event) -> None:
    """Note the memory of the largest Python worker, ten times a second."""
    jvm = next(child for child in psutil.Process().children() if child.name() == "java")
    while not over.wait(0.1):
        sizes = []
        for child in jvm.children(recursive=True):
            try:
                sizes.append(child.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
        if sizes:
            seen.append(max(sizes))


# Micro-batches: the same topic is read and written through the chain, and unchanged


def foreach(spark: SparkSession, folder: Path, *, pairs: int, servers: str) -> dict[str, Any]:
    options = {"kafka.bootstrap.servers": servers}
    wire = spark.read.parquet(str(folder / "wire"))
    sent = wire.limit(100_000).select("topic", "key", "value", "headers")
    sent.write.format("kafka").options(**options).save()

    def plain(frame: DataFrame, _: int) -> None:
        wire = frame.select("key", "value", "headers")
        wire.write.format("kafka").options(**options, topic="plain").save()

    def read(function: Any) -> Cost:
        checkpoint = folder / f"checkpoint-{time.monotonic_ns()}"
        stream = spark.readStream.format("kafka").options(
            **options, subscribe="bench", includeHeaders="true", startingOffsets="earliest"
        )
        to = function(str(checkpoint))
        query = stream.load().writeStream.foreachBatch(to).option("checkpointLocation", str(checkpoint))
        found: list[Cost] = []
        with cost(found):
            query.trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(checkpoint)
        return found[0]

    ours = chain(folder)
    sink = kafka_sink({**options, "topic": create_topic(servers, "ours")}, chain=ours)
    return pairs_of(
        lambda: read(lambda checkpoint: foreach_batch(ours, sink, checkpoint=checkpoint)),
        lambda: read(lambda _: plain),
        100_000,
        pairs,
    )


# The copy of a topic: the highest version of ten records for each key, into a topic of its own


def copy(spark: SparkSession, folder: Path, *, pairs: int, servers: str) -> dict[str, Any]:
    del folder
    options = {"kafka.bootstrap.servers": servers}
    number, key = F.col("id"), F.col("id") % (COPIED // 10)
    version = (number * 7_919 % COPIED).cast("string").cast("binary")
    records = spark.range(COPIED).select(
        key.cast("string").cast("binary").alias("key"),
        F.lit(bytes(100)).alias("value"),
        F.array(F.struct(F.lit("version").alias("key"), version.alias("value"))).alias("headers"),
        (key % PARTS).cast("int").alias("partition"),
    )

    def topic(name: str) -> str:
        return create_topic(servers, f"{name}-{time.monotonic_ns()}", PARTS)

    source = topic("copied")
    records.write.format("kafka").options(**options, topic=source).save()

    def ours(target: str) -> None:
        done = copy_topic(spark, options, source, target, Rule(header="version"), execute=True)
        assert done.written == COPIED // 10

    def plain(target: str) -> None:
        read = spark.read.format("kafka").options(**options, subscribe=source, includeHeaders="true").load()
        found = F.filter("headers", lambda each: each["key"] == "version")[0]["value"]
        best = Window.partitionBy("partition", "key").orderBy(F.desc("version"), F.desc("offset"))
        versions = read.withColumn("version", found.cast("string").cast("long"))
        kept = versions.withColumn("rank", F.row_number().over(best)).where("rank = 1")
        wire = kept.select("key", "value", "headers", "partition")
        wire.write.format("kafka").options(**options, topic=target).save()

    def copied(function: Callable[[str], None], target: str) -> Cost:
        found: list[Cost] = []
        with cost(found):
            function(target)
        return found[0]

    return pairs_of(lambda: copied(ours, topic("ours")), lambda: copied(plain, topic("plain")), COPIED, pairs)


# Small batches: two queries read the same topic, one through the chain; the records of a batch are sent first


def batches(
    spark: SparkSession,
    folder: Path,
    *,
    servers: str,
    batches: int,
    partitions: int,
    small: int,
    large: int,
    warm_up: int,
    full: bool = False,
) -> dict[str, Any]:
    options = {"kafka.bootstrap.servers": servers}
    names = {name: f"{name}-{small}" for name in ("read", "ours", "plain")}
    folder /= f"batches-{small}"
    folder.mkdir()
    edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "bench", "hmac-sha256"), create=True)
    trail, compress, sign = chain(folder)
    slices = [Slice(max_bytes=10_000)] if large else []
    if full:
        edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "data", "aes-256"))
        encrypt = Encrypt(key_service=FileKeys(keyring=str(folder / "keys.json")), key_id="data")
        ours = Chain([trail, compress, Dedup(), encrypt, *slices, sign])
    else:
        ours = Chain([trail, compress, *slices, sign])
    stream = spark.readStream.format("kafka").options(
        **options, subscribe=names["read"], includeHeaders="true", startingOffsets="earliest"
    )
    through_chain = foreach_batch(
        ours,
        kafka_sink({**options, "topic": names["ours"]}, chain=ours),
        checkpoint=str(folder / names["ours"]),
        dead_letters=kafka_sink(options) if full else None,
    )

    def as_it_is(frame: DataFrame, _: int) -> None:
        wire = frame.select("key", "value", "headers")
        wire.write.format("kafka").options(**options, topic=names["plain"]).save()

    def read(function: Any, name: str) -> Cost:
        found: list[Cost] = []

        def measured(frame: DataFrame, batch: int) -> None:
            with cost(found):
                function(frame, batch)

        writer = stream.load().writeStream.foreachBatch(measured)
        query = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start()
        query.awaitTermination()
        (only,) = found
        return only

    mine, theirs = [], []
    for _ in range(batches + warm_up):
        with Producer({"bootstrap.servers": servers}, chain=ours) as producer:
            for number in range(small + large):
                value = os.urandom(50_000) if number < large else json.dumps({"number": number}).encode()
                producer.produce(names["read"], value, str(number), number % partitions)
                if number % 10_000 == 0:
                    producer.flush()
        mine.append(read(through_chain, names["ours"]))
        theirs.append(read(as_it_is, names["plain"]))
    return {
        "ours": medians(mine[warm_up:]),
        "reference": medians(theirs[warm_up:]),
        "first": medians(mine[:1]),
    }


def create_topic(servers: str, topic: str, partitions: int = -1) -> str:
    """Create a topic, with as many partitions as the broker gives by default, and return its name."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, partitions)]).values():
        future.result()
    return topic


def medians(costs: list[Cost]) -> dict[str, float]:
    columns = zip(("ms", "cpu_ms", "workers_ms"), zip(*costs, strict=True), strict=True)
    return {name: statistics.median(values) * 1000 for name, values in columns}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": prepare,
    "A/A": paired_with_itself,
    "decode": paired_decode,
    "by hand": paired_by_hand,
    "encode": paired_encode,
    **{f"column {name}": partial(paired_column, name) for name in BY_HAND},
    "rate": rate,
    "source": paired_source,
    "source rate": source_rate,
    "memory": memory,
    "foreach": foreach,
    "copy": copy,
    "batches": batches,
}

if __name__ == "__main__":
    main()
