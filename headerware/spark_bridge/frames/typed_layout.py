"""Code for both directions between objects and columns: limits, unions, and errors with their paths."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_DEPTH: Final = 128
"""How deep a column's type may nest, as Avro schemas may by default."""
MAX_COLUMNS: Final = 10_000
"""How many columns a schema may define, nested ones included."""
_BATCH_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Misfit(NamedTuple):
    """A value inside a row that does not fit, with its path, such as ``.items[3].price``.

    ``problem`` has the expected and the found type, and never the value.
    """

    path: str
    problem: str

    def within(self, step: str) -> Misfit:
        """Return the same misfit, seen from the enclosing value."""
        return Misfit(step + self.path, self.problem)

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.') or 'the value'}: {self.problem}"


Built = tuple[pa.Array, dict[int, Misfit]]
"""An array with an item per object, and misfits by index; the array is valid if there are none."""


def misfits_by_row(inner: Mapping[int, Misfit], bounds: Sequence[int], step: str) -> dict[int, Misfit]:
    """Return the first misfit of each row, from the misfits of items of arrays or maps.

    Items are counted from the first bound; ``bounds`` has where each row's items begin, and the last end.
    ``step`` is the path before the item's index.
    """
    wrong: dict[int, Misfit] = {}
    for item, misfit in inner.items():
        row = bisect_right(bounds, item + bounds[0]) - 1
        wrong.setdefault(row, misfit.within(f"{step}[{item + bounds[0] - bounds[row]}]"))
    return wrong


def scatter(array: pa.Array, places: Sequence[int], length: int) -> pa.Array:
    """Put an array's items at the given places of a longer array; the other places are null."""
    indices: list[int | None] = [None] * length
    for index, place in enumerate(places):
        indices[place] = index
    return array.take(pa.array(indices, pa.int64()))


def single_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; refuse one of more than 2 GiB, which Arrow has divided."""
    if isinstance(array, pa.ChunkedArray):
        raise ConfigError("a column of one batch passes 2 GiB; set it to fewer records", path=_BATCH_OPTION)
    return array


def is_union(kind: pa.StructType) -> bool:
    """Return whether a struct is a union as Spark has it: ``member0``, ``member1``, ..., all nullable."""
    fields = fields_of(kind)
    return named_as_union([field.name for field in fields]) and all(field.nullable for field in fields)


def named_as_union(names: Sequence[str]) -> bool:
    """Return whether fields are named like the members of a union."""
    return len(names) > 1 and all(name == f"member{index}" for index, name in enumerate(names))


def fields_of(kind: pa.StructType) -> list[pa.Field]:
    """Return a struct's fields."""
    return [kind.field(index) for index in range(kind.num_fields)]


def unsupported_type(kind: pa.DataType) -> ConfigError:
    """Return the error for a type that columns do not have."""
    return ConfigError(
        f"objects do not fit a column of the Arrow type {kind}; use a type that avro_type or json_type "
        "returns"
    )
