from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ReassemblyError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Dedup, Sign, Slice, Trail
from headerware.interceptors.dedup.identity import layout_of
from headerware.interceptors.serialize import Serialize
from headerware.interceptors.slice.header import SLICE_HEADER
from headerware.interceptors.trail import read_trail
from headerware.keyring import Keyring, encode_keyring, with_new_key
from headerware.serdes.formats.plain import Json
from headerware.spark_bridge.chain_source import ChainSource, TaskSpec
from headerware.spark_bridge.executors.open_chain import open_chain
from headerware.spark_bridge.executors.reassembly import ReassemblyOptions, reassemble
from headerware.spark_bridge.frames.records import header_column
from headerware.spark_bridge.frames.schema import (
    ARRIVED,
    FAILURE,
    HEADERS,
    IDENTITY,
    RAW,
    STATUS,
    Status,
    with_columns,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


KAFKA = StructType([
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("headers", HEADERS),
    StructField("own", StringType()),
])  # fmt: skip
SMALL = 1_000
NOON = 1_767_225_600_000


def cut(*values: bytes, topic: str = "t", steps: Sequence[object] = ()) -> list[list[Record]]:
    """Return the slices of messages, each of which has a header and a key of its own."""
    session = Chain([*steps, Slice(max_bytes=SMALL)]).open()
    return [
        session.send([Record(topic, value, b"key-%d" % at, Headers([("n", b"%d" % at)]))])
        for at, value in enumerate(values)
    ]


def message(size: int = 2_500) -> bytes:
    return os.urandom(size)


def placed(records: Iterable[Record], begin: int = 0, partition: int = 0) -> list[Record]:
    return [record.replace(partition=partition, offset=begin + at) for at, record in enumerate(records)]


def position(offset: int, topic: str = "t", partition: int = 0) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset, STATUS: Status.POSITION}


def row_of(record: Record, **more: Any) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
        "own": f"own-{record.offset}",
        STATUS: Status.SLICE,
        **more,
    }


def batch_of(rows: Sequence[dict[str, Any]], *, status: bool = True, raw: bool = False) -> pa.RecordBatch:
    pair = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    columns = {
        "key": pa.binary(),
        "value": pa.string() if raw else pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "headers": header_column([]).type,
        "own": pa.string(),
        **({STATUS: pa.int32(), ARRIVED: pa.int64()} if status else {}),
        **({RAW: pair} if raw else {}),
    }
    return pa.RecordBatch.from_pydict({
        name: pa.array([row.get(name) for row in rows], kind) for name, kind in columns.items()
    })  # fmt: skip


def spec_of(*steps: object, status: bool = True, typed: bool = False, **settings: Any) -> TaskSpec:
    schema = with_columns(KAFKA, failure=FAILURE, **{IDENTITY: BinaryType()})
    if typed:
        schema = with_columns(schema, value=StringType())
    return TaskSpec(
        source=ChainSource(chain=Chain(steps or [Slice()])),
        side="consumer",
        job="job",
        schema=(with_status(schema, typed=typed) if status else schema).json(),
        **{"failures": "route", "typed": frozenset({"value"} if typed else ()), **settings},
    )


def reassembled(
    spec: TaskSpec, rows: Sequence[Any], options: ReassemblyOptions, *, size: int = 1_000
) -> list[dict[str, Any]]:
    """Return what a task makes of rows, which it gets sorted and in batches of a size."""
    own = [row if isinstance(row, dict) else row_of(row) for row in rows]
    in_order = sorted(own, key=lambda row: (row["topic"], row["partition"] or 0, row["offset"] or 0))
    has_status = STATUS in spec.schema
    batches = [
        batch_of(in_order[at : at + size], status=has_status, raw=RAW in spec.schema)
        for at in range(0, len(in_order), size)
    ]
    begin = reassemble(pickle.dumps(spec), pickle.dumps(None), pickle.dumps(options))
    found = list(begin(iter(batches)))
    assert all(batch.schema == found[0].schema for batch in found)
    assert_forgotten(spec)
    return [row for batch in found for row in batch.to_pylist()]


def assert_forgotten(spec: TaskSpec) -> None:
    session = open_chain(pickle.dumps(spec)).session
    assert not session.waiting_offsets()
    assert session.stats()["slice"]["pending_messages"] == 0
    assert session.poll(1 << 62) == []


def state(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, int]]:
    return sorted((row[STATUS], row["offset"]) for row in rows if row[STATUS] is not None)


def done(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row.get(STATUS) is None and row["failure"] is None]


def carried(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row[STATUS] == Status.SLICE]


def carry_at(batch_ms: int) -> ReassemblyOptions:
    return ReassemblyOptions(batch_ms=batch_ms, incomplete="carry")


CARRY = carry_at(NOON)
FAIL = ReassemblyOptions(incomplete="fail")


class TestGluing:
    @pytest.mark.parametrize("size", [1, 2, 1_000])
    def test_interleaved_messages_and_partitions(self, size: int) -> None:
        values = [message() for _ in range(3)]
        one, two, three = cut(*values)
        mixed = [piece for pair in zip(one, two, strict=True) for piece in pair]
        rows = [*placed(mixed), *placed(three, partition=1)]
        found = reassembled(spec_of(status=False), rows, FAIL, size=size)
        assert {row["value"] for row in found} == set(values)
        whole = next(row for row in found if row["value"] == values[0])
        assert (whole["key"], whole["headers"]) == (b"key-0", [{"key": "n", "value": b"0"}])
        assert (whole["offset"], whole["own"]) == (len(mixed) - 2, f"own-{len(mixed) - 2}")

    def test_the_same_message_in_two_partitions_is_two(self) -> None:
        (pieces,) = cut(message())
        rows = [*placed(pieces[:2]), *placed(pieces[2:], partition=1)]
        found = reassembled(spec_of(), rows, CARRY)
        expected = [(piece.partition, piece.offset) for piece in rows]
        assert sorted((row["partition"], row["offset"]) for row in carried(found)) == expected
        assert len(found) == len(rows)

    def test_repeats_of_slices_are_thrown_away(self) -> None:
        value = message()
        (pieces,) = cut(value)
        found = reassembled(spec_of(), placed([pieces[0], pieces[0], *pieces[1:]]), CARRY)
        assert [row["value"] for row in found] == [value]

    def test_abandoned_half_way_nothing_stays(self) -> None:
        spec = spec_of()
        first, second = cut(message(), message())
        batches = [batch_of([row_of(piece)]) for piece in placed([*first, *second])]
        running: Any = reassemble(pickle.dumps(spec), pickle.dumps(None), pickle.dumps(CARRY))(iter(batches))
        assert next(running).num_rows == 1
        running.close()
        assert_forgotten(spec)

    def test_a_failing_job_leaves_nothing(self) -> None:
        spec = spec_of(failures="fail")
        (pieces,) = cut(message())
        with pytest.raises(ReassemblyError, match=r"slice at t\[0\]@0: the frame ends before this message"):
            reassembled(spec, placed(pieces[:-1]), FAIL)
        assert_forgotten(spec)


class TestIncomplete:
    def pieces(self) -> list[Record]:
        return placed(cut(message())[0][:-1], 5)

    def test_carry_gives_them_as_they_came_with_their_time(self) -> None:
        pieces = self.pieces()
        rows = carried(reassembled(spec_of(), pieces, CARRY))
        expected = {**row_of(pieces[0]), "failure": None, IDENTITY: None, ARRIVED: NOON}
        assert rows[0] == expected
        later = carry_at(NOON + 5)
        assert carried(reassembled(spec_of(), rows, later)) == rows, "the time is that of the first batch"

    def test_leave_gives_nothing(self) -> None:
        assert reassembled(spec_of(status=False), self.pieces(), ReassemblyOptions(incomplete="leave")) == []

    def test_fail_gives_every_slice_a_letter(self) -> None:
        pieces = self.pieces()
        found = reassembled(spec_of(status=False), pieces, FAIL, size=1)
        assert [row["value"] for row in found] == [piece.value for piece in pieces]
        assert all("the frame ends before this message" in row["failure"]["reason"] for row in found)
        assert [row["failure"]["value"] for row in found] == [piece.value for piece in pieces]
        assert all(any(each["key"] == SLICE_HEADER for each in row["failure"]["headers"]) for row in found)

    def test_orphans_are_counted_and_fail_nobody(self) -> None:
        spec = spec_of(status=False)
        before = open_chain(pickle.dumps(spec)).session.stats()["slice"]["orphans"]
        assert reassembled(spec, self.pieces()[1:], FAIL) == []
        assert open_chain(pickle.dumps(spec)).session.stats()["slice"]["orphans"] == before + 1


class TestStraddling:
    def test_a_message_over_three_batches_is_whole_in_the_last(self) -> None:
        value = message(4_000)
        pieces = placed(cut(value)[0])
        spec = spec_of(Trail(), Slice())
        one = reassembled(spec, pieces[:2], CARRY)
        next_batch = carry_at(NOON + 1)
        two = reassembled(spec, [*carried(one), *pieces[2:4]], next_batch)
        assert reassembled(spec, [*carried(one), *pieces[2:4]], next_batch) == two, "a replay gives the same"
        (whole,) = reassembled(spec, [*carried(two), *pieces[4:]], carry_at(NOON + 2))
        assert (done(one), done(two), whole["value"]) == ([], [], value)
        trail = read_trail(Headers([(each["key"], each["value"]) for each in whole["headers"]]))
        assert [entry.when_ms for entry in trail] == [NOON + 2], "the batch's time, the same in a replay"

    def test_expires_by_the_time_of_batches(self) -> None:
        pieces = placed(cut(message())[0])
        spec = spec_of(Slice(expire_ms=100))
        waiting = carried(reassembled(spec, pieces[:2], CARRY))
        assert len(carried(reassembled(spec, waiting, carry_at(NOON + 99)))) == 2
        expired = reassembled(spec, waiting, carry_at(NOON + 100))
        assert state(expired) == [(Status.FAILED, 0), (Status.FAILED, 1)]
        assert "no other came for 100 ms" in expired[0]["failure"]["reason"]

    def test_the_last_slice_in_the_batch_that_is_too_late_is_in_time(self) -> None:
        value = message()
        pieces = placed(cut(value)[0])
        spec = spec_of(Slice(expire_ms=100))
        waiting = carried(reassembled(spec, pieces[:2], CARRY))
        found = reassembled(spec, [*waiting, *pieces[2:]], carry_at(NOON + 100))
        assert [row["value"] for row in found] == [value]

    def test_without_batches_the_clock_lets_nothing_expire(self) -> None:
        found = reassembled(
            spec_of(Slice(expire_ms=1), status=False), placed(cut(message())[0][:2]), FAIL, size=1
        )
        assert all("the frame ends" in row["failure"]["reason"] for row in found)

    @pytest.mark.parametrize("size", [1, 1_000])
    def test_a_gap_that_only_a_position_shows(self, size: int) -> None:
        spec = spec_of(Slice(max_gap=10))
        pieces = placed(cut(message())[0][:2])
        near = reassembled(spec, [*pieces, position(11)], CARRY, size=size)
        assert state(near) == [(Status.SLICE, 0), (Status.SLICE, 1)]
        far = reassembled(spec, [*pieces, position(12)], CARRY, size=size)
        assert state(far) == [(Status.FAILED, 0), (Status.FAILED, 1)]
        assert [row["value"] for row in far] == [piece.value for piece in pieces]
        later = reassembled(spec, [*carried(near), position(12)], CARRY, size=size)
        assert state(later) == state(far)


class TestRefusedMessages:
    @pytest.mark.parametrize("size", [1, 2, 1_000])
    def test_a_refused_slice_takes_those_that_came_along(self, size: int) -> None:
        value = message()
        bad, good = cut(message(), value)
        bad[2] = bad[2].replace(value=b"another length")
        found = reassembled(spec_of(), placed([*bad[:3], *good]), CARRY, size=size)
        assert state(found) == [(Status.FAILED, at) for at in range(3)]
        failed = {row["offset"]: row for row in found if row[STATUS] == Status.FAILED}
        assert [failed[at]["value"] for at in range(3)] == [piece.value for piece in bad[:3]]
        assert [failed[at]["own"] for at in range(3)] == ["own-0", "own-1", "own-2"]
        assert all("slice 2 has 14 bytes" in row["failure"]["reason"] for row in failed.values())
        assert [row["value"] for row in done(found)] == [value]

    def test_carried_slices_go_with_it(self) -> None:
        (pieces,) = cut(message())
        pieces = placed(pieces)
        waiting = carried(reassembled(spec_of(), pieces[:2], CARRY))
        found = reassembled(spec_of(), [*waiting, pieces[2].replace(value=b"x")], CARRY)
        assert state(found) == [(Status.FAILED, at) for at in range(3)]

    @pytest.mark.parametrize("size", [1, 1_000])
    def test_those_that_gave_way_fail_with_their_rows(self, size: int) -> None:
        spec = spec_of(Slice(max_pending_messages=1))
        groups = cut(*(message() for _ in range(4)))
        firsts = placed([piece for group in groups for piece in group[:2]])
        found = reassembled(spec, firsts, CARRY, size=size)
        assert state(found) == sorted([*((1, at) for at in range(6)), (2, 6), (2, 7)])
        failed = {row["offset"]: row for row in found if row[STATUS] == Status.FAILED}
        assert [failed[at]["failure"]["value"] for at in range(6)] == [each.value for each in firsts[:6]]
        assert all("evicted" in row["failure"]["reason"] for row in failed.values())

    def test_a_message_that_is_too_large_fails(self) -> None:
        spec = spec_of(Slice(max_message_bytes=2_000, max_pending_bytes=2_000))
        found = reassembled(spec, placed(cut(message())[0][:1]), CARRY)
        assert "max_message_bytes is 2000" in found[0]["failure"]["reason"]

    @pytest.mark.parametrize("missing", ["partition", "offset"])
    def test_a_slice_without_a_position_fails(self, missing: str) -> None:
        (first, *_) = placed(cut(message())[0])
        found = reassembled(spec_of(), [row_of(first, **{missing: None})], CARRY)
        assert found[0][STATUS] == Status.FAILED
        assert "without its partition and offset" in found[0]["failure"]["reason"]

    def test_hostile_headers_fail_alone(self) -> None:
        value = message()
        hostile = [
            Record("t", b"x", headers=Headers([(SLICE_HEADER, header)]))
            for header in (None, b"", b"\x02" * 37, b"\x01" + b"\xff" * 36)
        ]
        found = reassembled(spec_of(), placed([*hostile, *cut(value)[0]]), CARRY)
        assert state(found) == [(Status.FAILED, at) for at in range(4)]
        assert [row["value"] for row in done(found)] == [value]


class Refusing:
    """Refuse messages that begin with a word, and double those that begin with another."""

    def on_consume(self, record: Record) -> Any:
        if record.value.startswith(b"refuse"):
            raise ValueError("no")
        return [record, record] if record.value.startswith(b"double") else record


class TestGluedIdentities:
    def test_each_message_has_its_own_and_no_other(self) -> None:
        named = cut(b"refuse" + message(), b"double" + message(), steps=[Dedup()])
        plain = cut(message())
        rows = placed([piece for group in [*named, *plain] for piece in group])
        found = done(reassembled(spec_of(Refusing(), Dedup(), Slice()), rows, CARRY))
        identities = [row[IDENTITY] for row in found]
        assert [row["value"][:6] == b"double" for row in found] == [True, True, False]
        assert identities[0] == identities[1] == layout_of(named[1][0].headers.last("hw.id"))
        assert identities[2] is None

    def test_a_message_that_a_later_step_refuses_fails_as_its_last_slice(self) -> None:
        rows = placed(cut(b"refuse" + message())[0])
        (failed,) = reassembled(spec_of(Refusing(), Slice()), rows, CARRY)
        assert (failed[STATUS], failed["offset"]) == (Status.FAILED, len(rows) - 1)
        assert failed["value"] == rows[-1].value


class TestTypedMessages:
    def rows(self, pieces: Sequence[Record]) -> list[dict[str, Any]]:
        return [
            row_of(piece, **{"value": None, RAW: {"key": piece.key, "value": piece.value}})
            for piece in pieces
        ]

    def test_waiting_slices_keep_their_raw_parts(self) -> None:
        text = "é" * 3_000
        pieces = placed(cut(f'"{text}"'.encode())[0])
        spec = spec_of(Serialize(value=Json()), Slice(), typed=True)
        waiting = reassembled(spec, self.rows(pieces[:3]), CARRY)
        assert [row[RAW]["value"] for row in waiting] == [piece.value for piece in pieces[:3]]
        assert [row["value"] for row in waiting] == [None] * 3
        (whole,) = reassembled(spec, [*waiting, *self.rows(pieces[3:])], CARRY)
        assert whole["value"] == text

    def test_what_does_not_fit_fails_with_its_bytes(self) -> None:
        pieces = placed(cut(b"[" + b"1," * 1_500 + b"1]")[0])
        spec = spec_of(Serialize(value=Json()), Slice(), typed=True)
        (failed,) = reassembled(spec, self.rows(pieces), CARRY)
        assert (failed[STATUS], failed["value"]) == (Status.FAILED, None)
        assert "the value does not fit its column" in failed["failure"]["reason"]
        assert failed["failure"]["value"] == pieces[-1].value


class TestSigners:
    @pytest.fixture
    def keys(self, tmp_path: Path) -> str:
        ring = with_new_key(with_new_key(Keyring(), "ours", "hmac-sha256"), "theirs", "hmac-sha256")
        path = tmp_path / "keys.json"
        path.write_bytes(encode_keyring(ring))
        path.chmod(0o600)
        return str(path)

    @pytest.mark.parametrize("signer", ["ours", "theirs", None])
    def test_a_foreign_slice_is_not_glued_in_and_harms_nobody(self, keys: str, signer: str | None) -> None:
        value = message()
        steps = [Slice(max_bytes=SMALL), Sign(keyring=keys, key_id="ours")]
        genuine = placed(Chain(steps).open().send([Record("t", value, b"k")]), begin=10)
        bare = genuine[1].replace(
            value=bytes(len(genuine[1].value)), headers=Headers(genuine[1].headers[:-1]), offset=None
        )
        foreign = bare if signer is None else Sign(keyring=keys, key_id=signer).open(Context()).on_send(bare)
        spec = spec_of(Slice(), Sign(keyring=keys, require="off"))
        found = reassembled(spec, [*placed([foreign], begin=5), *genuine], ReassemblyOptions())
        good = [row for row in found if row["failure"] is None]
        assert [row["value"] for row in good] == [value]
