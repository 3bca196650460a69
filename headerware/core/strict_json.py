"""JSON of files that decide who is trusted: one profile, which all readers judge alike (spec/json.md).

msgspec reads the values. This module refuses forms that msgspec accepts but other readers may read
differently.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

import msgspec

_T = TypeVar("_T")
MAX_INTEGER: Final = 2**53 - 1
"""The largest number that all readers of JSON have exactly (RFC 7493)."""
_MAX_DEPTH: Final = 32
_MAX_DIGITS: Final = len(str(-MAX_INTEGER))
_NONCHARACTERS: Final = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_NO_TEXT: Final = re.compile(rf"[\ud800-\udfff\ufdd0-\ufdef{_NONCHARACTERS}]")
_MEMBER: Final = re.compile(r"[a-z_]{1,32}")
_RFC_3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_FIRST_MOMENT: Final = datetime.fromtimestamp(0, UTC)


def decode_json(text: bytes, kind: type[_T]) -> _T:
    """Return the value of a JSON text in this profile, as a type.

    Raises:
        ValueError: the text is not in this profile, or not of this type; the message may quote a value, see
            :func:`~headerware.core.printable.without_values`.
    """
    try:
        found = msgspec.json.decode(text, type=kind)
        raw = _parsed(text)
    except RecursionError:
        raise ValueError(f"it nests deeper than {_MAX_DEPTH} levels") from None
    _require_spelling(found, raw, "$")
    return found


def _parsed(text: bytes) -> Any:
    try:
        raw = json.loads(
            text.decode(),
            object_pairs_hook=_members,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_fraction,
        )
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON at line {error.lineno}, column {error.colno}") from None
    _require_text(raw, 1)
    return raw


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            shown = f" `{name}`" if _MEMBER.fullmatch(name) else ""
            raise ValueError(f"a member{shown} occurs twice in one object")
        found[name] = value
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no numbers of JSON")


def _integer(text: str) -> int | float:
    if len(text) > _MAX_DIGITS or abs(number := int(text)) > MAX_INTEGER:
        raise ValueError(f"expected integers of at most {MAX_INTEGER}, found a larger one")
    return number if text != "-0" else -0.0


def _fraction(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("expected numbers that a double has, found a larger one")
    return number


def _require_text(raw: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"it nests deeper than {_MAX_DEPTH} levels")
    if isinstance(raw, str) and _NO_TEXT.search(raw):
        raise ValueError("a text has half a surrogate pair, or a code point that is no character")
    if isinstance(raw, dict):
        for name, value in raw.items():
            _require_text(name, depth)
            _require_text(value, depth + isinstance(value, dict | list))
    elif isinstance(raw, list):
        for value in raw:
            _require_text(value, depth + isinstance(value, dict | list))


def _require_spelling(found: Any, raw: Any, path: str) -> None:
    """Refuse values that are spelled in one of several ways, and members that are null."""
    problem = None
    if isinstance(found, msgspec.Struct):
        for name in found.__struct_encode_fields__:
            if name in raw:
                _require_value(raw[name], f"{path}.{name}")
                _require_spelling(getattr(found, name), raw[name], f"{path}.{name}")
    elif isinstance(found, tuple | list):
        for at, value in enumerate(found):
            _require_spelling(value, raw[at], f"{path}[{at}]")
    elif isinstance(found, dict):
        for name, value in found.items():
            _require_spelling(value, raw[name], f"{path}[...]")
    elif isinstance(found, bytes) and b64encode(found).decode() != raw:
        problem = "expected base64 in its one spelling: the standard alphabet, padding, no line breaks"
    elif isinstance(found, datetime):
        problem = _problem_of_moment(found, raw)
    elif type(found) is int and type(raw) is not int:
        problem = "expected an integer in digits alone"
    if problem:
        raise ValueError(f"{problem} - at `{path}`")


def _require_value(raw: Any, path: str) -> None:
    if raw is None:
        raise ValueError(f"expected a value or no such member, found null - at `{path}`")


def _problem_of_moment(found: datetime, raw: str) -> str | None:
    try:
        if _RFC_3339.fullmatch(raw) and found.astimezone(UTC) >= _FIRST_MOMENT:
            return None
    except OverflowError:
        pass
    return (
        "expected a time as RFC 3339 has it, such as 2026-01-31T17:30:00Z, from 1970 to 9999, with at most "
        "six digits of a second"
    )
