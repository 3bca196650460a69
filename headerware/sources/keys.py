"""Native keys and their text: a key is immutable, hashable and ordered, and names one object of a source."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from headerware.core.errors import SourceError

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")


class NativeKey(Protocol):
    """The interface of native keys: hashable, and comparable with the other keys of the source."""

    def __hash__(self) -> int: ...

    def __lt__(self, other: Any, /) -> bool: ...


Key = TypeVar("Key")


@runtime_checkable
class KeySerde(Protocol[Key]):
    """Convert a source's keys to text and back, exactly: ``from_text(to_text(key)) == key``."""

    def to_text(self, key: Key) -> str:
        """Return the text of a key; different keys have different texts."""
        ...

    def from_text(self, text: str) -> Key:
        """Return the key of a text.

        Raises:
            SourceError: the text is not the text of a key.
        """
        ...


class TextKeys:
    """Keys that are text, such as paths and names."""

    def to_text(self, key: str) -> str:
        """Return the key itself."""
        return key

    def from_text(self, text: str) -> str:
        """Return the text itself."""
        return text


class IntegerKeys:
    """Keys that are integers, such as numbers of pages."""

    def to_text(self, key: int) -> str:
        """Return the key in decimal digits."""
        return str(key)

    def from_text(self, text: str) -> int:
        """Return the integer written in decimal digits."""
        if _INTEGER.fullmatch(text) is None:
            raise SourceError(f"expected a key in decimal digits, found {text!r}")
        return int(text)
