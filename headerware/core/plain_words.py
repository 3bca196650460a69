"""Validation errors in plain words for people who write configuration, rather than in names of types."""

from __future__ import annotations

import re
from typing import Any, Final

from headerware.core.durations import duration_s

_EXPECTED: Final = re.compile(
    r"Expected `(?P<types>[^`]+)`(?P<bound>.*?)(?:, got `(?P<got>[^`]+)`)?", re.DOTALL
)
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "str": "text",
    "bytes": "text in base64",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "datetime": "a date and time",
}
_REPLACED: Final = {
    "Invalid base64 encoded string": "expected text in base64, found other text",
    "Input data was truncated": "expected JSON, found text that is truncated: it ends too early",
}
_NUMBERS: Final = ("int", "float", "decimal")
_UNIT: Final = re.compile(r"(?<!_per)_(?P<unit>ms|s|bytes|days)(?=$|_by_)")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "bytes": "bytes", "days": "days"}
_PER_S: Final = {"milliseconds": 1_000.0, "seconds": 1.0, "days": 1 / 86_400}
_SIZE: Final = re.compile(
    r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?P<letter>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE
)
_POWERS: Final = ("", "k", "m", "g", "t")
_PLAIN_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_BOUNDS: Final = (
    (re.compile(r"^ of length >= 1$"), " that is not empty"),
    (re.compile(r"^ of length >= "), " with a length of at least "),
    (re.compile(r"^ of length <= "), " with a length of at most "),
    (re.compile(r"^ >= "), " of at least "),
    (re.compile(r"^ <= "), " of at most "),
    (re.compile(r"^ > "), " above "),
    (re.compile(r"^ < "), " below "),
)


def plain_words(problem: str, option: str, given: Any = None) -> str:
    """Return msgspec's text of a problem in plain words, with the option's unit.

    ``Expected `int | null`, got `str` `` becomes "expected a whole number of milliseconds, found text". In
    texts of another form only the quotation marks change.

    Args:
        problem: the text, without its position.
        option: the option's name; ``_ms``, ``_s``, ``_bytes`` and ``_days`` at its end name its unit.
        given: the value, if it is known; only numbers are shown, and text in place of one, such as ``1MB``.
    """
    found = _EXPECTED.fullmatch(problem)
    if found is None:
        return _REPLACED.get(problem, problem.replace("`", "'"))
    types = [name for name in found["types"].split(" | ") if name != "null"]  # null: leave it out
    expected = " or ".join(_expected(name, option) for name in types) or "nothing: leave it out"
    what = _WORDS.get(found["got"], found["got"])
    if found["got"] == "str" and isinstance(given, str) and (number := _number(given, types, option)):
        what = f"text {given!r}; write {number}"
    elif found["got"] == "float" and isinstance(given, float):
        what = f"{given}"
    return f"expected {expected}{_bounded(found['bound'])}{f', found {what}' if what else ''}"


def _expected(name: str, option: str) -> str:
    unit = _unit(option) if name in _NUMBERS else None
    word = _WORDS.get(name, name)
    return f"{word} of {unit}" if unit else word


def _unit(option: str) -> str | None:
    found = _UNIT.search(option)
    return _UNITS[found["unit"]] if found else None


def _number(text: str, types: list[str], option: str) -> str | None:
    """Return the whole number that a text means in the option's unit; None if it means none."""
    if "int" not in types:
        return None
    if _PLAIN_NUMBER.fullmatch(text):
        return text
    unit = _unit(option)
    value: float | None = None
    if unit == "bytes" and (size := _SIZE.fullmatch(text)):
        base = 1024 if size["binary"] else 1000
        value = float(size["number"]) * base ** _POWERS.index(size["letter"].lower())
    elif unit in _PER_S and (seconds := duration_s(text)) is not None:
        value = seconds * _PER_S[unit]
    return str(int(value)) if value is not None and value.is_integer() else None


def _bounded(bound: str) -> str:
    for pattern, words in _BOUNDS:
        bound = pattern.sub(words, bound)
    return bound
