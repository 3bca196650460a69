r"""Lists and pairs in configuration: ``a,b`` and ``a:b,c:d``.

In the strict mode, the character after a backslash has no special meaning, so that names may contain it:

    \,  does not end an item             \:  does not split a pair
    \.  does not lead into a struct      \!  \?  are no marks at a name's end
    \$  opens no placeholder             \\  is a backslash
    \"  \'  are part of a name, which must not be in quotes

A backslash before any other character, or at the end, is refused. ``kafka_4_3`` has no escapes. Text is split
at commas first, then at colons, then at dots. A part keeps its escapes until it is not split any further:
:func:`pairs` returns texts that still go through :func:`unescaped`, or through
:func:`~headerware.connect.fields.paths.parse_path`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from headerware.connect.config import refuse_quotes
from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headerware.connect.modes import Mode

ESCAPABLE: Final = frozenset("\\.,:!?$\"'")
"""The characters that a backslash may escape."""
_BACKSLASH: Final = "\\"
_PAIR: Final = 2
_L = TypeVar("_L")
_R = TypeVar("_R")


def items(values: Iterable[str], mode: Mode, path: str) -> list[str]:
    """Return the items of a list, without the escapes of the strict mode."""
    if mode != STRICT:
        return list(values)
    made = [unescaped(value, path) for value in values]
    if "" in made:
        raise ConnectConfigError("the values of the list must not be empty", path=path)
    return made


def pairs(values: Iterable[str], mode: Mode, path: str) -> list[tuple[str, str]]:
    """Return the two sides of every ``a:b``, still with their escapes."""
    made = []
    for value in values:
        if mode == STRICT:
            refuse_quotes([value, *split_escaped(value, ":")], path)
        sides = split_escaped(value, ":") if mode == STRICT else java_split(value, ":")
        if len(sides) != _PAIR or (mode == STRICT and "" in sides):
            raise ConnectConfigError(f"expected pairs like a:b, found {value!r}", path=path)
        made.append((sides[0], sides[1]))
    return made


def paired(left: Sequence[_L], right: Sequence[_R], key: str, other_key: str) -> list[tuple[_L, _R]]:
    """Return the items of two lists in pairs; the keys are those of the lists."""
    if len(left) != len(right):
        raise ConnectConfigError(
            f"expected as many {other_key} as {key}, found {len(right)} and {len(left)}", path=other_key
        )
    return list(zip(left, right, strict=True))


def split_escaped(text: str, separator: str) -> list[str]:
    """Split a text at a character, unless a backslash precedes it; the parts keep their escapes."""
    if _BACKSLASH not in text:
        return text.split(separator)
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == _BACKSLASH:
            at += 1
        elif text[at] == separator:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def unescaped(text: str, path: str) -> str:
    """Return a text without its escapes."""
    if _BACKSLASH not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped not in ESCAPABLE:
            found = f"before {escaped!r}" if escaped else "at the end"
            known = " ".join(sorted(ESCAPABLE))
            raise ConnectConfigError(
                f"the backslash {found} of {text!r} escapes nothing; it may escape only {known}", path=path
            )
        return escaped

    return _ESCAPE.sub(character, text)


_ESCAPE: Final = re.compile(r"\\(.|\Z)", re.DOTALL)


def java_split(text: str, separator: str) -> list[str]:
    """Split a text as Java's ``String.split`` does: empty parts at the end do not count."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] or not text else []
