"""Objects become Arrow arrays, a column at a time; what does not fit is told with its row and its place.

Arrow itself takes a list of dicts, but says nothing of a field that is missing, takes text for bytes and
true for 1, and gives up the whole batch for one row. So dicts are taken apart field by field, each field is
one call of Arrow, and only a column whose objects are not all of its own class is looked at one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from headerware.core.errors import ConfigError
from headerware.spark_bridge.frames.typed_layout import (
    MAX_DEPTH,
    Built,
    Misfit,
    fields_of,
    is_union,
    placed,
    refused,
    spread,
)
from headerware.spark_bridge.frames.typed_scalars import MisfitError, ScalarColumn, scalar_of, unfit


class Node(Protocol):
    """A type of column."""

    def build(self, objects: list[Any]) -> Built:
        """Put objects into an array; None is null."""
        ...

    def is_own(self, value: Any) -> bool:
        """Return whether this is what a union's object of exactly this type looks like."""
        ...

    def may_take(self, value: Any) -> bool:
        """Return whether an object of a union can be put in here, though it looks like another's."""
        ...


@lru_cache(maxsize=64)
def node_of(kind: pa.DataType) -> Node:
    """Make the type of column that an Arrow type stands for; those asked for lately are remembered.

    Raises:
        ConfigError: it is, or holds, a type that Spark's columns do not have here, or nests too deep.
    """
    return _node(kind, 0)


class _Compound(ABC):
    """What structs, arrays and maps have in common: objects of one class, among them nulls and others."""

    name: str
    own: type

    def __init__(self, kind: pa.DataType) -> None:
        self.kind: Final = kind

    def build(self, objects: list[Any]) -> Built:
        if set(map(type, objects)) <= {self.own}:
            return self.assemble(objects)
        places: list[int] = []
        present: list[Any] = []
        wrong: dict[int, Misfit] = {}
        for place, value in enumerate(objects):
            if value is None:
                continue
            try:
                present.append(self.taken(value))
            except MisfitError as error:
                wrong[place] = Misfit("", str(error))
            else:
                places.append(place)
        array, inner = self.assemble(present)
        wrong.update((places[place], misfit) for place, misfit in inner.items())
        return spread(array, places, len(objects)), wrong

    @abstractmethod
    def assemble(self, objects: list[Any]) -> Built:
        """Put objects into an array, of which none is None and all are of the own class."""

    def taken(self, value: Any) -> Any:
        """Return an object as one of the own class, or raise MisfitError."""
        if isinstance(value, self.own):
            return value
        raise unfit(self.name, value)

    def is_own(self, value: Any) -> bool:
        return isinstance(value, self.own)

    def may_take(self, value: Any) -> bool:  # noqa: ARG002 - nothing but the own class is taken
        return False

    def nothing(self, objects: list[Any]) -> pa.Array:
        """Return the array of a batch that has to be built again without the rows that are wrong."""
        return pa.nulls(len(objects), self.kind)


class _Field(NamedTuple):
    """What stands in a struct, an array or a map."""

    name: str
    node: Node
    nullable: bool

    def build(self, objects: list[Any]) -> Built:
        array, wrong = self.node.build(objects)
        if not self.nullable and array.null_count > len(wrong):
            for place, value in enumerate(objects):
                if value is None:
                    wrong.setdefault(place, Misfit("", "found nothing, or null, which may not stand here"))
        return array, wrong


class _Struct(_Compound):
    name, own = "struct", dict

    def __init__(self, kind: pa.DataType, fields: list[_Field]) -> None:
        super().__init__(kind)
        self.fields: Final = fields
        self.names: Final = frozenset(field.name for field in fields)
        self._required: Final = frozenset(field.name for field in fields if not field.nullable)
        self._arrow_fields: Final = fields_of(kind)

    def assemble(self, objects: list[Any]) -> Built:
        arrays: list[pa.Array] = []
        wrong: dict[int, Misfit] = {}
        for field in self.fields:
            array, inner = field.build(_picked(objects, field.name))
            arrays.append(array)
            for place, misfit in inner.items():
                wrong.setdefault(place, misfit.within(f".{field.name}"))
        if wrong:
            return self.nothing(objects), wrong
        if not arrays:
            return pa.array([{}] * len(objects), self.kind), wrong
        return pa.StructArray.from_arrays(arrays, fields=self._arrow_fields), wrong

    def taken(self, value: Any) -> Any:
        return _as_dict(self.name, value)

    def is_own(self, value: Any) -> bool:
        return isinstance(value, dict) and value.keys() == self.names

    def may_take(self, value: Any) -> bool:
        return isinstance(value, Mapping) and value.keys() >= self._required


class _Union(_Struct):
    """A union, as Spark has it: a struct of ``member0``, ``member1``, ... of which one is not null."""

    name, own = "union", type(NotImplemented)  # no object is taken as it is

    def __init__(self, kind: pa.DataType, fields: list[_Field]) -> None:
        super().__init__(kind, fields)
        # A map takes any dict, so records are asked first.
        self._members: Final = sorted(fields, key=lambda field: isinstance(field.node, _Map))

    def taken(self, value: Any) -> Any:
        if isinstance(value, dict) and value and value.keys() <= self.names:
            return value
        member = self._member(value)
        if member is None:
            raise unfit(f"one of the union's {len(self.fields)} types", value)
        return {member.name: value}

    def _member(self, value: Any) -> _Field | None:
        """Choose the member: by its look, and where several look right, the first that it fits in whole."""
        looks_right = [field for field in self._members if field.node.is_own(value)] or [
            field for field in self._members if field.node.may_take(value)
        ]
        if not looks_right or len(looks_right) == 1 or isinstance(looks_right[0].node, ScalarColumn):
            return looks_right[0] if looks_right else None
        return next((field for field in looks_right if not field.build([value])[1]), looks_right[0])


class _List(_Compound):
    name, own = "array", list

    def __init__(self, kind: pa.DataType, element: _Field) -> None:
        super().__init__(kind)
        self._element: Final = element

    def assemble(self, objects: list[Any]) -> Built:
        bounds = [0, *accumulate(map(len, objects))]
        items, inner = self._element.build(list(chain.from_iterable(objects)))
        if inner:
            return self.nothing(objects), placed(inner, bounds, "")
        arrays, offsets = _LISTS[self.kind.id]
        return arrays.from_arrays(pa.array(bounds, offsets), items, type=self.kind), {}

    def taken(self, value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else super().taken(value)

    def may_take(self, value: Any) -> bool:
        return isinstance(value, tuple)


class _Map(_Compound):
    name, own = "map", dict

    def __init__(self, kind: pa.DataType, key: _Field, item: _Field) -> None:
        super().__init__(kind)
        self._key: Final = key
        self._item: Final = item

    def assemble(self, objects: list[Any]) -> Built:
        bounds = [0, *accumulate(map(len, objects))]
        keys, wrong_keys = self._key.build(list(chain.from_iterable(objects)))
        values = chain.from_iterable(pairs.values() for pairs in objects)
        items, wrong_items = self._item.build(list(values))
        if wrong_keys or wrong_items:
            wrong = placed(wrong_items, bounds, ".value") | placed(wrong_keys, bounds, ".key")
            return self.nothing(objects), wrong
        return pa.MapArray.from_arrays(pa.array(bounds, pa.int32()), keys, items, type=self.kind), {}

    def taken(self, value: Any) -> Any:
        return _as_dict(self.name, value)


_LISTS: Final = {
    pa.list_(pa.null()).id: (pa.ListArray, pa.int32()),
    pa.large_list(pa.null()).id: (pa.LargeListArray, pa.int64()),
}


def _node(kind: pa.DataType, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise ConfigError(f"the column's type nests more than {MAX_DEPTH} deep, the limit")
    scalar = scalar_of(kind)
    if scalar is not None:
        return ScalarColumn(kind, scalar)
    if pa.types.is_struct(kind):
        fields = [_field(field, depth) for field in fields_of(kind)]
        return (_Union if is_union(kind) else _Struct)(kind, fields)
    if pa.types.is_map(kind):
        return _Map(kind, _field(kind.key_field, depth), _field(kind.item_field, depth))
    if kind.id in _LISTS:
        return _List(kind, _field(kind.value_field, depth))
    raise refused(kind)


def _field(field: pa.Field, depth: int) -> _Field:
    return _Field(field.name, _node(field.type, depth + 1), field.nullable)


def _as_dict(name: str, value: Any) -> dict[Any, Any]:
    if value.__class__ is dict:
        found: dict[Any, Any] = value
        return found
    if isinstance(value, Mapping):
        return dict(value)
    raise unfit(name, value)


def _picked(objects: list[Any], name: str) -> list[Any]:
    """Return one field of each; what lacks it has None there."""
    try:
        return list(map(itemgetter(name), objects))
    except KeyError:
        return [each.get(name) for each in objects]
