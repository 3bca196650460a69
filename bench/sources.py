"""Rows for sources: a file into Kafka, against a loop by hand over the same library.

The loop sends the same records, which is checked: key, value, headers and timestamp. Its producer has the
same settings, and its transactions the same size. The loop cannot resume: it keeps no offsets, knows no
versions, and stops at the first bad line. Complete runs are compared, with clients and transactions.
"""

from __future__ import annotations

import csv
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import confluent_kafka
import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from pairing import Chunk, compare
from report import Row
from vega_datasets import local_data

from headerware.cli.source import rare_collections
from headerware.sources.runtime import RunConfig, SourceRunner
from headerware.testing import KafkaBroker

RECORDS: Final = 1_000_000
"""Some seconds of work for either way, so that the half second of a start is a small part of it."""
WIDE_RECORDS: Final = 200_000
"""The same for rows of 1,400 bytes."""
COMMIT_RECORDS: Final = 20_000
COMMIT_S: Final = 1.0
LARGE: Final = 1 << 30
BAR: Final = "at least 0.8"
TRAIL_BAR: Final = "at least 0.5"
MEMORY_BAR: Final = "ours at most 400"

Delivery = Literal["exactly_once", "at_least_once"]

_runs = itertools.count()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _csv_rows(file: Path) -> Iterator[bytes]:
    with file.open(newline="", encoding="utf-8") as opened:
        rows = csv.reader(opened)
        names = next(rows)
        for row in rows:
            yield _encode(dict(zip(names, row, strict=True)))


def _json_lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for line in opened:
            yield _encode(_decode(line))


def _plain_lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for line in opened:
            yield line.rstrip(b"\n")


def _parquet_rows(file: Path) -> Iterator[bytes]:
    with pyarrow.parquet.ParquetFile(file) as opened:
        for batch in opened.iter_batches():
            for row in batch.to_pylist():
                yield _encode(row)


class Format(NamedTuple):
    """One format: our extractor, and the loop over its library."""

    name: str
    ending: str
    extractor: dict[str, Any]
    read: Callable[[Path], Iterator[bytes]]
    library: str


CSV: Final = Format("CSV", "csv", {"type": "csv"}, _csv_rows, "csv")
JSON_LINES: Final = Format("JSON lines", "jsonl", {"type": "jsonl"}, _json_lines, "msgspec")
PARQUET: Final = Format("Parquet", "parquet", {"type": "parquet"}, _parquet_rows, "pyarrow")
AS_THEY_ARE: Final = Format(
    "JSON lines as bytes",
    "jsonl",
    {"type": "jsonl", "values": "bytes"},
    _plain_lines,
    "file lines, which it does not check",
)
FORMATS: Final = {each.name: each for each in (CSV, JSON_LINES, PARQUET, AS_THEY_ARE)}


class Work(NamedTuple):
    """A file on its way to Kafka."""

    broker: str
    topic: str
    file: Path
    format: Format
    records: int
    trailed: bool = False
    """Whether each record gets a trail, in a chain of two steps."""

    def kafka(self) -> dict[str, Any]:
        """Return the settings that both ways have."""
        return {"bootstrap.servers": self.broker, "linger.ms": 5, "enable.idempotence": True}

    def ours(self, name: str, *, delivery: Delivery) -> None:
        """Run the source, with its defaults for everything else."""
        kafka = self.kafka()
        if self.format.extractor.get("values") != "bytes":
            chain = "serialize,trail" if self.trailed else "serialize"
            kafka |= {"interceptors": chain, "interceptors.serialize.value": "json"}
        table: dict[str, Any] = {
            "name": name,
            "topic": self.topic,
            "extractor": self.format.extractor,
            "source": {"type": "files", "folder": str(self.file.parent), "include": [self.file.name]},
            "kafka": kafka,
            "delivery": delivery,
        }
        if delivery == "at_least_once":
            table["offsets"] = {"type": "sqlite", "path": str(self.file.parent / f"{name}.db")}
        runner = SourceRunner(RunConfig.from_table(table), once=True)
        runner.run()
        assert runner.statistics[0].acknowledged == self.records

    def by_hand(self, name: str, *, delivery: Delivery) -> None:
        """Read, encode, produce, poll, and flush or commit; stop at the first failure."""
        transactions = delivery == "exactly_once"
        settings = self.kafka() | ({"transactional.id": name} if transactions else {})
        producer = confluent_kafka.Producer(settings)
        failures: list[Any] = []

        def reported(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        if transactions:
            producer.init_transactions()
            producer.begin_transaction()
        report = None if transactions else reported
        own = [("hw.source", name.encode()), ("hw.source.key", self.file.name.encode())]
        stated = ("content-type", b"application/json")
        is_stated_first = (
            self.format is AS_THEY_ARE
        )  # an object's own content type comes first; a serializer adds its own last
        timestamp_ms = self.file.stat().st_mtime_ns // 1_000_000
        topic, produce = self.topic, producer.produce
        cluster, named = producer.list_topics(timeout=30).cluster_id.encode(), topic.encode()
        committed, began = 0, time.monotonic()
        for number, value in enumerate(self.format.read(self.file), 1):
            numbered = ("hw.source.record", b"%d" % number)
            headers = [stated, *own, numbered] if is_stated_first else [*own, numbered, stated]
            if self.trailed:
                at_ms = time.time_ns() // 1_000_000
                headers.append(("hw.trail", b"1,at=%d;by=bench;into=%b/%b" % (at_ms, cluster, named)))
            while True:
                try:
                    produce(topic, value, None, -1, report, None, timestamp_ms, headers)
                except BufferError:
                    producer.poll(0.05)
                else:
                    break
            if number % 500:
                continue
            producer.poll(0)
            if transactions and (
                number - committed >= COMMIT_RECORDS or time.monotonic() - began >= COMMIT_S
            ):
                producer.commit_transaction()
                producer.begin_transaction()
                committed, began = number, time.monotonic()
        if transactions:
            producer.commit_transaction()
        producer.flush()
        producer.close()
        assert not failures


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure each format, and the memory that a large file takes."""
    with tempfile.TemporaryDirectory() as folder, rare_collections():
        root = Path(folder)
        for format_ in FORMATS.values():
            yield _row(broker, root, format_, pairs)
        yield _row(broker, root, JSON_LINES, pairs, airports=10)
        yield _row(broker, root, CSV, pairs, delivery="at_least_once")
        yield _row(broker, root, CSV, pairs, trailed=True)
        for format_ in (CSV, JSON_LINES, PARQUET):
            yield _memory(broker, root, format_)


def _row(
    broker: KafkaBroker,
    folder: Path,
    format_: Format,
    pairs: int,
    *,
    airports: int = 1,
    delivery: Delivery = "exactly_once",
    trailed: bool = False,
) -> Row:
    records = RECORDS if airports == 1 else WIDE_RECORDS
    file = write(folder / f"{airports}.{format_.ending}", airports, records)
    topics = [f"sources-{next(_runs)}" for _ in range(2)]
    for topic in topics:
        broker.create_topic(topic)
    mine, theirs = (
        Work(broker.bootstrap_servers, topic, file, format_, records, trailed) for topic in topics
    )
    cpu_us: dict[str, list[float]] = {"ours": [], "by_hand": []}

    def chunk(way: str, run: Callable[..., None]) -> Chunk:
        def timed() -> int:
            began_s = _cpu_s()
            run(f"bench-{next(_runs)}", delivery=delivery)
            cpu_us[way].append((_cpu_s() - began_s) / records * 1e6)
            return records

        return timed

    found = compare(chunk("ours", mine.ours), chunk("by_hand", theirs.by_hand), pairs=pairs, warm_up=1)
    _require_equal(broker.bootstrap_servers, topics)
    once = delivery == "exactly_once"
    return Row(
        f"{format_.name} into Kafka{'' if once else ', at least once'}{', with a trail' if trailed else ''}, "
        f"rows of {140 * airports:,} bytes",
        found.ours,
        found.reference,
        "records/s",
        found.ratio,
        TRAIL_BAR if trailed else BAR if once and airports == 1 and format_ is not AS_THEY_ARE else "",
        f"{pairs} pairs of runs of {records:,}; against {format_.library} by hand, which cannot resume; "
        + (
            "both in transactions, ours with offsets"
            if once
            else "both with a report for each record, ours with offsets in SQLite"
        ),
        (statistics.median(cpu_us["ours"][1:]), statistics.median(cpu_us["by_hand"][1:])),
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _require_equal(servers: str, topics: list[str]) -> None:
    """Require that both topics begin with the same records, except for the name of the run."""
    found = []
    for topic in topics:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "bench"})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        messages: list[Any] = []
        while len(messages) < 100:
            some = consumer.consume(100, 30)
            assert some, "nothing came for 30 s"
            messages += some
        consumer.close()
        found.append([_shown(each) for each in messages])
    assert found[0][:100] == found[1][:100], "the loop by hand sends other records"


def _shown(message: Any) -> tuple[Any, ...]:
    headers = [pair for pair in message.headers() if pair[0] not in {"hw.source", "hw.trail"}]
    return message.key(), message.value(), message.timestamp(), headers


def _memory(broker: KafkaBroker, folder: Path, format_: Format) -> Row:
    """Measure the growth of memory over a large file, and over an eighth of it."""
    broker.create_topic(topic := f"sources-{next(_runs)}")
    sample = write(folder / f"sample.{format_.ending}", 10, 3_000)
    grown = []
    for size in (LARGE, LARGE // 8):
        file = write(folder / f"large.{format_.ending}", 10, 3_000 * size // sample.stat().st_size)
        command = [sys.executable, __file__, broker.bootstrap_servers, topic, str(file), format_.name]
        grown.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 2**20)
        file.unlink()
    return Row(
        f"{format_.name}, a file of {LARGE >> 20:,} MiB, growth of memory",
        grown[0],
        grown[1],
        "MiB",
        grown[0] / grown[1],
        MEMORY_BAR,
        "peak resident size over that after a file of one row; against a file of an eighth; the bar is what "
        "may wait: 30,000 rows of 70 columns as dicts in the queue and the transaction (200 MiB), 50,000 as "
        "bytes in librdkafka's queue (100 MiB), and what is being read",
    )


def _growth(servers: str, topic: str, file: Path, format_: Format) -> int:
    small = write(file.with_name(f"small-{file.name}"), 10, 1)
    work = Work(servers, topic, small, format_, _records_of(small))
    work.ours(f"memory-{os.getpid()}-small", delivery="exactly_once")
    small.unlink()
    before = _peak_bytes()
    work._replace(file=file, records=_records_of(file)).ours(f"memory-{os.getpid()}", delivery="exactly_once")
    return _peak_bytes() - before


def _peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - a file of the kernel's
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _records_of(file: Path) -> int:
    """Return how many rows a file has, without holding them."""
    if file.suffix == ".parquet":
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    with file.open("rb") as opened:
        return sum(1 for _ in opened) - (file.suffix == ".csv")


def write(file: Path, airports: int, records: int) -> Path:
    """Write a file of rows with airports, which repeat, unless the file exists; return its path."""
    if file.exists():
        return file
    known = local_data.airports()
    shifted = [known.shift(-at).fillna("") for at in range(airports)]
    names = [f"{name}{at or ''}" for at in range(airports) for name in known.columns]
    frame = pd.concat(shifted, axis=1).set_axis(names, axis=1).astype(str)
    left = records
    if file.suffix == ".parquet":
        table = pa.Table.from_pandas(pd.concat([frame] * (1 + 50_000 // len(frame))), preserve_index=False)
        with pyarrow.parquet.ParquetWriter(
            file, table.schema, compression="none", use_dictionary=False
        ) as opened:
            while left > 0:
                opened.write_table(table.slice(0, left))
                left -= len(table)
        return file
    is_csv = file.suffix == ".csv"
    with file.open("w", encoding="utf-8", newline="") as text:
        if is_csv:
            frame.head(0).to_csv(text, index=False)
        while left > 0:
            some = frame.head(left)
            if is_csv:
                some.to_csv(text, index=False, header=False)
            else:
                some.to_json(text, orient="records", lines=True)
            left -= len(some)
    return file


if __name__ == "__main__":
    where, into, path, name = sys.argv[1:]
    print(_growth(where, into, Path(path), FORMATS[name]))
