"""Convert values to lists, maps and structs (KIP-145's ``Values.convertToList`` and so on)."""

from __future__ import annotations

from typing import Any

from headerware.connect.data.schema import Schema
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.values.exact import parse_nested
from headerware.connect.values.parse import parse_string


def convert_to_list(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> list[Any] | None:
    """Convert a list, or the text of one, to a list.

    Args:
        schema: what the value is; None for a schemaless one.
        value: the value; a list stays as it is.
        mode: how a text is read.

    Raises:
        ConnectDataError: the value is neither; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    del schema
    found = _read(value, mode)
    if found is None and mode == STRICT:
        return None
    if isinstance(found, list | tuple):
        return found if isinstance(found, list) else list(found)
    raise _refused("a list", found)


def convert_to_map(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> dict[Any, Any] | None:
    """Convert a map, or the text of one, to a map.

    Args:
        schema: what the value is; None for a schemaless one.
        value: the value; a dict stays as it is.
        mode: how a text is read.

    Raises:
        ConnectDataError: the value is neither; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    del schema
    found = _read(value, mode)
    if found is None and mode == STRICT:
        return None
    if isinstance(found, dict):
        return found
    raise _refused("a map", found)


def convert_to_struct(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Struct | None:
    """Return a struct as it is, for nothing else becomes one.

    Args:
        schema: what the value is; None for a schemaless one.
        value: the value.
        mode: in ``strict``, null stays null.

    Raises:
        ConnectDataError: the value is no struct; in ``kafka_4_3``, it is null.
    """
    del schema
    if value is None and mode == STRICT:
        return None
    if isinstance(value, Struct):
        return value
    raise _refused("a struct", value)


def _read(value: Any, mode: Mode) -> Any:
    """Return the value of a text, and any other as it is."""
    if not isinstance(value, str):
        return value
    if mode == STRICT:
        return parse_nested(value)
    parsed = parse_string(value, mode=mode)
    if parsed is None:
        raise NullValueError("expected a list or map, found the text of null")
    return parsed.value


def _refused(expected: str, value: Any) -> ConnectDataError:
    found = "null" if value is None else f"a value of class {type(value).__name__}"
    return ConnectDataError(f"expected {expected}, found {found}")
