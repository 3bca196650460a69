"""Read objects of text by lines of limited length, with the position of each line.

Positions count bytes: of the object's own encoding if each ASCII character is a single byte in it, else of
UTF-8. In the first case an invalid byte damages only one line. An object of any other encoding, such as
UTF-16, is converted to UTF-8, and an invalid byte is an error of the object.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from headerware.core.errors import ConfigError, ObjectError
from headerware.sources.extractor import Input, Split
from headerware.sources.extractors.streams import (
    OpenedStream,
    ReadingStream,
    StreamExtractor,
    buffered,
)

if TYPE_CHECKING:
    from typing import Any

_PIECE_BYTES: Final = 1 << 16
"""How many bytes are read at once, and so become one block of records."""
_END: Final = 1 << 62
_ASCII: Final = bytes(range(128))
_UTF_8: Final = "utf-8"
_MARKS: Final[Mapping[bytes, str]] = {  # in this order, because one mark begins with another
    codecs.BOM_UTF8: _UTF_8,
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_MARK_BYTES: Final = 4


class Text:
    """An object's text from a position on, in blocks of complete lines."""

    def __init__(self, opened: OpenedStream, encoding: str, start: int, *, grows: bool) -> None:
        self._opened: Final = opened
        self._grows: Final = grows
        self._left = b""
        self._ended = False
        self.encoding: Final = encoding
        self.position: int = start
        """The position of the next block."""
        self.quoted: bool = False
        """Whether the last line that was skipped as too long had a quotation mark."""

    @property
    def can_be_split(self) -> bool:
        """Whether a part can be read independently."""
        return self._opened.seekable

    def length(self) -> int:
        """Return the length in bytes, and leave the stream at its end."""
        return self._opened.stream.seek(0, io.SEEK_END)

    def block(
        self, limit: int, *, end: int = _END, known: int = 0, quote: bytes | None = None
    ) -> bytes | None:
        """Return lines from the position on, with their line breaks; no bytes at the end of the part.

        The same lines are returned again until :meth:`advance` passes them. An unfinished last line is
        included, unless the object grows. If the next line is longer than the limit, skip it and return None.

        Args:
            limit: the longest line, in bytes.
            end: the end of the part; lines that begin before it belong to the part.
            known: the length of the lines that were returned before; return these lines and at least one
                more.
            quote: the quotation mark that makes a skipped line :attr:`quoted`.
        """
        if self.position >= end:
            return b""
        pieces, size, cut = [self._left], len(self._left), self._left.rfind(b"\n") + 1
        while cut <= 2 * known and size - cut <= limit + 1 and not self._ended:
            piece = self._opened.stream.read1(_PIECE_BYTES)
            self._ended = not piece
            pieces.append(piece)
            cut = size + found + 1 if (found := piece.rfind(b"\n")) >= 0 else cut
            size += len(piece)
        self._left = b"".join(pieces)
        if cut <= known and size - cut > limit + 1:
            self._pass_line(quote)
            return None
        if self._ended and not self._grows:
            cut = size
        if self.position + cut > end:
            cut = self._left.find(b"\n", end - self.position - 1) + 1 or cut
        return self._left[:cut]

    def advance(self, count: int) -> None:
        """Move the position past some of the bytes that :meth:`block` returned."""
        self._left = self._left[count:]
        self.position += count

    def move_to(self, position: int) -> None:
        """Continue from a position after a line, or from any later position."""
        if self._opened.seekable:
            self._opened.stream.seek(position)
            self._left, self._ended, self.position = b"", False, position
            return
        held = min(len(self._left), position - self.position)
        self.advance(held)
        self.position += self._opened.read_past(position - self.position)

    def move_to_line(self, position: int) -> None:
        """Continue from the first line that begins at a position or after it."""
        if position > self.position:
            self.move_to(position - 1)
            self._pass_line(None)

    def _pass_line(self, quote: bytes | None) -> None:
        self.quoted = False
        while True:
            found = self._left.find(b"\n") + 1
            passed = found or len(self._left)
            self.quoted = self.quoted or (quote is not None and self._left.find(quote, 0, passed) >= 0)
            self.advance(passed)
            if found or self._ended:
                return
            self._left = self._opened.stream.read1(_PIECE_BYTES)
            self._ended = not self._left


def open_text(extractor: StreamExtractor, given: Input, encoding: str = _UTF_8) -> Text:
    """Return the text of an object; a byte-order mark overrides the encoding."""
    head, opened = extractor.open_plain(given).peeked(_MARK_BYTES, given)
    mark = next((mark for mark in _MARKS if head.startswith(mark)), b"")
    encoding = _MARKS.get(mark, encoding)
    opened.read_past(len(mark))
    grows = given.item.context.grows
    if holds_ascii(encoding):
        return Text(opened, encoding, len(mark), grows=grows)
    converted = buffered(cast("BinaryIO", _Converted(opened.stream, encoding)), given)
    return Text(OpenedStream(converted, seekable=False), _UTF_8, 0, grows=grows)


def holds_ascii(encoding: str) -> bool:
    """Return whether an encoding writes ASCII characters as their own byte, so that bytes show line breaks.

    Raises:
        ConfigError: the encoding is unknown.
    """
    try:
        name = codecs.lookup(encoding).name
        held = all(bytes((code,)).decode(encoding) == chr(code) for code in _ASCII)
    except UnicodeError:
        return False
    except (LookupError, ValueError) as error:
        raise ConfigError(f"expected an encoding of text, found {encoding!r}", path="encoding") from error
    return held and not name.startswith(("iso2022", "utf-7", "hz"))  # these have shift sequences


def line_splits(text: Text, size_bytes: int) -> Iterable[Split]:
    """Return parts of a text by position; a part has the lines that begin in it."""
    if not text.can_be_split:
        return
    end = text.length()
    for begin in range(0, end, size_bytes):
        yield Split(begin, min(begin + size_bytes, end), None if begin else 1)


def begin(text: Text, given: Input) -> int:
    """Move to the part or after the last stored record; return the end of the part."""
    end = _END
    if given.split is not None:
        text.move_to_line(given.split.begin)
        end = given.split.end
    known = given.properties.get("byte")
    if given.skip and type(known) is int and known >= text.position:
        text.move_to(known)
        given.skipped = given.skip
    return end


class _Converted(ReadingStream):
    """The text of a stream in UTF-8."""

    def __init__(self, source: io.BufferedIOBase, encoding: str) -> None:
        super().__init__()
        self._source = source
        self._encoding = encoding
        self._decoder: Any = codecs.getincrementaldecoder(encoding)()
        self._ready = memoryview(b"")
        self._ended = False

    def give(self, most: int) -> memoryview:
        while not self._ready and not self._ended:
            piece = self._source.read1(_PIECE_BYTES)
            self._ended = not piece
            try:
                self._ready = memoryview(self._decoder.decode(piece, self._ended).encode())
            except UnicodeError as error:
                raise ObjectError(f"the text is not {self._encoding}, or is truncated") from error
        found, self._ready = self._ready[:most], self._ready[most:]
        return found
