"""Schemas like another, but for some things."""

from __future__ import annotations

from typing import Any

from headerware.connect.data.schema import Schema, Type


def altered(schema: Schema, **facts: Any) -> Schema:
    """Give a schema that says some things differently.

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
