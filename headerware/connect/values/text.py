r"""Write values as text (KIP-145's ``Values.convertToString``).

    numbers            as Java writes them
    bytes              base64
    lists, maps        [1,"a"]  {"k":"a \"b\""}   structs as maps; strings and bytes within them in quotes
    points in time     2017-05-21   16:31:05.387Z   2017-05-21T16:31:05.387Z

The ``strict`` mode writes a point in time as its schema says, and one without a schema as a timestamp.
``kafka_4_3`` guesses from the value.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from headerware.connect.data.schema import DATE, TIME, Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import DAY_MS, Instant, is_time, to_epoch_ms
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.calendar import EPOCH_DAY, gregorian_date_of
from headerware.connect.java.numbers import is_number
from headerware.connect.java.text import NUMBER_TEXTS, number_text
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode

_TimeText = Callable[[Schema | None, Any], str]


def convert_to_string(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> str | None:
    """Write a value as text that :func:`parse_string` reads.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: the value; null stays null.
        mode: how points in time are written.

    Raises:
        ConnectDataError: Connect does not know the class of the value; it is nested too deeply; or, in
            ``strict``, a date is not at midnight or a time not on the first day.
    """
    if value is None or type(value) is str:
        return value
    write = NUMBER_TEXTS.get(type(value))
    if write is not None:
        return write(value)
    if isinstance(value, str):
        return str(value)
    try:
        return _bare(schema, value, _TIME_TEXTS[mode])
    except RecursionError:
        raise ConnectDataError("the value is nested too deeply to be written") from None


def _bare(schema: Schema | None, value: Any, of_time: _TimeText) -> str:
    """Write a value without quotes around it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return number_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if is_time(value):
        return of_time(schema, value)
    write = next((write for kind, write in _NESTED.items() if isinstance(value, kind)), None)
    if write is None:
        raise ConnectDataError(f"expected a value of Connect, found one of class {type(value).__name__}")
    return write(schema, value, of_time)


def _embedded(schema: Schema | None, value: Any, of_time: _TimeText) -> str:
    """Write a value inside another one."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quoted(value)
    write = NUMBER_TEXTS.get(type(value))
    if write is not None:
        return write(value)
    text = _bare(schema, value, of_time)
    return f'"{text}"' if isinstance(value, bytes | bytearray | memoryview) else text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _list(schema: Schema | None, values: Any, of_time: _TimeText) -> str:
    element = schema.value_schema if schema is not None and schema.type is Type.ARRAY else None
    return f"[{','.join(_embedded(element, value, of_time) for value in values)}]"


def _map(schema: Schema | None, entries: dict[Any, Any], of_time: _TimeText) -> str:
    is_map = schema is not None and schema.type is Type.MAP
    of_key, of_value = (schema.key_schema, schema.value_schema) if schema and is_map else (None, None)
    pairs = (
        f"{_embedded(of_key, key, of_time)}:{_embedded(of_value, value, of_time)}"
        for key, value in entries.items()
    )
    return "{" + ",".join(pairs) + "}"


def _struct(_schema: Schema | None, struct: Struct, of_time: _TimeText) -> str:
    pairs = (
        f"{_quoted(field.name)}:{_embedded(field.schema, struct.get(field), of_time)}"
        for field in struct.schema.fields
    )
    return "{" + ",".join(pairs) + "}"


_NESTED: Final[dict[type, Callable[[Schema | None, Any, _TimeText], str]]] = {
    list: _list,
    tuple: _list,
    dict: _map,
    Struct: _struct,
}


def _guessed(_schema: Schema | None, value: datetime | Instant) -> str:
    """Write a time before the second day, a date at midnight, and else a timestamp."""
    epoch_ms = to_epoch_ms(value)
    if epoch_ms < DAY_MS:
        return _time_text(epoch_ms)
    return _timestamp_text(epoch_ms) if epoch_ms % DAY_MS else _date_text(epoch_ms)


def _as_described(schema: Schema | None, value: datetime | Instant) -> str:
    epoch_ms = to_epoch_ms(value)
    name = None if schema is None else schema.name
    if name == DATE:
        if epoch_ms % DAY_MS:
            raise ConnectDataError("expected a date, found a point in time that is not at midnight in UTC")
        return _date_text(epoch_ms)
    if name == TIME:
        if not 0 <= epoch_ms < DAY_MS:
            raise ConnectDataError(
                "expected a time of day, found a point in time that is not on the first day"
            )
        return _time_text(epoch_ms)
    return _timestamp_text(epoch_ms)


def _date_text(epoch_ms: int) -> str:
    year, month, day = gregorian_date_of(epoch_ms // DAY_MS + EPOCH_DAY)
    return f"{year:04}-{month:02}-{day:02}"


def _time_text(epoch_ms: int) -> str:
    seconds, milliseconds = divmod(epoch_ms % DAY_MS, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}Z"


def _timestamp_text(epoch_ms: int) -> str:
    return f"{_date_text(epoch_ms)}T{_time_text(epoch_ms)}"


_TIME_TEXTS: Final[dict[Mode, _TimeText]] = {STRICT: _as_described, KAFKA_4_3: _guessed}
