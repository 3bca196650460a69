"""Objects of text, line by line, each of a bounded length, at a known position.

A position counts bytes of UTF-8, or of the object's own encoding if each ASCII character is one byte of it.
Then an invalid byte spoils one line only. An object of another encoding, such as UTF-16, becomes UTF-8 on the
way; an invalid byte there is an error of the object.
"""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
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
_END: Final = sys.maxsize
_ASCII: Final = bytes(range(128))
_UTF_8: Final = "utf-8"
_MARKS: Final[Mapping[bytes, str]] = {  # in this order, for one begins with another
    codecs.BOM_UTF8: _UTF_8,
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_MARK_BYTES: Final = 4


Line = tuple[bytes | None, int, bool]
"""A line with its end, the position behind it, and False; or, if it was too long, None, the position, and
whether a given character was in it."""


class Text:
    """An object's text, at the beginning or at the beginning of a part of it."""

    def __init__(self, opened: OpenedStream, encoding: str, start: int) -> None:
        self._opened: Final = opened
        self.encoding: Final = encoding
        self.start: Final = start
        """The position of the first character, behind a byte-order mark."""
        self.position: int = start

    @property
    def can_be_split(self) -> bool:
        """Whether a part can be read by itself."""
        return self._opened.seekable

    def length(self) -> int:
        """Return the length in bytes; the stream then stands at its end."""
        return self._opened.stream.seek(0, io.SEEK_END)

    def move_to(self, position: int) -> None:
        """Go on from a position that a line ended at, or from one behind the current one."""
        if self._opened.seekable:
            self._opened.stream.seek(position)
            self.position = position
        else:
            self.position += self._opened.read_past(position - self.position)

    def move_behind(self, position: int) -> None:
        """Go on from the first line that begins at a position, or behind it."""
        if position <= self.position:
            return
        self.move_to(position - 1)
        while (found := self._opened.stream.readline(_PIECE_BYTES)) and found[-1] != 0x0A:
            self.position += len(found)
        self.position += len(found)

    def lines(self, limit: int, *, end: int = _END, quote: bytes | None = None) -> Iterator[Line]:
        """Yield the lines that begin before a position; one longer than the limit is read past."""
        readline = self._opened.stream.readline
        position = self.position
        most = limit + 2
        while position < end:
            line = readline(most)
            if not line:
                return
            position += len(line)
            if len(line) < most or line[-1] == 0x0A:
                yield line, position, False
                continue
            quoted = False
            while line and line[-1] != 0x0A:
                quoted = quoted or (quote is not None and quote in line)
                line = readline(_PIECE_BYTES)
                position += len(line)
            yield None, position, quoted or (quote is not None and quote in line)


def open_text(extractor: StreamExtractor, given: Input, encoding: str = _UTF_8) -> Text:
    """Return the text of an object; a byte-order mark tells its encoding."""
    head, opened = extractor.open_plain(given).peeked(_MARK_BYTES, given)
    mark = next((mark for mark in _MARKS if head.startswith(mark)), b"")
    encoding = _MARKS.get(mark, encoding)
    opened.read_past(len(mark))
    if holds_ascii(encoding):
        return Text(opened, encoding, len(mark))
    converted = buffered(cast("BinaryIO", _Converted(opened.stream, encoding)), given)
    return Text(OpenedStream(converted, seekable=False), _UTF_8, 0)


def holds_ascii(encoding: str) -> bool:
    """Return whether each ASCII character is one byte, and its own, so that a newline is found in bytes.

    Raises:
        ConfigError: there is no such encoding of text.
    """
    try:
        name = codecs.lookup(encoding).name
        held = all(bytes((code,)).decode(encoding) == chr(code) for code in _ASCII)
    except UnicodeError:
        return False
    except (LookupError, ValueError) as error:
        raise ConfigError(f"there is no encoding {encoding!r}", path="encoding") from error
    return held and not name.startswith(("iso2022", "utf-7", "hz"))  # these shift


def line_splits(text: Text, size_bytes: int) -> Iterable[Split]:
    """Return parts of a text by position; each has the lines that begin in it."""
    if not text.can_be_split:
        return
    end = text.length()
    for begin in range(0, end, size_bytes):
        yield Split(begin, min(begin + size_bytes, end), None if begin else 1)


def begin(text: Text, given: Input) -> int:
    """Move to where reading begins: behind the last record, or to the part; return where the part ends."""
    end = _END
    if given.split is not None:
        text.move_behind(given.split.begin)
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
                raise ObjectError(f"its text is not {self._encoding}, or is cut off") from error
        found, self._ready = self._ready[:most], self._ready[most:]
        return found
