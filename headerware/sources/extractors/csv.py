"""Extract the rows of CSV.

Python's csv module is used, not pyarrow: pyarrow tells neither the number of a refused row nor where a row
begins, guesses types from the first block, and cannot accept rows of different lengths. The csv module takes
some tenths of a microsecond per field, which is little compared with sending.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from typing import Any, ClassVar, Final, Literal, NamedTuple, cast

from msgspec.structs import force_setattr

from headerware.connect.data.schema import OPTIONAL_STRING_SCHEMA, Schema, SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import BadRecordError, ConfigError, ObjectError
from headerware.core.printable import counted
from headerware.sources.extractor import Extracted, Found, Input, Split
from headerware.sources.extractors.lines import Text, begin, holds_ascii, line_splits, open_text
from headerware.sources.extractors.streams import StreamExtractor

_FOREVER: Final = 1 << 62
_NAME_BYTES: Final = 64
"""How many bytes a made-up name of a field takes in memory."""
_HELD_FIELDS: Final = 1 << 17
"""The limit for the fields of all cached schemas for rows of different lengths."""
_LINE_BREAKS: Final = 2
"""The bytes of the last line break of a row, which do not count for its length."""
_UNENDED: Final = "unexpected end of data"
"""The csv module's message for a quoted field that has no end in the given lines."""


class CsvExtractor(StreamExtractor, frozen=True, kw_only=True):
    r"""Yield each row with the names of its columns; skip blank lines. Values are text.

    Args:
        max_record_bytes: the longest row. A longer line without quotation marks is a bad record; a longer row
            with quotation marks is an error of the object, because its end is not known.
        compression: see :class:`~headerware.sources.extractors.StreamExtractor`.
        max_expansion: see :class:`~headerware.sources.extractors.StreamExtractor`.
        max_record_lines: how many lines a row may have. A row with more lines is an error of the object,
            because its end is not known.
        header: whether the first row has the names of the columns.
        columns: the names of the columns, in place of the names in the object. A column without a name is
            called ``field0`` if it is the first, ``field1`` if it is the second, and so on; without a header
            and ``columns``, all columns are.
        ragged: how a row of another length is treated: ``refuse`` makes it a bad record; ``fit`` adds nulls
            for missing fields, and names such as ``field7`` for an eighth field that is too many. These names
            count for the length of the row.
        delimiter: the character between fields.
        quote: the character around quoted fields; None or ``""`` if fields are never quoted.
        escape: the character that escapes the next one; None if there is none. A quotation mark in a quoted
            field may always be doubled.
        quoted_newlines: whether a quoted field may continue on the next line. If not, each line is a row, a
            missing quotation mark damages only one row, and objects can be split.
        encoding: Python's name of the encoding; a byte-order mark takes precedence.
        schemas: whether rows are Connect Structs with a schema; otherwise they are dicts.

    Raises:
        ConfigError: an option cannot work.
    """

    type: ClassVar[str] = "csv"

    max_record_lines: int = 100_000
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
        """Refuse options with which no row can be read."""
        super().__post_init__()
        if self.max_record_lines < 1:
            raise ConfigError(f"expected at least 1, found {self.max_record_lines}", path="max_record_lines")
        holds_ascii(self.encoding)
        if self.quote == "":  # TOML has no null
            force_setattr(self, "quote", None)
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise ConfigError("expected different names, found a name twice", path="columns")
        if self.quote is not None and not self.quote.isascii():
            raise ConfigError("expected an ASCII character", path="quote")
        for option in ("delimiter", "quote", "escape"):
            value = getattr(self, option)
            if value is not None and (len(value) != 1 or value in "\r\n"):
                raise ConfigError("expected one character other than a line break", path=option)
        given = [value for value in (self.delimiter, self.quote, self.escape) if value is not None]
        if len(set(given)) != len(given):
            raise ConfigError(
                "expected different characters for delimiter, quote and escape", path="delimiter"
            )

    @property
    def gives(self) -> Any:
        """The type of the values."""
        return Struct if self.schemas else dict

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        """Yield the rows after the header."""
        # The csv module's limit is global and low; rows have their own limit here, which must apply first.
        csv.field_size_limit(max(csv.field_size_limit(), self.max_record_bytes + _LINE_BREAKS))
        text = open_text(self, given, self.encoding)
        start = text.position
        first: list[str] | None = None
        names = self.columns
        if self.header or names is None:
            rows = self._rows(text, grows=given.item.context.grows)
            row, position = next((found for found in rows if found[0] is not None), (None, 0))
            if row is None or isinstance(row, _Block):  # a block comes only if a width is given
                return
            if isinstance(row, BadRecordError):
                raise ObjectError(f"the first row cannot be read: {row}")
            text.advance(position - text.position)
            if not self.header:
                first = row
            if names is None:
                if self._is_too_wide(len(row), position - start):
                    raise ObjectError(f"the first row {_too_long(self.max_record_bytes)}")
                names = [(self.header and name) or f"field{at}" for at, name in enumerate(row)]
        if len(set(names)) != len(names):
            raise ObjectError("the first row has a column's name twice; name the columns with 'columns'")
        shape = _Shape(names, schemas=self.schemas)
        behind_first = text.position
        end = begin(text, given)
        split = given.split
        here = split is None or split.begin <= start < split.end
        if first is not None and here and not given.skipped:
            yield Extracted(
                shape.value(first), properties={"byte": behind_first}, size_bytes=behind_first - start
            )
        before, width, names, schema = text.position, shape.width, shape.names, shape.schema
        run: list[Found] = []
        try:
            for row, position in self._rows(text, end, grows=given.item.context.grows, width=width):
                if row.__class__ is not list:
                    if row.__class__ is _Block:
                        run = _extracted(names, schema, row, before)
                        before = position
                        continue
                    if row is None:
                        yield run
                        run = []
                        continue
                    run.append(cast("BadRecordError", row))
                    before = position
                    continue
                if len(row) == width:
                    value: Any = dict(zip(names, row)) if schema is None else Struct.trusted(schema, row)  # noqa: B905
                elif self.ragged == "fit" and not self._is_too_wide(len(row) - width, position - before):
                    value = shape.value(row)
                elif self.ragged == "fit":
                    run.append(self._too_long(before))
                    before = position
                    continue
                else:
                    found = counted(len(row), "field")
                    problem = f"the row that ends at byte {position} has {found}, expected {width}"
                    run.append(BadRecordError(problem))
                    before = position
                    continue
                run.append(Extracted(value, properties={"byte": position}, size_bytes=position - before))
                before = position
        except ObjectError:
            yield run
            raise

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:
        """Return parts by bytes, if each line is a row and the object is not compressed."""
        if self.quoted_newlines and self.quote is not None:
            return ()
        return line_splits(open_text(self, given, self.encoding), size_bytes)

    def _rows(
        self, text: Text, end: int = _FOREVER, *, grows: bool, width: int = 0
    ) -> Iterator[tuple[list[str] | BadRecordError | _Block | None, int]]:
        """Yield rows that are not blank, or their errors, each with the position after it.

        None follows the rows of each block, before the next block is read. If a width is given, a block is
        yielded as one as long as each of its lines is a row with this number of fields.
        """
        limit = self.max_record_bytes
        quote = b"" if self.quote is None else self.quote.encode()
        by_lines = not quote or not self.quoted_newlines
        known = 0
        while True:
            began = text.position
            block = text.block(limit, end=end, known=known, quote=None if by_lines else quote)
            if block is None:
                if known or text.quoted:
                    raise self._endless(began)
                yield self._too_long(began), text.position
                yield None, text.position
                continue
            if len(block) <= known:
                if not known or grows:
                    return
                raise ObjectError(f"a quoted field of the row at byte {began} has no end")
            block = _first_lines(block, self.max_record_lines)
            lines = _Lines(block, began, text.encoding, limit, b"" if by_lines else quote)
            each = by_lines and (self.escape is not None or (bool(quote) and quote in block))
            if width and not each and not known and not lines.bad:
                whole = self._whole(lines, width)
                if whole is not None:
                    yield whole, lines.ends[-1]
                    text.advance(len(block))
                    yield None, text.position
                    continue
                width = 0  # try this only once, because the block is then read twice
            rows: Any = _EachLine(lines.texts, self._reader) if each else self._reader(lines.texts)
            ends, position, count, known = lines.ends, began, 0, 0
            while True:
                try:
                    for row in rows:
                        before, count = count, rows.line_num
                        begun, position = position, ends[count - 1]
                        if count - before > 1 and position - begun > limit + _LINE_BREAKS:
                            raise self._endless(begun)
                        if lines.bad and (problem := lines.problem(before, count)) is not None:
                            if not problem:
                                raise self._endless(begun)
                            yield BadRecordError(f"the row at byte {begun} {problem}"), position
                        elif row:
                            yield row, position
                    break
                except csv.Error as error:
                    if str(error) == _UNENDED and not each:
                        known = began + len(block) - position
                        if known > limit + _LINE_BREAKS:
                            raise self._endless(position) from None
                        if len(lines.ends) - count >= self.max_record_lines:
                            raise self._has_too_many_lines(position) from None
                        break
                    before, count = count, rows.line_num
                    begun, position = position, ends[count - 1]
                    spans = count - before > 1 and position - begun > limit + _LINE_BREAKS
                    if spans or lines.problem(before, count) == "":
                        raise self._endless(begun) from None
                    yield BadRecordError(f"the row at byte {begun} is not CSV: {_told(error)}"), position
            text.advance(position - began if known else len(block))
            yield None, text.position

    def _whole(self, lines: _Lines, width: int) -> _Block | None:
        """Return a block's rows if each line is a row of this many fields; else None."""
        try:
            rows = list(self._reader(lines.texts))
        except csv.Error:
            return None
        if len(rows) != len(lines.texts) or set(map(len, rows)) != {width}:
            return None
        return _Block(rows, lines.ends)

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )

    def _is_too_wide(self, made_up: int, size: int) -> bool:
        """Return whether a row is too long, counting the made-up names of its fields."""
        return size + _NAME_BYTES * made_up > self.max_record_bytes

    def _too_long(self, began: int) -> BadRecordError:
        return BadRecordError(f"the row at byte {began} {_too_long(self.max_record_bytes)}")

    def _endless(self, began: int) -> ObjectError:
        return _endless(began, _too_long(self.max_record_bytes))

    def _has_too_many_lines(self, began: int) -> ObjectError:
        return _endless(began, f"has {self.max_record_lines} lines or more, the limit (max_record_lines)")


def _endless(began: int, problem: str) -> ObjectError:
    return ObjectError(f"the row at byte {began} {problem}, and its end is not known")


def _too_long(limit: int) -> str:
    return f"has more than {limit} bytes, the limit (max_record_bytes)"


def _first_lines(block: bytes, most: int) -> bytes:
    """Return a block's first lines, because many short lines take far more memory than their bytes."""
    if len(block) <= most or block.count(b"\n") <= most:
        return block
    return b"\n".join([*block.split(b"\n", most)[:most], b""])


def _told(error: csv.Error) -> str:
    """Return the csv module's message, which quotes no field; replace its message about line breaks."""
    text = str(error)
    return "a line has a carriage return; lines must end with a line feed" if "new-line" in text else text


class _Lines:
    """The lines of a block, as text, and the position after each."""

    def __init__(self, block: bytes, began: int, encoding: str, limit: int, quote: bytes) -> None:
        parts = block.split(b"\n")
        last = parts.pop() if block[-1] == 0x0A else None
        self.ends: Final = list(accumulate((len(part) + 1 for part in parts), initial=began))[1:]
        if last is None:
            self.ends[-1] -= 1
        self.bad: Final[dict[int, str]] = {}
        """The problems of some lines, by index; empty text if the end of the line's row is not known."""
        if len(max(parts, key=len)) > limit + 1:
            for at, part in enumerate(parts):
                if len(part) > limit + 1:
                    self.bad[at] = "" if quote and quote in part else _too_long(limit)
        if b"\0" in block:
            for at, part in enumerate(parts):
                if b"\0" in part:
                    self.bad.setdefault(at, "has a NUL character; check the option encoding")
        try:
            self.texts = block.decode(encoding).split("\n")
        except UnicodeDecodeError:
            self.texts = [self._decoded(at, part, encoding) for at, part in enumerate(parts)]
        else:
            del self.texts[len(parts) :]
        # The reader keeps a line break in a field as it is in the line.
        self.texts = [text + "\n" for text in self.texts]

    def problem(self, begin: int, end: int) -> str | None:
        """Return the problem of some lines or None; empty text if the end of their row is not known."""
        found = [self.bad[at] for at in range(begin, end) if at in self.bad]
        return min(found) if found else None

    def _decoded(self, at: int, part: bytes, encoding: str) -> str:
        try:
            return part.decode(encoding)
        except UnicodeDecodeError:
            self.bad.setdefault(at, f"is not {encoding}")
            return part.decode(encoding, "replace")


class _Block(NamedTuple):
    """Rows of one line each, and the position after each."""

    rows: list[list[str]]
    ends: list[int]


def _extracted(names: list[str], schema: Schema | None, block: _Block, began: int) -> list[Found]:
    """Return the records of a block; blank lines before the block count for its first record."""
    values: Iterable[Any]
    if schema is None:
        values = [dict(zip(names, row)) for row in block.rows]  # noqa: B905 - all have the same length
    else:
        values = [Struct.trusted(schema, row) for row in block.rows]
    return [
        Extracted(value, properties={"byte": end}, size_bytes=end - begin)
        for value, begin, end in zip(values, chain((began,), block.ends), block.ends, strict=False)
    ]


class _EachLine:
    """A reader that takes each line as a row."""

    def __init__(self, lines: list[str], reader: Callable[[Iterable[str]], Iterator[list[str]]]) -> None:
        self._lines: Final = lines
        self._reader: Final = reader
        self.line_num = 0

    def __iter__(self) -> _EachLine:
        return self

    def __next__(self) -> list[str]:
        """Return the fields of the next line."""
        if self.line_num == len(self._lines):
            raise StopIteration
        self.line_num += 1
        return next(self._reader((self._lines[self.line_num - 1],)))


class _Shape:
    """Makes values of rows."""

    def __init__(self, names: list[str], *, schemas: bool) -> None:
        self.width: Final = len(names)
        self.names: Final = names
        self.schema: Final = _schema_of(names) if schemas else None
        self._all: Final = list(names)
        """The names, followed by made-up names for as many fields as a row has had."""
        self._taken: Final = frozenset(names)
        self._schemas: Final[BoundedCache[int, Schema]] = BoundedCache(
            64,
            lambda width: _schema_of(self._all[:width]),
            max_cost=_HELD_FIELDS,
            cost=lambda width, _: width,
        )

    def value(self, row: list[Any]) -> Any:
        """Return a row of any length as a dict or a Struct."""
        row += [None] * (self.width - len(row))
        width = len(row)
        for at in range(len(self._all), width):
            name = f"field{at}"
            while name in self._taken:
                name += "_"
            self._all.append(name)
        if self.schema is None:
            return dict(zip(self._all, row, strict=False))
        return Struct.trusted(self.schema if width == self.width else self._schemas[width], row)


def _schema_of(names: list[str]) -> Schema:
    builder = SchemaBuilder.struct()
    for name in names:
        builder.field(name, OPTIONAL_STRING_SCHEMA)
    return builder.build()
