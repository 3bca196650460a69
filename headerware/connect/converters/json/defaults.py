"""Defaults as the values that they stand for."""

from __future__ import annotations

from typing import Any

from headerware.connect.data.schema import Schema
from headerware.connect.data.struct import Struct


def default_of(schema: Schema) -> Any:
    """Return a schema's default as a value of this very schema, or None.

    A struct that is a default was made before there was one, so that its own schema says none.

    Args:
        schema: the schema.
    """
    default = schema.default
    return Struct.trusted(schema, default.values) if isinstance(default, Struct) else default
