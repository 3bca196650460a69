"""Typed columns of rows on their way out: a row whose object does not fit its column fails alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headerware.core.errors import SerdeError
from headerware.spark_bridge.frames.schema import RAW, STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from headerware.core.record import Record
    from headerware.spark_bridge.frames.output import Rows


class TypedRows:
    """Turn the objects of rows into columns.

    Args:
        typed: the parts (key, value) that hold objects.
        schema: that of the frame that goes on.
    """

    def __init__(self, typed: frozenset[str], schema: pa.Schema) -> None:
        self._types = {name: schema.field(name).type for name in sorted(typed)}
        self._says_status = STATUS in schema.names

    def without_objects(self, record: Record) -> Record:
        """Give a record that leaves typed columns null, for what it holds are bytes."""
        return record.replace(**dict.fromkeys(self._types)) if self._types else record

    def raw(self, record: Record) -> dict[str, Any]:
        """Give the extra columns of a row that is to be read again, where its own are typed."""
        return {RAW: {"key": record.key, "value": record.value}} if self._types else {}

    def columns(
        self,
        rows: Rows,
        originals: Sequence[Record],
        refused: Callable[[SerdeError, Record], dict[str, Any]],
    ) -> dict[str, Callable[[Sequence[Record]], pa.Array]]:
        """Give the typed columns of rows; those that do not fit become failures.

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
                self._fail(rows, row, name, problem, originals, refused)
        if "failure" in rows.extras:
            # What failed in one part has null in the other, too.
            failed = rows.extras["failure"]
            made = {name: _without(array, failed) for name, array in made.items()}
        return {name: _constant(array) for name, array in made.items()}

    def _fail(
        self,
        rows: Rows,
        row: int,
        name: str,
        problem: str,
        originals: Sequence[Record],
        refused: Callable[[SerdeError, Record], dict[str, Any]],
    ) -> None:
        original = originals[rows.indices[row]]
        error = SerdeError(f"the {name} does not fit its column: {problem}")
        error.part = name  # type: ignore[assignment]  # key or value
        error.at("serialize", original)
        rows.mark({"failure": refused(error, original)}, row)
        rows.records[row] = self.without_objects(original)
        if self._says_status:
            rows.mark({STATUS: Status.FAILED}, row)


def _constant(array: pa.Array) -> Callable[[Sequence[Record]], pa.Array]:
    return lambda _: array


def _without(array: pa.Array, rows: dict[int, Any]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - as the annotations have it

    places = [None if row in rows else row for row in range(len(array))]
    return array.take(pa.array(places, pa.int64()))
