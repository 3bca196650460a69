"""JSON as the converter writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.modes import STRICT, Mode

if TYPE_CHECKING:
    from headerware.connect.data import Schema

PLAIN = {"schemas.enable": "false"}


def written(schema: Schema | None, value: Any, mode: Mode = STRICT, **config: Any) -> str:
    options = {**PLAIN, **{key.replace("_", "."): option for key, option in config.items()}}
    data = JsonConverter(options, mode=mode).from_connect_data("t", schema, value)
    assert data is not None
    return data.decode()
