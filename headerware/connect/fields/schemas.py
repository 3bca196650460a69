"""Schemas like another: but for some things, or in all."""

from __future__ import annotations

from typing import Any, Final

from headerware.connect.data.schema import Schema, Type


def altered(schema: Schema, **facts: Any) -> Schema:
    """Return a schema that says some things differently.

    Args:
        schema: the schema.
        facts: what differs, by the names of :class:`~headerware.connect.data.schema.Schema`'s arguments.
    """
    kind = schema.type
    own: dict[str, Any] = {
        "optional": schema.optional,
        "default": schema.default,
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": schema.parameters,
        "fields": schema.fields if kind is Type.STRUCT else (),
        "key_schema": schema.key_schema if kind is Type.MAP else None,
        "value_schema": schema.value_schema if kind in {Type.MAP, Type.ARRAY} else None,
    }
    return Schema(kind, **{**own, **facts})


_KEPT: Final = 64
"""The pairs that are remembered; a stream has few, and a flood of schemas must not fill the memory."""


class SameSchemas:
    """Compare schemas, and remember those that agree: a record's and its struct's may be two objects."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Schema, Schema]] = {}

    def __call__(self, one: Schema, other: Schema) -> bool:
        """Say whether two schemas are the same."""
        if one is other:
            return True
        known = self._known.get(id(one))
        if known is not None and known[0] is one and known[1] is other:
            return True
        if one != other:
            return False
        if len(self._known) >= _KEPT:
            self._known = {}
        self._known[id(one)] = (one, other)
        return True
