"""What the tasks of a Spark job settle is what the worker's store of winners says of the same records."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.ops.compaction.rules import Judged, Rule, judge, judged_message
from headerware.ops.compaction.winners import Winners
from headerware.spark_bridge.executors.compaction import Judging, judge_messages, judge_records
from headerware.spark_bridge.frames.records import header_column
from headerware.workers.units import Unit, Units

if TYPE_CHECKING:
    from collections.abc import Iterable

KEYS = (b"a", b"b", None)
VERSIONS = (b"1", b"2", b"no number", None)


def record(offset: int, dice: random.Random) -> Record:
    """Return a record, or a slice of one of few messages, some of which contradict themselves."""
    headers: list[tuple[str, bytes | None]] = []
    version = dice.choice(VERSIONS)
    if version is not None:
        headers.append(("version", version))
    key = dice.choice(KEYS)
    if dice.random() < 0.6:
        part = SliceHeader(
            bytes([dice.randrange(3)]) * 16, dice.randrange(2), 2, dice.choice((4, 4, 4, 3)), 2
        )
        headers.append((SLICE_HEADER, part.encode() if dice.random() < 0.9 else b"bad"))
    value = dice.choice((b"value", None))
    return Record("orders", value, key, Headers(headers), dice.randrange(2), 1_000, 1, offset)


def batch(records: list[Record], *, large: bool) -> pa.RecordBatch:
    """Return records as Spark sends them to a worker."""
    binary, text = (pa.large_binary(), pa.large_string()) if large else (pa.binary(), pa.string())
    columns: dict[str, Any] = {
        "topic": pa.array([each.topic for each in records], text),
        "partition": pa.array([each.partition for each in records], pa.int32()),
        "offset": pa.array([each.offset for each in records], pa.int64()),
        "timestamp": pa.array([datetime.fromtimestamp(1, UTC)] * len(records), pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * len(records), pa.int32()),
        "key": pa.array([each.key for each in records], binary),
        "headers": header_column([each.headers for each in records]),
        "value": pa.array([None if each.value is None else b"" for each in records], binary),
        "value_bytes": pa.array([each.value and len(each.value) for each in records], pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def settled(records: list[Record], rule: Rule, *, large: bool) -> dict[tuple[int, int], Any]:
    """Return what the two tasks know of each record, with Spark's shuffle in between."""
    judging = judge_records(pickle.dumps(Judging(topic="orders", rule=rule, now_ms=0, compacts=True)))
    half = len(records) // 2
    batches = [batch(part, large=large) for part in (records[:half], records[half:])]
    rows: list[Any] = pa.Table.from_batches(judging(batches)).to_pylist()
    slices = [row for row in rows if row["message"] is not None]
    slices.sort(key=lambda row: (row["partition"], row["message"], row["offset"]))
    schema = next(judging([batches[0]])).schema
    parted: Iterable[pa.RecordBatch] = pa.Table.from_pylist(slices, schema).to_batches(max_chunksize=3)
    found = [row for each in judge_messages()(parted) for row in each.to_pylist()]
    found += [row for row in rows if row["message"] is None]
    return {(row["partition"], row["offset"]): row for row in found}


def expected(records: list[Record], rule: Rule) -> dict[tuple[int, int], tuple[str, str | None, int | None]]:
    """Return outcome, reason and offset of each record, as the worker has them."""
    places: dict[tuple[int, int], tuple[str, str | None, int | None]] = {
        (each.partition or 0, each.offset or 0): ("waits", None, None) for each in records
    }
    judged: list[tuple[Judged, Unit]] = []
    units = Units(lambda *_: None, part_of=lambda each: judge(each, rule, compacts=True).part)
    for unit in filter(None, map(units.add, records)):
        place, at = (unit.topic_partition[1], unit.offsets[0]), unit.offsets[0]
        if unit.problem == "repeated":
            places[place] = "waits", "repeated", at
        elif unit.problem == "stray":
            places[place] = "unresolved", "malformed", at
        else:
            found = [judge(each, rule, compacts=True) for each in unit.records]
            judged.append((found[0] if found[0].part is None else judged_message(found), unit))
    with Winners(None, "p") as winners:
        winners.learn([each for each, _ in judged])
        verdicts = winners.verdicts([each for each, _ in judged])
    for (each, unit), verdict in zip(judged, verdicts, strict=True):
        for offset in unit.offsets:
            places[each.partition, offset] = verdict.outcome, verdict.why, each.offset
    return places


@pytest.mark.parametrize("seed", range(60))
def test_records_are_judged_as_by_the_worker(seed: int) -> None:
    dice = random.Random(seed)
    records = [record(offset, dice) for offset in range(40)]
    rule = Rule(header="version", missing=dice.choice(("unresolved", "oldest")))
    found = settled(records, rule, large=bool(seed % 2))
    best: dict[bytes, tuple[int, int]] = {}
    for row in found.values():
        if row["digest"] is not None:
            rank = row["version"], row["at"]
            best[row["digest"]] = max(best.get(row["digest"], rank), rank)
    outcomes = {}
    for place, row in found.items():
        outcome = "wins" if row["digest"] and best[row["digest"]][1] == row["at"] else "loses"
        outcome = "unresolved" if row["why"] else outcome
        waits = row["at"] is None or row["why"] == "repeated"
        outcomes[place] = ("waits" if waits else outcome, row["why"], row["at"])
    wanted = expected(records, rule)
    assert outcomes == {
        place: (outcome, None if outcome == "loses" else why, at)
        for place, (outcome, why, at) in wanted.items()
    }
    sizes = {(each.partition, each.offset): judge(each, rule).size_bytes for each in records}
    assert {place: row["size"] for place, row in found.items()} == sizes
    dead = {(each.partition, each.offset) for each in records if each.value is None}
    assert {place for place, row in found.items() if row["tombstone"]} == dead


def test_names_that_are_no_utf_8_cannot_be_read() -> None:
    # As Java, which replaces what it cannot decode, gives them to Spark.
    headers = Headers([("version", b"1"), ("n\ufffdme", b"")])
    found = settled(
        [Record("orders", b"v", b"a", headers, 0, 1_000, 1, 0)], Rule(header="version"), large=False
    )
    assert [(row["why"], row["at"], row["size"]) for row in found.values()] == [("unreadable", 0, 2)]


def test_histories_have_all_there_is() -> None:
    seen = set()
    for seed in range(60):
        dice = random.Random(seed)
        records = [record(offset, dice) for offset in range(40)]
        seen |= {(outcome, why) for outcome, why, _ in expected(records, Rule(header="version")).values()}
    assert seen == {
        ("wins", None),
        ("waits", None),
        ("waits", "repeated"),
        *(("loses", why) for why in ("older", "tie")),
        *(("unresolved", why) for why in ("no_key", "no_version", "malformed", "exposed_slices")),
    }
