"""Conditions on the value of a field or a header, from configuration.

A value is compared by its own type: text with text, numbers as exact numbers, floating-point numbers at their
own precision, booleans with ``true`` and ``false``, points in time with ISO 8601. If the configured text
cannot be read as this type, for instance as a number, that is an error, not a "no".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.config import Check, ConfigKey, one_of
from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.times import Instant, to_epoch_ms
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.lists import items
from headerware.connect.java.regex import java_pattern
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXISTS: Final = "exists"
MISSING: Final = "missing.or.null.behavior"
"""The key that decides about a record without the value: ``fail``, ``include`` or ``exclude``."""
_BOOLEANS: Final[dict[str | None, bool]] = {"true": True, "false": False}


def _refuse_other(value: str | None) -> str | None:
    return None if value is None or value in _BOOLEANS else "expected true or false"


_TRUE_OR_FALSE: Final = Check("[true, false]", _refuse_other)
"""The check of an optional boolean; a key of type BOOLEAN cannot be null."""


def condition_keys(prefix: str, what: str) -> tuple[ConfigKey, ...]:
    """Return the keys of a condition; ``what`` is the word for the value in their descriptions."""
    docs = {
        "value": f"The {what} must equal this.",
        "value.pattern": f"The {what}, a text, must contain a match of this regular expression.",
        "value.above": f"The {what} must be greater than this.",
        "value.below": f"The {what} must be less than this.",
        "value.min": f"The {what} must be at least this.",
        "value.max": f"The {what} must be at most this.",
    }
    return (
        *(
            ConfigKey(name=f"{prefix}.{name}", type="STRING", default=None, doc=doc)
            for name, doc in docs.items()
        ),
        ConfigKey(
            name=f"{prefix}.values", type="LIST", default=None, doc=f"The {what} must be one of these."
        ),
        ConfigKey(
            name=f"{prefix}.exists",
            type="STRING",
            default=None,
            check=_TRUE_OR_FALSE,
            doc=f"Whether the {what} must be there, and not null: true or false.",
        ),
        missing_key(f"if the {what} is missing or null; not with exists."),
    )


def missing_key(when: str) -> ConfigKey:
    """Return the key that decides about a record without the value; ``when`` ends its description."""
    return ConfigKey(
        name=MISSING,
        type="STRING",
        default="fail",
        check=one_of("fail", "include", "exclude"),
        doc=f"Whether to fail, include or exclude {when}",
    )


class Condition:
    """Test a value against the configured condition; only bounds may be combined."""

    def __init__(self, options: Mapping[str, Any], prefix: str, what: str) -> None:
        names = (*_TESTS, _EXISTS, *_BOUNDS)
        given = {name: options[f"{prefix}.{name}"] for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        if not given or (len(given) > 1 and not given.keys() <= _BOUNDS.keys()):
            listed = ", ".join(f"{prefix}.{name}" for name in names)
            found = ", ".join(f"{prefix}.{name}" for name in given) or "none"
            raise ConnectConfigError(
                f"expected one of {listed} (bounds may be combined), found {found}", path=f"{prefix}.value"
            )
        self._what: Final = what
        self._absent: Final[str] = options[MISSING]
        self._exists: Final = _BOOLEANS.get(given.pop(_EXISTS, None))
        self._tests: Final = [
            (_TESTS | _BOUNDS)[name](value, f"{prefix}.{name}") for name, value in given.items()
        ]

    def holds(self, value: Any) -> bool | None:
        """Return whether the condition holds; None if the value is missing: ``includes_absent`` decides."""
        if self._exists is not None:
            return self._exists is (value is not None)
        if value is None:
            if self._absent == "fail":
                raise ConnectDataError(
                    f"{self._what} is missing or null; set {MISSING} to include or exclude such records"
                )
            return None
        return all(test(value) for test in self._tests)

    @property
    def includes_absent(self) -> bool:
        """Whether a record that lacks the value is included."""
        return self._absent == "include"


Test = Callable[[Any], bool]


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


def _float(text: str) -> float:
    number = float(text)
    if math.isnan(number):
        raise ValueError
    return number


def _boolean(text: str) -> bool:
    return _BOOLEANS[text]


def _time(text: str) -> int:
    return to_epoch_ms(datetime.fromisoformat(text))


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "text": str,
    "number": _decimal,
    "float64": _float,
    "float32": lambda text: Float32(_float(text)),
    "boolean": _boolean,
    "time": _time,
}
"""Read a configured text as each kind of value."""
_KINDS: Final[dict[type, str]] = {
    str: "text",
    bool: "boolean",
    Int8: "number",
    Int16: "number",
    Int32: "number",
    int: "number",
    BigInteger: "number",
    Decimal: "number",
    float: "float64",
    Float32: "float32",
    datetime: "time",
    Instant: "time",
}
"""The kind of each class of values."""


class _Operand:
    """A configured text, read as every possible kind of value."""

    __slots__ = ("_by_class", "_key")

    def __init__(self, text: str, key: str) -> None:
        read = {kind: found for kind in _PARSERS if (found := _read(kind, text)) is not None}
        self._by_class: Final = {cls: read[kind] for cls, kind in _KINDS.items() if kind in read}
        self._key: Final = key

    def of(self, value: Any) -> Any:
        """Return the configured text, read as the kind of the given value."""
        found = self._by_class.get(type(value))
        if found is None:
            kind = _KINDS.get(type(value))
            if kind is None:
                problem = f"a value of class {type(value).__name__} cannot be compared to a text"
            else:
                problem = f"the value is a {kind}, but the configured text is not"
            raise ConnectDataError(f"{self._key}: {problem}")
        return found


def _read(kind: str, text: str) -> Any:
    try:
        return _PARSERS[kind](text)
    except (ValueError, KeyError, OverflowError, InvalidOperation):
        return None


def _comparable(value: Any) -> Any:
    return to_epoch_ms(value) if isinstance(value, datetime | Instant) else value


def _equals(text: str, key: str) -> Test:
    operand = _Operand(text, key)
    return lambda value: bool(_comparable(value) == operand.of(value))


def _one_of(texts: list[str], key: str) -> Test:
    tests = [_equals(text, key) for text in items(texts, STRICT, key)]
    if not tests:
        raise ConnectConfigError("expected a list that is not empty", path=key)
    # Run all tests, so that a text of another kind fails on the first record.
    return lambda value: True in [test(value) for test in tests]


def _matches(text: str, key: str) -> Test:
    find = java_pattern(text, path=key).search

    def matches(value: Any) -> bool:
        if not isinstance(value, str):
            raise ConnectDataError(f"{key}: expected text, found {type(value).__name__}")
        return find(value) is not None

    return matches


def _bound(compare: Callable[[Any, Any], bool]) -> Callable[[str, str], Test]:
    def make(text: str, key: str) -> Test:
        operand = _Operand(text, key)
        return lambda value: bool(compare(_comparable(value), operand.of(value)))

    return make


_TESTS: Final[dict[str, Callable[[Any, str], Test]]] = {
    "value": _equals,
    "values": _one_of,
    "value.pattern": _matches,
}
"""For each key, the function that makes its test."""
_BOUNDS: Final[dict[str, Callable[[Any, str], Test]]] = {
    "value.above": _bound(lambda value, bound: bool(value > bound)),
    "value.below": _bound(lambda value, bound: bool(value < bound)),
    "value.min": _bound(lambda value, bound: bool(value >= bound)),
    "value.max": _bound(lambda value, bound: bool(value <= bound)),
}
