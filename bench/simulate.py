"""``python bench/simulate.py``: what happens at sizes that no test machine has, by model and simulation.

    python bench/simulate.py                     print all tables
    python bench/simulate.py --only keys         one section
    python bench/simulate.py --write             write the tables into docs/scale.md, and measure the anchors

Each section has a model, which docs/scale.md describes, its tables, and anchors: figures of this library, in
which the model's assumptions are checked. Tables depend on the assumptions and on seeds alone, never on the
machine, so that a test can compare them with the document. Random numbers are uniform ones, transformed here,
for numpy promises to keep no other stream.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import tracemalloc
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import confluent_kafka
import numpy as np

from headerware import Chain, Context, Headers, Record
from headerware.core.bounded_cache import BoundedCache
from headerware.dictionaries.topic import MAX_TOTAL_BYTES
from headerware.interceptors import Slice, Trail
from headerware.interceptors.dedup.identity import MARK_AT
from headerware.interceptors.dedup.windows import MemoryWindows
from headerware.kafka.reader import TopicReader
from headerware.keyring.services import DataKeys, Wrapped
from headerware.keyring.services.data_keys import CACHE_ENTRIES
from headerware.ops.chargeback import KeptUsage, count_usage
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Retention
from headerware.registry import Allocate, Block, Entry, Register
from headerware.registry.stores.topic import Ledger, encode_change
from headerware.testing import EmbeddedCluster, KafkaBroker
from headerware.topic_table import Rows as TableRows
from headerware.topic_table import TopicTable
from headerware.topic_table.rows import TableRecord

FOLDER: Final = Path(__file__).parent
DOCUMENT: Final = FOLDER.parent / "docs" / "scale.md"
Rows = list[tuple[str, ...]]
MB: Final = 1_000_000
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Table:
    """A table that depends on nothing but the assumptions."""

    name: str
    columns: tuple[str, ...]
    rows: Rows

    def markdown(self) -> str:
        """Return it as Markdown; numbers are flush right."""
        rules = ("---", *("---:" for _ in self.columns[1:]))
        lines = (self.columns, rules, *self.rows)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True)
class Anchor:
    """An assumption of a model, and how this library is measured against it."""

    what: str
    assumed: float
    unit: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class Section:
    """A simulation: its tables, at a size of 1 as the document has them, and its anchors."""

    name: str
    tables: Callable[[float], Iterator[Table]]
    anchors: tuple[Anchor, ...] = ()


def count(value: float) -> str:
    """Return a number for a table: three digits that count, or all of a large one."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def measured_row(name: str) -> float:
    """Return our figure of a row of bench/results.json."""
    rows = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    return next(float(row["ours"]) for row in rows if row["name"] == name)


def least(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the least seconds of three runs, by a clock: the CPU's, or the wall's if the work waits."""
    times = []
    for _ in range(3):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)


# Registry and dictionaries: every service follows one topic of one partition.

HEADERS_OF_A_SERVICE: Final = 10
CHANGE_US: Final = 50.0
ENTRY_BYTES: Final = 1_000
FOLLOWER_REQUESTS: Final = 2.7
"""A second: a fetch waits 500 ms (fetch.wait.max.ms), and the ends are asked for every 3 s."""
DICTIONARY_BYTES: Final = 100_000


def registry_log(services: int) -> list[bytes]:
    """Return the changes of so many services: a block for each, and ten headers in it."""
    found = []
    for number in range(services):
        net = f"{16 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        owner = f"team-{number:05}"
        block = Block(network=f"{net}.0/24", owner=owner, description="A block.", since="2026-01-01")  # type: ignore[arg-type]
        found.append(encode_change(Allocate(block, "registrar")))
        for index in range(HEADERS_OF_A_SERVICE):
            entry = Entry(
                id=f"{net}.{index}",  # type: ignore[arg-type]
                name=f"x-{owner}-header-{index}",
                owner=owner,
                encoding="utf-8",
                description="What this header means.",
                since="2026-01-02",
            )
            found.append(encode_change(Register(entry, owner)))
    return found


def fold(log: Sequence[bytes]) -> Ledger:
    """Read a log as each process does."""
    ledger = Ledger()
    for offset, value in enumerate(log):
        ledger.apply(TableRecord(offset, offset.to_bytes(16, "big"), value))
    assert not ledger.conflicts
    return ledger


def registry_tables(_: float) -> Iterator[Table]:
    log = registry_log(20)
    change_bytes = sum(map(len, log)) / len(log) + 16 + 10
    rows: Rows = []
    for services in (100, 1_000, 10_000, 100_000):
        changes = services * (1 + HEADERS_OF_A_SERVICE)
        size = changes * change_bytes
        rows.append(
            (
                f"{services:,}",
                f"{changes:,}",
                count(size / MB),
                count(changes * CHANGE_US / 1e6),
                count(services * HEADERS_OF_A_SERVICE * ENTRY_BYTES / MB),
                count(services * FOLLOWER_REQUESTS),
                count(services * size / 300 / MB),
            )
        )
    yield Table(
        "registry",
        (
            "services",
            "changes",
            "topic, MB",
            "start of a process, s",
            "memory of a process, MB",
            "requests to the leader, a second",
            "all start within 5 minutes, MB/s from the leader",
        ),
        rows,
    )
    rows = []
    for topics in (10, 100, 600, 1_000, 10_000):
        size = topics * DICTIONARY_BYTES
        kept = min(topics, MAX_TOTAL_BYTES // DICTIONARY_BYTES)
        rows.append(
            (
                f"{topics:,}",
                count(size / MB),
                f"{kept:,}",
                count(10_000 * min(size, MAX_TOTAL_BYTES) / 300 / MB),
            )
        )
    yield Table(
        "dictionaries",
        (
            "topics with a dictionary of 100 KB",
            "topic of dictionaries, MB",
            "dictionaries that a process keeps",
            "10,000 services start within 5 minutes, MB/s",
        ),
        rows,
    )


def measured_change_us() -> float:
    log = registry_log(3_000)
    return least(lambda: fold(log), time.process_time) / len(log) * 1e6


def measured_entry_bytes() -> float:
    log = registry_log(1_000)
    tracemalloc.start()
    ledger = fold(log)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / (len(ledger.registry) or 1)


def measured_follower_requests() -> float:
    """Count the requests of both clients of a process that follows a topic of a real broker."""
    seen: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def note(text: str) -> None:
        found = json.loads(text)
        sent = sum(broker["tx"] for broker in found["brokers"].values())
        seen[found["name"]].append((found["ts"], sent))

    with KafkaBroker() as broker:
        broker.create_topic("registry")
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "stats_cb": note,
            "statistics.interval.ms": 1000,
        }
        with TopicTable(conf, "registry", rows=TableRows) as table:
            table.refresh()
            table.follow()
            time.sleep(10)
    rates = []
    for figures in seen.values():
        (began_us, first), (ended_us, last) = figures[1], figures[-1]
        rates.append((last - first) / (ended_us - began_us) * 1e6)
    return sum(rates)


# Key services: producers make data keys, consumers unwrap each that they meet.

KEY_LIFE_S: Final = 3_600.0
RENEWED_AT: Final = 0.8
SPREAD: Final = 0.2
"""A successor is asked for at a random age between 0.6 and 0.8 of a life."""
RENEWED_MEAN_S: Final = (RENEWED_AT - SPREAD / 2) * KEY_LIFE_S
DATA_KEY_BYTES: Final = 600
QUOTA: Final = 10_000.0
"""Calls a second: a usual quota of a cloud's key service for an account and a region."""


@dataclass(frozen=True)
class Calls:
    """Calls of a second: the mean of 24 hours, the most of the first hour, and the most of the last one."""

    mean: float
    first: float
    last: float


def renewals(producers: int, deploy_s: float, records_per_s: float, spread: float, seed: int) -> Calls:
    """Return how often new data keys are asked for.

    A producer asks for its first key when it starts, and for the next one with the first record that comes
    after a random part of a key's life: 0.8 of it, less the spread at most.
    """
    rng = np.random.default_rng(seed)
    at = rng.random(producers) * deploy_s
    buckets = np.zeros(24 * 3600 + 1, dtype=np.int64)
    while at.size:
        buckets += np.bincount(at.astype(np.int64), minlength=buckets.size)
        lives = KEY_LIFE_S * (RENEWED_AT - spread * rng.random(at.size))
        at = at + lives - np.log1p(-rng.random(at.size)) / records_per_s
        at = at[at < 24 * 3600]
    return Calls(float(buckets.mean()), float(buckets[:3600].max()), float(buckets[-3600:].max()))


def misses(
    keys: int, cache_entries: int, records: int, skew: float, seed: int, renewed_by: float = 0.0
) -> float:
    """Return the part of records whose data key is not remembered; each was asked for once before.

    A part of the records, at random, are the first ones under a new key of their producers.
    """
    rng = np.random.default_rng(seed)
    weights = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -skew)
    drawn = np.searchsorted(weights, rng.random(records) * weights[-1])
    renewed = rng.random(records) < renewed_by
    newest = list(range(keys))
    made = 0

    def make(key: int) -> int:
        nonlocal made
        made += 1
        return key

    cache: BoundedCache[int, int] = BoundedCache(cache_entries, make)
    for key in range(keys):
        cache[key]
    before, drawn_keys = made, 0
    for producer, is_renewed in zip(drawn.tolist(), renewed.tolist(), strict=True):
        if is_renewed:
            drawn_keys += 1
            newest[producer] = keys + drawn_keys
        cache[newest[producer]]
    return (made - before) / records


def measured_data_key_bytes() -> float:
    class Service:
        is_local = True

        def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
            raise NotImplementedError

        def unwrap(self, _key_id: str, wrapped: bytes, _context: bytes) -> bytes:
            return wrapped[:32]

        def close(self) -> None:
            pass

    number = 10_000
    with closing(DataKeys(Service(), cache_entries=4 * number)) as keys:
        tracemalloc.start()
        for at in range(number):
            # A key that a cloud's service has wrapped has some 180 bytes; each record is read anew.
            keys.to_read("orders", at.to_bytes(184, "big"), b"cluster-of-22-letters/orders".decode())
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    return size / number


def key_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    producers = max(100, int(100_000 * size))
    for deploy_s, rate in ((60.0, 1.0), (600.0, 1.0), (3600.0, 1.0), (60.0, 1 / 60), (60.0, 1 / 600)):
        calls = renewals(producers, deploy_s, rate, SPREAD, seed=1)
        found = calls.mean, calls.first, calls.last, renewals(producers, deploy_s, rate, 0.0, seed=1).last
        rows.append((f"{deploy_s / 60:g} min", f"{count(rate * 60)} a minute", *map(count, found)))
    yield Table(
        "keys-made",
        (
            "100,000 producers start within",
            "records of each",
            "calls to wrap, a second",
            "most in a second of the first hour",
            "of the 24th hour",
            "the same, were the age not random",
        ),
        rows,
    )
    rows = []
    for producers in (1_000, 10_000, 100_000):
        for consumers in (10, 100, 1_000):
            wraps = producers / RENEWED_MEAN_S
            unwraps = wraps * consumers
            life = (wraps + unwraps) / QUOTA * KEY_LIFE_S / 3600
            rows.append(
                (f"{producers:,}", f"{consumers:,}", count(wraps), count(unwraps), count(max(life, 1.0)))
            )
    yield Table(
        "keys-unwrapped",
        (
            "producers",
            "processes that read all of them",
            "calls to wrap, a second",
            "calls to unwrap, a second",
            "life of a key that 10,000 calls a second allow, h",
        ),
        rows,
    )
    rows = []
    records = int(60_000 * size)
    renewed_by = 60.0 / RENEWED_MEAN_S
    for keys in (500, 1_000, 2_000, 8_000, 10_000, 100_000):
        found = (
            misses(keys, 1_024, records, 0.0, seed=2),
            misses(keys, CACHE_ENTRIES, records, 0.0, seed=2),
            misses(keys, CACHE_ENTRIES, records, 1.0, seed=2),
            misses(keys, CACHE_ENTRIES, records, 0.0, seed=2, renewed_by=renewed_by),
        )
        size = min(keys, CACHE_ENTRIES) * DATA_KEY_BYTES / MB
        rows.append((f"{keys:,}", *(f"{part:.1%}" for part in found), count(size)))
    yield Table(
        "keys-remembered",
        (
            "data keys in use on the partitions of a process",
            "records that need a call, 1,024 entries",
            f"{CACHE_ENTRIES:,} entries, the default",
            "the same, Zipf's producers",
            "producers alike, keys renewed",
            "memory of the keys, MB",
        ),
        rows,
    )


# Reassembly: messages of heavy-tailed sizes, of several producers, interleaved on one partition.

SLICE_BYTES: Final = 900_000
SMALLEST: Final = 1_000_000
LARGEST: Final = 256 * MIB
PENDING_BYTES: Final = 512 * MIB
TAIL: Final = 1.1
"""Pareto's exponent: the smaller, the heavier the tail."""
MEMORY_FACTOR: Final = 1.1


def sizes_bytes(number: int, rng: np.random.Generator) -> list[int]:
    """Return sizes of messages, by Pareto's law, cut off at the largest that is split."""
    drawn = SMALLEST * (1 - rng.random(number)) ** (-1 / TAIL)
    return [int(size) for size in np.minimum(drawn, LARGEST)]


@dataclass
class Reassembled:
    """What became of the messages of one partition."""

    peak_bytes: int
    held: list[int]
    given_up: int
    whole: int


def reassemble(senders: int, messages: int, seed: int) -> Reassembled:
    """Let senders write slices in turn, at random, and a reader hold them up to its limit, but the oldest."""
    rng = np.random.default_rng(seed)
    sizes = deque(sizes_bytes(messages, rng))
    sending: list[tuple[int, int]] = []  # number, bytes left
    pending: dict[int, int] = {}
    lost: set[int] = set()
    found = Reassembled(0, [], 0, 0)
    number = total = 0
    turns = iter(rng.random(messages * 400).tolist())
    while sizes or sending:
        while sizes and len(sending) < senders:
            sending.append((number, sizes.popleft()))
            number += 1
        at = int(next(turns, 0.5) * len(sending))
        message, left = sending[at]
        part = min(left, SLICE_BYTES)
        if left == part:
            sending.pop(at)
        else:
            sending[at] = (message, left - part)
        if message in lost:
            continue
        pending[message] = pending.get(message, 0) + part
        total += part
        while total > PENDING_BYTES:
            oldest = next(each for each in pending if each != message)
            total -= pending.pop(oldest)
            lost.add(oldest)
            found.given_up += 1
        found.peak_bytes = max(found.peak_bytes, total)
        found.held.append(total)
        if left == part:
            total -= pending.pop(message)
            found.whole += 1
    return found


def reassembly_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    messages = max(200, int(6_000 * size))
    for senders in (1, 4, 16, 64, 256):
        found = reassemble(senders, messages, seed=3)
        held = np.sort(np.array(found.held))
        rows.append(
            (
                f"{senders:,}",
                count(held.mean() / MIB),
                count(held[int(0.99 * held.size)] / MIB),
                count(found.peak_bytes / MIB),
                f"{found.given_up / messages:.2%}",
            )
        )
    yield Table(
        "reassembly",
        (
            "producers that split at once, on a partition",
            "pending, mean MiB",
            "99 % below, MiB",
            "most, MiB",
            "messages given up for lack of room",
        ),
        rows,
    )


def measured_memory_factor() -> float:
    return measured_row("64 MiB message, growth of memory, consume") / 64


def measured_peak() -> float:
    """Return the most bytes that our reassembler holds by those of the model; all at a tenth of the size."""
    senders, messages, seed = 4, 200, 3
    rng = np.random.default_rng(seed)
    sizes = deque(size // 10 for size in sizes_bytes(messages, rng))
    turns = iter(rng.random(messages * 400).tolist())
    cut = Chain([Slice(max_bytes=SLICE_BYTES // 10)])
    queues: list[Iterator[Record]] = []
    peak = offset = 0
    with cut.open(Context(pick_partition=lambda _: 0)) as sender, cut.open(Context()) as reader:
        while sizes or queues:
            while sizes and len(queues) < senders:
                sent: Any = sender.send_outcome(Record("t", bytes(sizes.popleft()), b"k", partition=0))
                queues.append(iter([sent] if isinstance(sent, Record) else sent))
            at = int(next(turns) * len(queues))
            record = next(queues[at], None)
            if record is None:
                queues.pop(at)
                continue
            reader.consume_outcome(
                record.replace(partition=0, offset=offset, timestamp_ms=0, timestamp_type=1)
            )
            offset += 1
            peak = max(peak, reader.stats()["slice"]["pending_bytes"])
    return 10 * peak / reassemble(senders, messages, seed).peak_bytes


# Trails over mirrors.

HOP_MS: Final = 1_767_225_600_000
PAYLOAD_BYTES: Final = 500


def trail_after(hops: int, max_entries: int, max_bytes: int) -> bytes:
    """Return the trail of a record that a service produced and mirrors copied so often."""
    record = Record("orders", b"v")
    for hop in range(hops + 1):
        options = {"max_entries": max_entries, "max_bytes": max_bytes}
        trail = Trail(service=f"mirror-{hop}" if hop else "checkout", cluster=f"cluster-{hop}", **options)  # type: ignore[arg-type]
        with Chain([trail]).open(Context(now_ms=lambda hop=hop: HOP_MS + hop * 40)) as session:  # type: ignore[misc]
            if hop:
                (record,) = session.consume([record.replace(partition=0, offset=hop)])
            (record,) = session.send([record])
    value = Headers(record.headers).last("hw.trail")
    assert value is not None
    return value


def trail_tables(_: float) -> Iterator[Table]:
    rows: Rows = []
    for hops in (0, 1, 2, 5, 10, 30, 100):
        free, bounded = trail_after(hops, 1_000, 65_535), trail_after(hops, 32, 4_096)
        rows.append(
            (
                f"{hops:,}",
                f"{len(free):,}",
                f"{len(bounded):,}",
                f"{bounded.count(b',at='):,}",
                f"{len(bounded) / (PAYLOAD_BYTES + len(bounded)):.0%}",
            )
        )
    yield Table(
        "trails",
        (
            "mirrors",
            "trail without bounds, bytes",
            "trail by default, bytes",
            "entries kept",
            "part of a record with 500 other bytes",
        ),
        rows,
    )


# Windows of dedup and of replay.

WINDOW: Final = 10_000
MAX_IDENTITIES: Final = 1_000_000
IDENTITY_BYTES: Final = 120


def recognised(producers: int, delay_s: float, records_per_s: float, size: float, seed: int) -> float:
    """Return the part of copies that our own window recognises; windows and rates are scaled down alike.

    Each record is copied once, after a delay. A producer's records come at equal chances.
    """
    window, most = max(10, int(WINDOW * size)), max(20, int(MAX_IDENTITIES * size))
    rng = np.random.default_rng(seed)
    windows = MemoryWindows(window, most)
    behind = int(delay_s * records_per_s * size)
    number = min(behind, 3 * most) + 2_000
    chosen = (rng.random(number) * producers).astype(np.int64).tolist()
    waiting: deque[tuple[bytes, Record]] = deque()
    found = asked = 0
    for offset, producer in enumerate(chosen):
        identity = producer.to_bytes(MARK_AT, "big") + offset.to_bytes(8, "big")
        assert not windows.is_duplicate(identity, Record("t", None, partition=0, offset=offset))
        waiting.append((identity, Record("t", None, partition=1, offset=offset)))
        if len(waiting) > behind:
            asked += 1
            found += windows.is_duplicate(*waiting.popleft())
    return found / asked if asked else 0.0


def window_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    for producers, rate in (
        (10, 100.0),
        (10, 10_000.0),
        (100, 10_000.0),
        (1_000, 10_000.0),
        (1_000, 100_000.0),
    ):
        span_s = min(2 * WINDOW * producers, MAX_IDENTITIES) / rate
        held = min(2 * WINDOW * producers, MAX_IDENTITIES)
        parts = [recognised(producers, delay, rate, 0.01 * size, seed=4) for delay in (1, 60, 3_600)]
        rows.append(
            (
                f"{producers:,}",
                f"{rate:,.0f}",
                count(held * IDENTITY_BYTES / MB),
                count(span_s),
                *(f"{part:.0%}" for part in parts),
            )
        )
    yield Table(
        "windows",
        (
            "producers",
            "records a second, of all",
            "memory at most, MB",
            "oldest that is remembered, s",
            "copies recognised after 1 s",
            "after 1 min",
            "after 1 h",
        ),
        rows,
    )


def measured_identity_bytes() -> float:
    number = 100_000
    tracemalloc.start()
    windows = MemoryWindows(number, 2 * number)
    for offset in range(number - 1):
        identity = bytes(MARK_AT) + offset.to_bytes(8, "big")
        windows.is_duplicate(identity, Record("t", None, partition=0, offset=offset))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(windows) == number - 1
    return size / number


# The guard: batches that are read, verified and written in a transaction.

VERIFY_US: Final = 15.0
FORWARD_US: Final = 10.0
COMMIT_MS: Final = 15.0
BATCH: Final = 1_000


def guard(rate: float, batch: int, records: int, seed: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of a record's time through the guard, in ms.

    Records arrive in bursts of 20 on average. A batch takes what has come, at most so many, and costs its
    records and a commit.
    """
    rng = np.random.default_rng(seed)
    bursts = records // 20
    gaps = -np.log1p(-rng.random(bursts)) * 20 / rate
    arrivals = np.repeat(np.cumsum(gaps), 20)
    done = 0.0
    at = 0
    times = np.empty(arrivals.size)
    while at < arrivals.size:
        begin = max(done, float(arrivals[at]))
        taken = min(int(np.searchsorted(arrivals, begin, side="right")) - at, batch)
        done = begin + taken * (VERIFY_US + FORWARD_US) / 1e6 + COMMIT_MS / 1e3
        times[at : at + taken] = done - arrivals[at : at + taken]
        at += taken
    times.sort()
    return float(times[times.size // 2]) * 1e3, float(times[int(0.99 * times.size)]) * 1e3


def guard_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    for batch in (1, 10, 100, 1_000, 10_000):
        most = batch / (batch * (VERIFY_US + FORWARD_US) / 1e6 + COMMIT_MS / 1e3)
        rows.append(
            (
                f"{batch:,}",
                count(most),
                f"{COMMIT_MS / (COMMIT_MS + batch * (VERIFY_US + FORWARD_US) / 1e3):.0%}",
            )
        )
    yield Table("guard-batches", ("records in a transaction", "records a second", "time for commits"), rows)
    rows = []
    most = BATCH / (BATCH * (VERIFY_US + FORWARD_US) / 1e6 + COMMIT_MS / 1e3)
    for load in (0.1, 0.5, 0.8, 0.9, 0.95):
        median, late = guard(load * most, BATCH, int(400_000 * size), seed=5)
        rows.append((f"{load:.0%}", count(load * most), count(median), count(late)))
    yield Table(
        "guard-times",
        ("load", "records a second", "median, ms", "99 % below, ms"),
        rows,
    )


# Retention: one process looks for expired records on very many partitions.

VISIT_MS: Final = 1.0
READ_RECORDS_PER_S: Final = 200_000.0
BEHIND_RECORDS: Final = 500
"""What a pass over beginnings is given of a partition behind the first record that stays."""


def retention_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    for partitions in (1_000, 100_000):
        for rate in (1_000.0, 10_000.0, 100_000.0):
            for days in (1, 30):
                whole = pass_s(partitions, rate, days * 86_400.0, behind=None)
                beginnings = pass_s(partitions, rate, days * 86_400.0, behind=BEHIND_RECORDS)
                rows.append(
                    (
                        f"{partitions:,}",
                        f"{rate:,.0f}",
                        f"{days}",
                        f"{rate * days * 0.0864:,.0f}",
                        duration(whole),
                        duration(beginnings),
                    )
                )
    yield Table(
        "retention",
        (
            "partitions",
            "records a second",
            "they live, days",
            "the topic holds, million",
            "a pass",
            "a pass over beginnings",
        ),
        rows,
    )
    rows = []
    for part in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1):
        rows.append(
            (f"{part:.4%}", *(f"{held(part, rate, size, seed=6):.2f}" for rate in (0.01, 1.0, 100.0)))
        )
    yield Table(
        "retention-held",
        (
            "records that live 30 days, all others a day",
            "held by what is due, a record in 100 s on a partition",
            "a record a second",
            "100 a second",
        ),
        rows,
    )


def pass_s(partitions: int, records_per_s: float, live_s: float, *, behind: int | None) -> float:
    """Return how long a pass takes in the end, if each begins when the one before it is over.

    A pass deletes what had expired when it began. So the next one finds what has come since that moment, and
    what had not expired then. It reads all of that, or what it deletes and ``behind`` records of each
    partition.
    """
    took_s = 0.0
    for _ in range(1_000):
        came = records_per_s * took_s
        left = records_per_s * live_s if behind is None else behind * partitions
        took_s = partitions * VISIT_MS / 1e3 + (came + left) / READ_RECORDS_PER_S
    return took_s


def duration(seconds: float) -> str:
    """Return a duration in the unit in which people would say it."""
    for unit, length in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def held(part: float, records_per_s: float, size: float, seed: int) -> float:
    """Return the records that a partition holds by those that live, if only its beginning can be deleted.

    What is held begins with the oldest record that lives. With long-lived records at random, the oldest of
    them is younger than 30 days by an exponential time, whose mean is the time between two of them.
    """
    long_s, short_s = 30 * 86_400.0, 86_400.0
    rng = np.random.default_rng(seed)
    due = short_s * (1 - part) + long_s * part
    if not part:
        return 1.0
    gaps = -np.log1p(-rng.random(max(1_000, int(100_000 * size)))) / (records_per_s * part)
    oldest = np.maximum(long_s - gaps, short_s)
    return float(oldest.mean() / due)


def measured_visit_ms() -> float:
    """Measure our reader on a topic of many partitions that have next to nothing."""
    with EmbeddedCluster(topics={"many": 200}) as cluster:
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = confluent_kafka.Producer(conf)
        for number in range(200):
            producer.produce("many", b"v", partition=number)
        producer.flush(30)

        def visit() -> None:
            with TopicReader(conf, "many", group_id="simulate") as reader:
                reader.start()
                assert sum(map(len, reader.to_end())) == 200

        return least(visit, time.perf_counter) / 200 * 1e3


def measured_judged_per_s() -> float:
    """Measure how many records a pass reads and judges in a second of CPU."""
    records = 100_000
    with KafkaBroker() as broker:
        conf = fill_expiring(broker, partitions=1, records=records, expired=records)

        def judge() -> None:
            with Retention(conf, "clicks", RetentionRule()) as work:
                assert work.preview().deleted == records

        return records / least(judge, time.process_time)


def measured_behind() -> float:
    """Measure what a pass over beginnings is given of partitions behind the first record that stays."""
    partitions, expired = 20, 100
    with KafkaBroker() as broker:
        conf = fill_expiring(broker, partitions=partitions, records=3_000, expired=expired)
        with Retention(conf, "clicks", RetentionRule(), beginnings=True) as work:
            return work.preview().records / partitions - expired


def fill_expiring(broker: KafkaBroker, *, partitions: int, records: int, expired: int) -> dict[str, Any]:
    """Fill partitions with so many records each, of which the first ones have expired; return settings."""
    broker.create_topic("clicks", partitions=partitions)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = confluent_kafka.Producer({**conf, "linger.ms": 50})
    for offset in range(records):
        moment = b"1" if offset < expired else b"9" * 15
        for number in range(partitions):
            producer.produce("clicks", bytes(200), partition=number, headers=[("hw.expires", moment)])
        if not offset % 1_000:
            producer.flush(30)
    assert producer.flush(30) == 0
    producer.close()
    return conf


# Chargeback in one process.

COUNTED_PER_S: Final = 40_000.0


def chargeback_tables(_: float) -> Iterator[Table]:
    rows: Rows = []
    for rate in (100.0, 1_000.0, 10_000.0, 30_000.0, 100_000.0):
        used = rate / COUNTED_PER_S
        hour = rate * 3600 / COUNTED_PER_S / 60
        rows.append(
            (
                f"{rate:,.0f}",
                count(rate * 86_400 / 1e6),
                f"{used:.1%}",
                count(hour) if used < 1 else "never ends",
            )
        )
    yield Table(
        "chargeback",
        ("records a second", "million records a day", "of a process", "an hour's run, min"),
        rows,
    )


def measured_counted_per_s() -> float:
    number = 60_000
    headers = [("hw.owner", b"shop"), ("hw.trail", b"1,at=1767225600000;by=checkout;into=east/orders")]
    with EmbeddedCluster(topics={"orders": 3}) as cluster, tempfile.TemporaryDirectory() as folder:
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = confluent_kafka.Producer({**conf, "linger.ms": 50})
        for offset in range(number):
            producer.produce(
                "orders", bytes(50), partition=offset % 3, headers=list(headers)
            )  # each keeps 5 MB
            if offset % 10_000 == 0:
                producer.flush(30)
        producer.flush(30)
        runs = iter(range(3))

        def run() -> None:
            with KeptUsage(Path(folder) / f"{next(runs)}.db") as kept:
                assert count_usage(conf, ["orders"], kept, groups=None).records == number

        return number / least(run, time.perf_counter)


def _verify_us() -> float:
    return 1e6 / measured_row("consume, trail + compress + sign (HMAC)")


def _forward_us() -> float:
    return 1e6 / measured_row("produce, 4 no-op interceptors") + 1e6 / measured_row(
        "consume, 4 no-op interceptors"
    )


SECTIONS: Final = (
    Section(
        "registry",
        registry_tables,
        (
            Anchor("requests of a follower, a second", FOLLOWER_REQUESTS, "", measured_follower_requests),
            Anchor("time of a change, us of CPU", CHANGE_US, "us", measured_change_us),
            Anchor("memory of an entry with its record, bytes", ENTRY_BYTES, "bytes", measured_entry_bytes),
        ),
    ),
    Section(
        "keys",
        key_tables,
        (Anchor("memory of a data key, bytes", DATA_KEY_BYTES, "bytes", measured_data_key_bytes),),
    ),
    Section(
        "reassembly",
        reassembly_tables,
        (
            Anchor(
                "growth of a consumer's memory, by the message's size",
                MEMORY_FACTOR,
                "times",
                measured_memory_factor,
            ),
            Anchor("most bytes that the reassembler holds, by the model's", 1.0, "times", measured_peak),
        ),
    ),
    Section("trails", trail_tables),
    Section(
        "windows",
        window_tables,
        (Anchor("memory of an identity, bytes", IDENTITY_BYTES, "bytes", measured_identity_bytes),),
    ),
    Section(
        "guard",
        guard_tables,
        (
            Anchor("reading and verifying a record (HMAC), us", VERIFY_US, "us", _verify_us),
            Anchor("handing a record on, us", FORWARD_US, "us", _forward_us),
        ),
    ),
    Section(
        "retention",
        retention_tables,
        (
            Anchor("time of a visit of a partition, ms", VISIT_MS, "ms", measured_visit_ms),
            Anchor(
                "records read and judged, a second of CPU",
                READ_RECORDS_PER_S,
                "records/s",
                measured_judged_per_s,
            ),
            Anchor(
                "records behind a beginning that a pass is given", BEHIND_RECORDS, "records", measured_behind
            ),
        ),
    ),
    Section(
        "chargeback",
        chargeback_tables,
        (Anchor("records counted a second", COUNTED_PER_S, "records/s", measured_counted_per_s),),
    ),
)


def anchors_table(sections: Sequence[Section]) -> Table:
    """Measure what the models assume."""
    rows: Rows = [
        (anchor.what, section.name, count(anchor.assumed), count(anchor.measure()))
        for section in sections
        for anchor in section.anchors
    ]
    return Table("anchors", ("assumption", "used in", "assumed", "measured"), rows)


def between(name: str) -> re.Pattern[str]:
    """Return the pattern of a table's place in the document."""
    return re.compile(rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def written(document: str, table: Table) -> str:
    """Return the document with a table in its place."""
    text, places = between(table.name).subn(
        lambda found: f"{found[1]}{table.markdown()}\n{found[3]}", document
    )
    if places != 1:
        raise click.ClickException(f"{DOCUMENT} has {places} places for the table {table.name}, expected one")
    return text


@click.command()
@click.option("--only", type=click.Choice([section.name for section in SECTIONS]), help="One section.")
@click.option("--write", is_flag=True, help="Write the tables into docs/scale.md, and measure the anchors.")
@click.option("--measure", is_flag=True, help="Measure the anchors, too.")
def main(*, only: str | None, write: bool, measure: bool) -> None:
    """Print the tables of docs/scale.md."""
    sections = [section for section in SECTIONS if only in (None, section.name)]
    tables = [table for section in sections for table in section.tables(1.0)]
    if measure or (write and only is None):
        tables.append(anchors_table(sections))
    if write:
        text = DOCUMENT.read_text(encoding="utf-8")
        for table in tables:
            text = written(text, table)
        DOCUMENT.write_text(text, encoding="utf-8")
    sys.stdout.write("\n\n".join(table.markdown() for table in tables) + "\n")


if __name__ == "__main__":
    main()
