"""Build an Arrow batch from the records of another batch: plain columns and typed columns.

A row whose objects do not fit their typed column fails alone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from headerware.core.batch import ArrowColumn, Batch
from headerware.core.errors import InterceptorError, SerdeError
from headerware.core.record import VERIFIED as FACTS
from headerware.core.record import Record, Verified
from headerware.spark_bridge.frames.arrow_types import arrow_type
from headerware.spark_bridge.frames.column_limits import single_chunk
from headerware.spark_bridge.frames.records import array_of, entries_of, header_column
from headerware.spark_bridge.frames.schema import COUNTS, RAW, SPARSE_COLUMNS, STATUS, VERIFIED, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    Computed = Mapping[str, Callable[[Sequence[Record]], pa.Array]]
    Refused = Callable[[InterceptorError, Record], dict[str, Any]]


_INEXACT: Final = frozenset({"headers", "timestamp"})
"""Columns that a record does not hold exactly: headers that are null, fractions of milliseconds."""
FLUSH_BYTES: Final = 64 << 20
"""The approximate size of values in one batch; an Arrow column of bytes holds 2 GiB at most."""
_MISMATCH_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


class OutputRows:
    """The rows of a new batch, in the order of calls of ``add`` and ``keep``.

    Columns other than the computed ones come from the source.
    """

    __slots__ = ("_schema", "_source", "extras", "indices", "kept", "records", "size_bytes")

    def __init__(self, source: pa.RecordBatch, schema: pa.Schema) -> None:
        self._source = source
        self._schema = schema
        self.indices: list[int]
        self.records: Any
        """A list, or a batch if all rows of the source have become one record each."""
        self.extras: dict[str, dict[int, Any]]
        self.kept: dict[int, None]
        self.size_bytes: int
        self.clear()

    def clear(self) -> None:
        """Forget the rows, once their batch is built."""
        self.indices = []
        self.records = []
        self.extras = {}
        self.kept = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.indices)

    def add(self, index: int, record: Record) -> None:
        """Add a row that comes from the row ``index`` of the source."""
        self.indices.append(index)
        self.records.append(record)
        value = record.value
        if value.__class__ is bytes:
            self.size_bytes += len(value)

    def take_all(self, records: Batch) -> bool:
        """Add a row for each row of the source; return False if their values are too many for one batch."""
        size_bytes = _size_bytes(records.values)
        if size_bytes > FLUSH_BYTES:
            return False
        self.indices, self.records, self.size_bytes = list(range(len(records))), records, size_bytes
        return True

    def take(
        self, results: Iterator[tuple[int, Any]], identities: Mapping[Any, Any]
    ) -> tuple[int, Any] | None:
        """Add rows as long as each result is one record, which is nearly always so.

        Stop at a result that is not a record, and at a record that was added but has an identity or fills the
        batch. Return its pair of row and result, which the caller handles; return None at the end.
        """
        add_index, add_record, size = self.indices.append, self.records.append, self.size_bytes
        for pair in results:
            index, record = pair
            if record.__class__ is not Record:
                break
            add_index(index)
            add_record(record)
            value = record.value
            if value.__class__ is bytes:
                size += len(value)
            if identities or size > FLUSH_BYTES:
                break
        else:
            pair = None
        self.size_bytes = size
        return pair

    def keep(self, index: int, record: Record, row: int = -1) -> None:
        """Add a row as it came, with exactly the source's headers and timestamp, or replace an added row."""
        if row < 0:
            row = len(self.indices)
            self.add(index, record)
        else:
            self.records[row] = record
        self.kept[row] = None

    def mark(self, extras: Mapping[str, Any], row: int = -1) -> None:
        """Set columns that only some rows have, of the last row that was added or of the given one."""
        at = row if row >= 0 else len(self.indices) - 1
        for name, value in extras.items():
            self.extras.setdefault(name, {})[at] = value

    def going(self) -> Sequence[Record]:
        """Return the records without those kept as they came."""
        if not self.kept:
            return cast("Sequence[Record]", self.records)
        return [record for row, record in enumerate(self.records) if row not in self.kept]

    def totals(self) -> tuple[int, int]:
        """Return the number of rows without those kept as they came, and the size of their values."""
        kept = (self.records[row].value for row in self.kept)
        kept_bytes = sum(len(value) for value in kept if value.__class__ is bytes)
        return len(self.indices) - len(self.kept), self.size_bytes - kept_bytes

    def batch(self, computed: Computed) -> pa.RecordBatch:
        """Build the batch; columns that are not computed come from the source, or are null but for extras."""
        is_unchanged = self.indices == list(range(self._source.num_rows))
        taken = None if is_unchanged else pa.array(self.indices, pa.int32())
        columns = [self._column(field, computed, taken) for field in self._schema]
        # Keep the types of the source: Spark needs an array whose elements are never null to remain so.
        return pa.RecordBatch.from_arrays(columns, names=self._schema.names)

    def _column(
        self,
        field: pa.Field,
        computed: Computed,
        taken: pa.Array | None,
    ) -> pa.Array:
        if field.name in self.extras:
            extras = self.extras[field.name]
            return pa.array([extras.get(row) for row in range(len(self.indices))], field.type)
        index = self._source.schema.get_field_index(field.name)
        if field.name in computed:
            made = single_chunk(computed[field.name](self.records))
            return self._as_it_came(made, index) if self.kept and field.name in _INEXACT else made
        if index < 0 or field.name in SPARSE_COLUMNS:  # an earlier status no longer holds
            return pa.nulls(len(self.indices), field.type)
        column = self._source.column(index)
        return column if taken is None else column.take(taken)

    def _as_it_came(self, made: pa.Array, index: int) -> pa.Array:
        """Put the source's values into the rows that are kept."""
        if index < 0:
            return made
        indices = pa.array([self.indices[row] for row in self.kept], pa.int32())
        came = self._source.column(index).take(indices).cast(made.type)
        chosen = list(range(len(made)))
        for index_of_kept, row in enumerate(self.kept, len(made)):
            chosen[row] = index_of_kept
        return pa.concat_arrays([made, came]).take(pa.array(chosen, pa.int32()))


class TypedRows:
    """Turn rows into columns, including those that hold objects."""

    def __init__(self, typed: frozenset[str], schema: pa.Schema) -> None:
        self._types = {name: schema.field(name).type for name in sorted(typed)}
        self._says_status = STATUS in schema.names

    def without_objects(self, record: Record) -> Record:
        """Return a record, whose parts are bytes, with None for typed columns."""
        return record.replace(**dict.fromkeys(self._types)) if self._types else record

    def raw(self, record: Record) -> dict[str, Any]:
        """Return the bytes of a row that is read again later, as an extra, if its own columns are typed."""
        return {RAW: {"key": record.key, "value": record.value}} if self._types else {}

    def batch(
        self, rows: OutputRows, computed: Computed, originals: Sequence[Record], refused: Refused
    ) -> pa.RecordBatch:
        """Build a batch; rows that do not fit become failures, which ``refused`` returns, or raises."""
        computed = {**computed, **self.columns(rows, originals, refused)}
        try:
            return rows.batch(computed)
        except _MISMATCH_ERRORS:
            # Nearly always all rows fit; only now look at them one by one.
            rows.records = list(rows.records)
            plain = {name: make for name, make in computed.items() if name not in self._types}
            for row, name in list(_unfit_rows(rows.records, plain)):
                original = originals[rows.indices[row]]
                error = InterceptorError(
                    f"the chain returned a {name} that does not fit its column; key and value are bytes, or "
                    "objects where a step serializes them and the column has a type"
                ).at("chain", original)
                self._fail(rows, row, error, original, refused)
            return rows.batch({**computed, **self.columns(rows, originals, refused)})

    def columns(
        self,
        rows: OutputRows,
        originals: Sequence[Record],
        refused: Refused,
    ) -> dict[str, Callable[[Sequence[Record]], pa.Array]]:
        """Return the typed columns; rows that do not fit become failures."""
        if not self._types:
            return {}
        from headerware.spark_bridge.frames.typed_columns import column  # noqa: PLC0415 - not for frames of bytes

        made = {}
        for name, kind in self._types.items():
            array, problems = column([getattr(record, name) for record in rows.records], kind)
            made[name] = array
            for row, problem in problems.items():
                original = originals[rows.indices[row]]
                error = SerdeError(f"the {name} does not fit its column: {problem}")
                error.part = name  # type: ignore[assignment]  # key or value
                self._fail(rows, row, error.at("serialize", original), original, refused)
        if "failure" in rows.extras:
            # A row that failed in one part is null in the other, too.
            failed = rows.extras["failure"]
            made = {name: _without(array, failed) for name, array in made.items()}
        return {name: _constant(array) for name, array in made.items()}

    def _fail(
        self,
        rows: OutputRows,
        row: int,
        error: InterceptorError,
        original: Record,
        refused: Refused,
    ) -> None:
        rows.mark({"failure": refused(error, original)}, row)
        rows.keep(rows.indices[row], self.without_objects(original), row)
        if self._says_status:
            rows.mark({STATUS: Status.FAILED}, row)


def keys(records: Sequence[Record]) -> pa.Array:
    """Return the keys as a column of bytes."""
    return array_of(entries_of(records, "key"), pa.binary())


def values(records: Sequence[Record]) -> pa.Array:
    """Return the values as a column of bytes."""
    return array_of(entries_of(records, "value"), pa.binary())


def headers(records: Sequence[Record]) -> pa.Array:
    """Return the headers as a column."""
    return header_column(entries_of(records, "headers"))


def topics(records: Sequence[Record]) -> pa.Array:
    """Return the topics as a column."""
    if isinstance(records, Batch):
        return pa.repeat(pa.scalar(records.topic, pa.string()), len(records))
    return pa.array([record.topic for record in records], pa.string())


def partitions(records: Sequence[Record]) -> pa.Array:
    """Return the partitions as a column."""
    return array_of(entries_of(records, "partition"), pa.int32())


def timestamps(records: Sequence[Record]) -> pa.Array:
    """Return the timestamps as a column of microseconds in UTC."""
    stamps = [None if record.timestamp_ms is None else record.timestamp_ms * 1000 for record in records]
    return pa.array(stamps, pa.int64()).cast(pa.timestamp("us", "UTC"))


def verified(records: Sequence[Record]) -> pa.Array:
    """Return what the signatures of verified records say, as a column of structs."""
    found = (None if local is None else local.get(FACTS) for local in entries_of(records, "local"))
    return pa.array([None if facts is None else _verified(facts) for facts in found], _verified_type())


@cache
def _verified_type() -> Any:
    """Return the type of the column; a function, so that this module can be imported without pyarrow."""
    return arrow_type(VERIFIED)


def _verified(facts: Verified) -> dict[str, Any]:
    return {
        "signed_at": facts.signed_at_ms * 1000,
        **{field.name: getattr(facts, field.name) for field in _verified_type() if field.name != "signed_at"},
    }


def resolve_schema(schema: pa.Schema, source: pa.Schema, computed: Collection[str]) -> pa.Schema:
    """Return a schema with the types of the source for the columns that are copied.

    All batches of a task must have one schema, wherever their columns come from.
    """
    return pa.schema([
        field
        if field.name in computed or source.get_field_index(field.name) < 0
        else pa.field(field.name, source.field(field.name).type)
        for field in schema
    ])  # fmt: skip


def position_rows(
    schema: pa.Schema, records: Sequence[Record], constants: Mapping[str, Any]
) -> pa.RecordBatch:
    """Return rows that have only a position and some constants."""
    known = {
        "topic": topics(records),
        "partition": partitions(records),
        "offset": pa.array([record.offset for record in records], pa.int64()),
    }
    columns = []
    for field in schema:
        if field.name in known:
            columns.append(known[field.name])
        elif field.name in constants:
            columns.append(pa.array([constants[field.name]] * len(records), field.type))
        else:
            columns.append(pa.nulls(len(records), field.type))
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def counts_row(schema: pa.Schema, text: str) -> pa.RecordBatch:
    """Return a row that has only the counts of a task."""
    constants = {COUNTS: text, STATUS: Status.COUNTS}
    columns = [pa.array([constants.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _constant(array: pa.Array) -> Callable[[Sequence[Record]], pa.Array]:
    return lambda _: array


def _unfit_rows(
    records: Sequence[Record], computed: Mapping[str, Callable[[Sequence[Record]], pa.Array]]
) -> Iterator[tuple[int, str]]:
    """Return the rows that do not fit a column, and the first such column of each."""
    for row, record in enumerate(records):
        for name, make in computed.items():
            try:
                make([record])
            except _MISMATCH_ERRORS:
                yield row, name
                break


def _without(array: pa.Array, rows: dict[int, Any]) -> pa.Array:
    indices = [None if row in rows else row for row in range(len(array))]
    return array.take(pa.array(indices, pa.int64()))


def _size_bytes(values: Sequence[Any]) -> int:
    if isinstance(values, ArrowColumn):
        return pc.sum(pc.binary_length(values.array)).as_py() or 0
    return sum(len(value) for value in values if value.__class__ is bytes)
