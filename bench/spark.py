"""Rows for the Spark bridge; each job runs in a process of its own, with a session and workers of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from report import Row

from headerware.core.native import NATIVE_VARIABLE, native_module
from headerware.spark_bridge.session import spark_home
from headerware.testing import KafkaBroker

JOB = Path(__file__).parent / "spark_job.py"
ROWS = 400_000
MANY = 10_000_000
WARM_UP = 2
FULL = {20_000: 12, 100_000: 6}
"""Records, and batches before the measured ones: until then the JVM compiles, which long jobs have done."""
BARE = "mapInArrow with bare zstd and hmac.digest on values alone"
PAIRED = {
    "A/A": ("A/A: Spark, bare primitives", "", BARE),
    "decode": ("Spark decode, trail + zstd + HMAC", "at least 0.7", BARE),
    "encode": ("Spark encode, trail + zstd + HMAC", "at least 0.7", BARE),
    "by hand": (
        "Spark decode, against the same by hand",
        "",
        "a mapInArrow that does the same",
    ),
}
"""By job: the row's name, its bar, and what it is compared with."""
WAYS = {"": "0", ", natively": "1"} if native_module()[0] is not None else {"": "0"}
"""What the names of rows end with, and what the environment says about native code, if it is there."""
NATIVE_BARS = {"decode": "at least 1.2", "encode": "at least 1.1", "foreach": "at least 0.55"}
COLUMNS = {
    "header": "Spark column header(...), against SQL by hand",
    "headers_map": "Spark column headers_map(), against a pandas UDF by hand",
    "trail": "Spark column trail(), against a pandas UDF by hand",
    "verified": "Spark decode with the column verified, against a pandas UDF by hand",
}
COLUMN_ROWS = 100_000


def columns(*, pairs: int) -> Iterator[Row]:
    """Measure the columns of headers against what one would write by hand, from Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        _job("prepare", folder=folder, rows=COLUMN_ROWS)
        for job, name in COLUMNS.items():
            found = _job(f"column {job}", folder=folder, pairs=pairs)
            note = f"{found['by_hand']}; 2 cores, {pairs} pairs of {COLUMN_ROWS:,}"
            yield Row(
                name, found["ours"], found["reference"], "records/s", found["ratio"], "", note, _cpu(found)
            )


def rows(*, pairs: int, many: int = MANY) -> Iterator[Row]:
    """Measure decode and encode from Parquet without a broker, then writing to a broker."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = _job("prepare", folder=folder, rows=ROWS)
        size = f"{prepared['bytes']}-byte values from Parquet, 2 cores, {pairs} pairs of {ROWS:,}"
        for job, (name, bar, against) in PAIRED.items():
            for way, native in WAYS.items() if job in NATIVE_BARS else [("", "0")]:
                found = _job(job, native=native, folder=folder, pairs=pairs)
                needed = NATIVE_BARS[job] if way else bar
                rates = found["ours"], found["reference"], "records/s", found["ratio"]
                yield Row(f"{name}{way}", *rates, needed, f"against {against}; {size}", _cpu(found))
        yield _cores("Spark decode, two cores against one", "rate", folder, pairs)
        yield _executors(folder, pairs)
        found = _job("source", folder=folder, pairs=pairs)
        yield Row(
            "Spark source, JSON lines",
            found["ours"],
            found["reference"],
            "records/s",
            found["ratio"],
            "at least 0.5",
            "against a data source by hand that checks the same lines and gives the same columns, but has no "
            "records: between bytes and columns nothing could number, change, serialize or refuse one; "
            f"one file, 2 cores, {pairs} pairs of {found['rows']:,}",
            _cpu(found),
        )
        yield _cores("Spark source, two cores against one", "source rate", folder, pairs)
        yield _memory(folder, many)
        for way in WAYS:
            with KafkaBroker() as broker:  # the job fills the topic that it reads
                yield _written(folder, broker, pairs, way)
        with KafkaBroker() as broker:
            yield _copied(folder, broker, pairs)


def small_batches(*, batches: int) -> Iterator[Row]:
    """Measure micro-batches of few records, on two cores, with Spark's own settings."""
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker:
        for name in ("read", "ours", "plain"):
            for small in (594, 160, *FULL):
                broker.create_topic(f"{name}-{small}", partitions=8)
        told = {"folder": folder, "servers": broker.bootstrap_servers, "batches": batches, "partitions": 8}
        how = (
            "a call of the function for foreachBatch, that reads from 8 partitions and writes to 8 through "
            "the chain, against one that writes what the connector read; medians of "
            f"{batches} batches after {{}}, in one session that has Spark's own settings"
        )
        found = _job("batches", **told, small=594, large=6, warm_up=WARM_UP)
        yield Row(
            "Spark, a batch of 600 records with six messages in slices: time",
            found["ours"]["ms"],
            found["reference"]["ms"],
            "ms",
            found["ours"]["ms"] / found["reference"]["ms"],
            "adds at most 3000",
            f"trail, zstd, slices and HMAC; {how.format(WARM_UP)}. "
            f"The first batch took {found['first']['ms']:,.0f} ms",
            _batch_cpu(found, 600),
        )
        found = _job("batches", **told, small=160, large=0, warm_up=WARM_UP)
        yield Row(
            "Spark, a batch of 160 records on 8 partitions: CPU",
            found["ours"]["cpu_ms"],
            found["reference"]["cpu_ms"],
            "ms",
            found["ours"]["cpu_ms"] / found["reference"]["cpu_ms"],
            "ours at most 1500",
            f"trail, zstd and HMAC; CPU of the driver, its JVM and the Python workers together (of it "
            f"{found['ours']['workers_ms']:,.0f} ms in Python workers) during {how.format(WARM_UP)}",
            _batch_cpu(found, 160),
        )
        for size, warm_up in FULL.items():
            found = _job("batches", **told, small=size, large=6, warm_up=warm_up, full=True)
            ours, reference = _batch_cpu(found, size)
            row = f"Spark, a batch of {size + 6:,} records with every protection"
            yield Row(
                f"{row}: CPU a record",
                ours,
                reference,
                "us",
                ours / reference,
                "adds at most 200" if size == max(FULL) else "",
                "trail, zstd, dedup, encryption, slices, HMAC, a sink for dead letters; CPU as in the rows "
                f"above, of it {found['ours']['workers_ms'] * 1000 / size:,.0f} us in Python workers; "
                f"{how.format(warm_up)}",
            )
            first = found["first"]["cpu_ms"] * 1000 / size
            yield Row(
                f"{row}, first of a session: CPU a record",
                first,
                ours,
                "us",
                first / ours,
                "",
                "the first batch against the later ones of the row above: it starts the Python workers, "
                "which open the chain, the JVM compiles what runs, and the ledger begins; it took "
                f"{found['first']['ms']:,.0f} ms, and a later one {found['ours']['ms']:,.0f}",
            )


def _cpu(found: dict[str, Any]) -> tuple[float, float]:
    return found["ours_cpu_us"], found["reference_cpu_us"]


def _batch_cpu(found: dict[str, Any], records: int) -> tuple[float, float]:
    ours, reference = (found[which]["cpu_ms"] * 1000 / records for which in ("ours", "reference"))
    return ours, reference


def _cores(name: str, job: str, folder: str, pairs: int) -> Row:
    rates = {cores: _job(job, cores=cores, folder=folder, pairs=pairs)["rate"] for cores in (1, 2)}
    return Row(
        name,
        rates[2],
        rates[1],
        "records/s",
        rates[2] / rates[1],
        "at least 1.7",
        f"all of Spark, JVM and Python, held to one core or two; median of {pairs} runs",
    )


def _executors(folder: str, pairs: int) -> Row:
    """Measure decode on one, two and four executors of a core each, which are processes of their own."""
    home = Path(folder) / "spark"
    home.mkdir()
    for entry in spark_home().iterdir():  # local-cluster leaves the executors' folders in Spark's home
        (home / entry.name).symlink_to(entry)
    rates = {
        executors: _job("rate", home=str(home), executors=executors, folder=folder, pairs=pairs)["rate"]
        for executors in (1, 2, 4)
    }
    return Row(
        "Spark decode, two executors of a core against one",
        rates[2],
        rates[1],
        "records/s",
        rates[2] / rates[1],
        "",
        f"each executor is a JVM and a Python worker, which may use a core each; four executors: "
        f"{rates[4]:,.0f} records/s; the machine has {os.cpu_count()} cores, which the driver shares; "
        f"median of {pairs} runs",
    )


def _memory(folder: str, many: int) -> Row:
    found = _job("memory", folder=folder, rows=many)
    return Row(
        f"Spark decode, memory of a worker after {many:,} records",
        found["end"] / 2**20,
        found["early"] / 2**20,
        "MiB",
        found["end"] / found["early"],
        "at most 1.2",
        f"resident memory of the largest Python worker at the end against that after the first "
        f"{found['early_rows']:,} records; its largest was {found['peak'] / 2**20:,.0f} MiB",
    )


def _written(folder: str, broker: KafkaBroker, pairs: int, way: str) -> Row:
    told: dict[str, Any] = {"folder": folder, "pairs": pairs, "servers": broker.bootstrap_servers}
    found = _job("foreach", native=WAYS[way], **told)
    return Row(
        f"Spark foreachBatch, read and written through the chain{way}",
        found["ours"],
        found["reference"],
        "records/s",
        found["ratio"],
        NATIVE_BARS["foreach"] if way else "",
        f"against the connector's own read and write in foreachBatch; decode and encode with trail, zstd and "
        f"HMAC, and the ledger, are in; {pairs} pairs of {found['rows']:,}",
        _cpu(found),
    )


def _copied(folder: str, broker: KafkaBroker, pairs: int) -> Row:
    found = _job("copy", folder=folder, pairs=pairs, servers=broker.bootstrap_servers)
    return Row(
        "Spark, compaction by header, a tenth of the records wins",
        found["ours"],
        found["reference"],
        "records/s",
        found["ratio"],
        "",
        "reads twice, and writes a tenth in transactions, in order and with its times; against Spark's own "
        f"read, window and write, which write twice what is tried again; 100-byte values on 8 partitions, 2 "
        f"cores, {pairs} pairs of {found['rows']:,}",
        _cpu(found),
    )


def _job(
    what: str, *, cores: int = 2, home: str | None = None, native: str = "0", **arguments: Any
) -> dict[str, Any]:
    command = [sys.executable, str(JOB), what, msgspec.json.encode({"cores": cores, **arguments}).decode()]
    kept = {0} if cores == 1 else os.sched_getaffinity(0)

    def hold() -> None:
        os.sched_setaffinity(0, kept)

    env = {**os.environ, NATIVE_VARIABLE: native, **({} if home is None else {"SPARK_HOME": home})}
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=hold, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"{what} failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return found
