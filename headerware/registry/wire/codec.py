"""The wire codec of header ids: names become ids, one header each or all in one header, and names again.

The codec does no I/O; its caller passes the look-ups of names and ids. Both forms are in spec/header-ids.md.
The codec reads both, and plain names, whichever form it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import WireFormatError
from headerware.core.header_ids import HeaderId, parse_id
from headerware.core.headers import Headers, HeaderValue, Pair
from headerware.registry.wire.compact_keys import (
    MARKER,
    compact_key,
    escape,
    id_of_key,
    unescape,
)
from headerware.registry.wire.packed_block import HEADER, MAX_PACKED, Spelling, encode_number, pack, unpack

__all__ = ["HEADER", "Form", "HeaderIdCodec", "IdOf", "NameOf"]

Form = Literal["keys", "packed"]
IdOf = Callable[[str], int | None]
NameOf = Callable[[int], str | None]

_MAX_CACHED: Final = 1_024
_MAX_CACHED_LENGTH: Final = 128
_new_headers: Final = tuple.__new__


def _none_stays(name: str) -> bool:  # noqa: ARG001 - a predicate's signature
    return False


class HeaderIdCodec:
    """Turn the names of headers into ids, and ids into names.

    A header is written with its id if its name has an id, or is an id in dotted form, unless that takes more
    bytes or would be read as another name here. All other headers keep their names, and so do headers for
    whose names ``stays`` returns True. Order, duplicates, null values and empty values are kept. An id
    without a name is read as its dotted form.

    ``saved_bytes`` counts the bytes of names that were saved, and ``unknown_ids`` the headers that were read
    with ids that have no name. Safe for use by several threads at once; the counts may then be slightly
    wrong.
    """

    __slots__ = (
        "_id_of",
        "_is_packed",
        "_keys",
        "_name_of",
        "_names",
        "_plain_names",
        "_spellings",
        "_stays",
        "saved_bytes",
        "unknown_ids",
    )

    def __init__(
        self,
        id_of: IdOf,
        name_of: NameOf,
        *,
        form: Form = "packed",
        stays: Callable[[str], bool] = _none_stays,
    ) -> None:
        self._id_of = id_of
        self._name_of = name_of
        self._is_packed = form == "packed"
        self._stays = stays
        self.saved_bytes: int = 0
        self.unknown_ids: int = 0
        # Long names and unknown ids are not kept, so that many of them do not displace other entries.
        self._keys: BoundedCache[str, tuple[str, int] | None] = BoundedCache(
            _MAX_CACHED, self._key, cost=_is_long
        )
        self._spellings: BoundedCache[str, Spelling] = BoundedCache(
            _MAX_CACHED, self._spelling, cost=_is_long
        )
        # An id without a name is looked up each time: it is counted, and may get a name.
        self._names: BoundedCache[int, str] = BoundedCache(_MAX_CACHED, self._name, cost=self._is_unknown)
        self._plain_names: BoundedCache[str, str] = BoundedCache(
            _MAX_CACHED, self._plain_name, cost=self._is_unknown_key
        )

    def encode(self, headers: Headers) -> Headers:
        """Return the headers in their wire form; the same object if nothing changes."""
        packed = self._is_packed and len(headers) <= MAX_PACKED
        written = pack(headers, self._spellings) if packed else self._with_keys(headers)
        if written is None:
            return headers
        wire, saved = written
        self.saved_bytes += saved
        return _new_headers(Headers, wire)

    def decode(self, headers: Headers) -> Headers:
        """Return the headers as they were sent, from either wire form; the same object if nothing changes."""
        read: list[Pair] = []
        block: HeaderValue = None
        start = -1
        unchanged = True
        plain_names = self._plain_names
        for pair in headers:
            name = pair[0]
            if name[:1] == MARKER:
                plain = plain_names[name]
                unchanged = unchanged and plain == name
                read.append((plain, pair[1]))
            elif name != HEADER:
                read.append(pair)
            elif start < 0:
                start, block = len(read), pair[1]
            else:
                raise WireFormatError(f"expected {HEADER} once, found it more than once")
        if start >= 0:
            read[start:] = unpack(block, read[start:], self._names)
        elif unchanged:
            return headers
        return _new_headers(Headers, read)

    def _with_keys(self, headers: Headers) -> tuple[list[Pair], int] | None:
        """Do the work of :func:`pack` with one header for each id."""
        wire: list[Pair] = []
        saved = changed = 0
        keys = self._keys
        for pair in headers:
            key = keys[pair[0]]
            if key is None:
                wire.append(pair)
            else:
                wire.append((key[0], pair[1]))
                saved += key[1]
                changed = 1
        return (wire, saved) if changed else None

    def _key(self, name: str) -> tuple[str, int] | None:
        """Return a name's compact key or escaped form, and the bytes saved; None if it stays as it is."""
        header_id = self._id(name)
        key = "" if header_id is None else compact_key(header_id)
        if not key or len(key) > len(name):
            key = escape(name)
        return None if key == name else (key, len(name) - len(key))

    def _spelling(self, name: str) -> Spelling:
        """Return a name's form in a packed block, or its escaped form; None if it stays as it is."""
        header_id = self._id(name)
        beginning = b"" if header_id is None else encode_number(header_id)
        if beginning and len(beginning) <= len(name):  # a length may take a character more than in a record
            return beginning, len(name) + 1 - len(beginning)
        escaped = escape(name)
        return None if escaped == name else escaped

    def _id(self, name: str) -> int | None:
        if name == HEADER:
            raise WireFormatError(f"a header is called {HEADER}, which is the name of the packed block")
        if self._stays(name):
            return None
        header_id = self._id_of(name)
        if header_id is None:
            header_id = parse_id(name)
        if not header_id or (self._name_of(header_id) or str(HeaderId(header_id))) != name:
            return None
        return header_id

    def _plain_name(self, key: str) -> str:
        """Return the plain name for a name on the wire that begins with the marker."""
        header_id = id_of_key(key)
        return unescape(key) if header_id is None else self._names[header_id]

    def _is_unknown_key(self, key: str, _: object) -> bool:
        header_id = id_of_key(key)
        return header_id is None or not self._name_of(header_id)

    def _name(self, header_id: int) -> str:
        name = self._name_of(header_id)
        if not name:
            self.unknown_ids += 1
            return str(HeaderId(header_id))
        if name == HEADER:
            raise WireFormatError(f"{HEADER} is named by an id, expected by its name only")
        return name

    def _is_unknown(self, header_id: int, _: object) -> bool:
        return not self._name_of(header_id)


def _is_long(name: str, _: object) -> bool:
    return len(name) > _MAX_CACHED_LENGTH
