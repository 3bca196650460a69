"""Native steps make of the columns of a frame what Python makes of them, on the executors of Spark."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headerware import Chain, Headers, Record
from headerware.core import native, runner
from headerware.core.batch import ArrowColumn, Batch
from headerware.interceptors import Compress, Dedup, Encrypt, HeaderIds, Lineage, Sign, Slice, Trail
from headerware.keyring.services import FileKeys
from headerware.spark_bridge.chain_source import ChainSource, TaskSpec
from headerware.spark_bridge.executors import open_chain
from headerware.spark_bridge.executors.decoding import decode_rows
from headerware.spark_bridge.executors.encoding import encode
from headerware.spark_bridge.frames.records import header_column
from headerware.spark_bridge.frames.schema import (
    FAILURE,
    HEADERS,
    IDENTITY,
    VERIFIED,
    with_columns,
    with_status,
)
from tests.native.test_equal import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NOW = 1_760_000_000_000
ROWS = 120
COLUMNS = StructType([
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
    StructField("headers", HEADERS),
    StructField("own", StringType()),
])  # fmt: skip
PAIR = [("key", pa.string()), ("value", pa.binary())]
OF_SPARK = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string(), nullable=False), PAIR[1]]), nullable=False)
)
LARGE = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))


@pytest.fixture(autouse=True)
def _steady() -> Iterator[None]:
    """Let all tasks have one time, and all sessions one producer id."""
    with (
        patch.object(open_chain, "wall_clock_ms", lambda: NOW),
        patch("headerware.core.dead_letter._stacktrace", return_value="a line"),
        patch("os.urandom", bytes),
    ):
        yield


def plain(draw: random.Random, topic: str = "t") -> Record:
    """Return a record as an application sends it."""
    names = draw.sample(["a", "b", "c", "content-type"], draw.randrange(4))
    headers = Headers((name, draw.choice([None, b"", b"1"])) for name in names)
    value = draw.choice([None, b"", b"x" * 900, draw.randbytes(40), b"%d" % draw.randrange(9) * 70])
    return Record(topic, value, draw.choice([None, b"", b"key"]), headers)


def changed(draw: random.Random, record: Record) -> Record:
    """Return a record in which somebody changed a part."""
    headers = list(record.headers)
    at = draw.randrange(len(headers))
    match draw.randrange(6):
        case 0:
            return record.replace(value=b"forged")
        case 1:
            return record.replace(key=b"forged")
        case 2:
            return record.with_headers(Headers())
        case 3:
            return record.with_headers(Headers(headers[:at] + headers[at + 1 :]))
        case 4:
            return record.with_headers(Headers([*headers, ("later", b"1")]))
        case _:
            headers[at] = headers[at][0], b"forged"
            return record.with_headers(Headers(headers))


def frame(draw: random.Random, records: Sequence[Record], *, large: bool = False) -> pa.RecordBatch:
    """Return records as rows of a frame: whole or sliced arrays, of the types of pyarrow or of Spark."""
    before, after = (draw.sample(list(records), min(draw.randrange(3), len(records))) for _ in range(2))
    rows = [*before, *records, *after]
    kind = pa.large_binary() if large else pa.binary()
    headers = header_column([record.headers for record in rows])
    headers = headers.cast(LARGE if large else draw.choice([OF_SPARK, headers.type]))
    batch = pa.RecordBatch.from_pydict({
        "key": pa.array([record.key for record in rows], kind),
        "value": pa.array([record.value for record in rows], kind),
        "topic": pa.array([record.topic for record in rows], pa.large_string() if large else pa.string()),
        "partition": pa.array([0] * len(rows), pa.int32()),
        "offset": pa.array(range(len(rows)), pa.int64()),
        "timestamp": pa.array([-1 - at for at in range(len(rows))], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * len(rows), pa.int32()),
        "headers": headers,
        "own": pa.array([f"own-{at}" for at in range(len(rows))]),
    })  # fmt: skip
    return batch.slice(len(before), len(records))


def with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)


class WatchedArrays(Watched):
    """How many records native code was given as arrays, and how many it took."""

    def count(self, batch: Batch, out: Batch | None) -> None:
        if all(isinstance(column, ArrowColumn) for column in (batch.values, batch.keys, batch.headers)):
            super().count(batch, out)
            assert out is None or isinstance(out.headers, ArrowColumn)


def compare(task: Callable[[], Any], batches: Sequence[pa.RecordBatch]) -> WatchedArrays:
    """Compare the columns that a task makes with native code and without, and what it counts."""

    def made() -> tuple[pa.Table, Any]:
        open_chain._open_chains.clear()
        found = list(task()(iter(batches)))
        (opened,) = open_chain._open_chains.values()
        return pa.Table.from_batches(found), opened.session.stats()

    watched = WatchedArrays()
    with watched.watching():
        mine, counts = made()
    with patch.object(runner, "native_module", return_value=(None, "off")):
        theirs, expected = made()
    assert mine.schema == theirs.schema
    mine.validate()
    assert [name for name in mine.schema.names if not mine[name].equals(theirs[name])] == []
    for name, counted in expected.items():
        # For data keys, a batch asks together, and single hooks do not.
        different = dict(counts[name].items() ^ counted.items())
        assert [count for count in different if not count.startswith("data_keys_")] == [], name
    return watched


def decoding(
    steps: Callable[[], list[Any]], *, reassembles: bool = False, **columns: DataType
) -> Callable[[], Any]:
    schema = with_columns(COLUMNS, failure=FAILURE, **columns)
    schema = with_status(schema, typed=False) if reassembles else schema

    def task() -> Any:
        spec = TaskSpec(
            source=ChainSource(chain=Chain(steps())),
            side="consumer",
            job="job",
            failures="route",
            schema=schema.json(),
            verified="verified" in columns,
        )
        return decode_rows(pickle.dumps(spec), pickle.dumps(None), pickle.dumps(reassembles))

    return task


def sent(draw: random.Random, steps: Sequence[Any], topics: Sequence[str] = ("t",)) -> list[Record]:
    with Chain(list(steps)).open() as session:
        return [
            record for topic in topics for record in session.send([plain(draw, topic) for _ in range(ROWS)])
        ]


class TestDecode:
    @pytest.mark.parametrize("large", [False, True])
    @pytest.mark.parametrize("on_error", ["raise", "drop", "dead_letter"])
    def test_rows(self, keyring: str, on_error: Any, large: bool) -> None:  # noqa: FBT001 - a parameter
        def steps() -> list[Any]:
            sign = Sign(keyring=keyring, key_id="hmac", require="enforce", on_error=on_error)
            return [Trail(service="s"), Compress(on_error=on_error), sign]

        draw = random.Random(1)
        good = sent(draw, steps())
        batches = [frame(draw, good[:0])]
        for number in range(12):
            share = 0.1 if number % 2 else 0.0
            rows = [changed(draw, each) if draw.random() < share else each for each in good]
            batches.append(frame(draw, rows, large=large))
        watched = compare(decoding(steps, verified=VERIFIED), batches)
        assert watched.taken > 0.8 * watched.given > 0

    def test_nulls_and_odd_headers(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Trail(), Compress(), Sign(keyring=keyring, key_id="hmac", require="off")]

        draw = random.Random(2)
        good = frame(draw, sent(draw, steps()))
        pairs = good.column("headers").cast(pa.list_(pa.struct(PAIR))).to_pylist()
        text = pa.array([b"\xff"] * ROWS, pa.binary()).view(pa.string())
        one = pa.StructArray.from_arrays([text, pa.array([b"1"] * ROWS)], ["key", "value"])
        odd = [
            pa.array(
                [None if at % 9 == 0 else own for at, own in enumerate(pairs)], pa.list_(pa.struct(PAIR))
            ),
            pa.array([[{"key": None, "value": b"1"}, *own] for own in pairs], pa.list_(pa.struct(PAIR))),
            pa.array([[None, *own] for own in pairs], pa.list_(pa.struct(PAIR))),
            pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), one),
        ]
        texts = pa.array([b"\xff" if at == 7 else b"t" for at in range(ROWS)], pa.binary()).view(pa.string())
        topics = [pa.array([None if at % 50 == 7 else "t" for at in range(ROWS)]), texts]
        batches = [
            good,
            *(with_column(good, "headers", headers) for headers in odd),
            *(with_column(good, "topic", topic) for topic in topics),
            with_column(good, "key", pa.array(["text"] * ROWS)),
            good,
        ]
        watched = compare(decoding(steps), batches)
        assert 0 < watched.taken < watched.given < ROWS * len(batches)

    def test_topics(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Trail(), Compress(), Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(3)
        runs = sent(draw, steps(), ("t", "u", "v"))
        mixed = list(runs)
        draw.shuffle(mixed)
        batches = [frame(draw, runs), frame(draw, mixed), frame(draw, runs), frame(draw, runs[:5])]
        watched = compare(decoding(steps), batches)
        assert watched.given == 2 * len(runs)
        assert watched.taken == len(runs)

    def test_slices(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Trail(), Compress(), Slice(max_bytes=1_000), Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(4)
        good = sent(draw, steps())
        with Chain(steps()).open() as session:
            sliced = session.send([Record("t", draw.randbytes(3_000))])
        batches = [frame(draw, good), frame(draw, [*good, *sliced]), frame(draw, good)]
        watched = compare(decoding(steps, reassembles=True), batches)
        assert watched.taken >= ROWS

    def test_identities(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Compress(), Dedup(), Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(5)
        good = sent(draw, steps())
        columns: Any = {IDENTITY: BinaryType()}
        watched = compare(decoding(steps, **columns), [frame(draw, good) for _ in range(3)])
        assert watched.taken

    def test_encrypted(self, keyring: str) -> None:
        def steps() -> list[Any]:
            encrypt = Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes")
            return [Trail(), Compress(), encrypt, Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(6)
        good = sent(draw, steps())
        assert compare(decoding(steps), [frame(draw, good) for _ in range(4)]).taken >= 2 * ROWS

    @pytest.mark.parametrize("form", ["packed", "keys"])
    def test_header_ids(self, keyring: str, form: Any) -> None:
        def steps() -> list[Any]:
            return [Trail(), Compress(), Sign(keyring=keyring, key_id="hmac"), HeaderIds(form=form)]

        draw = random.Random(9)
        good = sent(draw, steps())
        assert compare(decoding(steps), [frame(draw, good) for _ in range(3)]).taken >= 2 * ROWS

    def test_counted_topics(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Lineage(), Trail(), Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(7)
        good = sent(draw, steps())
        assert compare(decoding(steps), [frame(draw, good) for _ in range(3)]).taken

    def test_values_that_do_not_change_are_the_same_bytes(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(8)
        batch = frame(draw, sent(draw, steps()))
        first, second = decoding(steps)()(iter([batch, batch]))
        assert first.column("value") == batch.column("value")
        assert second.column("value").buffers()[2].address == batch.column("value").buffers()[2].address

    def test_values_of_many_megabytes(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Compress(), Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(9)
        with Chain(steps()).open() as session:
            values = [bytes(5_000_000), draw.randbytes(700_000)] * 10
            large = session.send([Record("t", value) for value in values])
        small = sent(draw, steps())
        watched = compare(decoding(steps), [frame(draw, small), frame(draw, large), frame(draw, small)])
        assert watched.taken == len(large) + ROWS


class TestEncode:
    SCHEMA = with_columns(COLUMNS, failure=FAILURE)

    def task(self, steps: Callable[[], list[Any]]) -> Callable[[], Any]:
        def task() -> Any:
            spec = TaskSpec(
                source=ChainSource(chain=Chain(steps())),
                side="producer",
                job="job",
                failures="route",
                schema=self.SCHEMA.json(),
            )
            return encode(pickle.dumps(spec), *map(pickle.dumps, (None, {}, {})))

        return task

    @pytest.mark.parametrize("large", [False, True])
    def test_rows(self, keyring: str, large: bool) -> None:  # noqa: FBT001 - a parameter
        def steps() -> list[Any]:
            return [Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(11)
        odd = [Headers([(name, b"1")]) for name in ("hw.sig", "hw.x", "a\0", "~A")]
        batches = []
        for number in range(8):
            rows = [plain(draw) for _ in range(ROWS)]
            if number % 3 == 2:
                rows = [row.with_headers(draw.choice(odd)) if draw.random() < 0.1 else row for row in rows]
            batches.append(frame(draw, rows, large=large))
        watched = compare(self.task(steps), batches)
        assert watched.taken >= 3 * ROWS

    @pytest.mark.parametrize("form", ["packed", "keys"])
    def test_header_ids(self, form: Any) -> None:
        draw = random.Random(13)
        some = [Headers([("a", None), (name, b""), ("b", b"1")]) for name in ("9.9.9.9", "tenant", "c")]
        rows = [plain(draw).with_headers(draw.choice(some)) for _ in range(ROWS)]
        steps = [Trail(service="s"), HeaderIds(form=form)]
        watched = compare(self.task(lambda: steps), [frame(draw, rows) for _ in range(3)])
        assert watched.taken >= 2 * ROWS

    def test_frames_without_headers_keys_or_partitions(self, keyring: str) -> None:
        def steps() -> list[Any]:
            return [Trail(service="s"), Compress(), Sign(keyring=keyring, key_id="hmac")]

        draw = random.Random(12)
        values = pa.array(["text" * at for at in range(ROWS)])
        batch = pa.RecordBatch.from_pydict({"topic": ["t"] * ROWS, "value": values})
        compare(
            self.task(steps),
            [batch, frame(draw, [plain(draw) for _ in range(ROWS)]).select(batch.schema.names)],
        )


def test_arrays_of_other_types_are_left_to_python() -> None:
    module, found = native.native_module()
    assert module is not None, found
    run = module.Run("t", [("decompress", (9, []))], measured=False)
    values, headers = pa.array([b"1"]), header_column([Headers()])
    assert run.take_arrow(values, values, headers, [[]])[0] == []
    assert run.take_arrow(values, values, values, [[]]) is None
    assert run.take_arrow(pa.array([1]), values, headers, [[]]) is None
    assert run.take_arrow(values, pa.array([b"1", b"2"]), headers, [[]]) is None
    with pytest.raises(ValueError, match="__arrow_c"):
        run.take_arrow([b"1"], values, headers, [[]])
