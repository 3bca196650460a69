from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headerware.core.batch import Batch
from headerware.core.chain import Chain
from headerware.core.errors import HeaderwareError, InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record
from headerware.interceptors import Compress, Dedup, Identity, Sign, Slice, Trail
from headerware.interceptors.serialize import Serialize
from headerware.interceptors.trail import read_trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.serdes.avro.serde import Avro
from headerware.serdes.formats.plain import Json
from headerware.serdes.stores.folder import FolderSchemas
from headerware.spark_bridge.chain_source import ChainSource, TaskSpec
from headerware.spark_bridge.executors.decoding import decode_rows
from headerware.spark_bridge.executors.open_chain import open_chain
from headerware.spark_bridge.frames.avro_types import avro_type
from headerware.spark_bridge.frames.output import FLUSH_BYTES
from headerware.spark_bridge.frames.records import header_column, header_lists
from headerware.spark_bridge.frames.schema import (
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
    from collections.abc import Sequence
    from pathlib import Path


COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("headers", HEADERS),
]
OWN = StructType([
    *COLUMNS,
    StructField("price", StringType()),
    StructField("strict", ArrayType(IntegerType(), containsNull=False), nullable=False),
])  # fmt: skip
STRICT = pa.list_(pa.field("element", pa.int32(), nullable=False))


def batch_of(records: Sequence[Record], begin: int = 0) -> pa.RecordBatch:
    """Return records as the connector gives them, with two columns of the user's."""
    size = len(records)
    return pa.RecordBatch.from_pydict({
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "topic": pa.array([record.topic for record in records], pa.string()),
        "partition": pa.array([record.partition or 0 for record in records], pa.int32()),
        "offset": pa.array(range(begin, begin + size), pa.int64()),
        "headers": header_column([record.headers for record in records]),
        "price": pa.array([f"p{row}" for row in range(begin, begin + size)]),
        "strict": pa.array([[row] for row in range(begin, begin + size)], STRICT),
    })  # fmt: skip


def spec_of(*steps: object, failures: Any = "fail", **settings: Any) -> TaskSpec:
    schema = settings.pop("schema", OWN)
    added = {"failure": FAILURE} if failures == "route" else {}
    return TaskSpec(
        source=ChainSource(chain=Chain(steps)),
        side="consumer",
        job="job",
        failures=failures,
        schema=with_columns(schema, **added).json(),
        **settings,
    )


def decoded(spec: TaskSpec, *batches: pa.RecordBatch, reassembles: bool = False) -> pa.Table:
    begin = decode_rows(pickle.dumps(spec), pickle.dumps(None), pickle.dumps(reassembles))
    found = list(begin(iter(batches)))
    assert all(batch.schema == found[0].schema for batch in found), (
        "all batches of a task must have one schema"
    )
    return pa.Table.from_batches(found)


def orders(count: int) -> list[Record]:
    return [Record("orders", b"%d" % number, b"k") for number in range(count)]


class Doing:
    """Do with each record what its value says."""

    def on_consume(self, record: Record) -> Any:
        match record.value:
            case b"drop":
                return DROP
            case b"raise":
                raise ValueError("with a secret in it")
            case b"none":
                return None
            case b"wait":
                return []
            case b"twice":
                return [record, record.replace(value=b"again")]
            case b"lazily":
                return FanOut(2, lambda: iter([record, record]))
            case b"half":
                return FanOut(2, lambda: (record if number else 1 / 0 for number in (1, 0)))  # type: ignore[misc]
            case b"text":
                return record.replace(value="é")
            case b"object":
                return record.replace(value={"a": 1}, headers=Headers([("x", b"1")]))
            case b"key":
                return record.replace(key=5)
            case b"headers":
                return record.replace(headers=Headers.trusted([("a", 5)]))  # type: ignore[list-item]
            case _:
                return record


class Growing:
    """Give values of which two are too many for one batch."""

    def on_consume(self, record: Record) -> Record:
        return record.replace(value=bytes(FLUSH_BYTES // 2 + 1))


class Counting:
    """Note the sizes of the batches that it gets."""

    seen: list[int] = []  # noqa: RUF012 - a test reads it
    lies = False

    def on_consume_batch(self, batch: Batch) -> Batch:
        self.seen.append(len(batch))
        found = batch.replace(values=[value + b"!" for value in batch.values])
        return found[1:] if self.lies else found


class Lying(Counting):
    lies = True


class TestDecodeAlone:
    def test_an_empty_chain_changes_nothing(self) -> None:
        given = batch_of([Record("t", None, b"", Headers([("a", None), ("a", b"")])), Record("t", b"v")])
        assert decoded(spec_of(), given).to_pylist() == given.to_pylist()

    def test_no_batches_and_no_rows_are_fine(self) -> None:
        assert list(decode_rows(*map(pickle.dumps, (spec_of(Trail()), None, False)))(iter(()))) == []
        assert list(decode_rows(*map(pickle.dumps, (spec_of(Trail()), None, False)))([batch_of([])])) == []

    def test_dropped_rows_take_their_columns_along(self) -> None:
        records = [Record("t", value) for value in (b"a", b"drop", b"b", b"drop")]
        found = decoded(spec_of(Doing()), batch_of(records))
        assert found.select(["value", "price", "strict"]).to_pydict() == {
            "value": [b"a", b"b"],
            "price": ["p0", "p2"],
            "strict": [[0], [2]],
        }

    @pytest.mark.parametrize(("word", "second"), [(b"twice", b"again"), (b"lazily", b"lazily")])
    def test_a_row_that_becomes_two_has_its_columns_twice(self, word: bytes, second: bytes) -> None:
        found = decoded(spec_of(Doing()), batch_of([Record("t", b"a"), Record("t", word), Record("t", b"b")]))
        assert found["value"].to_pylist() == [b"a", word, second, b"b"]
        assert found["price"].to_pylist() == ["p0", "p1", "p1", "p2"]
        assert found["strict"].type == STRICT

    def test_every_batch_of_a_task_has_one_schema(self) -> None:
        spec = spec_of(Doing(), failures="route")
        batches = [batch_of([Record("t", word)]) for word in (b"a", b"raise", b"twice", b"key", b"drop")]
        assert decoded(spec, *batches).num_rows == 5

    def test_goes_on_before_the_batch_is_done_where_values_grow(self) -> None:
        begin = decode_rows(*map(pickle.dumps, (spec_of(Growing()), None, False)))
        sizes = [batch.num_rows for batch in begin([batch_of(orders(5))])]
        assert sizes == [2, 2, 1]


class TestRefusedRows:
    def test_fail_raises_with_the_position(self) -> None:
        with pytest.raises(InterceptorError, match=r"doing at orders\[0\]@2: raised ValueError") as caught:
            decoded(spec_of(Doing()), batch_of([*orders(2), Record("orders", b"raise")]))
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("word", "reason"),
        [
            (b"raise", "doing at orders[0]@1: raised ValueError at test_decoding.py:"),
            (b"none", "doing at orders[0]@1: returned NoneType; expected a Record, DROP or an iterable of"),
            (b"wait", "chain at orders[0]@1: a step holds the record back"),
            (b"half", "doing at orders[0]@1: raised ZeroDivisionError"),
            (b"object", "chain at orders[0]@1: the chain returned a value that does not fit its column"),
            (b"key", "chain at orders[0]@1: the chain returned a key that does not fit its column"),
            (b"headers", "chain at orders[0]@1: the chain returned a headers that does not fit its column"),
        ],
    )
    def test_a_bad_row_fails_alone_and_as_it_came(self, word: bytes, reason: str) -> None:
        records = [Record("orders", value, b"k", Headers([("a", None)])) for value in (b"0", word, b"2")]
        found = decoded(spec_of(Doing(), failures="route"), batch_of(records))
        assert sorted(found["price"].to_pylist()) == ["p0", "p1", "p2"]
        (bad,) = [row for row in found.to_pylist() if row["failure"]]
        assert (bad["value"], bad["key"], bad["price"]) == (word, b"k", "p1")
        assert bad["headers"] == [{"key": "a", "value": None}]
        assert bad["failure"]["reason"].startswith(reason)
        assert (bad["failure"]["key"], bad["failure"]["value"]) == (b"k", word)

    def test_the_letter_has_connects_names(self) -> None:
        found = decoded(spec_of(Doing(), failures="route"), batch_of([Record("orders", b"raise")]))
        (failure,) = found["failure"].to_pylist()
        headers = {each["key"]: each["value"] for each in failure["headers"]}
        assert failure["topic"] == "orders.dead-letter"
        assert (failure["step"], failure["error"]) == ("doing", "InterceptorError")
        assert headers["__connect.errors.topic"] == b"orders"
        assert headers["__connect.errors.offset"] == b"0"
        assert headers["__connect.errors.stage"] == b"ON_CONSUME"

    def test_a_dead_letter_gets_no_dead_letter(self) -> None:
        letter = batch_of([Record("orders.dead-letter", b"raise")])
        with pytest.raises(InterceptorError, match="do not read dead-letter topics here"):
            decoded(spec_of(Doing(), failures="route"), letter)

    def test_text_that_is_no_utf_8_fails_alone(self) -> None:
        given = batch_of([Record("orders", b"a"), Record("orders", b"b")])
        topics = pa.array([b"orders", b"\xff"], pa.binary()).view(pa.string())
        given = given.set_column(given.schema.get_field_index("topic"), "topic", topics)
        found = decoded(spec_of(Doing(), failures="route"), given)
        assert [each is None for each in found["failure"].to_pylist()] == [True, False]

    def test_the_letter_has_springs_names_where_asked(self) -> None:
        spec = spec_of(
            Doing(), failures="route", dead_letter_headers="spring", dead_letter_topic="dead", group_id="g"
        )
        (failure,) = decoded(spec, batch_of([Record("orders", b"raise")]))["failure"].to_pylist()
        headers = {each["key"]: each["value"] for each in failure["headers"]}
        assert failure["topic"] == "dead"
        assert headers["kafka_dlt-original-offset"] == bytes(8)
        assert headers["kafka_dlt-original-consumer-group"] == b"g"

    def test_a_steps_own_dead_letters_come_first(self) -> None:
        step = Compress(on_error="dead_letter", dead_letter_topic="own.{topic}", dead_letter_headers="spring")
        bad = Record("orders", b"not compressed", headers=Headers([("hw.compress", b"zstd;x")]))
        (failure,) = decoded(spec_of(step, failures="route"), batch_of([bad]))["failure"].to_pylist()
        assert failure["topic"] == "own.orders"
        assert any(each["key"] == "kafka_dlt-original-topic" for each in failure["headers"])

    def test_dead_letter_without_routing_fails_the_job(self) -> None:
        bad = Record("orders", b"not compressed", headers=Headers([("hw.compress", b"zstd;x")]))
        with pytest.raises(HeaderwareError, match=r"compress at orders\[0\]@0"):
            decoded(spec_of(Compress(on_error="dead_letter")), batch_of([bad]))

    def test_drop_and_skip_are_the_chains_affair(self) -> None:
        bad = Record("orders", b"x", headers=Headers([("hw.compress", b"zstd;x")]))
        assert decoded_rows(spec_of(Compress(on_error="drop")), batch_of([bad])) == 0
        skipping = spec_of(SkippingOne(), failures="route")
        assert decoded(skipping, batch_of([bad]))["failure"].to_pylist()[0]["step"] == "chain"

    @pytest.mark.parametrize(
        "headers", [[None], [[{"key": None, "value": b"1"}, {"key": "a", "value": b"2"}]]]
    )
    def test_untouched_means_the_headers_too(self, headers: Any) -> None:
        given = batch_of([Record("orders", b"raise")])
        given = given.set_column(
            5,
            "headers",
            pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        )
        (row,) = decoded(spec_of(Doing(), failures="route"), given).to_pylist()
        assert row["headers"] == headers[0]
        assert row["failure"]["topic"] == "orders.dead-letter"

    def test_a_null_header_name_is_refused(self) -> None:
        given = batch_of([Record("orders", b"v"), Record("orders", b"w")])
        pairs = [[{"key": None, "value": b"1"}], []]
        given = given.set_column(
            5, "headers", pa.array(pairs, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        )
        found = decoded(spec_of(Trail(), failures="route"), given).to_pylist()
        assert [row["failure"] is None for row in found] == [False, True]
        assert "name of header 0" in found[0]["failure"]["reason"]

    def test_a_row_without_a_topic_fails_alone(self) -> None:
        given = batch_of([Record("orders", b"v"), Record("orders", b"w")])
        given = given.set_column(2, "topic", pa.array([None, "orders"]))
        found = decoded(spec_of(Trail(), failures="route"), given).to_pylist()
        assert [row["topic"] for row in found] == [None, "orders"]
        assert found[0]["failure"]["topic"] == "unknown.dead-letter"
        assert found[1]["failure"] is None


class SkippingOne:
    """Fail on everything, and be passed over."""

    on_error = "skip"

    def on_consume(self, record: Record) -> Record:
        raise ValueError(record.topic)


def decoded_rows(spec: TaskSpec, *batches: pa.RecordBatch) -> int:
    begin = decode_rows(*map(pickle.dumps, (spec, None, False)))
    return sum(batch.num_rows for batch in begin(iter(batches)))


class TestBatchHooks:
    def test_get_whole_arrow_batches(self) -> None:
        Counting.seen.clear()
        found = decoded(spec_of(Counting()), batch_of(orders(700)), batch_of(orders(300)))
        assert Counting.seen == [700, 300]
        assert found["value"].to_pylist()[0] == b"0!"

    def test_a_wrong_number_of_outcomes_fails_every_row_of_the_batch(self) -> None:
        found = decoded(spec_of(Lying(), failures="route"), batch_of(orders(3)))
        reasons = [failure["reason"] for failure in found["failure"].to_pylist()]
        assert [reason.partition(": ")[0] for reason in reasons] == [
            f"lying at orders[0]@{n}" for n in range(3)
        ]
        assert all("returned 2 records for 3" in reason for reason in reasons)
        assert found["value"].to_pylist() == [b"0", b"1", b"2"]


class TestSlicesOnTheirWay:
    WORK = spec_of(
        Trail(),
        Slice(),
        failures="route",
        schema=with_status(with_columns(OWN, failure=FAILURE), typed=False),
    )

    def sliced(self) -> list[Record]:
        large = Record("t", os.urandom(3_000), b"k", Headers([("a", b"1")]), 0)
        return Chain([Slice(max_bytes=1_000)]).open().send([large])

    def test_go_on_as_they_came_with_a_position(self) -> None:
        pieces = self.sliced()
        given = batch_of([*pieces, Record("t", b"alone")])
        found = decoded(self.WORK, given, reassembles=True).to_pylist()
        assert [row[STATUS] for row in found] == [Status.SLICE] * len(pieces) + [None, Status.POSITION]
        for row, piece in zip(found, pieces, strict=False):
            assert (row["value"], row["key"], row["price"]) == (piece.value, b"k", f"p{row['offset']}")
            assert header_lists(pa.array([row["headers"]], batch_of([]).schema.field("headers").type)) == [
                piece.headers
            ]
        assert (found[-1]["topic"], found[-1]["partition"], found[-1]["offset"]) == ("t", 0, len(pieces))
        assert not open_chain(pickle.dumps(self.WORK)).session.waiting_offsets()

    def test_typed_columns_leave_room_for_their_raw_parts(self) -> None:
        schema = with_status(with_columns(OWN, value=StringType(), failure=FAILURE), typed=True)
        spec = spec_of(
            Serialize(value=Json()), Slice(), failures="route", schema=schema, typed=frozenset({"value"})
        )
        pieces = self.sliced()
        row, *_ = decoded(spec, batch_of(pieces), reassembles=True).to_pylist()
        assert row["value"] is None
        assert row[RAW] == {"key": b"k", "value": pieces[0].value}

    def test_without_a_position_they_fail(self) -> None:
        given = batch_of(self.sliced()[:1])
        given = given.set_column(4, "offset", pa.array([None], pa.int64()))
        (row,) = decoded(self.WORK, given, reassembles=True).to_pylist()
        assert row[STATUS] == Status.FAILED
        assert "without its partition and offset" in row["failure"]["reason"]

    def test_say_how_far_each_partition_was_read_over_all_batches(self) -> None:
        found = decoded(self.WORK, batch_of(orders(3)), batch_of(orders(2), 3), reassembles=True).to_pylist()
        assert [(row["topic"], row["offset"]) for row in found if row[STATUS] == Status.POSITION] == [
            ("orders", 4)
        ]


class TestIdentitiesOfRows:
    SCHEMA = with_columns(OWN, failure=FAILURE, **{IDENTITY: BinaryType()})

    def records(self, *values: bytes) -> list[Record]:
        sending = Chain([Dedup()]).open()
        return sending.send([
            Record("t", value).with_local("dedup", Identity.numbered(bytes(16), number))
            for number, value in enumerate(values)
        ])  # fmt: skip

    def found(self, *steps: object, values: Sequence[bytes]) -> list[tuple[bytes, int | None]]:
        spec = spec_of(*steps, Dedup(), failures="route", schema=self.SCHEMA)
        given = batch_of([*self.records(*values), Record("t", b"without")])
        rows = decoded(spec, given).to_pylist()
        return [(row["value"], None if row[IDENTITY] is None else row[IDENTITY][-1]) for row in rows]

    def test_each_row_has_its_own(self) -> None:
        assert self.found(values=[b"a", b"b"]) == [(b"a", 0), (b"b", 1), (b"without", None)]

    def test_all_rows_that_one_became_have_its(self) -> None:
        values = [b"twice", b"b"]
        assert self.found(Doing(), values=values) == [
            (b"twice", 0),
            (b"again", 0),
            (b"b", 1),
            (b"without", None),
        ]

    @pytest.mark.parametrize("word", [b"drop", b"raise", b"wait"])
    def test_that_of_a_row_which_goes_no_further_is_nobody_elses(self, word: bytes) -> None:
        left = [pair for pair in self.found(Doing(), values=[word, b"b"]) if pair[0] != word]
        assert left == [(b"b", 1), (b"without", None)]

    def test_nothing_of_them_stays(self) -> None:
        spec = spec_of(Doing(), Dedup(), failures="route", schema=self.SCHEMA)
        decoded(spec, batch_of(self.records(b"raise", b"drop", b"x")))
        assert not open_chain(pickle.dumps(spec)).identities


ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}


class TestTypedRows:
    def chain(self, folder: Path) -> list[object]:
        return [
            Serialize(value=Avro(schema=ORDER, store=FolderSchemas(path=str(folder)), write_as="fingerprint"))
        ]

    def test_objects_become_columns_by_the_schema_that_headers_name(self, tmp_path: Path) -> None:
        steps = self.chain(tmp_path)
        sent = Chain(steps).open().send([Record("t", {"id": number}) for number in range(3)])
        spec = spec_of(*steps, schema=with_columns(OWN, value=avro_type(ORDER)), typed=frozenset({"value"}))
        assert decoded(spec, batch_of([*sent, Record("t")]))["value"].to_pylist() == [
            {"id": 0},
            {"id": 1},
            {"id": 2},
            None,
        ]

    def test_what_does_not_fit_fails_alone(self) -> None:
        kind = StructType([StructField("id", IntegerType())])
        spec = spec_of(
            Serialize(value=Json()),
            failures="route",
            schema=with_columns(OWN, value=kind),
            typed=frozenset({"value"}),
        )
        values = [b'{"id": 1}', b'{"id": "secret"}', b"no json", b'{"id": 2}']
        found = sorted(
            decoded(spec, batch_of([Record("t", value, b"k") for value in values])).to_pylist(),
            key=lambda row: row["offset"],
        )
        assert [row["value"] for row in found] == [{"id": 1}, None, None, {"id": 2}]
        assert [row["failure"] and row["failure"]["value"] for row in found] == [
            None,
            values[1],
            values[2],
            None,
        ]
        assert "the value does not fit its column: id: expected" in found[1]["failure"]["reason"]
        assert "secret" not in found[1]["failure"]["reason"]

    def test_without_types_steps_that_serialize_are_left_out(self) -> None:
        spec = spec_of(Serialize(value=Json()))
        assert decoded(spec, batch_of([Record("t", b"no json")]))["value"].to_pylist() == [b"no json"]

    def test_a_part_without_a_type_stays_bytes(self) -> None:
        schema = with_columns(OWN, value=StructType([StructField("id", IntegerType())]))
        spec = spec_of(Serialize(key=Json(), value=Json()), schema=schema, typed=frozenset({"value"}))
        (row,) = decoded(spec, batch_of([Record("t", b'{"id": 1}', b"5")])).to_pylist()
        assert (row["key"], row["value"]) == (b"5", {"id": 1})


class TestSignedRows:
    def test_a_bad_signature_among_many_fails_alone(self, tmp_path: Path) -> None:
        keys = tmp_path / "keys.json"
        edit_keyring(keys, lambda ring: with_new_key(ring, "k", "hmac-sha256"), create=True)
        steps = [Trail(service="a"), Compress(), Sign(keyring=str(keys), key_id="k", require="enforce")]
        sent = Chain(steps).open().send(orders(50))
        sent[17] = sent[17].replace(value=b"forged")
        found = decoded(spec_of(*steps, failures="route"), batch_of(sent)).to_pylist()
        assert [row["offset"] for row in found if row["failure"]] == [17]
        assert {row["failure"]["error"] for row in found if row["failure"]} == {"SignatureError"}
        trails = header_lists(
            pa.array(
                [row["headers"] for row in found if not row["failure"]],
                batch_of([]).schema.field("headers").type,
            )
        )
        assert {entry.by_whom for trail in trails for entry in read_trail(trail)} == {"a", "a/job"}

    @pytest.mark.parametrize("uncovered", ["strip", "refuse", "pass"])
    def test_what_stands_behind_a_signature_is_treated_as_in_clients(
        self, tmp_path: Path, uncovered: Any
    ) -> None:
        keys = tmp_path / "keys.json"
        edit_keyring(keys, lambda ring: with_new_key(ring, "k", "hmac-sha256"), create=True)
        steps = [Dedup(), Sign(keyring=str(keys), key_id="k", uncovered=uncovered)]
        plain, added, hidden = Chain(steps).open().send(orders(3))
        added = added.with_headers(added.headers.add("x", b"1"))
        hidden = hidden.with_headers(hidden.headers.add("hw.slice", b"1"))
        found = decoded(spec_of(*steps, failures="route"), batch_of([plain, added, hidden])).to_pylist()
        shown = [row["failure"]["error"] if row["failure"] else row["headers"] for row in found]
        expected: dict[str, Any] = {
            "strip": [],
            "refuse": "SignatureError",
            "pass": [{"key": "x", "value": b"1"}],
        }
        assert [each or [] for each in shown] == [[], expected[uncovered], "SignatureError"]
