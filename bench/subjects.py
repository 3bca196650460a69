"""Rows for keys of subjects: encryption with cached keys against one key, and the rows of many subjects."""

from __future__ import annotations

import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from encryption import CHUNK, bench_records
from pairing import compare
from report import Row

from headerware import Chain, Record
from headerware.core.context import Context
from headerware.interceptors import Encrypt
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.subjects import SubjectTopic
from headerware.keyring.subjects.rows import SUBJECT_KEY
from headerware.keyring.subjects.store import SubjectFile
from headerware.keyring.writing import edit_keyring
from headerware.testing import EmbeddedCluster
from headerware.topic_table.rows import TableRecord

ACTIVE = {100: "at least 0.9", 1_000: ""}
"""How many subjects the records are about; what a thousand need is more than a processor keeps at hand."""
BATCH = 1_000
LOOK_UPS = 1_000


def rows(*, pairs: int, subjects: int) -> Iterator[Row]:
    """Measure all rows; the topic of keys is on the embedded cluster."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedCluster() as cluster:
        keyring = str(Path(folder) / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "bench", "aes-256"), create=True)
        cluster.create_topic("customer-keys")
        common: dict[str, Any] = {"key_service": FileKeys(keyring=keyring), "key_id": "bench"}
        place = SubjectTopic(
            topic="customer-keys", servers=cluster.bootstrap_servers, config={"log_level": 0}
        )
        by_subject = Encrypt(**common, key_of="header:customer", subject_keys=place)
        for active, bar in ACTIVE.items():
            yield from _encryption(Encrypt(**common), by_subject, active, bar, pairs)
        yield from _many(Path(folder), subjects)


def _encryption(one_key: Encrypt, by_subject: Encrypt, active: int, bar: str, pairs: int) -> Iterator[Row]:
    records = [
        record.with_headers(record.headers.append(("customer", b"customer-%d" % (number % active))))
        for number, record in enumerate(bench_records(1))
    ]
    context = Context(cluster_id=lambda: "bench")
    ours, reference = Chain([by_subject]).open(context), Chain([one_key]).open(context)
    for session in (ours, reference):
        session.consume(session.send(records))
    note = (
        f"{len(records[0].value)}-byte values of {active:,} subjects; {pairs} pairs of {CHUNK:,}, one by one"
    )

    def hooks(session: Any, records: list[Record], direction: str) -> Any:
        (step,) = session.steps
        hook = getattr(step.opened, direction)

        def chunk() -> int:
            for record in records:
                hook(record)
            return CHUNK

        return chunk

    for what, direction, given in (
        ("encrypt on send", "on_send", (records, records)),
        ("decrypt on consume", "on_consume", (ours.send(records), reference.send(records))),
    ):
        found = compare(hooks(ours, given[0], direction), hooks(reference, given[1], direction), pairs=pairs)
        name = f"{what} with the cached keys of {active:,} subjects, against one key"
        yield Row(name, found.ours, found.reference, "records/s", found.ratio, bar, note)
    ours.close()
    reference.close()


def _many(folder: Path, subjects: int) -> Iterator[Row]:
    path = folder / "subjects.db"
    file = SubjectFile(path, "customer-keys")
    file.rows()
    rows = file.rows()
    names: list[bytes] = []
    began = time.perf_counter()
    for first in range(0, subjects, BATCH):
        for offset in range(first, first + BATCH):
            key = bytes((SUBJECT_KEY,)) + os.urandom(24)
            rows.apply(TableRecord(offset, key, b"\x01" + bytes(4) + os.urandom(68)))
            if offset % (subjects // LOOK_UPS) == 0:
                names.append(key[1:17])
        rows.moved_to(first + BATCH)
    rows.begin_serving(subjects)
    loaded_s = time.perf_counter() - began
    file.close()
    began = time.perf_counter()
    file = SubjectFile(path, "customer-keys")
    rows = file.rows()
    opened_s = time.perf_counter() - began
    took = []
    for name in random.sample(names, len(names)):
        began = time.perf_counter()
        assert rows.subject(name).keys
        took.append((time.perf_counter() - began) * 1e6)
    again = []
    for name in names:
        began = time.perf_counter()
        rows.subject(name)
        again.append((time.perf_counter() - began) * 1e6)
    file.close()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = (
        f"{path.stat().st_size / 1e6:,.0f} MB on the disk, the process at most {memory_mb:,.0f} MB in memory"
    )
    many = f"{subjects:,} subjects' keys"
    note = f"records as the topic gives them, without the network; {size}"
    yield Row(f"{many}: read for the first time", loaded_s * 1e3, 60_000, "ms", loaded_s / 60, "", note)
    note = "references: a minute for the first time, five seconds for a restart"
    yield Row(f"{many}: a restart", opened_s * 1e3, 5_000, "ms", opened_s / 5, "at most 1", note)
    first_us, again_us = statistics.median(took), statistics.median(again)
    note = f"medians over {len(names)} subjects; the reference is the same subject, asked for again"
    yield Row(f"{many}: a look-up", first_us, again_us, "us", first_us / again_us, "", note)
