"""Rows on their way out into columns of one type each: a row that does not fit fails alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headerware.core.errors import InterceptorError, SerdeError
from headerware.spark_bridge.frames.schema import RAW, STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headerware.core.record import Record
    from headerware.spark_bridge.frames.output import Computed, Rows

    Refused = Callable[[InterceptorError, Record], dict[str, Any]]

_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


class TypedRows:
    """Turn rows into columns, those that hold objects included.

    Args:
        typed: the parts (key, value) that hold objects.
        schema: that of the frame that goes on.
    """

    def __init__(self, typed: frozenset[str], schema: pa.Schema) -> None:
        self._types = {name: schema.field(name).type for name in sorted(typed)}
        self._says_status = STATUS in schema.names

    def without_objects(self, record: Record) -> Record:
        """Return a record that leaves typed columns null, for what it holds are bytes."""
        return record.replace(**dict.fromkeys(self._types)) if self._types else record

    def raw(self, record: Record) -> dict[str, Any]:
        """Return the extra columns of a row that is to be read again, where its own are typed."""
        return {RAW: {"key": record.key, "value": record.value}} if self._types else {}

    def batch(
        self, rows: Rows, computed: Computed, originals: Sequence[Record], refused: Refused
    ) -> pa.RecordBatch:
        """Return rows as a batch; those that do not fit become failures.

        Args:
            rows: the rows.
            computed: the columns that are made from the records, but for those that hold objects.
            originals: the records that they come from, by index.
            refused: gives the failure of an original, or raises.
        """
        computed = {**computed, **self.columns(rows, originals, refused)}
        try:
            return rows.batch(computed)
        except _MISFITS:
            # Looked for one by one only now, for nearly always all of them fit.
            plain = {name: make for name, make in computed.items() if name not in self._types}
            for row, name in list(_misfits(rows.records, plain)):
                original = originals[rows.indices[row]]
                error = InterceptorError(
                    f"the chain gave a {name} that does not fit its column; key and value are bytes, or "
                    "objects where a step serializes them and the column has a type"
                ).at("chain", original)
                self._fail(rows, row, error, original, refused)
            return rows.batch({**computed, **self.columns(rows, originals, refused)})

    def columns(
        self,
        rows: Rows,
        originals: Sequence[Record],
        refused: Refused,
    ) -> dict[str, Callable[[Sequence[Record]], pa.Array]]:
        """Return the typed columns of rows; those that do not fit become failures.

        Args:
            rows: the rows.
            originals: the records that they come from, by index.
            refused: gives the failure of an original, or raises.
        """
        if not self._types:
            return {}
        from headerware.spark_bridge.frames.typed import column  # noqa: PLC0415 - not for frames of bytes

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
            # What failed in one part has null in the other, too.
            failed = rows.extras["failure"]
            made = {name: _without(array, failed) for name, array in made.items()}
        return {name: _constant(array) for name, array in made.items()}

    def _fail(
        self,
        rows: Rows,
        row: int,
        error: InterceptorError,
        original: Record,
        refused: Refused,
    ) -> None:
        rows.mark({"failure": refused(error, original)}, row)
        rows.keep(rows.indices[row], self.without_objects(original), row)
        if self._says_status:
            rows.mark({STATUS: Status.FAILED}, row)


def _constant(array: pa.Array) -> Callable[[Sequence[Record]], pa.Array]:
    return lambda _: array


def _misfits(
    records: Sequence[Record], computed: Mapping[str, Callable[[Sequence[Record]], pa.Array]]
) -> Iterator[tuple[int, str]]:
    """Return the rows that have no place in a column, and the first such column of each."""
    for row, record in enumerate(records):
        for name, make in computed.items():
            try:
                make([record])
            except _MISFITS:
                yield row, name
                break


def _without(array: pa.Array, rows: dict[int, Any]) -> pa.Array:
    places = [None if row in rows else row for row in range(len(array))]
    return array.take(pa.array(places, pa.int64()))
