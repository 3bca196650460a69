r"""Sets of characters, as Java's regular expressions combine them: ``[a-z&&[^aeiou]]``, ``\p{Lu}``.

A set is computed when a pattern is read, and written as one plain class for Python's ``re``.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from itertools import chain, groupby, pairwise
from typing import Final, NamedTuple

_LAST: Final = sys.maxunicode
_LAST_CASED: Final = 0x1FFFF
"""No letter after this one has another case; the ideographs begin there."""
_SMALL: Final = 64
"""Up to this size, the characters of a set are looked up one by one for their other case."""


class CharSet(NamedTuple):
    """A set of characters: ranges of code points, both ends included, in order, with gaps between them."""

    ranges: tuple[tuple[int, int], ...]

    def __or__(self, other: CharSet) -> CharSet:
        return _char_set(*self.ranges, *other.ranges)

    def __invert__(self) -> CharSet:
        ranges = [(-1, -1), *self.ranges, (_LAST + 1, _LAST + 1)]
        gaps = ((left + 1, right - 1) for (_, left), (right, _) in pairwise(ranges))
        return CharSet(tuple((first, last) for first, last in gaps if first <= last))

    def __and__(self, other: CharSet) -> CharSet:
        return ~(~self | ~other)

    def any_case(self, *, beyond_ascii: bool) -> CharSet:
        """Return the set with the other case of each letter, of ASCII's letters only or of all."""
        return self | (_any_unicode_case(self) if beyond_ascii else _any_ascii_case(self))

    def pattern(self) -> str:
        """Write the set for Python's ``re``, as a unit that can be repeated."""
        if not self.ranges:
            return "(?!)"
        if self.ranges == ((0, _LAST),):
            return "(?s:.)"
        if len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1]:
            return _written(self.ranges[0][0])
        other = ~self
        negated = len(other.ranges) < len(self.ranges)
        ranges = other.ranges if negated else self.ranges
        return f"[{'^' * negated}{''.join(map(_written_range, ranges))}]"


def _char_set(*ranges: tuple[int, int]) -> CharSet:
    """Return the set of these ranges, in any order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return CharSet(tuple(merged))


def of_text(text: str) -> CharSet:
    """Return the set of a text's characters."""
    return _char_set(*((ord(char), ord(char)) for char in text))


def _of_pairs(pairs: str) -> CharSet:
    return _char_set(*((ord(first), ord(last)) for first, last in zip(pairs[::2], pairs[1::2], strict=True)))


def _written(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\U{code:08x}"


def _written_range(bounds: tuple[int, int]) -> str:
    first, last = bounds
    return _written(first) if first == last else f"{_written(first)}-{_written(last)}"


def _any_ascii_case(chars: CharSet) -> CharSet:
    upper, lower = chars & _POSIX["Upper"], chars & _POSIX["Lower"]
    return _moved(upper, 32) | _moved(lower, -32)


def _moved(chars: CharSet, by: int) -> CharSet:
    return CharSet(tuple((first + by, last + by) for first, last in chars.ranges))


def _any_unicode_case(chars: CharSet) -> CharSet:
    variants = _case_variants()
    if sum(last - first for first, last in chars.ranges) < _SMALL:
        codes = (code for first, last in chars.ranges for code in range(first, last + 1))
        return _char_set(*((other, other) for code in codes for other in variants.get(code, ())))
    return _char_set(
        *(
            (other, other)
            for code, others in variants.items()
            if any(first <= code <= last for first, last in chars.ranges)
            for other in others
        )
    )


@cache
def _case_variants() -> dict[int, tuple[int, ...]]:
    """Return the variants of each letter in another case, found by Java's case folding."""
    folded: dict[str, list[int]] = {}
    for code in range(_LAST_CASED + 1):
        char = chr(code)
        upper = _one(char.upper(), char)
        fold = _one(upper.lower(), upper)
        if fold != char or upper != char:
            folded.setdefault(fold, []).append(code)
    return {code: tuple(codes) for codes in folded.values() for code in codes}


def _one(changed: str, char: str) -> str:
    return changed if len(changed) == 1 else char


NO_LINE_END: Final = ~of_text("\n\r\x85\u2028\u2029")
DIGITS: Final = _of_pairs("09")
WORD: Final = _of_pairs("azAZ09__")
SPACES: Final = of_text(" \t\n\x0b\f\r")
HORIZONTAL: Final = of_text(" \t\xa0\u1680\u180e\u202f\u205f\u3000") | _of_pairs("\u2000\u200a")
VERTICAL: Final = of_text("\n\x0b\f\r\x85\u2028\u2029")
_POSIX: Final[dict[str, CharSet]] = {
    "Lower": _of_pairs("az"),
    "Upper": _of_pairs("AZ"),
    "ASCII": _of_pairs("\x00\x7f"),
    "Alpha": _of_pairs("azAZ"),
    "Digit": DIGITS,
    "Alnum": _of_pairs("azAZ09"),
    "Punct": _of_pairs("!/:@[`{~"),
    "Graph": _of_pairs("!~"),
    "Print": _of_pairs(" ~"),
    "Blank": of_text(" \t"),
    "Cntrl": _of_pairs("\x00\x1f\x7f\x7f"),
    "XDigit": _of_pairs("09afAF"),
    "Space": SPACES,
}
_OTHER: Final[dict[str, CharSet]] = {"L1": _of_pairs("\x00\xff"), "all": _char_set((0, _LAST))}
_WHITE_SPACE: Final = of_text(" \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | _of_pairs("\t\r\u2000\u200a")
_BINARY: Final[dict[str, tuple[str, ...]]] = {
    "LETTER": ("L",),
    "DIGIT": ("Nd",),
    "CONTROL": ("Cc",),
    "PUNCTUATION": ("P",),
    "TITLECASE": ("Lt",),
}
"""Java's binary properties that are categories, by their names in upper case."""
_OF_JAVA: Final = frozenset({"javaDigit", "javaLetter", "javaLowerCase", "javaTitleCase", "javaUpperCase"})
"""Properties named after methods of Java's Character; without the prefix they are binary properties."""
_CASED: Final = frozenset({"Lu", "Ll", "Lt"})


def property_set(name: str, *, any_case: bool) -> CharSet | None:
    """Return the characters of a property, such as ``Alpha``, ``IsL`` or ``gc=Lu``; None if it is unknown.

    With ``any_case``, the properties of a case have the other cases as well, as in Java.
    """
    if any_case and name in {"Lower", "Upper"}:
        return _POSIX["Alpha"]
    if found := _POSIX.get(name) or _OTHER.get(name):
        return found
    key, equals, value = name.partition("=")
    if equals:
        known = key.lower() in {"gc", "general_category"}
        return _category_set(value, any_case=any_case) if known else None
    if name in _OF_JAVA:
        return _binary_set(name[4:].upper(), any_case=any_case)
    if name.startswith("Is"):
        return _category_set(name[2:], any_case=any_case) or _binary_set(name[2:].upper(), any_case=any_case)
    return _category_set(name, any_case=any_case)


def _category_set(name: str, *, any_case: bool) -> CharSet | None:
    wanted = {"LC": _CASED, "LD": {"L", "Nd"}}.get(name, {name})
    if any_case and name in _CASED:
        wanted = _CASED
    found = [ranges for each, ranges in _categories().items() if each in wanted or each[0] in wanted]
    return _char_set(*chain.from_iterable(found)) if found else None


def _binary_set(name: str, *, any_case: bool) -> CharSet | None:
    cased = {"LOWERCASE", "UPPERCASE", "TITLECASE"}
    if any_case and name in cased:
        return _cased("islower") | _cased("isupper") | _char_set(*_categories()["Lt"])
    if name in {"LOWERCASE", "UPPERCASE"}:
        return _cased(f"is{name[:5].lower()}")
    if name in {"WHITESPACE", "WHITE_SPACE"}:
        return _WHITE_SPACE
    if name == "ASSIGNED":
        return ~_char_set(*_categories()["Cn"])
    if name in {"JOINCONTROL", "JOIN_CONTROL"}:
        return _of_pairs("\u200c\u200d")
    categories = _BINARY.get(name)
    return _category_set(categories[0], any_case=False) if categories else None


@cache
def _categories() -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    groups = groupby(range(_LAST + 1), key=lambda code: unicodedata.category(chr(code)))
    for category, group in groups:
        codes = list(group)
        found.setdefault(category, []).append((codes[0], codes[-1]))
    return found


@cache
def _cased(question: str) -> CharSet:
    return _char_set(*((code, code) for code in range(_LAST_CASED + 1) if getattr(chr(code), question)()))
