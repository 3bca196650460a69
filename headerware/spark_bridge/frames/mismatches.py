"""Values that do not fit a column or have no object, with their paths inside the row."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Mismatch(NamedTuple):
    """A value inside a row that does not fit, with its path, such as ``.items[3].price``.

    ``problem`` has the expected and the found type, and never the value.
    """

    path: str
    problem: str

    def at(self, step: str) -> Mismatch:
        """Return the same mismatch, seen from the enclosing value."""
        return Mismatch(step + self.path, self.problem)

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.') or 'the value'}: {self.problem}"


Built = tuple[pa.Array, dict[int, Mismatch]]
"""An array with an item per object, and mismatches by index; the array is valid if there are none."""


def mismatches_by_row(inner: Mapping[int, Mismatch], bounds: Sequence[int], step: str) -> dict[int, Mismatch]:
    """Return one mismatch of each row, from the mismatches of items of arrays or maps.

    ``bounds[row]`` is the offset of the row's first item; the last bound is the end. The keys of ``inner``
    are relative to ``bounds[0]``. ``step`` is the path before the item's index.
    """
    wrong: dict[int, Mismatch] = {}
    for item, mismatch in inner.items():
        row = bisect_right(bounds, item + bounds[0]) - 1
        wrong.setdefault(row, mismatch.at(f"{step}[{item + bounds[0] - bounds[row]}]"))
    return wrong
