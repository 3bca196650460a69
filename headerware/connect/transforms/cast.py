"""What Cast is to do: ``field:type,other:type``, or a type alone."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal as DecimalNumber
from headerware.connect.config import Check
from headerware.connect.config import ConfigDef
from headerware.connect.config import ConfigKey
from headerware.connect.data.builder import SchemaBuilder
from headerware.connect.data.logical import TIME_TYPES
from headerware.connect.data.numbers import Float32
from headerware.connect.data.numbers import Int16
from headerware.connect.data.numbers import Int32
from headerware.connect.data.numbers import Int8
from headerware.connect.data.schema import Type
from headerware.connect.data.times import is_time
from headerware.connect.data.validation import DATE
from headerware.connect.data.validation import DECIMAL
from headerware.connect.data.validation import TIME
from headerware.connect.data.validation import TIMESTAMP
from headerware.connect.errors import ConnectConfigError
from headerware.connect.errors import ConnectDataError
from headerware.connect.errors import EmptyPairError
from headerware.connect.errors import NumberTextError
from headerware.connect.errors import ValueClassError
from headerware.connect.fields.lists import java_split
from headerware.connect.fields.lists import pairs
from headerware.connect.fields.lists import split_escaped
from headerware.connect.fields.paths import parse_path
from headerware.connect.fields.requirements import require_map
from headerware.connect.fields.rewrites import Change
from headerware.connect.fields.rewrites import Edits
from headerware.connect.fields.rewrites import rewrite_dict
from headerware.connect.java.dates.date_format import DateFormat
from headerware.connect.java.numbers import BLANKS
from headerware.connect.java.numbers import float32_of_decimal
from headerware.connect.java.numbers import is_number
from headerware.connect.java.numbers import parse_float32
from headerware.connect.java.numbers import parse_float64
from headerware.connect.java.numbers import parse_int16
from headerware.connect.java.numbers import parse_int32
from headerware.connect.java.numbers import parse_int64
from headerware.connect.java.numbers import parse_int8
from headerware.connect.java.numbers import saturated
from headerware.connect.java.numbers import to_float64
from headerware.connect.java.numbers import to_int64
from headerware.connect.java.text import NUMBER_TEXTS
from headerware.connect.java.text import float32_text
from headerware.connect.java.text import float64_text
from headerware.connect.java.text import java_text
from headerware.connect.java.text import number_text
from headerware.connect.modes import Mode
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform
from headerware.connect.transforms.base import Plan
from headerware.connect.transforms.cast_fields import exact_fields_plan
from headerware.connect.transforms.cast_fields import fields_plan
from headerware.connect.values.to_text import convert_to_string
from typing import Any
from typing import ClassVar
from typing import Final
from typing import NamedTuple
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from headerware.connect.data.schema import Field
    from headerware.connect.data.schema import Schema

SPEC: Final = "spec"


class FieldCasts(NamedTuple):
    """The types to cast fields to.

    Args:
        by_name: by the field's name; in ``kafka_4_3``.
        edits: by the field's path; in the strict mode.
    """

    by_name: dict[str, Type]
    edits: Edits[Type] | None = None


class Spec(NamedTuple):
    """What to cast.

    Args:
        whole: the type to cast the whole key or value to; None where fields are cast.
        fields: the fields to cast.
    """

    whole: Type | None
    fields: FieldCasts = FieldCasts({})


def parse_spec(values: Sequence[str], mode: Mode) -> Spec:
    """Read what to cast.

    Args:
        values: the items of the list.
        mode: strict knows dots and escapes, and refuses a field that is named twice.

    Raises:
        ConnectConfigError: an item is neither a field with its type nor a type, or a type cannot be cast to.
    """
    return _strict_spec(values, mode) if mode == STRICT else _kafka_spec(values)


def refuse_spec(values: Sequence[str] | None) -> str | None:
    """Say why a list cannot be a spec; None where it may be one.

    Raises:
        ConnectConfigError: an item is neither a field with its type nor a type, or a type cannot be cast to.
    """
    if not values:
        return "expected a type, or fields and their types, found nothing"
    if not any("\\" in value for value in values):
        # Kafka reads it here already, before any other key.
        _kafka_spec(values)
    return None


def _strict_spec(values: Sequence[str], mode: Mode) -> Spec:
    whole = [value for value in values if len(split_escaped(value, ":")) == 1]
    if whole:
        if len(values) > 1:
            raise _not_alone()
        return Spec(_target(whole[0]))
    edits = [(parse_path(name.strip(), mode, SPEC), _target(kind)) for name, kind in pairs(values, mode, SPEC)]
    return Spec(None, FieldCasts({}, Edits(edits, SPEC)))


def _kafka_spec(values: Sequence[str]) -> Spec:
    whole, by_name = None, {}
    for value in values:
        parts = java_split(value, ":")
        if len(parts) > 2:
            raise ConnectConfigError(f"expected field:type or a type, found {value!r}", path=SPEC)
        if not parts:
            raise EmptyPairError(f"expected field:type or a type, found {value!r}", path=SPEC)
        if len(parts) == 1:
            whole = _target(parts[0])
        else:
            by_name[parts[0].strip(BLANKS)] = _target(parts[1])
    if whole is not None and len(values) > 1:
        raise _not_alone()
    return Spec(whole, FieldCasts(by_name))


def _not_alone() -> ConnectConfigError:
    return ConnectConfigError(
        "a type that stands without a field casts the whole value, and stands alone", path=SPEC
    )


def _target(text: str) -> Type:
    name = text.strip(BLANKS)
    kind = _TYPES.get(name.upper())
    if kind is None:
        known = ", ".join(kind.value for kind in Type if kind in TARGETS)
        raise ConnectConfigError(f"nothing is cast to {name!r}; there are {known}", path=SPEC)
    return kind


_TYPES: Final = {kind.name: kind for kind in TARGETS}


REPLACE_NULL: Final = "replace.null.with.default"
_PURPOSE: Final = "casts"


class Cast(PartTransform):
    """Cast fields, or the whole key or value, to other types.

    Args:
        config: ``spec``, as ``field:type,other:type``, or a type alone for the whole key or value; and
            ``replace.null.with.default``. Types are int8, int16, int32, int64, float32, float64, boolean and
            string; bytes are cast to string only, in base64.
        mode: strict refuses numbers that do not fit or would lose digits, texts that are written otherwise,
            and fields that a schema does not have.

    Raises:
        ConnectConfigError: a key is missing, not known, or has a value that it cannot have.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name=SPEC,
            type="LIST",
            importance="HIGH",
            doc="The fields and the types to cast them to: field:type,other:type; or a type alone.",
            check=Check(
                "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>",
                refuse_spec,
            ),
        ),
        ConfigKey(
            name=REPLACE_NULL,
            type="BOOLEAN",
            default=True,
            doc="Whether a null becomes its field's default.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        spec = parse_spec(self.options[SPEC], mode)
        self._whole = spec.whole
        self._fields: FieldCasts = spec.fields
        self._compile: Callable[[Schema | None, Type], Callable[[Any], Any]] = (
            exact_cast if mode == STRICT else kafka_cast
        )
        self._schemaless = {kind: self._compile(None, kind) for kind in TARGETS}

    def schemaless(self, value: Any, record: Any) -> Any:
        """Cast a value without a schema, by its class."""
        del record
        if self._whole is not None:
            return self._schemaless[self._whole](value)
        fields = require_map(value, _PURPOSE)
        if self._fields.edits is not None:
            return rewrite_dict(
                fields, self._fields.edits.root, lambda item, kind: self._schemaless[kind](item)
            )
        made = dict(fields)
        for name, kind in self._fields.by_name.items():
            made[name] = self._schemaless[kind](fields.get(name))
        return made

    def plan(self, schema: Schema) -> Plan:
        """Say what to do to the values of a schema."""
        if self._whole is not None:
            cast = self._compile(schema, self._whole)
            return Plan(self._whole_schema(schema, self._whole), lambda value, _: cast(value))
        with_default = self.options[REPLACE_NULL]
        if self._fields.edits is not None:
            return exact_fields_plan(
                schema, self._fields.edits, self._exactly, with_default=with_default, purpose=_PURPOSE
            )
        return fields_plan(
            schema,
            self._change,
            with_default=with_default,
            purpose=_PURPOSE,
            # Kafka tries to cast the whole default, which is a struct, and so is refused.
            of_default=kafka_cast(schema, Type.STRING),
        )

    def _whole_schema(self, schema: Schema, kind: Type) -> Schema:
        """Return what a whole value's schema becomes; Kafka keeps even names that are no longer true."""
        cast = self._compile(schema, kind)
        builder = SchemaBuilder(kind)
        _describe(builder, schema, logical=self.mode != STRICT)
        if schema.optional:
            builder.optional()
        if schema.default is not None:
            builder.default(cast(schema.default))
        return builder.build()

    def _change(self, field: Field) -> Change:
        kind = self._fields.by_name.get(field.name)
        if kind is None:
            return Change(field.name, field.schema)
        return self._changed(field, SchemaBuilder(kind), kafka_cast(field.schema, kind))

    def _exactly(self, field: Field, kind: Type) -> Change:
        builder = SchemaBuilder(kind)
        _describe(builder, field.schema, logical=False)
        return self._changed(field, builder, exact_cast(field.schema, kind))

    @staticmethod
    def _changed(field: Field, builder: SchemaBuilder, cast: Callable[[Any], Any]) -> Change:
        if field.schema.optional:
            builder.optional()
        if field.schema.default is not None:
            builder.default(cast(field.schema.default))
        return Change(field.name, builder.build(), cast)


def _describe(builder: SchemaBuilder, schema: Schema, *, logical: bool) -> None:
    """Copy what a schema says of its values beyond their type; a logical type's name only where asked for."""
    builder.doc(schema.doc)
    if logical or schema.name not in LOGICAL_NAMES:
        builder.name(schema.name).version(schema.version).parameters(schema.parameters or {})


Convert = Callable[[Any], Any]
SOURCES: Final = frozenset(
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
"""What can be cast."""
TARGETS: Final = SOURCES - {Type.BYTES}
"""What can be cast to."""
_SCHEMALESS: Final = (str, bool, float, bytes, bytearray, memoryview, Int8, Int16, Int32)
_INT32_MAX: Final = (1 << 31) - 1
_EXACT_IN_FLOAT64: Final = 1 << 53


def kafka_cast(schema: Schema | None, target: Type) -> Convert:
    """Return the function that casts values of a schema; null stays null.

    Args:
        schema: the schema; None for values without one.
        target: the type to cast to.
    """
    cast = _KAFKA[target]
    if schema is None:
        return lambda value: None if value is None else _read(cast, castable(value))
    if schema.type not in SOURCES:
        kind = schema.type
        return lambda value: None if value is None else _refuse(kind)
    logical = TIME_TYPES.get(schema.name or "") if target is not Type.STRING else None
    if logical is None:
        return lambda value: None if value is None else _read(cast, value)
    encode, of = logical.from_logical, schema

    def encoded(value: Any) -> Any:
        if value is None:
            return None
        if not is_time(value):
            raise ValueClassError(f"expected a datetime for {of}, found {type(value).__name__}")
        return cast(encode(of, value))

    return encoded


def castable(value: Any) -> Any:
    """Return a value without a schema that can be cast.

    Raises:
        ConnectDataError: it has no schema of its own, or it holds other values.
    """
    if value.__class__ is int or isinstance(value, _SCHEMALESS):
        return value
    raise ConnectDataError(
        f"expected a number, a boolean, a str or bytes to cast, found {type(value).__name__}"
    )


def _refuse(kind: Type) -> Any:
    raise ConnectDataError(f"expected a number, boolean, string or bytes to cast, found {kind.value}")


def _read(cast: Convert, value: Any) -> Any:
    try:
        return cast(value)
    except NumberTextError as error:
        raise ConnectDataError(f"the value cannot be cast: {error}") from error


def _number(of_number: Convert, of_text: Callable[[str], Any]) -> Convert:
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


def _narrowed(width: type[Int8 | Int16 | Int32]) -> Convert:
    # Floats go by way of 32 bits, where they saturate; anything else wraps.
    return lambda number: width.wrapped(
        saturated(number, _INT32_MAX) if isinstance(number, float) else to_int64(number)
    )


def _kafka_float32(number: Any) -> Float32:
    if isinstance(number, float) or (isinstance(number, int) and abs(number) <= _EXACT_IN_FLOAT64):
        return Float32(number)
    return float32_of_decimal(number_text(number))


def _kafka_text(value: Any) -> str:
    write = NUMBER_TEXTS.get(value.__class__)
    if write is not None:
        return write(value)
    if is_time(value):
        return str(convert_to_string(None, value, mode="kafka_4_3"))
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return java_text(value)


_KAFKA: Final[dict[Type, Convert]] = {
    Type.INT8: _number(_narrowed(Int8), parse_int8),
    Type.INT16: _number(_narrowed(Int16), parse_int16),
    Type.INT32: _number(_narrowed(Int32), parse_int32),
    Type.INT64: _number(to_int64, parse_int64),
    Type.FLOAT32: _number(_kafka_float32, parse_float32),
    Type.FLOAT64: _number(to_float64, parse_float64),
    Type.BOOLEAN: _number(lambda number: to_int64(number) != 0, lambda text: text.lower() == "true"),
    Type.STRING: _kafka_text,
}
"""What casts to each type."""


Convert = Callable[[Any], Any]
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_MOST_DIGITS: Final = 19
_INT64: Final = range(-(1 << 63), 1 << 63)
LOGICAL_NAMES: Final = frozenset({DATE, TIME, TIMESTAMP, DECIMAL})
"""The names that say nothing of what a value is cast to."""
_DATES: Final = {
    DATE: DateFormat("yyyy-MM-dd"),
    TIME: DateFormat("HH:mm:ss.SSS'Z'"),
    TIMESTAMP: DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
}


def exact_cast(schema: Schema | None, target: Type) -> Convert:
    """Return the function that casts values of a schema; null stays null.

    Args:
        schema: the schema; None for values without one.
        target: the type to cast to.

    Raises:
        ConnectDataError: values of this schema cannot be cast.
    """
    cast = _STRICT[target]
    if schema is None:
        return lambda value: None if value is None else cast(castable(value))
    if schema.type not in SOURCES:
        raise ConnectDataError(f"expected a number, boolean, string or bytes to cast, found {schema}")
    if schema.type is Type.BYTES and schema.name != DECIMAL and target is not Type.STRING:
        raise ConnectDataError(f"bytes are cast to string alone, in base64; expected is {target.value}")
    logical = TIME_TYPES.get(schema.name or "")
    if logical is None:
        return lambda value: None if value is None else cast(value)
    if target is Type.STRING:
        write = _DATES[logical.LOGICAL_NAME].format
        return lambda value: None if value is None else write(_time(value, schema))
    encode = logical.from_logical
    return lambda value: None if value is None else cast(encode(schema, _time(value, schema)))


def _time(value: Any, schema: Schema) -> Any:
    if not is_time(value):
        raise ConnectDataError(f"expected a datetime for {schema}, found {type(value).__name__}")
    return value


def _lossy(target: str, what: str) -> ConnectDataError:
    return ConnectDataError(f"expected a value that {target} holds without loss, found {what}")


def _strict_integer(width: type[Int8 | Int16 | Int32] | None) -> Convert:
    target = "int64" if width is None else f"int{width.bits}"

    def cast(value: Any) -> Any:
        number = _whole(value, target)
        if width is None:
            if number not in _INT64:
                raise _lossy(target, "a larger number")
            return int(number)
        try:
            return width(number)
        except ConnectDataError:
            raise _lossy(target, "a larger number") from None

    return cast


def _whole(value: Any, target: str) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise _lossy(target, "a text that is not how an integer is written")
        return int(value)
    if not isinstance(value, bool) and not is_number(value):
        raise _lossy(target, f"a value of class {type(value).__name__}")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise _lossy(target, "a number with a fraction, or none")
        return int(value)
    return _whole_decimal(value, target)


def _whole_decimal(value: DecimalNumber, target: str) -> int:
    sign, digits, exponent = value.as_tuple()
    # Looked at before it is made an integer, which may have any number of digits.
    if not isinstance(exponent, int) or value.adjusted() >= _MOST_DIGITS:
        raise _lossy(target, "a larger number, or none")
    if not value:
        return 0
    if exponent < 0 and any(digits[exponent:]):
        raise _lossy(target, "a number with a fraction")
    whole = digits[:exponent] if exponent < 0 else digits
    return int(DecimalNumber((sign, whole, max(exponent, 0))))


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
            raise _lossy(target, "a text that is not how a number is written")
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
    raise _lossy("boolean", "something else than true, false, 1 and 0")


def _strict_text(value: Any) -> str:
    write = NUMBER_TEXTS.get(value.__class__)
    if write is not None:
        return write(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, str | bool) or is_number(value):
        return java_text(value)
    raise _lossy("string", f"a value of class {type(value).__name__}")


_STRICT: Final[dict[Type, Convert]] = {
    Type.INT8: _strict_integer(Int8),
    Type.INT16: _strict_integer(Int16),
    Type.INT32: _strict_integer(Int32),
    Type.INT64: _strict_integer(None),
    Type.FLOAT32: _strict_float32,
    Type.FLOAT64: _strict_float64,
    Type.BOOLEAN: _strict_boolean,
    Type.STRING: _strict_text,
}
"""What casts to each type."""
