"""Header ids: 32-bit numbers that stand for header names, written like IPv4 addresses.

An id may be given wherever the name of a header may be given. The core knows no registry: :func:`use_names`
sets the function that returns the name of an id.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final, Self

from headerware.core.errors import HeaderError

if TYPE_CHECKING:
    from collections.abc import Callable

    NameOf = Callable[[int], str | None]

MAX_ID: Final = 2**32 - 1
_PART: Final = r"(0|[1-9][0-9]{0,2})"
_DOTTED: Final = re.compile(rf"{_PART}\.{_PART}\.{_PART}\.{_PART}")


class HeaderId(int):
    """A header's id.

    Args:
        value: the number, its dotted form, such as ``"10.0.0.7"``, or an ``ipaddress.IPv4Address``.

    Raises:
        HeaderError: it is neither, or does not fit 32 bits.
    """

    __slots__ = ()

    def __new__(cls, value: int | str | IPv4Address) -> Self:
        """Check the number or read the dotted form."""
        if isinstance(value, IPv4Address):
            return super().__new__(cls, int(value))
        if isinstance(value, str):
            number = _number(value)
            if number is None:
                raise HeaderError(f"expected a header id such as 10.0.0.7, found {value!r}")
            return super().__new__(cls, number)
        given: object = value
        if isinstance(given, bool) or not isinstance(given, int):
            raise HeaderError(f"expected a header's name or its id, found {type(given).__name__}")
        if not 0 <= given <= MAX_ID:
            raise HeaderError(f"expected a header id from 0 to {MAX_ID}, found {given}")
        return super().__new__(cls, given)

    def __str__(self) -> str:
        """Return the dotted form."""
        return ".".join(map(str, self.to_bytes(4, "big")))

    def __repr__(self) -> str:
        """Show the dotted form."""
        return f"HeaderId('{self}')"


def parse_id(text: str) -> HeaderId | None:
    """Read an id in its dotted form; None for any other text, such as a name."""
    number = _number(text)
    return None if number is None else HeaderId(number)


def header_name(name: str | int) -> str:
    """Return the header name for a name, an id or the dotted form of an id.

    The name of an id that is not registered is its dotted form.
    """
    if isinstance(name, str):
        number = _number(name)
        return name if number is None else _called(HeaderId(number))
    return _called(HeaderId(name))


def _no_name(header_id: int) -> str | None:  # noqa: ARG001 - a resolver's signature
    return None


_name_of: NameOf = _no_name


def use_names(name_of: NameOf) -> NameOf:
    """Set the function that returns the names of ids in this process, and return the former function."""
    global _name_of
    before, _name_of = _name_of, name_of
    return before


def _called(header_id: HeaderId) -> str:
    return _name_of(header_id) or str(header_id)


def _number(text: str) -> int | None:
    found = _DOTTED.fullmatch(text)
    parts = [int(part) for part in found.groups()] if found else [256]
    return None if max(parts) > 255 else int.from_bytes(bytes(parts), "big")
