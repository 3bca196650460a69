"""What a transform needs to find: a dict where there is no schema, and a struct where there is one."""

from __future__ import annotations

from typing import Any

from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return a schemaless value that is a dict.

    Raises:
        ConnectDataError: it is something else.
    """
    if not isinstance(value, dict):
        raise ConnectDataError(
            f"expected a dict for {purpose}, as values without a schema are, found {type(value).__name__}"
        )
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value that is a struct.

    Raises:
        ConnectDataError: it is something else.
    """
    if not isinstance(value, Struct):
        raise ConnectDataError(f"expected a struct for {purpose}, found {type(value).__name__}")
    return value
