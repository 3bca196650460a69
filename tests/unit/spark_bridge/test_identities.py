from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headerware.core.errors import InterceptorError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Identity
from headerware.spark_bridge.executors.encoding import Identities
from headerware.spark_bridge.executors.partitions import Picker
from headerware.spark_bridge.frames.schema import DIGEST

COUNTS = {"t": 16}


def batch(*places: tuple[str, int, int]) -> pa.RecordBatch:
    names = ("topic", "partition", "offset")
    return pa.RecordBatch.from_pydict({"source": [dict(zip(names, place, strict=True)) for place in places]})


def digests(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {DIGEST: pa.array(values, pa.binary()), "source": ["mine"] * len(values)}
    )


def found(scope: str, given: pa.RecordBatch, identities: Identities | None = None) -> list[Any]:
    records = [Record("t", b"v")] * given.num_rows
    own = (identities or Identities(scope)).of(given, records)
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
        identities = Identities("q")
        found("q", batch(("in", 0, 7)), identities)
        fresh, alike = found("q", batch(("in", 0, 8), ("in", 0, 7)), identities)
        assert isinstance(fresh, Identity)
        assert (alike.step, alike.topic) == ("dedup", "t")

    def test_what_is_remembered_is_bounded(self) -> None:
        identities = Identities("q")
        given = batch(*(("in", 0, offset) for offset in range(65_537)))
        assert not any(isinstance(each, InterceptorError) for each in found("q", given, identities))
        assert isinstance(found("q", batch(("in", 0, 0)), identities)[0], Identity)
        assert isinstance(found("q", batch(("in", 0, 65_536)), identities)[0], InterceptorError)


class TestPicker:
    def test_a_key_leaves_it_to_kafka(self) -> None:
        assert Picker(COUNTS)(Record("t", b"v", b"")) is None

    def test_the_identity_decides_whatever_became_of_its_header(self) -> None:
        identity = Identity.numbered(bytes(16), 5)
        record = Record("t", b"v").with_local("dedup", identity)
        sliced = record.with_headers(Headers([("hw.id", identity.encode())]))
        packed = record.replace(value=b"encrypted", headers=Headers([("hw.ids", b"1")]))
        assert len({Picker(COUNTS)(each) for each in (record, sliced, packed)}) == 1
        assert Picker(COUNTS)(sliced.replace(local=None)) == Picker(COUNTS)(record)

    def test_without_one_the_value_decides(self) -> None:
        assert Picker(COUNTS)(Record("t", b"v")) == Picker(COUNTS)(
            Record("t", b"v", headers=Headers([("a", b"")]))
        )
        assert len({Picker(COUNTS)(Record("t", b"%d" % number)) for number in range(99)}) == COUNTS["t"]

    @pytest.mark.parametrize("counts", [{}, {"t": 0}])
    def test_a_topic_of_unknown_size_has_one(self, counts: dict[str, int]) -> None:
        assert Picker(counts)(Record("t", None)) == 0
