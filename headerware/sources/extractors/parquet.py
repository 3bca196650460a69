"""Extract the rows of Parquet, row group by row group.

pyarrow reads a row group in batches of some megabytes, so that the memory depends neither on the size of the
file nor on the size of its row groups. The headers of pages are checked before pyarrow reads them, because
pyarrow allocates the sizes in them. The file's metadata has the numbers of rows, so reading begins at the row
group with the first record that is needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, cast

from headerware.connect.data.logical import Date, Decimal, Time, Timestamp
from headerware.connect.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
)
from headerware.connect.data.struct import Struct
from headerware.connect.errors import SchemaBuilderError
from headerware.core.errors import BadRecordError, ConfigError, MissingPartError, ObjectError
from headerware.core.extras import install_command
from headerware.sources.extractor import Extracted, Found, Input, Split
from headerware.sources.extractors.connect_values import (
    MICRO_TIME,
    MICRO_TIMESTAMP,
    NANO_TIME,
    NANO_TIMESTAMP,
    converter,
    finer_time,
    nullable,
    optional,
    size_of,
)
from headerware.sources.extractors.parquet_pages import Pages, RepeatsError
from headerware.sources.extractors.streams import FREE_BYTES, ReadingStream, StreamExtractor

if TYPE_CHECKING:
    from pyarrow import DataType, RecordBatch
    from pyarrow.parquet import ParquetFile

_BATCH_BYTES: Final = 4 << 20
_MAX_BATCH_ROWS: Final = 512
"""More rows per batch would save no time."""
_REPEATED_BYTES: Final = 32 << 20
"""How many bytes repeated values may take in a batch of several rows."""
_ANY: Final = 1 << 62
_READ_BYTES: Final = 1 << 20
_NOT_IN_PYTHON: Final = (ValueError, OverflowError, KeyError)
"""Raised for a time out of Python's range, text that is not UTF-8, or an unknown time zone."""


class ParquetExtractor(StreamExtractor, frozen=True, kw_only=True):
    """Yield each row by the names of its columns.

    An object whose stream cannot seek, or which is itself compressed, is first copied to a temporary file.

    Args:
        max_record_bytes: the largest row, by the size of its texts and bytes. A larger row is a bad record,
            and so is a row with a value that Python does not support, such as a time after the year 9999.
        compression: the compression of the complete file, not Parquet's own; see
            :class:`~headerware.sources.extractors.StreamExtractor`.
        max_expansion: see :class:`~headerware.sources.extractors.StreamExtractor`; applies to row groups by
            the file's metadata, and to pages by their headers.
        columns: the names of the top-level columns to read; None reads all columns.
        schemas: whether rows are Connect Structs with a schema; otherwise they are dicts.

    Raises:
        ConfigError: an option cannot work.
    """

    type: ClassVar[str] = "parquet"

    columns: list[str] | None = None
    schemas: bool = False

    def __post_init__(self) -> None:
        """Refuse options with which no row can be read."""
        super().__post_init__()
        if self.columns is not None and not self.columns:
            raise ConfigError(
                "expected at least one name of a column, found none; leave the option out to read all "
                "columns",
                path="columns",
            )

    @property
    def gives(self) -> Any:
        """The type of the values."""
        return Struct if self.schemas else dict

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        """Yield the rows of all row groups, or of a part of them."""
        stream, file = self._opened(given)
        with _Damage(stream):
            groups = range(file.num_row_groups)
            if given.split is not None:
                groups = range(given.split.begin, min(given.split.end, file.num_row_groups))
            columns = self._names(file)
            rows: _Rows | None = None
            length, plain = stream.seek(0, io.SEEK_END), 0
            for group in groups:
                facts = file.metadata.row_group(group)
                if given.skipped + facts.num_rows <= given.skip and rows is None:
                    given.skipped += facts.num_rows
                    continue
                plain += facts.total_byte_size
                if plain > FREE_BYTES and plain > self.max_expansion * length:
                    raise ObjectError(
                        f"the file expands to more than {self.max_expansion} times its size, the limit "
                        "(max_expansion)"
                    )
                rows = rows or _Rows(self, file.schema_arrow, columns)
                average = max(1, facts.total_byte_size // max(1, facts.num_rows))
                size = max(1, min(_BATCH_BYTES // average, _MAX_BATCH_ROWS))
                for batch in self._batches(stream, file, group, columns, size):
                    yield list(rows.of(batch))

    def _batches(
        self, stream: _Watched, file: ParquetFile, group: int, columns: list[str], size: int
    ) -> Iterator[RecordBatch]:
        """Yield the rows of a row group, in batches so small that repeated values take little memory."""
        done, repeated, again = 0, _REPEATED_BYTES // size, False
        while True:
            stream.watch(repeated, again=again)
            passed, again = 0, True
            try:
                for batch in file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False):
                    rows = batch if passed >= done else batch.slice(done - passed)
                    passed += batch.num_rows
                    if rows.num_rows:
                        done += rows.num_rows
                        yield rows
            except Exception:
                if not isinstance(stream.error, RepeatsError):
                    raise
                found, stream.error = stream.error, None
            else:
                return
            longest = found.page_bytes
            if found.dictionary_bytes:
                try:
                    longest += self._longest(stream, file, group, columns)
                except OSError:  # pyarrow reads no dictionary if the column has other encodings too
                    if stream.error is not None:
                        raise
                    longest += found.dictionary_bytes
            size = max(1, min(size, _REPEATED_BYTES // max(1, longest)))
            repeated = _ANY if size == 1 else 2 * (found.dictionary_bytes + found.page_bytes)

    def _longest(self, stream: _Watched, file: ParquetFile, group: int, columns: list[str]) -> int:
        """Return how many bytes a row can have, by the longest values in a row group's dictionaries."""
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - heavy, and an extra

        described = [file.schema.column(at) for at in range(len(file.schema))]
        texts = [each.path for each in described if each.physical_type == "BYTE_ARRAY"]
        stream.watch(_ANY, again=True)
        looked = ParquetFile(
            stream, metadata=file.metadata, read_dictionary=texts, pre_buffer=False, buffer_size=_READ_BYTES
        )
        batch = next(looked.iter_batches(1, row_groups=[group], columns=columns, use_threads=False), None)
        fixed = sum(int(each.length) for each in described if each.physical_type == "FIXED_LEN_BYTE_ARRAY")
        return fixed + sum(map(_longest, [] if batch is None else batch.columns))

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:
        """Return parts of consecutive row groups."""
        stream, file = self._opened(given)
        with _Damage(stream):
            # The metadata of the columns has the size of a row group in the file, but pyarrow 26.0 ends the
            # process if this metadata is damaged. So the average compression of the file is used for each
            # group.
            all_facts = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
            plain = max(1, sum(facts.total_byte_size for facts in all_facts))
            share = stream.seek(0, io.SEEK_END) / plain
            begin, first, held, rows = 0, 1, 0.0, 0
            for group, facts in enumerate(all_facts):
                held += share * facts.total_byte_size
                rows += facts.num_rows
                if held >= size_bytes:
                    yield Split(begin, group + 1, first)
                    begin, first, held = group + 1, rows + 1, 0.0
            if begin < len(all_facts):
                yield Split(begin, len(all_facts), first)

    def require_parts(self) -> None:
        """Raise MissingPartError if pyarrow is missing."""
        _parquet_file()

    def _opened(self, given: Input) -> tuple[_Watched, ParquetFile]:
        parquet_file = _parquet_file()
        opened = self.open_plain(given)
        stream = _Watched(
            opened.stream if opened.seekable else given.spooled(cast("BinaryIO", opened.stream))
        )
        given.closing(cast("BinaryIO", stream))
        with _Damage(stream):
            file = parquet_file(stream, pre_buffer=False, buffer_size=_READ_BYTES)
            given.closing(file)
            stream.pages = Pages(stream.inner, stream.seek(0, io.SEEK_END), self.max_expansion)
        return stream, file

    def _names(self, file: ParquetFile) -> list[str]:
        names = list(file.schema_arrow.names)
        if len(set(names)) != len(names):
            raise ObjectError("expected different names of columns, found a name twice")
        missing = sorted(set(self.columns or ()) - set(names))
        if missing:
            raise ObjectError(f"expected the column {missing[0]!r}, found: {', '.join(names)}")
        return self.columns or names


class _Watched(ReadingStream):
    """A stream that remembers its own error, because pyarrow raises OSError for damage too."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = self.inner = stream
        self.error: BaseException | None = None
        self.pages: Pages | None = None
        """Checks the pages that are read, once reading of a row group has begun."""
        self._watches = False

    def watch(self, repeated: int, *, again: bool) -> None:
        """Begin a row group; ``repeated`` is how many bytes may be repeated in each row."""
        self._watches = True
        if self.pages is not None:
            self.pages.begin(repeated, again=again)

    def give(self, most: int) -> bytes:
        try:
            found = bytes(self._stream.read(most))
            if self._watches and self.pages is not None:
                self.pages.see(self._stream.tell() - len(found), found)
        except BaseException as error:
            self.error = error
            raise
        return found

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return int(self._stream.seek(offset, whence))
        except BaseException as error:
            self.error = error
            raise

    def tell(self) -> int:
        return int(self._stream.tell())


class _Damage:
    """Turn pyarrow's errors into errors of the object; raise the stream's own errors unchanged."""

    def __init__(self, stream: _Watched) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, GeneratorExit | ObjectError):
            return
        if self._stream.error is not None:
            raise self._stream.error
        if isinstance(error, OSError | ValueError | KeyError | NotImplementedError | MemoryError):
            raise ObjectError(
                "expected a Parquet file; it is truncated, damaged or another format "
                f"({type(error).__name__})"
            ) from error


class _Rows:
    """Makes dicts or Structs of batches."""

    def __init__(self, options: ParquetExtractor, schema: Any, columns: list[str]) -> None:
        self._limit: Final = options.max_record_bytes
        self._names: Final = columns
        self._schema: Schema | None = None
        self._stored: Final = [_stored(schema.field(name).type, options.schemas) for name in columns]
        self._converters: list[Any] = [None] * len(columns)
        if options.schemas:
            self._schema = _struct_schema([schema.field(name) for name in columns])
            found = [converter(field.schema) for field in self._schema.fields]
            self._converters = [None if convert is None else nullable(convert) for convert in found]

    def of(self, batch: RecordBatch) -> Iterator[Found]:
        """Yield the rows of a batch."""
        lists = []
        bad: dict[int, str] = {}
        for name, stored, convert in zip(self._names, self._stored, self._converters, strict=True):
            column = batch.column(name)
            if stored is not None:
                column = _cast(column, stored, name)
            try:
                values = column.to_pylist()
                lists.append(values if convert is None else [convert(value) for value in values])
            except _NOT_IN_PYTHON:
                lists.append([_value(scalar, convert, at, name, bad) for at, scalar in enumerate(column)])
        schema, names, size = self._schema, self._names, batch.nbytes // max(1, batch.num_rows)
        measured = batch.nbytes > self._limit
        for at, row in enumerate(zip(*lists, strict=True)):
            if at in bad:
                yield BadRecordError(bad[at])
            elif measured and (size := size_of(row)) > self._limit:
                yield BadRecordError(f"a row has more than {self._limit} bytes, the limit (max_record_bytes)")
            elif schema is not None:
                yield Extracted(Struct.trusted(schema, list(row)), size_bytes=size)
            else:
                yield Extracted(dict(zip(names, row, strict=True)), size_bytes=size)


def _longest(column: Any) -> int:
    """Return the length of the longest value in a column's dictionaries, at any depth."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and an extra
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)
    if types.is_map(kind):
        return _longest(column.keys) + _longest(column.items)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _longest(column.values)
    if types.is_struct(kind):
        return sum(_longest(column.field(at)) for at in range(kind.num_fields))
    return 0


def _value(scalar: Any, convert: Any, at: int, name: str, bad: dict[int, str]) -> Any:
    """Return one value of a column; if Python does not support it, add the problem of its row to ``bad``."""
    try:
        value = scalar.as_py()
        return value if convert is None else convert(value)
    except _NOT_IN_PYTHON as error:
        bad[at] = f"the column {name!r} has a value that Python does not support ({type(error).__name__})"
        return None


def _cast(column: Any, stored: DataType, name: str) -> Any:
    try:
        return column.cast(stored)
    except ValueError as error:
        raise ObjectError(
            f"the column {name!r} has times finer than a microsecond; set schemas = true to get integers"
        ) from error


def _stored(kind: DataType, integers: bool) -> DataType | None:  # noqa: FBT001 - internal
    """Return the type to cast a column to, so that no value is rounded; None if no cast is needed.

    With schemas, times finer than a millisecond become integers. Without schemas, times finer than a
    microsecond are cast to microseconds, and a cast that would round a value is an error.
    """
    import pyarrow as pa  # noqa: PLC0415 - heavy, and an extra

    types = pa.types
    if types.is_timestamp(kind) or types.is_time64(kind):
        if integers and kind.unit in {"us", "ns"}:
            return pa.int64()
        if kind.unit == "ns":
            return pa.timestamp("us", kind.tz) if types.is_timestamp(kind) else pa.time64("us")
        return None
    if types.is_dictionary(kind):
        return _stored(kind.value_type, integers) or kind.value_type
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _stored(kind.value_type, integers)
        return None if inner is None else pa.list_(kind.value_field.with_type(inner))
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        found = [_stored(field.type, integers) for field in fields]
        if not any(found):
            return None
        pairs = zip(fields, found, strict=True)
        return pa.struct([field if inner is None else field.with_type(inner) for field, inner in pairs])
    if types.is_map(kind):
        inner = _stored(kind.item_type, integers)
        return None if inner is None else pa.map_(kind.key_field, kind.item_field.with_type(inner))
    return None


def _struct_schema(fields: list[Any]) -> Schema:
    builder = SchemaBuilder.struct()
    for field in fields:
        schema = _schema_of(field.type, field.name)
        try:
            builder.field(field.name, optional(schema) if field.nullable else schema)
        except SchemaBuilderError as error:
            raise ObjectError(f"the columns have no schema in Connect: {error}") from error
    return builder.build()


def _schema_of(kind: DataType, where: str) -> Schema:
    """Return the Connect schema of an Arrow type; an unsigned integer gets a wider type."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and an extra

    types = pa.types
    if types.is_decimal(kind):
        return Decimal.schema(kind.scale)
    if types.is_timestamp(kind):
        finer = {"us": MICRO_TIMESTAMP, "ns": NANO_TIMESTAMP}.get(kind.unit)
        return Timestamp.SCHEMA if finer is None else finer_time(finer)
    if types.is_time(kind):
        finer = {"us": MICRO_TIME, "ns": NANO_TIME}.get(kind.unit)
        return Time.SCHEMA if finer is None else finer_time(finer)
    if types.is_dictionary(kind):
        return _schema_of(kind.value_type, where)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = _schema_of(kind.value_type, where)
        element = optional(element) if kind.value_field.nullable else element
        return SchemaBuilder.array(element).build()
    if types.is_map(kind):
        item = _schema_of(kind.item_type, where)
        item = optional(item) if kind.item_field.nullable else item
        return SchemaBuilder.map(_schema_of(kind.key_type, where), item).build()
    if types.is_struct(kind):
        return _struct_schema([kind.field(at) for at in range(kind.num_fields)])
    for is_kind, schema in _SCALARS.items():
        if getattr(types, f"is_{is_kind}")(kind):
            return schema
    raise ObjectError(
        f"the column {where!r} has the type {kind}, which Connect does not have; set schemas = false"
    )


_SCALARS: Final[dict[str, Schema]] = {
    "int8": INT8_SCHEMA,
    "uint8": INT16_SCHEMA,
    "int16": INT16_SCHEMA,
    "uint16": INT32_SCHEMA,
    "int32": INT32_SCHEMA,
    "uint32": INT64_SCHEMA,
    "int64": INT64_SCHEMA,
    "uint64": Decimal.schema(0),
    "float16": FLOAT32_SCHEMA,
    "float32": FLOAT32_SCHEMA,
    "float64": FLOAT64_SCHEMA,
    "boolean": BOOLEAN_SCHEMA,
    "string": STRING_SCHEMA,
    "large_string": STRING_SCHEMA,
    "binary": BYTES_SCHEMA,
    "large_binary": BYTES_SCHEMA,
    "fixed_size_binary": BYTES_SCHEMA,
    "date": Date.SCHEMA,
    "null": OPTIONAL_STRING_SCHEMA,
}
"""Connect's schemas, by the names of pyarrow's type checks."""


def _parquet_file() -> type[ParquetFile]:
    try:
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - heavy, and an extra
    except ImportError as error:
        raise MissingPartError(f"parquet needs pyarrow: {install_command('sources')}") from error
    return ParquetFile  # type: ignore[no-any-return]  # pyarrow has no types
