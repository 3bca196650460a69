"""What the two ways between objects and columns share: which types there are, and how parts lie in wholes."""

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
"""How many columns a schema may stand for, those inside of others included; by policy."""
_BATCH_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Misfit(NamedTuple):
    """Where in a row something does not fit, and why.

    Attributes:
        path: the place inside the row's value, such as ``.items[3].price``; empty for the value itself.
        problem: what was expected and what was found; never the value.
    """

    path: str
    problem: str

    def within(self, step: str) -> Misfit:
        """Return the same as seen from one level further out."""
        return Misfit(step + self.path, self.problem)

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.') or 'the value'}: {self.problem}"


Built = tuple[pa.Array, dict[int, Misfit]]
"""As many places as there were objects, and what is wrong at which; the array counts where nothing is."""


def placed(inner: Mapping[int, Misfit], bounds: Sequence[int], step: str) -> dict[int, Misfit]:
    """Say of items of arrays or maps in which row they stand; the first of each row counts.

    Args:
        inner: what is wrong with which item, counted from the first bound.
        bounds: where each row's items begin, and the last one's end.
        step: what the path has before the item's number in its row.
    """
    wrong: dict[int, Misfit] = {}
    for item, misfit in inner.items():
        row = bisect_right(bounds, item + bounds[0]) - 1
        wrong.setdefault(row, misfit.within(f"{step}[{item + bounds[0] - bounds[row]}]"))
    return wrong


def spread(array: pa.Array, places: Sequence[int], length: int) -> pa.Array:
    """Put an array's items to places of a longer one, in this order; the others are null."""
    indices: list[int | None] = [None] * length
    for index, place in enumerate(places):
        indices[place] = index
    return array.take(pa.array(indices, pa.int64()))


def whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column that is in one piece.

    Raises:
        ConfigError: Arrow had to divide it, for it holds more than 2 GiB.
    """
    if isinstance(array, pa.ChunkedArray):
        raise ConfigError("a column of one batch passes 2 GiB; set it to fewer records", path=_BATCH_OPTION)
    return array


def is_union(kind: pa.StructType) -> bool:
    """Return whether a struct is what Spark makes of a union: ``member0``, ``member1``, ..., all nullable."""
    fields = fields_of(kind)
    return named_as_union([field.name for field in fields]) and all(field.nullable for field in fields)


def named_as_union(names: Sequence[str]) -> bool:
    """Return whether fields are called as the members of a union are."""
    return len(names) > 1 and all(name == f"member{index}" for index, name in enumerate(names))


def fields_of(kind: pa.StructType) -> list[pa.Field]:
    """Return a struct's fields."""
    return [kind.field(index) for index in range(kind.num_fields)]


def refused(kind: pa.DataType) -> ConfigError:
    """Say that there is no column of a type."""
    return ConfigError(
        f"objects have no column of the Arrow type {kind}; take those that avro_type and json_type give"
    )
