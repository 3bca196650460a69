"""However batches and tasks cut a log, its messages come whole and once, and in a replay again."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types

from headerware.core.chain import Chain
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Slice
from headerware.spark_bridge.chain_source import ChainSource, TaskSpec
from headerware.spark_bridge.executors.reassembly import ReassemblyOptions, reassemble
from headerware.spark_bridge.frames.records import header_column
from headerware.spark_bridge.frames.schema import (
    ARRIVED,
    FAILURE,
    HEADERS,
    STATUS,
    Status,
)

Row = dict[str, Any]
COLUMNS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "headers": header_column([]).type,
    STATUS: pa.int32(),
    ARRIVED: pa.int64(),
}
SCHEMA = types.StructType([
    types.StructField("key", types.BinaryType()),
    types.StructField("value", types.BinaryType()),
    types.StructField("topic", types.StringType()),
    types.StructField("partition", types.IntegerType()),
    types.StructField("offset", types.LongType()),
    types.StructField("headers", HEADERS),
    types.StructField("failure", FAILURE),
    types.StructField(STATUS, types.IntegerType()),
    types.StructField(ARRIVED, types.LongType()),
])  # fmt: skip
SPEC = pickle.dumps(
    TaskSpec(source=ChainSource(chain=Chain([Slice()])), side="consumer", job="j", schema=SCHEMA.json())
)
SPLITTER = Chain([Slice(max_bytes=1_000)])

keys = st.none() | st.binary(max_size=4)
names = st.text(st.characters(exclude_characters="\0~", exclude_categories=["Cs"]), max_size=3).filter(
    lambda name: not name.casefold().startswith("hw.")
)
pairs = st.lists(st.tuples(names, st.none() | st.binary(max_size=3)), max_size=2)
messages = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1_500, 4_000), keys, pairs), min_size=1, max_size=5
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Row], list[tuple[int, Record]]]:
    """Draw a log: slices of messages mixed up, in partitions; and the messages themselves."""
    originals = [
        (partition, Record("t", bytes((at + byte) % 256 for byte in range(size)), key, Headers(own)))
        for at, (partition, size, key, own) in enumerate(draw(messages))
    ]
    session = SPLITTER.open()
    slices = [(partition, piece) for partition, record in originals for piece in session.send([record])]
    offsets = dict.fromkeys(range(3), 0)
    rows = []
    for partition, piece in draw(st.permutations(slices)):
        rows.append(row_of(piece, partition, offsets[partition]))
        offsets[partition] += 1
    return rows, originals


def row_of(piece: Record, partition: int, offset: int) -> Row:
    headers = [{"key": name, "value": value} for name, value in piece.headers]
    return {
        "key": piece.key,
        "value": piece.value,
        "topic": "t",
        "partition": partition,
        "offset": offset,
        "headers": headers,
        STATUS: int(Status.SLICE),
        ARRIVED: None,
    }


def parts(draw: Any, items: list[Any]) -> list[list[Any]]:
    """Cut a list at random places."""
    places = draw(st.lists(st.integers(0, len(items)), max_size=3).map(sorted))
    return [items[begin:end] for begin, end in pairwise([0, *places, len(items)])]


def micro_batch(draw: Any, rows: list[Row], number: int) -> list[Row]:
    """Glue one micro-batch: its partitions in random tasks, each task's rows in random Arrow batches."""
    found: list[Row] = []
    tasks = draw(st.sampled_from([[[0, 1, 2]], [[0], [1, 2]], [[2], [1], [0]]]))
    terms = pickle.dumps(ReassemblyOptions(batch_ms=number, incomplete="carry"))
    for task in tasks:
        own = sorted(
            (row for row in rows if row["partition"] in task),
            key=lambda row: (row["partition"], row["offset"]),
        )
        batches = [
            pa.RecordBatch.from_pydict({
                name: pa.array([row[name] for row in part], kind) for name, kind in COLUMNS.items()
            })
            for part in parts(draw, own)
        ]  # fmt: skip
        running = reassemble(SPEC, pickle.dumps(None), terms)(iter(batches))
        found += [row for batch in running for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["partition"], row["offset"], row[STATUS] is None))


def seen(row: Row) -> tuple[Any, ...]:
    headers = tuple((each["key"], each["value"]) for each in row["headers"])
    return row["partition"], row["value"], row["key"], headers


class TestReassemblyInBatches:
    @given(log=logs(), data=st.data())
    @settings(max_examples=settings().max_examples * 3 // 5)
    def test_all_cuts_give_the_messages_once_and_replays_the_same(
        self, log: tuple[list[Row], list[tuple[int, Record]]], data: st.DataObject
    ) -> None:
        rows, originals = log
        waiting: list[Row] = []
        whole: list[Row] = []
        for number, fresh in enumerate(parts(data.draw, rows)):
            inputs = [*waiting, *fresh]
            found = micro_batch(data.draw, inputs, number)
            assert micro_batch(data.draw, inputs, number) == found
            waiting = [{name: row[name] for name in COLUMNS} for row in found if row[STATUS] == Status.SLICE]
            whole += [row for row in found if row[STATUS] is None]
        assert waiting == []
        expected = [
            (partition, record.value, record.key, tuple(record.headers)) for partition, record in originals
        ]
        assert sorted(map(seen, whole), key=repr) == sorted(expected, key=repr)
        at_once = micro_batch(data.draw, rows, 0)
        assert sorted(map(seen, at_once), key=repr) == sorted(expected, key=repr)
