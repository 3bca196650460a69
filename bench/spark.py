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

from headerware.spark_bridge.session import spark_home
from headerware.testing import KafkaBroker

JOB = Path(__file__).parent / "spark_job.py"
ROWS = 400_000
MANY = 10_000_000
FULL = 20_000
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


def rows(*, pairs: int, many: int = MANY) -> Iterator[Row]:
    """Measure decode and encode from Parquet without a broker, then writing to a broker."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = _job("prepare", folder=folder, rows=ROWS)
        size = f"{prepared['bytes']}-byte values from Parquet, 2 cores, {pairs} pairs of {ROWS:,}"
        for job, (name, bar, against) in PAIRED.items():
            found = _job(job, folder=folder, pairs=pairs)
            note = f"against {against}; {size}"
            yield Row(
                name, found["ours"], found["reference"], "records/s", found["ratio"], bar, note, _cpu(found)
            )
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
        with KafkaBroker() as broker:
            yield _written(folder, broker, pairs)
            yield _copied(folder, broker, pairs)


def small_batches(*, batches: int) -> Iterator[Row]:
    """Measure micro-batches of few records, on two cores, with Spark's own settings."""
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker:
        for name in ("read", "ours", "plain"):
            for small in (594, 160, FULL):
                broker.create_topic(f"{name}-{small}", partitions=8)
        told = {"folder": folder, "servers": broker.bootstrap_servers, "batches": batches, "partitions": 8}
        found = _job("batches", **told, small=594, large=6)
        how = (
            "a call of the function for foreachBatch, that reads from 8 partitions and writes to 8 through "
            "the chain, against one that writes what the connector read; medians of "
            f"{batches} batches after 2, in one session that has Spark's own settings"
        )
        yield Row(
            "Spark, a batch of 600 records with six messages in slices: time",
            found["ours"]["ms"],
            found["reference"]["ms"],
            "ms",
            found["ours"]["ms"] / found["reference"]["ms"],
            "adds at most 3000",
            f"trail, zstd, slices and HMAC; {how}. The first batch took {found['first_ms']:,.0f} ms",
            _batch_cpu(found, 600),
        )
        found = _job("batches", **told, small=160, large=0)
        yield Row(
            "Spark, a batch of 160 records on 8 partitions: CPU",
            found["ours"]["cpu_ms"],
            found["reference"]["cpu_ms"],
            "ms",
            found["ours"]["cpu_ms"] / found["reference"]["cpu_ms"],
            "ours at most 1500",
            f"trail, zstd and HMAC; CPU of the driver, its JVM and the Python workers together (of it "
            f"{found['ours']['workers_ms']:,.0f} ms in Python workers) during {how}",
            _batch_cpu(found, 160),
        )
        found = _job("batches", **told, small=FULL, large=6, full=True)
        ours, reference = _batch_cpu(found, FULL)
        yield Row(
            f"Spark, a batch of {FULL + 6:,} records with every protection: CPU a record",
            ours,
            reference,
            "us",
            ours / reference,
            "adds at most 200",
            f"trail, zstd, dedup, encryption, slices, HMAC and a sink for dead letters, CPU as in the row "
            f"above; {how}",
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


def _written(folder: str, broker: KafkaBroker, pairs: int) -> Row:
    found = _job("foreach", folder=folder, pairs=pairs, servers=broker.bootstrap_servers)
    return Row(
        "Spark foreachBatch, read and written through the chain",
        found["ours"],
        found["reference"],
        "records/s",
        found["ratio"],
        "",
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


def _job(what: str, *, cores: int = 2, home: str | None = None, **arguments: Any) -> dict[str, Any]:
    command = [sys.executable, str(JOB), what, msgspec.json.encode({"cores": cores, **arguments}).decode()]
    kept = {0} if cores == 1 else os.sched_getaffinity(0)

    def hold() -> None:
        os.sched_setaffinity(0, kept)

    env = os.environ if home is None else {**os.environ, "SPARK_HOME": home}
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=hold, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"{what} failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return found
