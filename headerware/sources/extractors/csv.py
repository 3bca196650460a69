"""Extract the rows of CSV.

The csv module reads it, not pyarrow: pyarrow tells neither the number of a row that it refuses nor where a
row begins, guesses types from the first block, and cannot keep a row of another length. A row is read in some
tenths of a microsecond a field, which is little beside sending it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from headerware.connect.data.schema import OPTIONAL_STRING_SCHEMA, Schema, SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.core.errors import BadRecordError, ConfigError, ObjectError
from headerware.sources.extractor import Extracted, Input, Split
from headerware.sources.extractors.lines import Text, begin, holds_ascii, line_splits, open_text
from headerware.sources.extractors.streams import StreamExtractor

if TYPE_CHECKING:
    from headerware.sources.extractors.lines import Line

_FOREVER: Final = 1 << 62


class CsvExtractor(StreamExtractor, frozen=True, kw_only=True):
    r"""Yield each row by the names of its columns; blank lines are none. Values are text.

    Args:
        max_record_bytes: the longest row. A longer line without quotation marks is a bad record; a longer row
            with them is an error of the object, for where it ends is not known.
        compression: see :class:`~headerware.sources.extractors.StreamExtractor`.
        max_expansion: in the same way.
        header: whether the first row has the names of the columns.
        columns: their names, instead of those in the object. Without a header and names, columns are
            ``field0``, ``field1``, and so on, as many as the first row has.
        ragged: what is done with a row of another length: ``refuse`` makes it a bad record; ``fit`` gives it
            nulls for what is missing, and ``field7`` as the name of an eighth field too many.
        delimiter: what stands between fields, one character.
        quote: what fields are quoted with, one character; None if they never are.
        escape: what takes the meaning of the next character away, one character; None if nothing does. A
            quotation mark in a quoted field may always be doubled.
        quoted_newlines: whether a quoted field may go on on the next line. If not, each line is a row, a
            missing quotation mark spoils one row only, and objects can be split.
        encoding: the encoding, by Python's name for it; a byte-order mark has precedence.
        schemas: whether rows are Connect's Structs with a schema; otherwise they are dicts.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "csv"

    header: bool = True
    columns: list[str] | None = None
    ragged: Literal["refuse", "fit"] = "refuse"
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    quoted_newlines: bool = True
    encoding: str = "utf-8"
    schemas: bool = False

    def __post_init__(self) -> None:
        """Refuse what no row could be read with."""
        super().__post_init__()
        holds_ascii(self.encoding)
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise ConfigError("a name is there twice", path="columns")
        if self.quote is not None and not self.quote.isascii():
            raise ConfigError("expected an ASCII character", path="quote")
        for option in ("delimiter", "quote", "escape"):
            value = getattr(self, option)
            if value is not None and (len(value) != 1 or value in "\r\n"):
                raise ConfigError("expected one character, and no line break", path=option)
        given = [value for value in (self.delimiter, self.quote, self.escape) if value is not None]
        if len(set(given)) != len(given):
            raise ConfigError("delimiter, quote and escape must differ", path="delimiter")

    @property
    def gives(self) -> Any:
        """The type of the values."""
        return Struct if self.schemas else dict

    def extract(self, given: Input) -> Iterator[Extracted | BadRecordError]:
        """Yield the rows behind the header."""
        text = open_text(self, given, self.encoding)
        start = text.position
        first: list[str] | None = None
        names = self.columns
        if self.header or names is None:
            found = next(self._rows(text, given), None)
            if found is None:
                return
            row, text.position = found
            if isinstance(row, BadRecordError):
                raise ObjectError(f"its first row cannot be read: {row}")
            if not self.header:
                first = row
            if names is None:
                names = row if self.header else [f"field{at}" for at in range(len(row))]
        if len(set(names)) != len(names):
            raise ObjectError("a column's name is there twice in the first row; name them by 'columns'")
        shape = _Shape(names, schemas=self.schemas, fits=self.ragged == "fit")
        behind_first = text.position
        end = begin(text, given)
        split = given.split
        here = split is None or split.begin <= start < split.end
        if first is not None and here and not given.skipped:
            size = behind_first - start
            yield Extracted(shape.value(first), properties={"byte": behind_first}, size_bytes=size)
        before = text.position
        for row, position in self._rows(text, given, end):
            if isinstance(row, BadRecordError):
                yield row
            elif len(row) != shape.width and not shape.fits:
                yield BadRecordError(
                    f"the row that ends at byte {position} has {len(row)} fields, expected {shape.width}"
                )
            else:
                value, size = shape.value(row), position - before
                yield Extracted(value, properties={"byte": position}, size_bytes=size)
            before = position

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:
        """Return parts by bytes, if each line is a row and the object is not compressed."""
        if self.quoted_newlines and self.quote is not None:
            return ()
        return line_splits(open_text(self, given, self.encoding), size_bytes)

    def _rows(
        self, text: Text, given: Input, end: int = _FOREVER
    ) -> Iterator[tuple[list[str] | BadRecordError, int]]:
        """Yield rows that are not blank, or what is wrong with them, and the position behind each."""
        # The limit is that of the process, and it is low; lines are bounded before the module sees them.
        csv.field_size_limit(max(csv.field_size_limit(), self.max_record_bytes))
        grows = given.item.context.grows
        feed = _Feed(self, text, end, grows=grows)
        rows = csv.reader(
            feed,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            quoting=csv.QUOTE_MINIMAL if self.quote is not None else csv.QUOTE_NONE,
            strict=True,
        )
        while True:
            feed.begin()
            try:
                row = next(rows)
            except StopIteration:
                row = None
            except csv.Error as error:
                if feed.failure is None:
                    if feed.unfinished or (feed.ended and grows):
                        return
                    if feed.ended:
                        raise ObjectError(
                            f"a quoted field of the row at byte {feed.began} never ends"
                        ) from error
                    yield BadRecordError(f"the row at byte {feed.began} is not CSV: {error}"), feed.position
                    continue
                row = None
            if feed.failure is not None:
                raise ObjectError(feed.failure)
            if row is None:
                return
            if feed.problem is not None:
                yield BadRecordError(feed.problem), feed.position
            elif row:
                yield row, feed.position


class _Feed:
    """The lines of a text as csv's reader takes them.

    What is wrong is noted rather than raised, so that the reader and the lines stay together.
    """

    def __init__(self, options: CsvExtractor, text: Text, end: int, *, grows: bool) -> None:
        self._limit = options.max_record_bytes
        self._one_line = not options.quoted_newlines
        quote = None if options.quote is None or self._one_line else options.quote.encode()
        self._lines: Iterator[Line] = text.lines(self._limit, end=end, quote=quote)
        self._encoding = text.encoding
        self._grows = grows
        self._taken = False
        self.began = self.position = text.position
        self.problem: str | None = None
        """Why the row cannot be read; the next one can."""
        self.failure: str | None = None
        """Why nothing more can be read."""
        self.unfinished = False
        self.ended = False

    def begin(self) -> None:
        """Begin a row."""
        self.began, self.problem, self._taken = self.position, None, False

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        """Return the next line of the row."""
        if self._taken and self._one_line:
            raise StopIteration
        self._taken = True
        found = next(self._lines, None)
        if found is None:
            self.ended = True
            raise StopIteration
        line, position, quoted = found
        if position - self.began > self._limit + 2 and (line is not None or quoted or self._goes_on):
            self.failure = (
                f"the row at byte {self.began} has more than {self._limit} bytes, the limit "
                "(max_record_bytes), and its end is not known"
            )
            raise StopIteration
        if line is None:
            self.position = position
            self.problem = (
                f"the row at byte {self.began} has more than {self._limit} bytes (max_record_bytes)"
            )
            return ""
        if self._grows and line[-1] != 0x0A:
            self.unfinished = True
            raise StopIteration
        self.position = position
        if b"\0" in line:
            self.problem = f"the row at byte {self.began} has a NUL character; is this another encoding?"
        try:
            return line.decode(self._encoding)
        except UnicodeDecodeError:
            self.problem = f"the row at byte {self.began} is not {self._encoding}"
            return line.decode(self._encoding, "replace")

    @property
    def _goes_on(self) -> bool:
        return self.position != self.began


class _Shape:
    """What rows become."""

    def __init__(self, names: list[str], *, schemas: bool, fits: bool) -> None:
        self.width: Final = len(names)
        self.fits: Final = fits
        self._names: Final = names
        self._schemas: Final = schemas
        self._known: dict[int, tuple[list[str], Schema]] = {}

    def value(self, row: list[Any]) -> Any:
        """Return a row as a dict or a Struct; it may be longer or shorter."""
        width = max(self.width, len(row))
        names, schema = self._known.get(width) or self._of(width)
        if len(row) < width:
            row += [None] * (width - len(row))
        return Struct.trusted(schema, row) if self._schemas else dict(zip(names, row, strict=True))

    def _of(self, width: int) -> tuple[list[str], Schema]:
        names = list(self._names)
        for at in range(self.width, width):
            name = f"field{at}"
            while name in names:
                name += "_"
            names.append(name)
        builder = SchemaBuilder.struct()
        for name in names:
            builder.field(name, OPTIONAL_STRING_SCHEMA)
        made = self._known[width] = (names, builder.build())
        return made
