"""Read JSON as values of a schema: one function for each schema, made once.

The two modes differ if JSON does not fit its schema, see :class:`_Strict` and :class:`_Kafka`.
"""

from __future__ import annotations

import binascii
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal as DecimalNumber
from typing import Any, ClassVar, Final, NoReturn

from headerware.connect.data.logical import (
    TIME_TYPES,
    Decimal,
    Timestamp,
    of_unscaled,
    scale_of,
    unscaled_of,
)
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32, rounded_to_float32, wrapped_int64
from headerware.connect.data.schema import DECIMAL, Schema, Type, described
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError, ConnectError
from headerware.connect.java.numbers import to_float64
from headerware.connect.modes import STRICT, Mode

Read = Callable[[Any], Any]
_REFUSED: Final = object()
"""Stands for the value of null if null is refused."""
_PAIR: Final = 2
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)
_MAX_DIGITS: Final = 2000
_MAX_DECIMAL_BYTES: Final = 10_000
"""Larger ones take quadratic time to become decimal digits."""
_NUMBERS: Final = (int, float, DecimalNumber)
_FREE_VALUES: Final = 100_000
_VALUES_PER_BYTE: Final = 16
"""JSON may become ``_FREE_VALUES`` values, and ``_VALUES_PER_BYTE`` more for each of its bytes. A struct has
all fields of its schema, present or not, so that ``{}`` may become thousands of values."""
_STRUCT_BYTES: Final = 3
"""The fewest bytes of a struct, with the comma after it."""


class DigitsNeededError(Exception):
    """A number was read as float, but its digits matter; the JSON has to be read again with Decimals."""


class Readers:
    """Make the functions that read values; ``replace_null`` reads null and missing values as the default."""

    def __init__(self, mode: Mode, *, replace_null: bool) -> None:
        self._mode: Final[_Strict | _Kafka] = _Strict() if mode == STRICT else _Kafka()
        self._replace_null: Final = replace_null
        self._nested: Final[dict[Type, Callable[[Schema, bool], Read]]] = {
            Type.ARRAY: self._array,
            Type.MAP: self._map,
            Type.STRUCT: self._struct,
        }

    def reader(self, schema: Schema, *, in_struct: bool = False) -> Read:
        """Make the function for a schema; it raises ConnectDataError for JSON that does not fit.

        In a struct, Kafka refuses JSON of another kind that it reads as null, unless the schema is optional.
        """
        read = self._present(schema, in_struct)
        null = self._null(schema)

        def read_or_null(node: Any) -> Any:
            if node is not None:
                return read(node)
            if null is _REFUSED:
                raise ConnectDataError(f"expected {described(schema)}, which is required, found null")
            return null

        return read_or_null

    def _null(self, schema: Schema) -> Any:
        if schema.default is not None and self._replace_null:
            return default_of(schema)
        return None if schema.optional else _REFUSED

    def _present(self, schema: Schema, in_struct: bool) -> Read:  # noqa: FBT001 - passed on by each of them
        scalar = self._mode.scalar(schema)
        if scalar is None:
            return self._nested[schema.type](schema, in_struct)
        if in_struct and not schema.optional and scalar in self._mode.nullable:
            return _required(schema, scalar)
        return scalar

    def _array(self, schema: Schema, in_struct: bool) -> Read:  # noqa: FBT001 - passed on
        element = self.reader(_nested(schema.value_schema), in_struct=in_struct)
        items = self._mode.items

        def read(node: Any) -> list[Any]:
            if node.__class__ is not list:
                node = items(schema, node)
            return [element(item) for item in node]

        return read

    def _map(self, schema: Schema, in_struct: bool) -> Read:  # noqa: FBT001 - passed on
        key_schema = _nested(schema.key_schema)
        key = self.reader(key_schema, in_struct=in_struct)
        value = self.reader(_nested(schema.value_schema), in_struct=in_struct)
        if key_schema.type is Type.STRING:
            return _object_reader(schema, value)
        return _pairs_reader(schema, key, value, refuse_duplicates=self._mode.is_strict)

    def _struct(self, schema: Schema, _in_struct: bool) -> Read:  # noqa: FBT001 - its fields are in a struct
        is_strict = self._mode.is_strict
        fields = tuple(
            (field.name, self._present(field.schema, True), self._null(field.schema))  # noqa: FBT003 - in_struct
            for field in schema.fields
        )

        def read(node: Any) -> Struct:
            if node.__class__ is not dict:
                raise _unfit(schema, "object", node)
            values: list[Any] = []
            append, get = values.append, node.get
            name = ""
            try:
                for name, read_field, null in fields:
                    item = get(name)
                    if item is not None:
                        append(read_field(item))
                    elif null is not _REFUSED:
                        append(null)
                    else:
                        _refuse_null()
            except ConnectDataError as error:
                raise ConnectDataError(f"field {name!r}: {error}") from None
            if is_strict:
                _refuse_unknown(schema, node)
            return Struct.trusted(schema, values)

        return read


def default_of(schema: Schema) -> Any:
    """Return a schema's default as a value of the same schema, or None.

    A struct's default is made before its schema has a default, so the default's own schema has no default.
    """
    default = schema.default
    return Struct.trusted(schema, default.values) if isinstance(default, Struct) else default


def _required(schema: Schema, read: Read) -> Read:
    def read_required(node: Any) -> Any:
        value = read(node)
        if value is None:
            raise ConnectDataError(f"expected {described(schema)}, found other JSON")
        return value

    return read_required


def _nested(schema: Schema | None) -> Schema:
    if schema is None:
        raise ConnectDataError("expected a schema for the elements of a list or map, found none")
    return schema


def _object_reader(schema: Schema, value: Read) -> Read:
    def read(node: Any) -> dict[Any, Any]:
        if node.__class__ is not dict:
            raise _unfit(schema, "object", node)
        return {name: value(item) for name, item in node.items()}

    return read


def _pairs_reader(schema: Schema, key: Read, value: Read, *, refuse_duplicates: bool) -> Read:
    def read(node: Any) -> dict[Any, Any]:
        if node.__class__ is not list:
            raise _unfit(schema, "list of pairs", node)
        made: dict[Any, Any] = {}
        for pair in node:
            if pair.__class__ is not list or len(pair) != _PAIR:
                raise ConnectDataError(f"expected lists of a key and a value in {described(schema)}")
            made[_hashable(key(pair[0]))] = value(pair[1])
        if refuse_duplicates and len(made) != len(node):
            raise ConnectDataError(f"a key occurs twice in {described(schema)}")
        return made

    return read


def _hashable(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(map(_hashable, key))
    if isinstance(key, dict | Struct):
        raise ConnectDataError("a dict cannot have maps or structs as keys")
    return key


def _refuse_null() -> NoReturn:
    raise ConnectDataError("a value is required, found null or no value")


def _refuse_unknown(schema: Schema, node: dict[str, Any]) -> None:
    known = schema.by_name
    if len(node) > len(known) or any(name not in known for name in node):
        unknown = next(name for name in node if name not in known)
        raise ConnectDataError(f"{described(schema)} has no field {unknown!r}; it has: {', '.join(known)}")


def _unfit(schema: Schema, expected: str, node: Any) -> ConnectDataError:
    return ConnectDataError(
        f"expected a JSON {expected} for {described(schema)}, found {type(node).__name__}"
    )


class _Reading(ABC):
    """The base class of the two modes: how to read JSON that does not fit its schema."""

    is_strict: ClassVar[bool]
    """Whether a struct's unknown fields and a map's repeated keys are refused."""
    timestamps: ClassVar[range | None]
    """The milliseconds that a Timestamp may have; None for all."""

    def __init__(self) -> None:
        self.nullable: frozenset[Read] = frozenset()
        """The functions that return None for JSON of another kind."""
        self._scalars: Final[Mapping[Type, Read]] = {
            Type.INT8: _integer(Int8, self.other_integer(Int8.wrapped, Int8.bits)),
            Type.INT16: _integer(Int16, self.other_integer(Int16.wrapped, Int16.bits)),
            Type.INT32: _integer(Int32, self.other_integer(Int32.wrapped, Int32.bits)),
            Type.INT64: _int64(self.other_integer(wrapped_int64, 64)),
            Type.FLOAT32: self.float32,
            Type.FLOAT64: self.float64,
            Type.BOOLEAN: self.boolean,
            Type.STRING: self.text,
            Type.BYTES: self.bytes_of,
        }

    def scalar(self, schema: Schema) -> Read | None:
        """Make the function for a schema of a primitive or logical type; None for the others."""
        if schema.name == DECIMAL:
            return self.decimal(schema)
        if schema.name in TIME_TYPES:
            return _time(schema, self.timestamps)
        return self._scalars.get(schema.type)

    @staticmethod
    @abstractmethod
    def other_integer(wrapped: Callable[[int], int], bits: int) -> Read:
        """Make the function for JSON that is not an integer of so many bits."""

    @staticmethod
    @abstractmethod
    def float32(node: Any) -> Float32: ...

    @staticmethod
    @abstractmethod
    def float64(node: Any) -> float: ...

    @staticmethod
    @abstractmethod
    def boolean(node: Any) -> bool: ...

    @staticmethod
    @abstractmethod
    def text(node: Any) -> str | None: ...

    @staticmethod
    @abstractmethod
    def bytes_of(node: Any) -> bytes | None: ...

    @staticmethod
    @abstractmethod
    def decimal(schema: Schema) -> Read:
        """Make the function for decimals."""

    @staticmethod
    @abstractmethod
    def items(schema: Schema, node: Any) -> Iterable[Any]:
        """Return the elements of an array whose JSON is not a list."""


class _Strict(_Reading):
    """Refuse JSON of another kind than the schema's, and numbers that the type cannot hold exactly."""

    is_strict: ClassVar[bool] = True
    timestamps: ClassVar[range | None] = _INT64

    @staticmethod
    def other_integer(wrapped: Callable[[int], int], bits: int) -> Read:
        del wrapped

        def refuse(node: Any) -> NoReturn:
            raise _mismatch(f"an integer of {bits} bits", node)

        return refuse

    @staticmethod
    def float32(node: Any) -> Float32:
        kind = node.__class__
        if kind is float and _is_tie(node):
            raise DigitsNeededError
        is_exact = kind is int or kind is DecimalNumber
        made = Float32(node) if kind is float else _float32_of(node) if is_exact else None
        if made is None or math.isinf(made) or (kind is int and made != node):
            raise _mismatch("a number that a float of 32 bits can hold", node)
        return made

    @staticmethod
    def float64(node: Any) -> float:
        kind = node.__class__
        if kind is float:
            return node  # type: ignore[no-any-return]  # its class was just compared
        if kind is int or kind is DecimalNumber:
            made = to_float64(node)
            if math.isfinite(made) and (kind is DecimalNumber or made == node):
                return made
        raise _mismatch("a number that a float of 64 bits can hold", node)

    @staticmethod
    def boolean(node: Any) -> bool:
        if node.__class__ is not bool:
            raise _mismatch("true or false", node)
        return node

    @staticmethod
    def text(node: Any) -> str:
        if node.__class__ is not str:
            raise _mismatch("text", node)
        return node

    @staticmethod
    def bytes_of(node: Any) -> bytes:
        if node.__class__ is not str:
            raise _mismatch("Base64", node)
        return bytes_of_base64(node)

    @staticmethod
    def decimal(schema: Schema) -> Read:
        try:
            scale = Decimal.scale(schema)
        except ConnectError as error:
            raise ConnectDataError(str(error)) from None
        if abs(scale) > _MAX_DIGITS:
            raise ConnectDataError(f"expected a scale of up to {_MAX_DIGITS} digits")

        def read(node: Any) -> DecimalNumber:
            kind = node.__class__
            if kind is float:
                raise DigitsNeededError
            if kind is str:
                return _decimal_of_bytes(schema, bytes_of_base64(node))
            if kind is not int and kind is not DecimalNumber:
                raise _mismatch("a number or Base64", node)
            return _scaled(DecimalNumber(node), scale)

        return read

    @staticmethod
    def items(schema: Schema, node: Any) -> NoReturn:
        raise _unfit(schema, "list", node)


class _Kafka(_Reading):
    """Read JSON like Jackson's conversions.

    JSON of another kind is zero, false or null, and a number that its type cannot hold loses its fraction and
    its highest bits.
    """

    is_strict: ClassVar[bool] = False
    timestamps: ClassVar[range | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.nullable: frozenset[Read] = frozenset({self.text, self.bytes_of})

    @staticmethod
    def other_integer(wrapped: Callable[[int], int], bits: int) -> Read:
        del bits
        return lambda node: wrapped(_integral(node))

    @staticmethod
    def float32(node: Any) -> Float32:
        kind = node.__class__
        if kind is float:
            if _is_tie(node) or _is_negative_zero(node):
                raise DigitsNeededError
            return Float32(node)
        return _float32_of(node) if kind is int or kind is DecimalNumber else Float32()

    @staticmethod
    def float64(node: Any) -> float:
        kind = node.__class__
        if kind is float:
            if _is_negative_zero(node):
                raise DigitsNeededError
            return node  # type: ignore[no-any-return]  # its class was just compared
        return to_float64(node) if kind is int or kind is DecimalNumber else 0.0

    @staticmethod
    def boolean(node: Any) -> bool:
        return node is True

    @staticmethod
    def text(node: Any) -> str | None:
        return node if node.__class__ is str else None

    @staticmethod
    def bytes_of(node: Any) -> bytes | None:
        return bytes_of_base64_as_jackson(node) if node.__class__ is str else None

    @staticmethod
    def decimal(schema: Schema) -> Read:
        def read(node: Any) -> DecimalNumber:
            kind = node.__class__
            if kind is float:
                raise DigitsNeededError
            if kind is int:
                return DecimalNumber(node)
            if kind is str:
                return _decimal_of_bytes(schema, bytes_of_base64_as_jackson(node))
            if kind is not DecimalNumber:
                raise _mismatch("a number or Base64", node)
            return node  # type: ignore[no-any-return]  # its class was just compared

        return read

    @staticmethod
    def items(schema: Schema, node: Any) -> Iterable[Any]:
        del schema
        return node.values() if node.__class__ is dict else ()


def _integer(width: type[Int8 | Int16 | Int32], other: Read) -> Read:
    limits = range(-(1 << width.bits - 1), 1 << width.bits - 1)
    new = int.__new__

    def read(node: Any) -> int:
        if node.__class__ is int and node in limits:
            return new(width, node)
        return other(node)  # type: ignore[no-any-return]  # an integer of this width

    return read


def _int64(other: Read) -> Read:
    def read(node: Any) -> int:
        if node.__class__ is int and node in _INT64:
            return node
        return other(node)  # type: ignore[no-any-return]  # an integer

    return read


def _integral(node: Any) -> int:
    kind = node.__class__
    if kind is int:
        return node  # type: ignore[no-any-return]  # its class was just compared
    if kind is DecimalNumber:
        return _truncated(node)
    if kind is float:
        raise DigitsNeededError
    return 0


def _truncated(number: DecimalNumber) -> int:
    """Return the integral part, or at least its lowest 64 bits."""
    exponent = number.as_tuple().exponent
    # Ten to the power of 64 is a multiple of two to the power of 64.
    return 0 if isinstance(exponent, int) and exponent >= 64 else int(number)


def _float32_of(number: DecimalNumber | int) -> Float32:
    """Return the nearest float of 32 bits, or infinity."""
    near = to_float64(number)
    if _is_tie(near) and number != near:
        # Rounding twice would give the even neighbour, but the number is above or below the middle.
        near = math.nextafter(near, math.inf if number > near else -math.inf)
    return Float32(near)


def _is_tie(number: float) -> bool:
    """Return whether a float may lie in the middle of two floats of 32 bits."""
    rounded = rounded_to_float32(number)
    other = 2 * number - rounded
    return rounded != number and other == rounded_to_float32(other)


def _is_negative_zero(number: float) -> bool:
    """Return whether this is -0.0, which Java reads for tiny negative numbers, but not for a zero."""
    return number == 0.0 and math.copysign(1.0, number) < 0


def _decimal_of_bytes(schema: Schema, data: bytes) -> DecimalNumber:
    if len(data) > _MAX_DECIMAL_BYTES:
        raise ConnectDataError(f"expected a decimal of up to {_MAX_DECIMAL_BYTES} bytes, found {len(data)}")
    try:
        return Decimal.to_logical(schema, data)
    except ConnectError as error:
        raise ConnectDataError(str(error)) from None


def _scaled(number: DecimalNumber, scale: int) -> DecimalNumber:
    """Return the number with ``scale`` digits after the point, or raise if it has more."""
    missing = scale - scale_of(number)
    if number.adjusted() + scale > _MAX_DIGITS:
        raise ConnectDataError(f"expected a number of up to {_MAX_DIGITS} digits")
    unscaled = unscaled_of(number)
    if missing < 0:
        unscaled, rest = divmod(unscaled, 10 ** min(-missing, _MAX_DIGITS)) if unscaled else (0, 0)
        if rest:
            raise ConnectDataError(f"expected a number of up to {scale} digits after the point")
        missing = 0
    return of_unscaled(unscaled * 10**missing if unscaled else 0, scale)


def _time(schema: Schema, timestamps: range | None) -> Read:
    kind = TIME_TYPES[schema.name or ""]
    limits = timestamps if kind is Timestamp else _INT32
    to_logical = kind.to_logical

    def read(node: Any) -> Any:
        if node.__class__ is not int or (limits is not None and node not in limits):
            raise _mismatch(f"an integer for a {schema.name}", node)
        return to_logical(schema, wrapped_int64(node))

    return read


def _mismatch(expected: str, node: Any) -> ConnectDataError:
    kind = "another number" if node.__class__ in _NUMBERS else type(node).__name__
    return ConnectDataError(f"expected {expected}, found {kind}")


_GROUP: Final = re.compile(r"[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)")
_GROUPS: Final = re.compile(rf"(?:[\x00- ]*+{_GROUP.pattern})*+[\x00- ]*+")


def bytes_of_base64(text: str) -> bytes:
    """Return the bytes of Base64 with padding and nothing else, just as the converter writes it."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        data = None
    if data is None or binascii.b2a_base64(data, newline=False).decode() != text:
        raise ConnectDataError("expected Base64 with padding, found other text")
    return data


def bytes_of_base64_as_jackson(text: str) -> bytes:
    """Return the bytes of Base64 as Jackson reads it: white space may stand between groups of four."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        pass
    if not _GROUPS.fullmatch(text):
        raise ConnectDataError("expected Base64 with padding, found other text")
    return b"".join(map(binascii.a2b_base64, _GROUP.findall(text)))


def refuse_too_many(schema: Schema, node: Any, size: int, widest: int) -> None:
    """Refuse JSON of ``size`` bytes that would become many more values.

    ``widest`` is the number of fields of the schema's widest struct.
    """
    most = _FREE_VALUES + _VALUES_PER_BYTE * size
    if size * widest // _STRUCT_BYTES <= most:
        return
    if _values(schema, node) > most:
        raise ConnectDataError(f"JSON of {size} bytes stands for more than {most} values, the limit")


def widest_struct(schema: Schema) -> int:
    """Return the number of fields of the widest struct in a schema."""
    fields = schema.fields if schema.type is Type.STRUCT else ()
    inner = [field.schema for field in fields]
    if schema.type in {Type.ARRAY, Type.MAP}:
        inner.append(_nested(schema.value_schema))
    if schema.type is Type.MAP:
        inner.append(_nested(schema.key_schema))
    return max([len(fields), *map(widest_struct, inner)])


def _values(schema: Schema | None, node: Any) -> int:
    """Count the values that JSON of a schema becomes."""
    if schema is None or node.__class__ not in (dict, list):
        return 1
    if schema.type is Type.STRUCT and node.__class__ is dict:
        known = schema.by_name
        return len(known) + sum(_values(known[n].schema, v) for n, v in node.items() if n in known)
    if schema.type not in {Type.ARRAY, Type.MAP}:
        return 1
    if schema.type is Type.MAP and node.__class__ is list:  # of pairs
        pairs = [pair for pair in node if pair.__class__ is list and len(pair) == _PAIR]
        return 1 + sum(
            _values(schema.key_schema, key) + _values(schema.value_schema, value) for key, value in pairs
        )
    items = node.values() if node.__class__ is dict else node
    return 1 + sum(_values(schema.value_schema, item) for item in items)
