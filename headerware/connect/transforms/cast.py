"""Cast: convert fields, or the key or value itself, to other types (KIP-66).

transforms=types
transforms.types.type=org.apache.kafka.connect.transforms.Cast$Value
transforms.types.spec=amount:float64,customer.age:int32

``kafka_4_3`` casts as Kafka does: numbers wrap or saturate as in Java, fractions are dropped, and text has
Java's form. The strict mode refuses a value that does not fit, or would lose digits. A text becomes an
integer if the integer is written exactly so: ``42``, but not ``+42``, ``007`` or ``42.0``. A text becomes a
floating-point number if the number has the same value: ``1.50``, but not ``1f``, ``.5`` or ``NaN``. A text
becomes a boolean if it is ``true`` or ``false``; a number, if it is 1 or 0. The strict casts do not call
Kafka's casts and check the result for a loss, because that takes up to 50% longer.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal as DecimalNumber
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import Check, ConfigDef, ConfigKey
from headerware.connect.data.logical import TIME_TYPES
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, SchemaBuilder, Type
from headerware.connect.data.times import is_time
from headerware.connect.errors import (
    ConnectConfigError,
    ConnectDataError,
    EmptyPairError,
    NumberTextError,
    ValueClassError,
)
from headerware.connect.fields.lists import java_split, pairs, split_escaped
from headerware.connect.fields.paths import FieldPath, parse_path
from headerware.connect.fields.rewrites import Change, Edits, Rewrite, kafka_rewrite, rewrite, rewrite_dict
from headerware.connect.fields.structs import require_map
from headerware.connect.java.date_format import DateFormat
from headerware.connect.java.numbers import (
    BLANKS,
    float32_of_decimal,
    is_number,
    parse_float32,
    parse_float64,
    parse_int8,
    parse_int16,
    parse_int32,
    parse_int64,
    saturated,
    to_float64,
    to_int64,
)
from headerware.connect.java.text import NUMBER_TEXTS, float32_text, float64_text, java_text, number_text
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT
from headerware.connect.values.text import convert_to_string

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headerware.connect.data.schema import Field

_Convert = Callable[[Any], Any]
_SPEC: Final = "spec"
_PURPOSE: Final = "casts"
_SOURCES: Final = frozenset(
    {
        Type.INT8,
        Type.INT16,
        Type.INT32,
        Type.INT64,
        Type.FLOAT32,
        Type.FLOAT64,
        Type.BOOLEAN,
        Type.STRING,
        Type.BYTES,
    }
)
_TARGETS: Final = {kind.name: kind for kind in _SOURCES if kind is not Type.BYTES}


def _refuse_spec(values: Sequence[str] | None) -> str | None:
    if not values:
        return "expected a type, or fields and their types, found nothing"
    if not any("\\" in value for value in values):
        # Kafka reads the spec at this point, before any other key.
        _kafka_spec(values)
    return None


class Cast(PartTransform):
    """Cast fields, or the key or value itself, to other types.

    Args:
        config: ``spec``, as ``field:type,other:type``, or a type alone for the key or value itself; and
            ``replace.null.with.default``. Types are int8, int16, int32, int64, float32, float64, boolean and
            string; bytes are cast to string only, in base64.
        mode: strict refuses numbers that do not fit or would lose digits, texts in another form, and fields
            that a schema does not have.

    Raises:
        ConnectConfigError: a key is missing or unknown, or its value is not valid.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name=_SPEC,
            type="LIST",
            importance="HIGH",
            doc="The fields and the types to cast them to: field:type,other:type; or a type alone.",
            check=Check("list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>", _refuse_spec),
        ),
        REPLACE_NULL_WITH_DEFAULT,
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        values, with_default = self.options[_SPEC], self.options[REPLACE_NULL_WITH_DEFAULT.name]
        self._mode: Final[_StrictMode | _KafkaMode] = (
            _StrictMode(values, with_default=with_default)
            if mode == STRICT
            else _KafkaMode(values, with_default=with_default)
        )
        self._target: Final = self._mode.target
        self._cast: Final = None if self._target is None else self._mode.compile(None, self._target)

    def schemaless(self, value: Any, record: Any) -> Any:
        """Cast a value without a schema, by its class."""
        del record
        if self._cast is not None:
            return self._cast(value)
        return self._mode.of_dict(require_map(value, _PURPOSE))

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema."""
        if self._target is not None:
            made, cast = self._mode.of_value(schema, self._target)
            return Plan(made, lambda value, _: cast(value))
        made, apply = self._mode.of_schema(schema)
        same = self._same
        return Plan(made, lambda value, _: apply(same.struct(value, schema, _PURPOSE)))


class _StrictMode:
    """Cast fields by their paths, and refuse a loss."""

    def __init__(self, values: Sequence[str], *, with_default: bool) -> None:
        self._with_default: Final = with_default
        self.target, fields = _strict_spec(values)
        self._edits: Final = Edits(fields, _SPEC)
        self._schemaless: Final[dict[Type, _Convert]] = {
            kind: self.compile(None, kind) for kind in _TARGETS.values()
        }

    def compile(self, schema: Schema | None, target: Type) -> _Convert:
        """Return the function that casts values with or without a schema; null stays null."""
        cast = _STRICT[target]
        if schema is None:
            return lambda value: None if value is None else cast(_castable(value))
        if schema.type not in _SOURCES:
            raise ConnectDataError(f"expected a number, boolean, string or bytes to cast, found {schema}")
        if schema.type is Type.BYTES and schema.name != DECIMAL and target is not Type.STRING:
            raise ConnectDataError(
                f"expected string as the type to cast bytes to, as base64, found {target.value}"
            )
        logical = TIME_TYPES.get(schema.name or "")
        if logical is None:
            return lambda value: None if value is None else cast(value)
        if target is Type.STRING:
            write = _DATES[logical.LOGICAL_NAME].format
            return lambda value: None if value is None else write(_time(value, schema))
        encode = logical.from_logical
        return lambda value: None if value is None else cast(encode(schema, _time(value, schema)))

    def of_value(self, schema: Schema, target: Type) -> tuple[Schema, _Convert]:
        """Return the new schema of a value, and the function that casts it."""
        cast, builder = self.compile(schema, target), SchemaBuilder(target)
        _describe(builder, schema, logical=False)
        return _with_null(builder, schema, cast), cast

    def of_dict(self, fields: dict[str, Any]) -> dict[str, Any]:
        return rewrite_dict(fields, self._edits.root, self._cast_item)

    def _cast_item(self, value: Any, target: Type) -> Any:
        return self._schemaless[target](value)

    def of_schema(self, schema: Schema) -> Rewrite:
        return rewrite(schema, self._edits, self._change, mode=STRICT, with_default=self._with_default)

    def _change(self, field: Field, target: Type) -> Change:
        return Change(field.name, *self.of_value(field.schema, target))


class _KafkaMode:
    """Cast fields by their names, as Kafka does."""

    def __init__(self, values: Sequence[str], *, with_default: bool) -> None:
        self._with_default: Final = with_default
        self.target, self._fields = _kafka_spec(values)
        self._schemaless: Final = {name: self.compile(None, kind) for name, kind in self._fields.items()}

    def compile(self, schema: Schema | None, target: Type) -> _Convert:
        """Return the function that casts values with or without a schema; null stays null."""
        cast = _KAFKA[target]
        if schema is None:
            return lambda value: None if value is None else _cast_text(cast, _castable(value))
        if schema.type not in _SOURCES:
            kind = schema.type
            return lambda value: None if value is None else _refuse(kind)
        logical = TIME_TYPES.get(schema.name or "") if target is not Type.STRING else None
        if logical is None:
            return lambda value: None if value is None else _cast_text(cast, value)
        encode, of = logical.from_logical, schema

        def encoded(value: Any) -> Any:
            if value is None:
                return None
            if not is_time(value):
                raise ValueClassError(f"expected a datetime for {of}, found {type(value).__name__}")
            return cast(encode(of, value))

        return encoded

    def of_value(self, schema: Schema, target: Type) -> tuple[Schema, _Convert]:
        """Return the new schema of a value, which keeps even a wrong name, and the function that casts it."""
        cast, builder = self.compile(schema, target), SchemaBuilder(target)
        _describe(builder, schema, logical=True)
        return _with_null(builder, schema, cast), cast

    def of_dict(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of a dict with its fields cast; a missing field becomes null."""
        made = dict(fields)
        for name, cast in self._schemaless.items():
            made[name] = cast(fields.get(name))
        return made

    def of_schema(self, schema: Schema) -> Rewrite:
        return kafka_rewrite(
            schema,
            self._change,
            with_default=self._with_default,
            # Kafka tries to cast the default itself, which is a struct, and so is refused.
            of_default=self.compile(schema, Type.STRING),
        )

    def _change(self, field: Field) -> Change:
        target = self._fields.get(field.name)
        if target is None:
            return Change(field.name, field.schema)
        cast = self.compile(field.schema, target)
        return Change(field.name, _with_null(SchemaBuilder(target), field.schema, cast), cast)


def _describe(builder: SchemaBuilder, schema: Schema, *, logical: bool) -> None:
    """Copy the doc, name, version and parameters of a schema; those of a logical type only if asked for."""
    builder.doc(schema.doc)
    if logical or schema.name not in _LOGICAL_NAMES:
        builder.name(schema.name).version(schema.version).parameters(schema.parameters or {})


def _with_null(builder: SchemaBuilder, schema: Schema, cast: _Convert) -> Schema:
    if schema.optional:
        builder.optional()
    if schema.default is not None:
        builder.default(cast(schema.default))
    return builder.build()


# The spec: ``field:type,other:type``, or a type alone


def _strict_spec(values: Sequence[str]) -> tuple[Type | None, list[tuple[FieldPath, Type]]]:
    targets = [value for value in values if len(split_escaped(value, ":")) == 1]
    if targets:
        if len(values) > 1:
            raise _not_alone()
        return _target(targets[0]), []
    return None, [
        (parse_path(name.strip(), STRICT, _SPEC), _target(kind))
        for name, kind in pairs(values, STRICT, _SPEC)
    ]


def _kafka_spec(values: Sequence[str]) -> tuple[Type | None, dict[str, Type]]:
    target, by_name = None, {}
    for value in values:
        parts = java_split(value, ":")
        if len(parts) > 2:
            raise ConnectConfigError(f"expected field:type or a type, found {value!r}", path=_SPEC)
        if not parts:
            raise EmptyPairError(f"expected field:type or a type, found {value!r}", path=_SPEC)
        if len(parts) == 1:
            target = _target(parts[0])
        else:
            by_name[parts[0].strip(BLANKS)] = _target(parts[1])
    if target is not None and len(values) > 1:
        raise _not_alone()
    return target, by_name


def _not_alone() -> ConnectConfigError:
    return ConnectConfigError(
        "a type without a field casts the key or value itself, so it must be the only item", path=_SPEC
    )


def _target(text: str) -> Type:
    name = text.strip(BLANKS)
    kind = _TARGETS.get(name.upper())
    if kind is None:
        known = ", ".join(kind.value for kind in Type if kind.name in _TARGETS)
        raise ConnectConfigError(f"expected one of the types {known}, found {name!r}", path=_SPEC)
    return kind


# Kafka's casts

_WITHOUT_SCHEMA: Final = (str, bool, float, bytes, bytearray, memoryview, Int8, Int16, Int32)
_INT32_MAX: Final = (1 << 31) - 1
_EXACT_IN_FLOAT64: Final = 1 << 53


def _castable(value: Any) -> Any:
    """Return a value without a schema, or raise ConnectDataError if its class cannot be cast."""
    if value.__class__ is int or isinstance(value, _WITHOUT_SCHEMA):
        return value
    raise ConnectDataError(
        f"expected a number, a boolean, a str or bytes to cast, found {type(value).__name__}"
    )


def _refuse(kind: Type) -> Any:
    raise ConnectDataError(f"expected a number, boolean, string or bytes to cast, found {kind.value}")


def _cast_text(cast: _Convert, value: Any) -> Any:
    try:
        return cast(value)
    except NumberTextError as error:
        raise ConnectDataError(f"the value cannot be cast: {error}") from error


def _number(of_number: _Convert, of_text: Callable[[str], Any]) -> _Convert:
    """Return the cast to a type: of numbers, of booleans as 0 and 1, and of text."""

    def cast(value: Any) -> Any:
        if isinstance(value, str):
            return of_text(value)
        if isinstance(value, bool):
            return of_number(int(value))
        if is_number(value):
            return of_number(value)
        raise ConnectDataError(f"expected a number, a boolean or a str to cast, found {type(value).__name__}")

    return cast


def _narrowed(width: type[Int8 | Int16 | Int32]) -> _Convert:
    # Floats are narrowed to 32 bits first, and saturate there; all other numbers wrap.
    return lambda number: width.wrapped(
        saturated(number, _INT32_MAX) if isinstance(number, float) else to_int64(number)
    )


def _float32(number: Any) -> Float32:
    if isinstance(number, float) or (isinstance(number, int) and abs(number) <= _EXACT_IN_FLOAT64):
        return Float32(number)
    return float32_of_decimal(number_text(number))


def _text(value: Any) -> str:
    write = NUMBER_TEXTS.get(value.__class__)
    if write is not None:
        return write(value)
    if is_time(value):
        return str(convert_to_string(None, value, mode="kafka_4_3"))
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return java_text(value)


_KAFKA: Final[dict[Type, _Convert]] = {
    Type.INT8: _number(_narrowed(Int8), parse_int8),
    Type.INT16: _number(_narrowed(Int16), parse_int16),
    Type.INT32: _number(_narrowed(Int32), parse_int32),
    Type.INT64: _number(to_int64, parse_int64),
    Type.FLOAT32: _number(_float32, parse_float32),
    Type.FLOAT64: _number(to_float64, parse_float64),
    Type.BOOLEAN: _number(lambda number: to_int64(number) != 0, lambda text: text.lower() == "true"),
    Type.STRING: _text,
}


# The strict mode's casts

_LOGICAL_NAMES: Final = frozenset({DATE, TIME, TIMESTAMP, DECIMAL})
"""Names that the result of a cast does not keep."""
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_MOST_DIGITS: Final = 19
_INT64: Final = range(-(1 << 63), 1 << 63)
_DATES: Final = {
    DATE: DateFormat("yyyy-MM-dd"),
    TIME: DateFormat("HH:mm:ss.SSS'Z'"),
    TIMESTAMP: DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")


def _time(value: Any, schema: Schema) -> Any:
    if not is_time(value):
        raise ConnectDataError(f"expected a datetime for {schema}, found {type(value).__name__}")
    return value


def _lossy(target: str, what: str) -> ConnectDataError:
    return ConnectDataError(f"expected a value that {target} holds without loss, found {what}")


def _strict_integer(width: type[Int8 | Int16 | Int32] | None) -> _Convert:
    target = "int64" if width is None else f"int{width.bits}"

    def cast(value: Any) -> Any:
        number = _integer_of(value, target)
        if width is None:
            if number not in _INT64:
                raise _lossy(target, "a larger number")
            return int(number)
        try:
            return width(number)
        except ConnectDataError:
            raise _lossy(target, "a larger number") from None

    return cast


def _integer_of(value: Any, target: str) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise _lossy(target, "a text in another form")
        return int(value)
    if not isinstance(value, bool) and not is_number(value):
        raise _lossy(target, f"a value of class {type(value).__name__}")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise _lossy(target, "a fraction, infinity or NaN")
        return int(value)
    return _integer_of_decimal(value, target)


def _integer_of_decimal(value: DecimalNumber, target: str) -> int:
    sign, digits, exponent = value.as_tuple()
    # Checked before it becomes an integer, which could have any number of digits.
    if not isinstance(exponent, int) or value.adjusted() >= _MOST_DIGITS:
        raise _lossy(target, "a larger number, infinity or NaN")
    if not value:
        return 0
    if exponent < 0 and any(digits[exponent:]):
        raise _lossy(target, "a number with a fraction")
    kept = digits[:exponent] if exponent < 0 else digits
    return int(DecimalNumber((sign, kept, max(exponent, 0))))


def _strict_float32(value: Any) -> Float32:
    if isinstance(value, float):
        made = Float32(value)
        # Shown in its fewest digits, a float64 is the same number, such as 0.1.
        if made == value or math.isnan(value) or float(float32_text(made)) == value:
            return made
        raise _lossy("float32", "a number with more digits")
    text = _decimal_text(value, "float32")
    return Float32(_checked(float32_of_decimal(text), float32_text, text, "float32"))


def _strict_float64(value: Any) -> float:
    if isinstance(value, Float32):
        return float(value)
    if isinstance(value, float):
        return value
    text = _decimal_text(value, "float64")
    return _checked(float(text), float64_text, text, "float64")


def _checked(number: float, write: Callable[[float], str], text: str, target: str) -> float:
    if not math.isfinite(number) or DecimalNumber(write(number)) != DecimalNumber(text):
        raise _lossy(target, "a number with more digits, or a larger one")
    return number


def _decimal_text(value: Any, target: str) -> str:
    if isinstance(value, str):
        if _NUMBER.fullmatch(value) is None:
            raise _lossy(target, "a text in another form")
        return value
    if isinstance(value, bool):
        return str(int(value))
    if is_number(value):
        return number_text(value)
    raise _lossy(target, f"a value of class {type(value).__name__}")


def _strict_boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value in {"true", "false"}:
            return value == "true"
    elif isinstance(value, bool):
        return value
    elif is_number(value) and value in (0, 1):
        return bool(value)
    raise _lossy("boolean", "another value than true, false, 1 and 0")


def _strict_text(value: Any) -> str:
    write = NUMBER_TEXTS.get(value.__class__)
    if write is not None:
        return write(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, str | bool) or is_number(value):
        return java_text(value)
    raise _lossy("string", f"a value of class {type(value).__name__}")


_STRICT: Final[dict[Type, _Convert]] = {
    Type.INT8: _strict_integer(Int8),
    Type.INT16: _strict_integer(Int16),
    Type.INT32: _strict_integer(Int32),
    Type.INT64: _strict_integer(None),
    Type.FLOAT32: _strict_float32,
    Type.FLOAT64: _strict_float64,
    Type.BOOLEAN: _strict_boolean,
    Type.STRING: _strict_text,
}
