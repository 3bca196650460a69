"""Extract the values of Avro's object container files.

    "Obj" 01, a map with avro.schema and avro.codec, a sync marker of 16 bytes; then blocks:
    the count of values, the length of the data, the data as the codec writes it, and the sync marker again

fastavro decodes the values. The blocks are read here, because fastavro's own reader takes a truncated count
for the end of the file, decompresses without a limit, and checks neither the end of deflate nor snappy's
checksum. If a value of a block cannot be decoded, later values of the block cannot be decoded either, but the
next block can. A value that Python does not support, such as a time after the year 9999, is a single bad
record.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
from fastavro import schemaless_reader

from headerware.connect.data.logical import Date, Decimal, Time, Timestamp
from headerware.connect.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
)
from headerware.core.errors import BadRecordError, ConfigError, MissingPartError, ObjectError, SerdeError
from headerware.core.extras import install_command
from headerware.core.options import PATH
from headerware.core.plain_files import require_path
from headerware.serdes.avro.limits import walk_payload
from headerware.serdes.avro.schema import AvroSchema
from headerware.sources.extractor import Extracted, Found, Input, Split
from headerware.sources.extractors.connect_values import (
    MICRO_TIME,
    MICRO_TIMESTAMP,
    NANO_TIMESTAMP,
    Convert,
    converter,
    finer_time,
    nullable,
    optional,
)
from headerware.sources.extractors.streams import DECODERS, StreamExtractor, decompressed

if TYPE_CHECKING:
    from headerware.sources.extractors.streams import OpenedStream

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_SCAN_BYTES: Final = 1 << 16
_MAX_HEADER_BYTES: Final = 4 << 20
_RUN_VALUES: Final = 1_000
_FREE_VALUES: Final = 10_000
_VALUES_PER_BYTE: Final = 64
"""The limit for a block's values per byte, as in serdes/avro/limits.py."""


class AvroExtractor(StreamExtractor, frozen=True, kw_only=True):
    """Yield the values of a container file with any of Avro's codecs.

    Values have the schema of their file. With ``schema_file``, the values of all files have the same schema:
    Avro's schema resolution leaves out fields that this schema lacks, and uses its defaults for fields that a
    file lacks.

    Args:
        max_record_bytes: the largest block of a file, both compressed and decompressed; a larger block is an
            error of the object. Writers make blocks of some kilobytes, unless a single value is larger.
        max_record_values: how many values one record may contain, including values in arrays and maps. A
            block with a larger record is an error of the object.
        compression: the compression of the complete file, not Avro's codec; see
            :class:`~headerware.sources.extractors.StreamExtractor`.
        max_expansion: see :class:`~headerware.sources.extractors.StreamExtractor`.
        schema_file: a file with the reader's schema; None uses the schema of each file.
        schemas: whether values have a Connect schema, and records become Structs; otherwise values are plain
            Python values, and records become dicts. Connect has no unions of several types and no recursive
            schemas.

    Raises:
        ConfigError: an option cannot work.
    """

    type: ClassVar[str] = "avro"

    max_record_bytes: int = 64 << 20
    max_record_values: int = 1_000_000
    schema_file: Annotated[str | None, PATH] = None
    schemas: bool = False

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        """Yield the values of each block; of a growing object, only the values of complete blocks."""
        file = _File(self.open_plain(given), self)
        decode = _Decode(file, self)
        known, within = given.properties.get("byte"), given.properties.get("in_block")
        end = None
        if given.split is not None:
            file.move_to_block(given.split.begin)
            end = given.split.end
        elif given.skip and type(known) is int and type(within) is int and known >= file.position:
            file.move_to(known)
            given.skipped = max(0, given.skip - within)
        number = given.skipped
        while end is None or file.position < end:
            began = file.position
            try:
                block = file.block()
            except _CutOffError as error:
                if given.item.context.grows:
                    return
                raise ObjectError(f"the file is truncated in the block at byte {began}") from error
            if block is None:
                return
            count, data = block
            # No record was yielded yet. Read the last known block again: its later values may be damaged.
            if given.skipped == number and number + count < given.skip:
                given.skipped = number = number + count
                continue
            number += count
            yield from decode.values(count, file.plain(data, began), began)

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:
        """Return parts of bytes; a part has the blocks that begin in it."""
        opened = self.open_plain(given)
        if not opened.seekable:
            return
        end = opened.stream.seek(0, io.SEEK_END)
        for begin in range(0, end, size_bytes):
            yield Split(begin, min(begin + size_bytes, end), None if begin else 1)


class _CutOffError(Exception):
    """The file ends within a block or the header."""


class _File:
    """A container file, block by block."""

    def __init__(self, opened: OpenedStream, options: AvroExtractor) -> None:
        self._opened: Final = opened
        self._stream: Final = opened.stream
        self._most: Final = options.max_record_bytes
        self.position = 0
        try:
            if self._exactly(len(_MAGIC)) != _MAGIC:
                raise ObjectError("expected an Avro container file, found another format")
            facts = self._facts()
            self._sync = self._exactly(_SYNC_BYTES)
        except _CutOffError as error:
            raise ObjectError("the file is not an Avro container file, or its header is truncated") from error
        self.schema_text: Final = facts.get("avro.schema", b"")
        self.codec: Final = facts.get("avro.codec", b"null").decode(errors="replace")
        if self.codec not in _CODECS:
            raise ObjectError(f"unknown codec {self.codec!r}; known: {', '.join(sorted(_CODECS))}")

    def move_to(self, position: int) -> None:
        """Continue at the beginning of a later block."""
        if self._opened.seekable:
            self._stream.seek(position)
            self.position = position
        else:
            self.position += self._opened.read_past(position - self.position)

    def move_to_block(self, position: int) -> None:
        """Continue at the first block that begins at a position or after it."""
        if position <= self.position:
            return
        self.move_to(max(self.position, position - _SYNC_BYTES))
        held, at = b"", self.position
        while piece := self._stream.read(_SCAN_BYTES):
            held += piece
            found = held.find(self._sync)
            if found >= 0:
                self.move_to(at + found + _SYNC_BYTES)
                return
            kept = min(len(held), _SYNC_BYTES - 1)
            at += len(held) - kept
            held = held[len(held) - kept :]
        self.position = at + len(held)

    def block(self) -> tuple[int, bytes] | None:
        """Return the next block's count of values and its data; None at the end."""
        first = self._stream.read(1)
        if not first:
            return None
        began = self.position
        self.position += 1
        count, size = self._long(first), self._long()
        if not 0 <= size <= self._most or count < 0:
            raise ObjectError(
                f"the block at byte {began} has a length of {size}; the limit (max_record_bytes) is "
                f"{self._most}"
            )
        data = self._exactly(size)
        if self._exactly(_SYNC_BYTES) != self._sync:
            raise ObjectError(f"expected a sync marker after the block at byte {began}, found other bytes")
        return count, data

    def plain(self, data: bytes, began: int) -> bytes:
        """Return the decompressed data of a block."""
        try:
            return _CODECS[self.codec](data, self._most)
        except MissingPartError:
            raise
        except Exception as error:  # each library has its own error
            raise ObjectError(
                f"the {self.codec} data of the block at byte {began} is damaged, or larger than {self._most} "
                f"bytes when decompressed, the limit (max_record_bytes)"
            ) from error

    def _facts(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            for _ in range(count):
                name = self._exactly(self._header_length()).decode(errors="replace")
                found[name] = self._exactly(self._header_length())
        return found

    def _header_length(self) -> int:
        length = self._long()
        if not 0 <= length <= _MAX_HEADER_BYTES - self.position:
            raise ObjectError(f"the file's header is damaged, or has more than {_MAX_HEADER_BYTES} bytes")
        return length

    def _long(self, first: bytes = b"") -> int:
        value = shift = 0
        while shift < 64:
            byte = (first or self._exactly(1))[0]
            first = b""
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
        raise ObjectError(f"the number before byte {self.position} has more than 10 bytes")

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:  # in pieces, so that a false length in the file allocates no memory
            piece = self._stream.read(min(count - len(found), _SCAN_BYTES))
            if not piece:
                raise _CutOffError
            found += piece
        self.position += count
        return bytes(found)


class _Decode:
    """Decodes the values of a file's blocks."""

    def __init__(self, file: _File, options: AvroExtractor) -> None:
        try:
            self._writer: Final = _parsed(file.schema_text, coarse=options.schemas)
            self._stored: Final = _parsed(file.schema_text, coarse=True, kept=frozenset()).tree
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SerdeError) as error:
            raise ObjectError(f"the file's schema cannot be read: {type(error).__name__}") from error
        wanted = None
        if options.schema_file is not None:
            wanted = _wanted(options.schema_file, coarse=options.schemas)
        self._limits: Final = self._writer.limits._replace(max_values=options.max_record_values)
        self._wanted: Final = None if wanted is None else wanted.tree
        self._schema: Schema | None = None
        self._convert: Convert | None = None
        if options.schemas:
            result = self._writer if wanted is None else wanted
            self._schema = _connect_schema(result.tree, result.named)
            convert = converter(self._schema)
            self._convert = None if convert is None else nullable(convert)

    def values(self, count: int, data: bytes, began: int) -> Iterator[Found | list[Found]]:
        """Yield a block's values, in runs."""
        self._require_few(count, data, began)
        stream, schema, convert = io.BytesIO(data), self._schema, self._convert
        tree, wanted, size = self._writer.tree, self._wanted, len(data)
        ended, is_sound, run = 0, False, list[Found]()
        for at in range(1, count + 1):
            try:
                value = schemaless_reader(stream, tree, wanted)
                if convert is not None:
                    value = convert(value)
            except Exception as error:  # noqa: BLE001 - fastavro raises many types
                stream.seek(ended)
                if not (is_sound := is_sound or self._is_sound(stream, count - at + 1, size)):
                    yield run
                    yield from self._lost(at, count, began, error)
                    return
                stream.seek(ended)
                schemaless_reader(stream, self._stored, None)
                ended = stream.tell()
                problem = (
                    f"value {at} of the block at byte {began} does not fit the schema, or Python does not "
                    f"support it ({type(error).__name__})"
                )
                run.append(BadRecordError(problem))
                continue
            before, ended = ended, stream.tell()
            if ended > size:  # fastavro skips a left-out field even beyond the end
                yield run
                yield from self._lost(at, count, began, EOFError())
                return
            properties = {"byte": began, "in_block": at}
            run.append(Extracted(value, schema, properties=properties, size_bytes=ended - before))
            if not at % _RUN_VALUES:
                yield run
                run = []
        yield run
        if ended != size:
            raise ObjectError(f"the block at byte {began} has bytes after its last value")

    def _is_sound(self, stream: io.BytesIO, count: int, size: int) -> bool:
        """Return whether this many values, decoded without logical types, end exactly at the block's end."""
        try:
            for _ in range(count):
                schemaless_reader(stream, self._stored, None)
        except Exception:  # noqa: BLE001 - as above
            return False
        return stream.tell() == size

    def _lost(self, at: int, count: int, began: int, error: Exception) -> Iterator[BadRecordError]:
        kind = type(error).__name__
        for lost in range(at, count + 1):
            yield BadRecordError(
                f"value {lost} of the block at byte {began} cannot be read, because value {at} is damaged "
                f"or does not fit the schema ({kind})"
            )

    def _require_few(self, count: int, data: bytes, began: int) -> None:
        """Refuse a block with far more values than bytes, or with a record that has too many values.

        Only a block that is large enough for such a record is walked; most blocks are too small.
        """
        shape, writer = self._writer.shape, self._writer
        per_byte = shape.values_per_byte
        most = _FREE_VALUES + _VALUES_PER_BYTE * len(data)
        if count * max(1, shape.values) > most:
            raise ObjectError(
                f"the block at byte {began} has {count} values in {len(data)} bytes; the limit is "
                f"{_FREE_VALUES} and {_VALUES_PER_BYTE} per byte"
            )
        may_hold_too_many = shape.values + per_byte * len(data) > self._limits.max_values
        if shape.recursive or per_byte > _VALUES_PER_BYTE or may_hold_too_many:
            try:
                walk_payload(data, writer.tree, writer.named, self._limits, count=count)
            except SerdeError as error:
                why = error.message.replace(
                    "(max_values)", "(max_record_values)"
                )  # the name of the option here
                raise ObjectError(f"the block at byte {began}: {why}") from error


def _bounded(codec: str) -> Callable[[bytes, int], bytes]:
    def plain(data: bytes, most: int) -> bytes:
        decoder, found, waiting = DECODERS[codec](), bytearray(), data
        while not decoder.eof:
            piece = decompressed(decoder, waiting, most + 1 - len(found), codec)
            waiting = b""
            found += piece
            if len(found) > most or (not piece and decoder.needs_input):
                raise ValueError
        return bytes(found)

    return plain


def _snappy(data: bytes, most: int) -> bytes:
    try:
        from cramjam import snappy  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingPartError(f"snappy needs cramjam: {install_command('sources')}") from error
    block, checksum = data[:-4], data[-4:]
    if snappy.decompress_raw_len(block) > most:
        raise ValueError
    found = bytes(snappy.decompress_raw(block))
    if zlib.crc32(found).to_bytes(4, "big") != checksum:
        raise ValueError
    return found


def _lz4(data: bytes, most: int) -> bytes:
    try:
        from lz4 import block  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingPartError(f"lz4 needs the package lz4: {install_command('sources')}") from error
    (size,) = struct.unpack_from("<I", data)
    if size > most:
        raise ValueError
    return bytes(block.decompress(data))


def _null(data: bytes, _: int) -> bytes:
    return data


_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": _null,
    "deflate": _bounded("deflate"),
    "bzip2": _bounded("bzip2"),
    "xz": _bounded("xz"),
    "zstandard": _bounded("zstd"),
    "snappy": _snappy,
    "lz4": _lz4,
}


_KEPT_TYPES: Final = frozenset({"decimal", "date", "time-millis", "timestamp-millis"})


def _parsed(text: bytes, *, coarse: bool, kept: frozenset[str] = _KEPT_TYPES) -> AvroSchema:
    if coarse:
        text = msgspec.json.encode(_coarse(msgspec.json.decode(text), kept))
    return AvroSchema.parsed(text)


def _wanted(path: str, *, coarse: bool) -> AvroSchema:
    require_path(path, "schema_file")
    try:
        return _parsed(Path(path).read_bytes(), coarse=coarse).with_defaults()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, SerdeError) as error:
        raise ConfigError(
            f"expected a file with an Avro schema: {type(error).__name__}", path="schema_file"
        ) from error


_FINER: Final[Mapping[str, str]] = {
    "time-micros": MICRO_TIME,
    "timestamp-micros": MICRO_TIMESTAMP,
    "timestamp-nanos": NANO_TIMESTAMP,
}
_RAW_TYPE: Final = "headerware.logicalType"
"""The property for a logical type that Connect does not have; its values are read as they are stored."""


def _coarse(node: Any, kept: frozenset[str]) -> Any:
    """Return a schema with which fastavro converts only the ``kept`` logical types."""
    if isinstance(node, list):
        return [_coarse(item, kept) for item in node]
    if not isinstance(node, dict):
        return node
    made = {name: value if name == "default" else _coarse(value, kept) for name, value in node.items()}
    logical = made.get("logicalType")
    if isinstance(logical, str) and logical not in kept:
        made[_RAW_TYPE] = made.pop("logicalType")
    return made


def _connect_schema(tree: Any, named: dict[str, Any], within: tuple[str, ...] = ()) -> Schema:
    """Return the Connect schema of an Avro schema."""
    if isinstance(tree, list):
        others = [branch for branch in tree if branch != "null"]
        if len(others) != 1 or len(others) == len(tree):
            raise _no_schema("a union of several types")
        return optional(_connect_schema(others[0], named, within))
    node = tree if isinstance(tree, dict) else {"type": tree}
    kind = node["type"]
    if isinstance(kind, dict | list):
        return _connect_schema(kind, named, within)
    if kind in named and kind != node.get("name"):
        return _connect_schema(named[kind], named, within)
    logical = _logical(node)
    if logical is not None:
        return logical
    if kind in {"record", "error"}:
        name = node["name"]
        if name in within:
            raise _no_schema("a recursive type")
        builder = SchemaBuilder.struct().name(name)
        for field in node["fields"]:
            builder.field(field["name"], _connect_schema(field["type"], named, (*within, name)))
        return builder.build()
    if kind == "array":
        return SchemaBuilder.array(_connect_schema(node["items"], named, within)).build()
    if kind == "map":
        return SchemaBuilder.map(STRING_SCHEMA, _connect_schema(node["values"], named, within)).build()
    if kind not in _SCALARS:
        raise _no_schema(f"the type {kind!r}")
    return _SCALARS[kind]


def _logical(node: dict[str, Any]) -> Schema | None:
    kept = node.get("logicalType")
    if kept == "decimal":
        return Decimal.schema(int(node.get("scale", 0)))
    if isinstance(kept, str) and kept in _TIMES:
        return _TIMES[kept]
    finer = _FINER.get(node.get(_RAW_TYPE, ""))
    return None if finer is None else finer_time(finer)


def _no_schema(what: str) -> ObjectError:
    return ObjectError(f"the file's schema has {what}, which Connect does not have; set schemas = false")


_TIMES: Final[Mapping[str, Schema]] = {
    "date": Date.SCHEMA,
    "time-millis": Time.SCHEMA,
    "timestamp-millis": Timestamp.SCHEMA,
}
_SCALARS: Final[Mapping[str, Schema]] = {
    "boolean": BOOLEAN_SCHEMA,
    "int": INT32_SCHEMA,
    "long": INT64_SCHEMA,
    "float": FLOAT32_SCHEMA,
    "double": FLOAT64_SCHEMA,
    "bytes": BYTES_SCHEMA,
    "fixed": BYTES_SCHEMA,
    "string": STRING_SCHEMA,
    "enum": STRING_SCHEMA,
}
