"""Write values as JSON text, byte for byte as Jackson does.

There is one function for each schema, made once, and one for values without a schema.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal as DecimalNumber
from json.encoder import encode_basestring
from typing import Any, Final

from headerware.connect.converters.json.reading import default_of
from headerware.connect.data.logical import TIME_TYPES, Decimal, scale_of
from headerware.connect.data.numbers import BigInteger
from headerware.connect.data.schema import CLASSES, DECIMAL, Schema, Type, described, is_instance
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import is_time
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.java.text import integer_text
from headerware.connect.modes import STRICT, Mode
from headerware.connect.values import float32_text, float64_text

Write = Callable[[Any], str]
_INT64: Final = range(-(1 << 63), 1 << 63)
_BOOLEANS: Final = {True: "true", False: "false"}
_SHORT: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_SPECIAL: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_digits: Final = int.__repr__


class Writers:
    """Make the functions that write values; ``numeric`` writes decimals as numbers rather than Base64."""

    def __init__(self, mode: Mode, *, replace_null: bool, numeric: bool) -> None:
        self._strict: Final = mode == STRICT
        self._replace_null: Final = replace_null
        self._numeric: Final = numeric
        self.quoted: Final[Write] = _quoted_strictly if self._strict else _quoted
        """Writes text."""
        self._scalars: Final = _scalars(self.quoted, strict=self._strict)
        self._nested: Final[Mapping[Type, Callable[[Schema], Write]]] = {
            Type.ARRAY: self._array,
            Type.MAP: self._map,
            Type.STRUCT: self._struct,
        }
        classes = [(cls, kind) for kind, group in CLASSES.items() for cls in group if kind in self._scalars]
        self._plain: Final[dict[type, Write]] = {
            **{cls: self._scalars[kind] for cls, kind in classes},
            **dict.fromkeys((list, tuple), self._list),
            dict: self._dict,
            type(None): lambda _: "null",
            **({BigInteger: integer_text} if self._strict else {}),
        }

    def schemaless(self, value: Any) -> str:
        """Write a value without a schema."""
        write = self._plain.get(value.__class__)
        if write is None:
            write = next((each for cls, each in self._plain.items() if is_instance(value, (cls,))), None)
            if write is None:
                raise ConnectDataError(
                    f"a value of class {type(value).__name__} cannot be written without a schema"
                )
        return write(value)

    def writer(self, schema: Schema | None) -> Write:
        """Make the function for a schema; it raises ConnectDataError for values that do not fit."""
        if schema is None:
            return self.schemaless
        write = self._present(schema)
        replaced = default_of(schema) if self._replace_null else None

        def write_or_null(value: Any) -> str:
            if value is not None:
                return write(value)
            if replaced is not None:
                return write(replaced)
            if schema.optional:
                return "null"
            raise ConnectDataError(f"expected {described(schema)}, which is required, found null")

        return write_or_null

    def _present(self, schema: Schema) -> Write:
        if schema.name == DECIMAL:
            return _number(schema, strict=self._strict) if self._numeric else _decimal(schema)
        if schema.name in TIME_TYPES:
            return _time(schema)
        return self._scalars.get(schema.type) or self._nested[schema.type](schema)

    def _array(self, schema: Schema) -> Write:
        element = self.writer(schema.value_schema)

        def write(value: Any) -> str:
            if not isinstance(value, list | tuple):
                raise _mismatch(schema, value)
            return f"[{','.join(map(element, value))}]"

        return write

    def _map(self, schema: Schema) -> Write:
        if schema.key_schema is None:
            return _without_keys
        key, item = self.writer(schema.key_schema), self.writer(schema.value_schema)
        entries = self._object if schema.key_schema.type is Type.STRING else _pairs

        def write(value: Any) -> str:
            if not isinstance(value, dict):
                raise _mismatch(schema, value)
            return entries(value, key, item)

        return write

    def _struct(self, schema: Schema) -> Write:
        names = ",".join(f"{self.quoted(field.name)}:".replace("%", "%%") + "%s" for field in schema.fields)
        template = f"{{{names}}}"
        writers = tuple(self.writer(field.schema) for field in schema.fields)

        def write(value: Any) -> str:
            if not isinstance(value, Struct):
                raise _mismatch(schema, value)
            if value.schema is not schema and value.schema != schema:
                raise ConnectDataError(f"expected a struct of {schema}, found one of another schema")
            try:
                return template % tuple(
                    [each(item) for each, item in zip(writers, value.values, strict=True)]
                )
            except ConnectDataError:
                _raise_for_field(schema, writers, value)
                raise

        return write

    def _object(self, entries: dict[Any, Any], key: Write, item: Write) -> str:
        made: dict[str, str] = {}
        for name, value in entries.items():
            # As in Java, null becomes the name "null", and a logical type's text or number is a name, too.
            if name is None and self._strict:
                raise ConnectDataError("expected text as a name of a JSON object, found null")
            text = key(name)
            made[text if text.startswith('"') else f'"{text}"'] = item(value)
        return f"{{{','.join([f'{name}:{value}' for name, value in made.items()])}}}"

    def _list(self, value: Any) -> str:
        return f"[{','.join(map(self.schemaless, value))}]"

    def _dict(self, value: dict[Any, Any]) -> str:
        write = self.schemaless
        if not all(isinstance(key, str) for key in value):
            return _pairs(value, write, write)
        name = self.quoted
        return f"{{{','.join([f'{name(key)}:{write(item)}' for key, item in value.items()])}}}"


def _pairs(entries: dict[Any, Any], key: Write, item: Write) -> str:
    return f"[{','.join([f'[{key(name)},{item(value)}]' for name, value in entries.items()])}]"


def _without_keys(value: Any) -> str:
    if not isinstance(value, dict):
        raise ConnectDataError(f"expected a map, found a value of class {type(value).__name__}")
    raise NullValueError("expected a map's schema with a schema of its keys, found none")


def _scalars(quote: Write, *, strict: bool) -> dict[Type, Write]:
    return {
        Type.INT8: _of(Type.INT8, _digits),
        Type.INT16: _of(Type.INT16, _digits),
        Type.INT32: _of(Type.INT32, _digits),
        Type.INT64: _of(Type.INT64, _int64),
        Type.FLOAT32: _of(Type.FLOAT32, _float(float32_text, strict=strict)),
        Type.FLOAT64: _of(Type.FLOAT64, _float(float64_text, strict=strict)),
        Type.BOOLEAN: _of(Type.BOOLEAN, _BOOLEANS.__getitem__),
        Type.STRING: _of(Type.STRING, quote),
        Type.BYTES: _of(Type.BYTES, lambda data: f'"{_base64(data)}"'),
    }


def _of(kind: Type, write: Write) -> Write:
    """Return a function that writes only values of the type's classes."""
    classes = CLASSES[kind]
    usual = classes[0]

    def write_checked(value: Any) -> str:
        if value.__class__ is not usual and not is_instance(value, classes):
            raise ConnectDataError(f"expected {kind.value}, found a value of class {type(value).__name__}")
        return write(value)

    return write_checked


def _int64(value: int) -> str:
    if value not in _INT64:
        raise ConnectDataError("expected an integer of 64 bits, found a larger one")
    return _digits(value)


def _float(text: Callable[[Any], str], *, strict: bool) -> Write:
    """Return a function that writes numbers; NaN and infinity become text, or are refused."""

    def write(number: Any) -> str:
        if math.isfinite(number):
            return text(number)
        if strict:
            raise ConnectDataError("JSON has neither NaN nor infinity")
        return f'"{text(number)}"'

    return write


def _decimal(schema: Schema) -> Write:
    def write(value: Any) -> str:
        if not isinstance(value, DecimalNumber):
            raise _mismatch(schema, value)
        return f'"{_base64(Decimal.from_logical(schema, value))}"'

    return write


def _number(schema: Schema, *, strict: bool) -> Write:
    """Return a function that writes decimals as numbers; Kafka ignores the schema's scale."""
    scale = Decimal.scale(schema) if strict else None

    def write(value: Any) -> str:
        if not isinstance(value, DecimalNumber):
            raise _mismatch(schema, value)
        if not value.is_finite():
            raise ConnectDataError("JSON has neither NaN nor infinity")
        if scale is not None and scale_of(value) != scale:
            raise ConnectDataError(f"expected {scale} digits after the point, as the schema says")
        return str(value or value.copy_abs()).upper()

    return write


def _time(schema: Schema) -> Write:
    from_logical = TIME_TYPES[schema.name or ""].from_logical

    def write(value: Any) -> str:
        if not is_time(value):
            raise _mismatch(schema, value)
        return _digits(from_logical(schema, value))

    return write


def _raise_for_field(schema: Schema, writers: tuple[Write, ...], value: Struct) -> None:
    """Write the fields one by one, and raise the error of the first that fails, with its name."""
    for field, write, item in zip(schema.fields, writers, value.values, strict=True):
        try:
            write(item)
        except ConnectDataError as error:
            raise ConnectDataError(f"field {field.name!r}: {error}") from None


def _mismatch(schema: Schema, value: Any) -> ConnectDataError:
    return ConnectDataError(f"expected {described(schema)}, found a value of class {type(value).__name__}")


def _base64(data: bytes | bytearray | memoryview) -> str:
    """Return the Base64 of bytes."""
    return binascii.b2a_base64(data, newline=False).decode()


def _quoted(text: str) -> str:
    """Return text in quotes; characters beyond 16 bits and halves of surrogate pairs are escaped."""
    if text.isprintable() and (text.isascii() or max(text) < "\ud800"):
        return encode_basestring(text)
    return f'"{_SPECIAL.sub(_escaped, text)}"'


def _quoted_strictly(text: str) -> str:
    """Return text in quotes; refuse half of a surrogate pair, which no reader has to accept."""
    if not text.isascii() and _SURROGATE.search(text):
        raise ConnectDataError("the text holds half of a surrogate pair")
    return _quoted(text)


def _escaped(match: re.Match[str]) -> str:
    found = match[0]
    short = _SHORT.get(found)
    if short is not None:
        return short
    units = found.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
