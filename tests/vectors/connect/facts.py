"""What cases ask about the classes themselves: their keys, and what they run on."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import Any

from headerware.connect.config import REQUIRED, ConfigKey, Configured
from headerware.connect.modes import KAFKA_4_3
from headerware.core.java import find_java
from headerware.testing import MissingPartError
from tests.vectors.connect.nodes import as_text


def version() -> dict[str, str | None]:
    """Return the versions, the zone and the locale that answers are those of."""
    return {"kafka": "4.3.1", "java": _java(), "tz": "UTC", "locale": "en_US"}


@cache
def _java() -> str | None:
    """Return the version of the Java that is here, for the vectors tell that of the one that made them."""
    try:
        command = [str(find_java()), "-XshowSettings:properties", "-version"]
    except MissingPartError:
        return None
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr
    lines = (line.partition("=") for line in said.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "java.version"), None)


def keys_of(kind: type[Configured]) -> list[dict[str, Any]]:
    """Write the keys that a class is configured with."""
    return [_key(key) for key in kind.config(KAFKA_4_3)]


def _key(key: ConfigKey) -> dict[str, Any]:
    node: dict[str, Any] = {"name": key.name, "type": key.type}
    if key.default is REQUIRED:
        node["required"] = True
    else:
        node["default"] = _default(key.default)
    node["importance"] = key.importance
    if key.check is not None:
        node["validator"] = key.check.text
    return node


def _default(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else as_text(value)
