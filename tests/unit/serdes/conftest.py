from __future__ import annotations

from typing import Any


def record(*fields: tuple[str, Any] | dict[str, Any], name: str = "Order") -> dict[str, Any]:
    """Return the Avro schema of a record with fields given by name and type, or as in Avro."""
    made = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": made}
