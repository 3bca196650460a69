"""Headers: an immutable ordered multimap of names to bytes (KIP-82).

Order, duplicates, ``None``, empty values, empty names and values that are not text are all kept. Each change
returns new headers, so that sent headers never change; :class:`HeadersBuilder` is the mutable form, which
freezes when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from headerware.core.errors import HeaderError
from headerware.core.header_ids import header_name

type_of = type
Name = str | int
"""A header's name, or the id that stands for it (see :mod:`headerware.core.header_ids`)."""
HeaderValue = bytes | None
Pair = tuple[str, HeaderValue]
HeadersLike = (
    Mapping[str, str | bytes | bytearray | memoryview | None]
    | Mapping[int, str | bytes | bytearray | memoryview | None]
    | Mapping[Name, str | bytes | bytearray | memoryview | None]
    | Iterable[tuple[Name, str | bytes | bytearray | memoryview | None]]
    | None
)
"""The accepted forms of headers: a mapping, pairs in any sequence, or None."""


class Headers(tuple[Any, ...]):
    """Hold a record's headers, in order, as ``(name, value)`` pairs.

    Args:
        headers: a mapping, an iterable of pairs, or None. A str value becomes UTF-8; bytearray and
            memoryview become bytes; an id instead of a name becomes the name that is registered for it.

    Raises:
        HeaderError: a name that is neither a str nor an id, a value of another type, or an item that is
            no pair.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # For type checkers this yields pairs but is not a tuple of pairs; else ``name in headers`` is an
        # error.
        def __iter__(self) -> Iterator[Pair]: ...

    def __new__(cls, headers: HeadersLike = None) -> Self:
        """Normalise headers."""
        given: Any = headers
        kind: type = given.__class__
        if kind is cls:
            return given  # type: ignore[no-any-return]  # its class was just compared
        if kind is list or kind is tuple:
            for pair in given:
                if pair.__class__ is not tuple or len(pair) != 2:
                    break
                name, value = pair
                if name.__class__ is not str or (value.__class__ is not bytes and value is not None):
                    break
            else:
                return tuple.__new__(cls, given)
        return tuple.__new__(cls, _normalised(given))

    @classmethod
    def trusted(cls, pairs: Iterable[Pair]) -> Headers:
        """Make headers of pairs that are known to be ``(str, bytes | None)`` tuples; check nothing."""
        return tuple.__new__(cls, pairs)

    @classmethod
    def builder(cls, headers: HeadersLike = None) -> HeadersBuilder:
        """Open a mutable copy, for code ported from Java."""
        return HeadersBuilder(headers)

    def add(self, name: Name, value: str | bytes | bytearray | memoryview | None) -> Headers:
        """Return headers with one more header at the end; headers of the same name are kept."""
        return tuple.__new__(Headers, (*self, _pair(name, value)))

    def append(self, pair: Pair) -> Headers:
        """Return headers with a valid pair added at the end; the fast form of :meth:`add`."""
        return tuple.__new__(Headers, (*self, pair))

    def put(self, name: Name, value: str | bytes | bytearray | memoryview | None) -> Headers:
        """Return headers with this header at the end, and without other headers of its name."""
        return self.remove(name).add(name, value)

    def remove(self, name: Name) -> Headers:
        """Return headers without any header of this name; the same object if there was none."""
        name = name if isinstance(name, str) else header_name(name)
        kept = [pair for pair in self if pair[0] != name]
        return self if len(kept) == len(self) else tuple.__new__(Headers, kept)

    def keep(self, wanted: Callable[[str], bool]) -> Headers:
        """Return the headers whose names are wanted, in order."""
        return tuple.__new__(Headers, [pair for pair in self if wanted(pair[0])])

    def last(self, name: Name, default: HeaderValue = None) -> HeaderValue:
        """Return the value of the last header of this name, or ``default``.

        A null header and a missing header look alike here; ``name in headers`` tells them apart.
        """
        name = name if isinstance(name, str) else header_name(name)
        found: HeaderValue
        for key, found in reversed(self):
            if key == name:
                return found
        return default

    def all(self, name: Name) -> tuple[HeaderValue, ...]:
        """Return the values of all headers of this name, in order."""
        name = name if isinstance(name, str) else header_name(name)
        return tuple(pair[1] for pair in self if pair[0] == name)

    def names(self) -> tuple[str, ...]:
        """Return the names in order, duplicates included."""
        return tuple(pair[0] for pair in self)

    def retain_latest(self) -> Headers:
        """Return headers with only the last one of each name, which keeps its position."""
        seen: set[str] = set()
        kept: list[Pair] = []
        for pair in reversed(self):
            if pair[0] not in seen:
                seen.add(pair[0])
                kept.append(pair)
        return tuple.__new__(Headers, reversed(kept))

    def __contains__(self, item: object) -> bool:
        """Return whether a header of this name or id, or exactly this pair, is there."""
        if isinstance(item, int):
            item = header_name(item)
        if isinstance(item, str):
            return any(pair[0] == item for pair in self)
        return tuple.__contains__(self, item)

    def __add__(self, other: Any) -> Headers:
        """Return these headers followed by others."""
        return tuple.__new__(Headers, (*self, *Headers(other)))

    def __mul__(self, count: SupportsIndex) -> Headers:
        """Refuse to repeat headers, as a tuple would."""
        raise HeaderError("headers cannot be multiplied; add them one by one")

    def __rmul__(self, count: SupportsIndex) -> Headers:
        """Refuse to repeat headers."""
        return self * count

    def __repr__(self) -> str:
        """Show names and sizes only, for values may be secret."""
        shown = ", ".join(f"{name!r}: {'null' if value is None else len(value)}" for name, value in self)
        return f"Headers({shown})"


class HeadersBuilder:
    """Collect headers in place; after :meth:`build` every change raises :class:`HeaderError`.

    Not safe for use by several threads at once.
    """

    __slots__ = ("_built", "_pairs")

    def __init__(self, headers: HeadersLike = None) -> None:
        self._pairs: list[Pair] = list(Headers(headers))
        self._built = False

    def add(self, name: Name, value: str | bytes | bytearray | memoryview | None) -> HeadersBuilder:
        """Add a header at the end, and return the builder itself."""
        self._changeable().append(_pair(name, value))
        return self

    def remove(self, name: Name) -> HeadersBuilder:
        """Remove all headers of this name, and return the builder itself."""
        pairs = self._changeable()
        pairs[:] = Headers.trusted(pairs).remove(name)
        return self

    def retain_latest(self) -> HeadersBuilder:
        """Keep only the last header of each name, and return the builder itself."""
        pairs = self._changeable()
        pairs[:] = Headers.trusted(pairs).retain_latest()
        return self

    def last(self, name: Name) -> HeaderValue:
        """Return the value of the last header of this name, or None."""
        return Headers.trusted(self._pairs).last(name)

    def all(self, name: Name) -> tuple[HeaderValue, ...]:
        """Return the values of all headers of this name, in order."""
        return Headers.trusted(self._pairs).all(name)

    def build(self) -> Headers:
        """Freeze the builder and return the headers; another call returns the same."""
        self._built = True
        return Headers.trusted(self._pairs)

    def _changeable(self) -> list[Pair]:
        if self._built:
            raise HeaderError("these headers have been built and cannot change; open a new builder from them")
        return self._pairs

    def __iter__(self) -> Iterator[Pair]:
        """Go through a snapshot of the pairs."""
        return iter(tuple(self._pairs))

    def __len__(self) -> int:
        """Count the headers."""
        return len(self._pairs)

    def __contains__(self, name: object) -> bool:
        """Return whether a header of this name or id is there."""
        return name in Headers.trusted(self._pairs)


def _normalised(headers: Any) -> list[Pair]:
    if headers is None:
        return []
    items = headers.items() if isinstance(headers, Mapping) else headers
    if isinstance(items, str | bytes | bytearray | memoryview):
        raise _no_headers(items)
    try:
        found = list(items)
    except TypeError:
        raise _no_headers(items) from None
    return [_loose_pair(item, index) for index, item in enumerate(found)]


def _no_headers(items: object) -> HeaderError:
    return HeaderError(
        f"headers are a mapping or (name, value) pairs, not {type_of(items).__name__}; write such as "
        "{'tenant': 'north'} or [('tenant', b'north')]"
    )


def _loose_pair(item: Any, index: int) -> Pair:
    if isinstance(item, str | bytes) or not isinstance(item, Sequence) or len(item) != 2:
        found = type_of(item).__name__
        if isinstance(item, Sequence) and not isinstance(item, str | bytes):
            found += f" of {len(item)}"
        raise HeaderError(f"header {index}: expected a (name, value) pair, found {found}")
    name, value = item
    return _pair(name, value, index)


def _pair(name: Any, value: Any, index: int | None = None) -> Pair:
    if isinstance(name, int):
        name = header_name(name)
    if not isinstance(name, str):
        where = "a header" if index is None else f"header {index}"
        advice = "; decode it, for instance by name.decode()" if isinstance(name, bytes) else ""
        raise HeaderError(f"the name of {where} is a str or an id, not {type_of(name).__name__}{advice}")
    if isinstance(value, str):
        value = _encoded(name, value)
    elif isinstance(value, bytes | bytearray | memoryview):
        value = value if value.__class__ is bytes else bytes(memoryview(value))
    elif value is not None:
        advice = "convert it, for instance by str(...)"
        if isinstance(value, list | tuple | set):
            advice = "for several headers of one name, pass pairs: [(name, value), (name, value)]"
        raise HeaderError(
            f"the value of header {name!r} is bytes, str or None, not {type_of(value).__name__}; {advice}"
        )
    # Not str(name), which would return the name of the member if the name is a member of a str enumeration.
    return (name if name.__class__ is str else str.__str__(name), value)


def _encoded(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:  # its text quotes the value
        raise HeaderError(f"the value of header {name!r} is text that UTF-8 cannot express") from None


EMPTY: Headers = tuple.__new__(Headers, ())
