"""Registry and dictionaries: every service follows one topic of one partition."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from simulations.section import MB, Anchor, Rows, Section, Table, count, least

from headerware.dictionaries.topic import MAX_TOTAL_BYTES
from headerware.registry import Allocate, Block, Entry, Register
from headerware.registry.stores.topic import Ledger, encode_change
from headerware.testing import KafkaBroker
from headerware.topic_table import Rows as TableRows
from headerware.topic_table import TopicTable
from headerware.topic_table.rows import TableRecord

HEADERS_OF_A_SERVICE: Final = 10
CHANGE_US: Final = 50.0
ENTRY_BYTES: Final = 1_000
FOLLOWER_REQUESTS: Final = 2.7
"""Requests a second: a fetch waits 500 ms (fetch.wait.max.ms), and the ends are asked for every 3 s."""
DICTIONARY_BYTES: Final = 100_000


def registry_log(services: int) -> list[bytes]:
    """Return the changes of this many services: for each a block, and ten headers in it."""
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


def read_log(log: Sequence[bytes]) -> Ledger:
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
    return least(lambda: read_log(log), time.process_time) / len(log) * 1e6


def measured_entry_bytes() -> float:
    log = registry_log(1_000)
    tracemalloc.start()
    ledger = read_log(log)
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


SECTION: Final = Section(
    "registry",
    registry_tables,
    (
        Anchor("requests of a follower, a second", FOLLOWER_REQUESTS, "", measured_follower_requests),
        Anchor("time of a change, us of CPU", CHANGE_US, "us", measured_change_us),
        Anchor("memory of an entry with its record, bytes", ENTRY_BYTES, "bytes", measured_entry_bytes),
    ),
)
