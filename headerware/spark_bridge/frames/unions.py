"""Spark's form of a union: a struct with one nullable field per member, of which at most one is not null."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def is_union(kind: pa.StructType) -> bool:
    """Return whether a struct is a union: its fields are ``member0``, ``member1``, ..., all nullable."""
    fields = fields_of(kind)
    return named_as_union([field.name for field in fields]) and all(field.nullable for field in fields)


def named_as_union(names: Sequence[str]) -> bool:
    """Return whether fields are named like the members of a union."""
    return len(names) > 1 and all(name == f"member{index}" for index, name in enumerate(names))


def fields_of(kind: pa.StructType) -> list[pa.Field]:
    """Return a struct's fields."""
    return [kind.field(index) for index in range(kind.num_fields)]
