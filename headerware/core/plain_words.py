"""Validation errors in plain words for people who write configuration, rather than in names of types."""

from __future__ import annotations

import re
from typing import Final

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
_BOUNDS: Final = (
    (re.compile(r"^ of length >= 1$"), " that is not empty"),
    (re.compile(r"^ of length >= "), " with a length of at least "),
    (re.compile(r"^ of length <= "), " with a length of at most "),
    (re.compile(r"^ >= "), " of at least "),
    (re.compile(r"^ <= "), " of at most "),
    (re.compile(r"^ > "), " above "),
    (re.compile(r"^ < "), " below "),
)


def plain_words(problem: str, option: str) -> str:
    """Return msgspec's text of a problem in plain words, with the option's unit.

    ``Expected `int | null`, got `str` `` becomes "expected a whole number of milliseconds, found text". In
    texts of another form only the quotation marks change.

    Args:
        problem: the text, without its position.
        option: the option's name; ``_ms``, ``_s``, ``_bytes`` and ``_days`` at its end name its unit.
    """
    found = _EXPECTED.fullmatch(problem)
    if found is None:
        return _REPLACED.get(problem, problem.replace("`", "'"))
    types = [name for name in found["types"].split(" | ") if name != "null"]  # null: leave it out
    expected = " or ".join(_expected(name, option) for name in types) or "nothing: leave it out"
    what = _WORDS.get(found["got"], found["got"])
    return f"expected {expected}{_bounded(found['bound'])}{f', found {what}' if what else ''}"


def _expected(name: str, option: str) -> str:
    unit = _UNIT.search(option) if name in _NUMBERS else None
    word = _WORDS.get(name, name)
    return f"{word} of {_UNITS[unit['unit']]}" if unit else word


def _bounded(bound: str) -> str:
    for pattern, words in _BOUNDS:
        bound = pattern.sub(words, bound)
    return bound
