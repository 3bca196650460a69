from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from opentelemetry.trace import get_current_span
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from headerware.core.chain import Chain
from headerware.core.errors import InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record
from headerware.interceptors import Compress, Dedup, HeaderIds, Identity, Slice, Trail
from headerware.interceptors.serialize import Serialize
from headerware.serdes.formats.plain import Json, Text
from headerware.spark_bridge.chain_source import ChainSource, TaskSpec
from headerware.spark_bridge.executors.encoding import RowIdentities, encode
from headerware.spark_bridge.executors.open_chain import open_chain
from headerware.spark_bridge.frames.records import header_lists
from headerware.spark_bridge.frames.schema import DIGEST, FAILURE, HEADERS, with_columns

if TYPE_CHECKING:
    from collections.abc import Mapping


WRITTEN = with_columns(
    StructType([StructField("topic", StringType()), StructField("own", StringType())]),
    key=BinaryType(),
    value=BinaryType(),
    headers=HEADERS,
    partition=IntegerType(),
)
PLACE = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
CARRIER = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def frame(**columns: Any) -> pa.RecordBatch:
    size = len(columns["value"])
    rest = {"topic": ["t"] * size, "own": [f"own-{row}" for row in range(size)]}
    return pa.RecordBatch.from_pydict({**rest, **columns})


def spec_of(*steps: object, failures: Any = "fail", **settings: Any) -> TaskSpec:
    added = {"failure": FAILURE} if failures == "route" else {}
    return TaskSpec(
        source=ChainSource(chain=Chain(steps)),
        side="producer",
        job="job",
        failures=failures,
        schema=with_columns(WRITTEN, **added).json(),
        **settings,
    )


def encoded(
    spec: TaskSpec,
    *batches: pa.RecordBatch,
    carrier: Mapping[str, str] | None = None,
    counts: Mapping[str, int] | None = None,
) -> pa.Table:
    given = [pickle.dumps(each) for each in (spec, None, dict(carrier or {}), dict(counts or {}))]
    begin = encode(*given)
    found = list(begin(iter(batches)))
    assert all(batch.schema == found[0].schema for batch in found)
    return pa.Table.from_batches(found)


def places(*offsets: int | None) -> pa.Array:
    return pa.array([{"topic": "in", "partition": 0, "offset": offset} for offset in offsets], PLACE)


class Doing:
    """Do with each record what its value says."""

    def on_send(self, record: Record) -> Any:
        match record.value:
            case b"drop":
                return DROP
            case b"raise":
                raise ValueError("with a secret in it")
            case b"twice":
                return [record, record]
            case b"half":
                return FanOut(2, lambda: (record if number else 1 / 0 for number in (1, 0)))  # type: ignore[misc]
            case b"object":
                return record.replace(value=5)
            case _:
                return record


class Spans:
    """Write which trace is current."""

    def on_send(self, record: Record) -> Record:
        trace = get_current_span().get_span_context().trace_id
        return record.replace(value=f"{trace:032x}".encode())


class TestEncode:
    def test_text_goes_as_its_bytes(self) -> None:
        found = encoded(
            spec_of(Compress(min_bytes=10_000)), frame(value=["é", None, ""], key=["k", "", None])
        )
        assert found["value"].to_pylist() == ["é".encode(), None, b""]
        assert found["key"].to_pylist() == [b"k", b"", None]
        assert header_lists(found["headers"].chunk(0)) == [Headers()] * 3

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_text_that_is_no_utf_8_goes_as_its_bytes(self, kind: pa.DataType) -> None:
        # Spark's cast(value as string) does not look.
        plain = pa.binary() if kind == pa.string() else pa.large_binary()
        value = pa.array([b"\xff\xfe", None], plain)
        text = pa.Array.from_buffers(kind, 2, value.buffers())
        assert encoded(spec_of(Doing()), frame(value=text))["value"].to_pylist() == [b"\xff\xfe", None]

    def test_slices_of_a_row_stand_together_with_its_columns(self) -> None:
        large = os.urandom(2_500)
        found = encoded(spec_of(Slice(max_bytes=1_000)), frame(value=[b"a", large, b"b"]))
        assert found["own"].to_pylist() == ["own-0", *["own-1"] * (found.num_rows - 2), "own-2"]
        assert b"".join(found["value"].to_pylist()[1:-1]) == large
        assert set(found["partition"].to_pylist()[1:-1]) == {0}

    def test_partitions_of_the_users_are_kept(self) -> None:
        given = frame(value=[b"a", b"b"], partition=pa.array([4, None], pa.int32()))
        assert encoded(spec_of(Trail()), given)["partition"].to_pylist() == [4, None]

    def test_dropped_and_doubled_rows(self) -> None:
        found = encoded(spec_of(Doing()), frame(value=[b"a", b"drop", b"twice"]))
        assert found["own"].to_pylist() == ["own-0", "own-2", "own-2"]

    def test_the_batchs_trace_is_current(self) -> None:
        found = encoded(spec_of(Spans()), frame(value=[b""]), carrier=CARRIER)
        assert found["value"].to_pylist() == [CARRIER["traceparent"].split("-")[1].encode()]
        assert not get_current_span().get_span_context().is_valid


class TestRefusedRows:
    def test_fail_raises_with_step_and_topic(self) -> None:
        with pytest.raises(InterceptorError, match="doing at t: raised ValueError") as caught:
            encoded(spec_of(Doing()), frame(value=[b"raise"]))
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("word", [b"raise", b"half", b"object"])
    def test_a_bad_row_fails_alone_and_as_it_came(self, word: bytes) -> None:
        headers = [[{"key": "a", "value": None}], None, []]
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        given = frame(value=[b"a", word, b"b"], key=["k", "l", "m"], headers=pa.array(headers, kind))
        found = encoded(spec_of(Doing(), failures="route"), given).to_pylist()
        (bad,) = [row for row in found if row["failure"]]
        assert (bad["own"], bad["value"], bad["key"], bad["headers"]) == ("own-1", word, b"l", None)
        assert (bad["failure"]["key"], bad["failure"]["value"]) == (b"l", word)
        assert bad["failure"]["topic"] == "t.dead-letter"
        assert sorted(row["own"] for row in found) == ["own-0", "own-1", "own-2"]

    def test_a_row_without_a_topic_fails_alone(self) -> None:
        found = encoded(spec_of(Trail(), failures="route"), frame(value=[b"a", b"b"], topic=[None, "t"]))
        assert [row["failure"] is None for row in found.to_pylist()] == [False, True]

    def test_reserved_headers_are_refused(self) -> None:
        headers = pa.array(
            [[{"key": "hw.sig", "value": b"1"}]],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        )
        (row,) = encoded(spec_of(Trail(), failures="route"), frame(value=[b"a"], headers=headers)).to_pylist()
        assert (row["failure"]["step"], row["failure"]["error"]) == ("chain", "InterceptorError")
        assert "hw.sig" in row["failure"]["reason"]


class TestTypedRows:
    STRUCT = pa.struct([("id", pa.int32())])

    def test_objects_are_serialized(self) -> None:
        spec = spec_of(Serialize(value=Json(), key=Text()), typed=frozenset({"key", "value"}))
        given = frame(value=pa.array([{"id": 1}, None], self.STRUCT), key=["é", None])
        found = encoded(spec, given)
        assert found["value"].to_pylist() == [b'{"id":1}', None]
        assert found["key"].to_pylist() == ["é".encode(), None]

    def test_bytes_beside_them_stay(self) -> None:
        spec = spec_of(Serialize(value=Json(), key=Json()), typed=frozenset({"value"}))
        found = encoded(spec, frame(value=pa.array([{"id": 1}], self.STRUCT), key=[b"\xff"]))
        assert found["key"].to_pylist() == [b"\xff"]

    def test_objects_are_json_in_letters(self) -> None:
        class_of = Serialize(value=Text())
        spec = spec_of(class_of, failures="route", typed=frozenset({"value"}))
        given = frame(value=pa.array([{"id": 7}], self.STRUCT), key=pa.array([b"k"], pa.binary()))
        (row,) = encoded(spec, given).to_pylist()
        assert (row["value"], row["key"]) == (b'{"id":7}', b"k")
        assert (row["failure"]["value"], row["failure"]["step"]) == (b'{"id":7}', "serialize")

    def test_what_no_object_can_be_made_of_fails_alone(self) -> None:
        spec = spec_of(Serialize(value=Json()), failures="route", typed=frozenset({"value"}))
        days = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
        found = encoded(spec, frame(value=days)).to_pylist()
        assert sorted(row["own"] for row in found if row["failure"]) == ["own-1"]
        assert [row["value"] for row in found if not row["failure"]] == [b'"1970-01-01"']


class TestIdentifiedRows:
    def sent(
        self, *steps: object, values: Any, source: pa.Array, counts: Mapping[str, int] | None = None
    ) -> pa.Table:
        spec = spec_of(*steps, scope="query", failures="route")
        return encoded(spec, frame(value=values, source=source), counts=counts)

    def test_a_row_is_its_place(self) -> None:
        found = self.sent(Dedup(), values=[b"a", b"b"], source=places(7, 8))
        identities = [
            Identity.decode(headers.last("hw.id")) for headers in header_lists(found["headers"].chunk(0))
        ]
        assert [identity.sequence for identity in identities] == [7, 8]
        assert found.equals(self.sent(Dedup(), values=[b"a", b"b"], source=places(7, 8)))

    def test_rows_without_a_key_go_where_a_replay_finds_them(self) -> None:
        first = self.sent(
            Dedup(), HeaderIds(), values=[b"a"] * 40, source=places(*range(40)), counts={"t": 8}
        )
        again = self.sent(
            Dedup(), HeaderIds(), values=[b"b"] * 40, source=places(*range(40)), counts={"t": 8}
        )
        chosen = first["partition"].to_pylist()
        assert again["partition"].to_pylist() == chosen, "it is the identity that decides, not the value"
        assert len(set(chosen)) > 4

    def test_alike_rows_are_refused(self) -> None:
        found = self.sent(Dedup(), values=[b"a", b"b"], source=places(7, 7)).to_pylist()
        (bad,) = [row for row in found if row["failure"]]
        assert (bad["own"], bad["failure"]["step"]) == ("own-1", "dedup")
        assert "identity=[...]" in bad["failure"]["reason"]

    @pytest.mark.parametrize(
        "source", [places(None), pa.array([None], PLACE), pa.array(["web"]), pa.array([{"offset": 1}])]
    )
    def test_rows_that_do_not_say_where_they_were_read_are_refused(self, source: pa.Array) -> None:
        (bad,) = self.sent(Dedup(), values=[b"a"], source=source).to_pylist()
        assert "does not say where it was read from" in bad["failure"]["reason"]

    def test_tombstones_and_keys_leave_the_partition_to_kafka(self) -> None:
        spec = spec_of(Dedup(), scope="query")
        given = frame(value=[None, b"a"], key=[None, b"k"], source=places(1, 2))
        assert encoded(spec, given, counts={"t": 8})["partition"].to_pylist() == [None, None]

    def test_where_a_topics_partitions_are_unknown_they_are_left_to_kafka(self) -> None:
        spec = spec_of(Dedup(), scope="query")
        given = frame(value=[b"a"], source=places(1))
        assert encoded(spec, given, counts={"other": 8})["partition"].to_pylist() == [None]

    def test_one_row_in_two_topics_is_two_records(self) -> None:
        given = frame(value=[b"a", b"a"], topic=["t", "u"], source=places(1, 1))
        one, two = encoded(spec_of(Dedup(), scope="query"), given).to_pylist()
        assert dict_of(one)["hw.id"] != dict_of(two)["hw.id"]

    def test_an_offset_that_cannot_be_fails_alone(self) -> None:
        spec = spec_of(Dedup(), scope="query", failures="route")
        found = encoded(spec, frame(value=[b"a", b"b"], source=places(-1, 1))).to_pylist()
        assert [row["own"] for row in found if row["failure"]] == ["own-0"]

    def test_a_step_that_holds_a_row_back_is_refused(self) -> None:
        spec = spec_of(Holding(), failures="route")
        (row,) = encoded(spec, frame(value=[b"a"])).to_pylist()
        assert "holds the record back" in row["failure"]["reason"]


class Holding:
    """A step that gives nothing for now."""

    name = "holding"

    def on_send(self, record: Record) -> list[Record]:
        return []


def dict_of(row: dict[str, Any]) -> dict[str, bytes | None]:
    return {header["key"]: header["value"] for header in row["headers"]}


class TestCounts:
    def test_rows_and_bytes_of_both_ends(self) -> None:
        spec = spec_of(Doing(), failures="route")
        session = open_chain(pickle.dumps(spec)).session
        before = session.stats()["doing"]["sent"]
        nothing = pickle.dumps({})
        running = encode(pickle.dumps(spec), pickle.dumps(None), nothing, nothing)
        list(running(iter([frame(value=[b"abc", b"drop", b"raise", None])])))
        counter = running._counter.counts  # type: ignore[attr-defined]
        assert counter == {"records_in": 4, "records_out": 2, "bytes_in": 12, "bytes_out": 3, "refused": 1}
        assert session.stats()["doing"]["sent"] - before == 4


def batch(*places: tuple[str, int, int]) -> pa.RecordBatch:
    names = ("topic", "partition", "offset")
    return pa.RecordBatch.from_pydict({"source": [dict(zip(names, place, strict=True)) for place in places]})


def digests(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {DIGEST: pa.array(values, pa.binary()), "source": ["mine"] * len(values)}
    )


def found(scope: str, given: pa.RecordBatch, identities: RowIdentities | None = None) -> list[Any]:
    records = [Record("t", b"v")] * given.num_rows
    own = (identities or RowIdentities(scope)).of(given, records)
    return [each if isinstance(each, InterceptorError) else (each.local or {})["dedup"] for each in own]


class TestPlaces:
    def test_are_a_producer_a_partition_with_the_offset_as_sequence(self) -> None:
        one, two, three = found("q", batch(("in", 0, 7), ("in", 0, 8), ("in", 1, 7)))
        assert (one.sequence, two.sequence, three.sequence) == (7, 8, 7)
        assert one.source == two.source != three.source

    def test_are_the_same_in_every_process_and_run(self) -> None:
        (identity,) = found("query", batch(("in", 0, 7)))
        assert identity == found("query", batch(("in", 0, 7)))[0]
        assert identity.source.hex() == "3eec40045499fbfac7432c901252cb94"

    @pytest.mark.parametrize(
        "other", [("query2", ("in", 0, 7)), ("query", ("in2", 0, 7)), ("query", ("in", 1, 7))]
    )
    def test_differ_by_scope_topic_and_partition(self, other: tuple[str, tuple[str, int, int]]) -> None:
        scope, place = other
        assert found("query", batch(("in", 0, 7))) != found(scope, batch(place))

    def test_parts_do_not_run_into_one_another(self) -> None:
        assert found("q", batch(("a1", 1, 7))) != found("q", batch(("a", 11, 7)))


class TestDigests:
    def test_come_before_places_of_a_users_own(self) -> None:
        (identity,) = found("q", digests(bytes(16)))
        assert (identity.digest, identity.sequence) == (bytes(16), None)

    def test_differ_by_scope(self) -> None:
        assert found("q", digests(bytes(16))) != found("r", digests(bytes(16)))


class TestAlikeRows:
    def test_the_second_is_refused_in_later_batches_too(self) -> None:
        identities = RowIdentities("q")
        found("q", batch(("in", 0, 7)), identities)
        fresh, alike = found("q", batch(("in", 0, 8), ("in", 0, 7)), identities)
        assert isinstance(fresh, Identity)
        assert (alike.step, alike.topic) == ("dedup", "t")

    def test_what_is_remembered_is_bounded(self) -> None:
        identities = RowIdentities("q")
        given = batch(*(("in", 0, offset) for offset in range(65_537)))
        assert not any(isinstance(each, InterceptorError) for each in found("q", given, identities))
        assert isinstance(found("q", batch(("in", 0, 0)), identities)[0], Identity)
        assert isinstance(found("q", batch(("in", 0, 65_536)), identities)[0], InterceptorError)
