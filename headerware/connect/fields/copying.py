"""Copy a struct's values for another schema: by index, with defaults, no null where there may be none."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from headerware.connect.data.schema import Field, Schema
    from headerware.connect.modes import Mode

Copy = Callable[[list[Any]], list[Any]]
"""Gives a new list of values of an old one."""


def copier(
    sources: Sequence[Field],
    targets: Sequence[Schema],
    *,
    mode: Mode,
    with_default: bool,
    unchecked: Container[int] = (),
) -> Copy:
    """Return a function that copies a struct's values.

    Args:
        sources: the fields to copy, in the order of what comes out.
        targets: the schemas that the values are for, likewise.
        mode: see :func:`may_be_null`.
        with_default: whether a null becomes its field's default.
        unchecked: the places where null is no matter, since something else comes there.
    """
    pick = picker([field.index for field in sources])
    watched: list[tuple[int, Any, bool, str]] = []
    for at, (field, target) in enumerate(zip(sources, targets, strict=True)):
        default = field.schema.default if with_default else None
        checked = at not in unchecked and not may_be_null(target, mode)
        if checked or default is not None:
            watched.append((at, default, checked, field.name))
    if not watched:
        return pick

    def copy(values: list[Any]) -> list[Any]:
        made = pick(values)
        if None in made:
            for at, default, checked, name in watched:
                if made[at] is None:
                    if default is None and checked:
                        raise null_in_required(name)
                    made[at] = default
        return made

    return copy


def picker(indices: Sequence[int]) -> Copy:
    """Return a function that makes a list of some values."""
    if len(indices) > 1:
        get = itemgetter(*indices)
        return lambda values: list(get(values))
    return lambda values: [values[at] for at in indices]


def may_be_null(schema: Schema, mode: Mode) -> bool:
    """Whether null is a value of a field; where a default stands for it, strict keeps it, Kafka does not."""
    return schema.optional or (mode == STRICT and schema.default is not None)


def null_in_required(name: str) -> ConnectDataError:
    """Make the error for a null where there may be none."""
    return ConnectDataError(f"expected a value for the required field {name!r}, found null")
