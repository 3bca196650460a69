"""Check the sizes of Parquet pages while they are read, before pyarrow allocates them.

    a column chunk      consecutive pages
    a page              a header in Thrift's compact protocol, and data of the size in the header
    a header's fields   1 kind, 2 size in memory, 3 size in the file, 5 / 8 of data: ... 2 / 4 encoding

pyarrow allocates the size in memory that a page's header states, without regard to the sizes in the file's
footer. pyarrow reads each chunk from beginning to end, so the headers can be read on the way.
"""

from __future__ import annotations

from typing import Any, Final

from headerware.core.errors import ObjectError
from headerware.sources.extractors.streams import FREE_BYTES

_HEADER_BYTES: Final = (1 << 12, 1 << 16, 4 << 20)
"""How many bytes are read, step by step, for a header that continues after the bytes that were read."""
_DEPTH: Final = 16
_DICTIONARY_PAGE: Final = 2
_DELTA_BYTE_ARRAY: Final = 7
"""An encoding in which a value may repeat most of the value before it."""
_FIXED: Final = {3: 1, 7: 8}
"""The sizes of Thrift's types of fixed size."""
_VARINTS: Final = frozenset({4, 5, 6})
_BINARY, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12
_SIZE, _SIZE_IN_FILE = 2, 3
_ENCODINGS: Final = ((5, 2), (8, 4))
"""The fields of the encoding, for both versions: the field of the data page's header, and the field in it."""


class RepeatsError(Exception):
    """Values may repeat so often in a batch that the batch needs fewer rows.

    Args:
        dictionary_bytes: the size of the dictionaries, which is the upper limit for the length of their
            values.
        page_bytes: the size of other pages, which is the upper limit for the length of their values.
    """

    def __init__(self, dictionary_bytes: int, page_bytes: int) -> None:
        super().__init__()
        self.dictionary_bytes: Final = dictionary_bytes
        self.page_bytes: Final = page_bytes


class Pages:
    """Check the pages of the column chunks that are read.

    Args:
        stream: the file, to read the rest of long headers.
        length: the length of the file.
        max_expansion: how many times the size of the file its pages may have in memory, beyond 64 MiB.
    """

    def __init__(self, stream: Any, length: int, max_expansion: int) -> None:
        self._stream: Final = stream
        self._length: Final = length
        self._max_expansion: Final = max_expansion
        self._plain = 0
        self._plain_before = 0
        """The size in memory before the row group."""
        self._headers: dict[int, tuple[int, int]] = {}
        """By the position of a chunk's next read: the positions of its next header and of its beginning."""
        self._dictionaries: dict[int, int] = {}
        self._repeating: dict[int, int] = {}
        """By chunk, the largest page with an encoding other than a dictionary in which values may repeat."""
        self._most_repeated = 0

    def begin(self, most_repeated: int, *, again: bool) -> None:
        """Begin a row group, for the first time or again; each row may repeat ``most_repeated`` bytes."""
        if again:
            self._plain = self._plain_before
        self._plain_before, self._most_repeated = self._plain, most_repeated
        self._headers, self._dictionaries, self._repeating = {}, {}, {}

    def see(self, position: int, data: bytes) -> None:
        """Check the headers in data that was read.

        Raises:
            ObjectError: a page is too large in memory, or has no header.
            RepeatsError: batches need fewer rows.
        """
        end = position + len(data)
        at, chunk = self._headers.pop(position, (position, position))
        while at < end:
            header, size = self._header(at, data[at - position :], end)
            plain, stored = header.get(_SIZE), header.get(_SIZE_IN_FILE)
            if not (isinstance(plain, int) and isinstance(stored, int) and plain >= 0 and stored >= 0):
                raise ObjectError(f"expected the header of a page at byte {at}, found other bytes")
            self._count(chunk, header, plain, stored)
            at += size + stored
        self._headers[end] = at, chunk

    def _count(self, chunk: int, header: dict[int, Any], plain: int, stored: int) -> None:
        self._plain += plain
        for given, of in ((plain, stored), (self._plain, self._length)):
            if given > FREE_BYTES and given > self._max_expansion * of:
                raise ObjectError(
                    f"the file expands to more than {self._max_expansion} times its size, the limit "
                    "(max_expansion)"
                )
        if header.get(1) == _DICTIONARY_PAGE:
            self._dictionaries[chunk] = plain
        elif any(
            isinstance(found := header.get(page), dict) and found.get(field) == _DELTA_BYTE_ARRAY
            for page, field in _ENCODINGS
        ):
            self._repeating[chunk] = max(plain, self._repeating.get(chunk, 0))
        else:
            return
        dictionaries, pages = sum(self._dictionaries.values()), sum(self._repeating.values())
        if dictionaries + pages > self._most_repeated:
            raise RepeatsError(dictionaries, pages)

    def _header(self, at: int, data: bytes, end: int) -> tuple[dict[int, Any], int]:
        """Return a header's fields and its length."""
        for more in (0, *_HEADER_BYTES):
            if more:
                self._stream.seek(at)
                data = self._stream.read(more)
                self._stream.seek(end)
            try:
                reader = _Reader(data)
                return reader.struct(0), reader.at
            except (IndexError, ValueError):
                continue
        raise ObjectError(f"expected the header of a page at byte {at}, found other bytes")


class _Reader:
    """Read Thrift's compact protocol; raise IndexError at the end of the data, ValueError for other bytes."""

    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        self.at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the integers and structs in a struct, by field number."""
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            value = self._value(head & 0x0F, depth + 1)
            if value is not None:
                found[number] = value
        return found

    def _value(self, kind: int, depth: int) -> int | dict[int, Any] | None:
        if depth > _DEPTH:
            raise ValueError
        if kind in _VARINTS:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _FIXED:
            self._skip(_FIXED[kind])
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind in {_LIST, _SET}:
            head = self._byte()
            self._values(self._varint() if head >> 4 == 0x0F else head >> 4, (head & 0x0F,), depth)
        elif kind == _MAP:
            if count := self._varint():
                kinds = self._byte()
                self._values(count, (kinds >> 4, kinds & 0x0F), depth)
        elif kind not in {1, 2}:  # true and false
            raise ValueError
        return None

    def _values(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(count):
            for kind in kinds:
                if kind in {1, 2}:
                    self._skip(1)
                else:
                    self._value(kind, depth + 1)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise ValueError

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
