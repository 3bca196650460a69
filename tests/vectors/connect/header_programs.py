"""The oracle's programs of changes to headers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal as DecimalNumber
from typing import Any, Final

from headerware.connect.data import STRING_SCHEMA, Instant, Int8, Int16, Int32, Struct
from headerware.connect.errors import ArgumentError, NullValueError, StateError
from headerware.connect.headers import ConnectHeader, ConnectHeaders
from headerware.connect.values import convert_to_string, java_text
from tests.vectors.connect.codec import cast, out_linked, schema_of, value_of
from tests.vectors.connect.nodes import as_boolean, as_int, as_long, as_text
from tests.vectors.connect.numbers import float32_of, float64_of
from tests.vectors.connect.records import headers_of, out_error, out_header, out_headers

Members = dict[str, Any]
"""What a step's answer says beside that it went well."""


class Program:
    """Headers, and what is done to them step by step.

    Args:
        nodes: the first headers, as JSON.
    """

    def __init__(self, nodes: Any) -> None:
        self.first: Final = headers_of(nodes)
        self.headers = self.first
        # Kept, so that no other headers get the id of those that have had a list in Java: their text tells.
        self._listed: list[ConnectHeaders] = [self.first] if nodes else []

    def run(self, steps: list[list[Any]]) -> Members:
        """Take all steps, and give what came of each, and the headers in the end."""
        return {"steps": [self._step(step) for step in steps], "final": out_headers(self.headers)}

    def _step(self, parts: list[Any]) -> Members:
        key = as_text(parts[1]) if _part(parts, 1) is not None else None
        name = as_text(parts[0])
        try:
            found = _STEPS.get(name, _unknown)(self, key, parts)
        except Exception as error:  # noqa: BLE001 - whatever a step raises is its outcome
            return dict(out_error(error))
        if len(self.headers) and not self._has_list():
            self._listed.append(self.headers)
        return {**found, "ok": True}

    def _has_list(self) -> bool:
        return any(each is self.headers for each in self._listed)

    def text(self) -> str:
        """Return the headers' text as Java has it."""
        if not self._has_list():
            return "ConnectHeaders(headers=)"
        return f"ConnectHeaders(headers=[{', '.join(map(_text, self.headers))}])"

    def change_to(self, headers: ConnectHeaders) -> Members:
        """Go on with other headers."""
        self.headers = headers
        return {}


Step = Callable[[Program, Any, list[Any]], Members]
Change = Callable[[ConnectHeaders, Any, list[Any]], object]


def _unknown(_program: Program, _key: Any, _: list[Any]) -> Members:
    raise ArgumentError("the case has a step that there is not")


def _text(header: ConnectHeader) -> str:
    schema = "null" if header.schema is None else str(header.schema)
    return f"ConnectHeader(key={header.key}, value={java_text(header.value)}, schema={schema})"


def _part(parts: list[Any], at: int) -> Any:
    return parts[at] if at < len(parts) else None


def _changed(change: Change) -> Step:
    """Make a step that changes headers and gives nothing."""

    def step(program: Program, key: Any, parts: list[Any]) -> Members:
        change(program.headers, key, parts)
        return {}

    return step


def _added(method: str, read: Callable[[Any], Any]) -> Step:
    """Make a step that adds a header by one of the typed methods."""
    return _changed(lambda headers, key, parts: getattr(headers, method)(key, read(_part(parts, 2))))


def _typed(method: str, kind: type | tuple[type, ...]) -> Step:
    return _added(method, lambda node: cast(value_of(node), kind))


def _nested(method: str, kind: type) -> Step:
    def change(headers: ConnectHeaders, key: Any, parts: list[Any]) -> None:
        getattr(headers, method)(key, cast(value_of(_part(parts, 2)), kind), schema_of(_part(parts, 3)))

    return _changed(change)


def _add(headers: ConnectHeaders, key: Any, parts: list[Any]) -> None:
    schema = schema_of(_part(parts, 3))
    headers.add(key, value_of(_part(parts, 2), schema), schema)


def _add_pair(headers: ConnectHeaders, key: Any, parts: list[Any]) -> None:
    node = _part(parts, 2) or {}
    schema = schema_of(node.get("schema"))
    headers.add(key, value_of(node.get("value"), schema), schema)


def _retain(headers: ConnectHeaders, key: Any, parts: list[Any]) -> None:
    headers.retain_latest(_named(key) if len(parts) > 1 else None)


def _apply(headers: ConnectHeaders, key: Any, parts: list[Any]) -> None:
    headers.apply(lambda header: _run(header, *parts[2:4]), _named(key))


def _apply_all(headers: ConnectHeaders, _: Any, parts: list[Any]) -> None:
    headers.apply(lambda header: _run(header, *parts[1:3]))


def _named(key: str | None) -> str:
    """Return a name that Python's form of a method may leave out, and Java's must have."""
    if key is None:
        raise NullValueError("the step lacks a header's name")
    return key


def _run(header: ConnectHeader, program: Any, argument: Any = None) -> ConnectHeader | None:
    name = as_text(program)
    if name not in _PROGRAMS:
        raise ArgumentError("the case has a program that there is not")
    return _PROGRAMS[name](header, argument)


def _upper(header: ConnectHeader, _: Any) -> ConnectHeader:
    value = cast(header.value, str)
    if value is None:
        raise NullValueError("expected a text, found null")
    return header.with_value(header.schema, value.upper())


def _to_string(header: ConnectHeader, _: Any) -> ConnectHeader:
    text = convert_to_string(header.schema, header.value, mode="kafka_4_3")
    return header.with_value(STRING_SCHEMA, text)


def _boom(_header: ConnectHeader, _: Any) -> ConnectHeader:
    raise StateError("boom")


_PROGRAMS: Final[dict[str, Callable[[ConnectHeader, Any], ConnectHeader | None]]] = {
    "drop": lambda _header, _: None,
    "identity": lambda header, _: header,
    "rename": lambda header, name: header.rename(_named(None if name is None else as_text(name))),
    "upper": _upper,
    "toString": _to_string,
    "boom": _boom,
}


def _all_with_name(program: Program, key: Any, _: list[Any]) -> Members:
    return {"ret": [out_linked(header.value) for header in program.headers.all_with_name(key)]}


def _last_with_name(program: Program, key: Any, _: list[Any]) -> Members:
    found = program.headers.last_with_name(key)
    return {"ret": None if found is None else out_header(found)}


def _equals(program: Program, _key: Any, parts: list[Any]) -> Members:
    other = headers_of(_part(parts, 1))
    # Java's arrays of bytes are the same only as objects, and those of the other headers are new.
    return {"ret": program.headers == other and not any(_holds_bytes(header.value) for header in other)}


def _holds_bytes(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_bytes, value))
    if isinstance(value, dict):
        return any(map(_holds_bytes, (*value, *value.values())))
    return isinstance(value, bytes)


def _equals_first(program: Program, _key: Any, _: list[Any]) -> Members:
    same = program.headers == program.first
    return {"ret": same, "hashEq": same}


_POINT: Final = (datetime, Instant)
_STEPS: Final[dict[str, Step]] = {
    "size": lambda program, _key, _: {"ret": len(program.headers)},
    "isEmpty": lambda program, _key, _: {"ret": not len(program.headers)},
    "allWithName": _all_with_name,
    "lastWithName": _last_with_name,
    "add": _changed(_add),
    "addSV": _changed(_add_pair),
    "addHeader": _changed(lambda headers, _key, _: headers.add_header(None)),
    "addString": _typed("add_string", str),
    "addBoolean": _added("add_boolean", as_boolean),
    "addByte": _added("add_byte", lambda node: Int8.wrapped(as_int(node))),
    "addShort": _added("add_short", lambda node: Int16.wrapped(as_int(node))),
    "addInt": _added("add_int", lambda node: Int32(as_int(node))),
    "addLong": _added("add_long", as_long),
    "addFloat": _added("add_float", lambda node: float32_of(as_text(node))),
    "addDouble": _added("add_double", lambda node: float64_of(as_text(node))),
    "addBytes": _typed("add_bytes", bytes),
    "addList": _nested("add_list", list),
    "addMap": _nested("add_map", dict),
    "addStruct": _typed("add_struct", Struct),
    "addDecimal": _typed("add_decimal", DecimalNumber),
    "addDate": _typed("add_date", _POINT),
    "addTime": _typed("add_time", _POINT),
    "addTimestamp": _typed("add_timestamp", _POINT),
    "remove": _changed(lambda headers, key, _: headers.remove(key)),
    "clear": _changed(lambda headers, _key, _: headers.clear()),
    "retainLatest": _changed(_retain),
    "apply": _changed(_apply),
    "applyAll": _changed(_apply_all),
    "duplicate": lambda program, _key, _: program.change_to(program.headers.duplicate()),
    "original": lambda program, _key, _: program.change_to(program.first),
    "equalsOriginal": _equals_first,
    "equals": _equals,
    "toString": lambda program, _key, _: {"ret": program.text()},
}
