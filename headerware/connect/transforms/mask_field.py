"""MaskField: hide the values of fields (KIP-66, KIP-437).

transforms=mask
transforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value
transforms.mask.fields=password,customer.iban
transforms.mask.clobber.fields=name:xxx,age:0
transforms.mask.randomize.fields=phone

The strict mode never passes on a value that should be hidden: a value that cannot be masked is refused.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from headerware.connect.config import DISTINCT, DISTINCT_SOME, NOT_EMPTY_TEXT, ConfigDef, ConfigKey
from headerware.connect.data.logical import Decimal as DecimalType
from headerware.connect.data.logical import of_unscaled, scale_of, unscaled_of
from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.schema import DECIMAL, LOGICAL_CLASSES, TIME, Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import DAY_MS, Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ConnectConfigError, ConnectDataError, NumberTextError
from headerware.connect.fields.lists import pairs, unescaped
from headerware.connect.fields.paths import FieldPath, parse_path
from headerware.connect.fields.rewrites import Change, Edits, Rewrite, rewrite, rewrite_dict
from headerware.connect.fields.structs import copier, require_map, require_struct
from headerware.connect.java.numbers import parse_big_integer, parse_decimal, parse_int64
from headerware.connect.modes import KAFKA_4_3, STRICT
from headerware.connect.transforms.base import Plan, StructTransform
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT, KeysByMode
from headerware.connect.values import (
    convert_to_byte,
    convert_to_double,
    convert_to_float,
    convert_to_integer,
    convert_to_long,
    convert_to_short,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headerware.connect.data.schema import Field
    from headerware.connect.modes import Mode

_PURPOSE: Final = "the masking of fields"
_log: Final = logging.getLogger("headerware.connect")


def _fields(*, required: bool) -> ConfigKey:
    given = {"check": DISTINCT_SOME} if required else {"check": DISTINCT, "default": []}
    return ConfigKey(name="fields", type="LIST", importance="HIGH", doc="The fields to mask.", **given)


class MaskField(StructTransform):
    """Replace fields by a blank value, such as zero or an empty text, or by a replacement.

    In the strict mode ``a.b`` is the field b in a; ``clobber.fields`` gives fields replacements of their own,
    and ``randomize.fields`` makes fields random, of the same type and shape: texts keep their length and
    separators, numbers their count of digits. A field that a schema lacks is refused, and a field that a dict
    lacks is not added; bytes can be masked, and null keys and values stay null. The first object that has
    none of the fields is a warning.

    Raises:
        ConnectConfigError: no field is named, or a field is named twice.
    """

    CONFIG: ClassVar[ConfigDef] = KeysByMode(
        _fields(required=True),
        ConfigKey(
            name="replacement",
            type="STRING",
            default=None,
            importance="LOW",
            check=NOT_EMPTY_TEXT,
            doc="The new value of the fields, converted to their types.",
        ),
        REPLACE_NULL_WITH_DEFAULT,
        ConfigKey(
            name="clobber.fields",
            type="LIST",
            default=[],
            strict_only=True,
            doc="Fields with replacements of their own: field:replacement.",
        ),
        ConfigKey(
            name="randomize.fields",
            type="LIST",
            default=[],
            strict_only=True,
            check=DISTINCT,
            doc="Fields that become random values of the same type and shape.",
        ),
        strict=[_fields(required=False)],
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._mode: Final = (_StrictMode if mode == STRICT else _KafkaMode)(self.options)
        self._of_dict: Final = self._mode.of_dict
        self._names: Final[frozenset[str]] = self._mode.names
        self._has_warned = False

    def apply(self, record: Any) -> Any:
        """Return the record with the fields masked; its schema stays, even if its struct has another."""
        made = super().apply(record)
        if self.mode != STRICT:
            made.key_schema, made.value_schema = record.key_schema, record.value_schema
        return made

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return a null as it is, because it holds nothing.

        Raises:
            ConnectDataError: always in ``kafka_4_3``.
        """
        if self.mode == STRICT:
            return record
        return require_map(None, _PURPOSE) if schema is None else require_struct(None, _PURPOSE)

    def schemaless(self, value: Any, record: Any) -> dict[Any, Any]:
        """Return a dict with the fields masked.

        Raises:
            ConnectDataError: the value is not a dict, or a field cannot be masked.
        """
        del record
        fields = require_map(value, _PURPOSE)
        if self._names.isdisjoint(fields):
            self._warn()
        return self._of_dict(fields)

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: there is no such field, or its values cannot be masked.
        """
        updated, apply = self._mode.of_schema(schema)
        if self._names.isdisjoint(schema.by_name):
            self._warn()
        return Plan(updated, lambda struct, _: apply(struct))

    def _warn(self) -> None:
        """Warn once that nothing is masked, because a name may be misspelt."""
        if not self._has_warned:
            self._has_warned = True
            names = ", ".join(sorted(self._names))
            _log.warning("MaskField: an object has none of the fields %s; it passes unmasked", names)


class _StrictMode:
    """Mask fields by their paths, each by a mask of its own."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._with_default: Final[bool] = options[REPLACE_NULL_WITH_DEFAULT.name]
        self._masks: Final[Edits[_Mask]] = Edits(_masks(options), "fields")
        if not self._masks.paths:
            raise ConnectConfigError("expected fields, clobber.fields or randomize.fields; found none")
        self.names: Final = frozenset(path.steps[0] for path in self._masks.paths)
        """The names of the fields, or of the structs that they are in."""

    def of_dict(self, fields: dict[str, Any]) -> dict[str, Any]:
        return rewrite_dict(fields, self._masks.root, _masked)

    def of_schema(self, schema: Schema) -> Rewrite:
        return rewrite(schema, self._masks, _change, mode=STRICT, with_default=self._with_default)


def _masked(value: Any, mask: _Mask) -> Any:
    return mask.of_value(value)


def _change(field: Field, mask: _Mask) -> Change:
    return Change(field.name, field.schema, mask.for_schema(field.schema, field.name))


def _masks(options: Mapping[str, Any]) -> Iterator[tuple[FieldPath, _Mask]]:
    replacement = options["replacement"]
    if replacement is not None and not options["fields"]:
        raise ConnectConfigError("a replacement needs fields", path="replacement")
    mask = _BlankMask() if replacement is None else _TextMask(replacement)
    for text in options["fields"]:
        yield parse_path(text, STRICT, "fields"), mask
    for text, replacement in pairs(options["clobber.fields"], STRICT, "clobber.fields"):
        own = _TextMask(unescaped(replacement, "clobber.fields"))
        yield parse_path(text, STRICT, "clobber.fields"), own
    for text in options["randomize.fields"]:
        yield parse_path(text, STRICT, "randomize.fields"), _RandomMask()


class _KafkaMode:
    """Mask fields by their names, by the classes of their values and not by their schemas, as Kafka does."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names: Final[list[str]] = options["fields"]
        self.names: Final = frozenset(self._names)
        self._with_default: Final[bool] = options[REPLACE_NULL_WITH_DEFAULT.name]
        self._replacement: Final[str | None] = options["replacement"]
        self._known: Final[dict[type, Any]] = dict(_KAFKA_BLANK) if self._replacement is None else {}

    def of_dict(self, fields: dict[str, Any]) -> dict[str, Any]:
        made = dict(fields)
        for name in self._names:
            made[name] = self._masked(fields.get(name))
        return made

    def of_schema(self, schema: Schema) -> Rewrite:
        fields, schemas, mask = schema.fields, [field.schema for field in schema.fields], self._masked
        copy = copier(fields, schemas, mode=KAFKA_4_3, with_default=self._with_default)
        masked = [schema.by_name[name].index for name in self._names if name in schema.by_name]

        def apply(struct: Struct) -> Struct:
            values = copy(struct.values)
            for at in masked:
                values[at] = mask(values[at])
            return Struct.trusted(schema, values)

        return Rewrite(schema, apply)

    def _masked(self, value: Any) -> Any:
        if value is None:
            return None
        kind = type(value)
        mask = self._known.get(kind)
        if mask is not None:
            return mask
        if self._replacement is None:
            return _kafka_empty(value)
        mask = self._known[kind] = _kafka_replaced(kind, self._replacement)
        return mask


# The strict mode's masks

_EPOCH: Final = from_epoch_ms(0)


class _Mask(Protocol):
    """Hide values, or raise ConnectDataError."""

    def of_value(self, value: Any) -> Any:
        """Return the mask of a value without a schema; null stays null."""

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return the function that masks the values of a schema; the field's name is for errors."""


_BLANK: Final[dict[type, Callable[[], Any]]] = {
    bool: bool,
    Int8: Int8,
    Int16: Int16,
    Int32: Int32,
    int: int,
    Float32: Float32,
    float: float,
    BigInteger: BigInteger,
    Decimal: Decimal,
    datetime: lambda: _EPOCH,
    Instant: lambda: _EPOCH,
    str: str,
    bytes: bytes,
    bytearray: bytes,
    memoryview: bytes,
    list: list,
    tuple: list,
    dict: dict,
}
"""By class, the empty value; lists and dicts are new objects, because they may be changed later."""
_CONTAINERS: Final[dict[type, Callable[[], Any]]] = {list: list, tuple: list, dict: dict}
"""The containers, which may be of subclasses such as an OrderedDict."""
_OF_TYPE: Final[dict[Type, type]] = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: int,
    Type.FLOAT32: Float32,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
}


def _class_of(schema: Schema) -> type | None:
    """Return the class of a schema's values; None for structs."""
    logical = LOGICAL_CLASSES.get(schema.name or "")
    return logical[0] if logical else _OF_TYPE.get(schema.type)


class _BlankMask:
    """Replace values by zero, false, or an empty text, list or dict."""

    def of_value(self, value: Any) -> Any:
        if value is None:
            return None
        make = _BLANK.get(type(value)) or next(
            (made for kind, made in _CONTAINERS.items() if isinstance(value, kind)), None
        )
        if make is None:
            raise ConnectDataError(f"a value of class {type(value).__name__} cannot be masked")
        return make()

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        kind = _class_of(schema)
        if kind is None:
            raise ConnectDataError(f"field {name!r} is a struct; name the fields in it to mask")
        if kind is Decimal:
            zero = of_unscaled(0, _scale(schema, name))
            return lambda value: None if value is None else zero
        make = _BLANK[kind]
        return lambda value: None if value is None else make()


class _TextMask:
    """Replace values by a configured text, converted to their types."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._known: dict[type, Any] = {}

    def of_value(self, value: Any) -> Any:
        if value is None:
            return None
        kind = type(value)
        mask = self._known.get(kind)
        if mask is None:
            mask = self._known[kind] = _converted(self._text, kind, f"a value of class {kind.__name__}")
        return mask

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        mask = _converted(self._text, _class_of(schema), f"field {name!r}")
        if schema.name == DECIMAL:
            mask = _rescaled(mask, _scale(schema, name), name)
        return lambda value: None if value is None else mask


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_BOOLEANS: Final = {"true": True, "false": False}
_MOST_ZEROS: Final = 10_000
"""A schema's scale may have ten digits, and a number of so many zeros would fill the memory."""
_REPLACED: Final[dict[type, tuple[re.Pattern[str], Callable[[str], Any]]]] = {
    bool: (re.compile("true|false"), _BOOLEANS.__getitem__),
    Int8: (_INTEGER, Int8),
    Int16: (_INTEGER, Int16),
    Int32: (_INTEGER, Int32),
    int: (_INTEGER, parse_int64),
    BigInteger: (_INTEGER, BigInteger),
    Float32: (_NUMBER, Float32),
    float: (_NUMBER, float),
    Decimal: (_NUMBER, Decimal),
    str: (re.compile(".*", re.DOTALL), str),
}


def _converted(text: str, kind: type | None, what: str) -> Any:
    if kind is None or kind not in _REPLACED:
        raise ConnectDataError(f"{what} cannot be masked by a replacement")
    pattern, convert = _REPLACED[kind]
    try:
        if pattern.fullmatch(text):
            return convert(text)
    except ValueError:
        pass
    raise ConnectDataError(f"the replacement for {what} is not a valid {kind.__name__}")


def _scale(schema: Schema, name: str) -> int:
    if schema.parameters is None:
        raise ConnectDataError(f"field {name!r} is a decimal, but its schema has no scale")
    return DecimalType.scale(schema)


def _rescaled(number: Decimal, scale: int, name: str) -> Decimal:
    missing = scale - scale_of(number)
    if missing < 0:
        raise ConnectDataError(f"the replacement for field {name!r} has over {scale} digits after the point")
    if missing > _MOST_ZEROS:
        raise ConnectDataError(f"field {name!r} has too many digits after the point: {scale}")
    return of_unscaled(unscaled_of(number) * 10**missing, scale)


# Kafka's masks

_KAFKA_BLANK: Final[dict[type, Any]] = {
    kind: _BLANK[kind]()
    for kind in (bool, Int8, Int16, Int32, int, Float32, float, BigInteger, Decimal, datetime, Instant, str)
}
_KAFKA_REPLACED: Final[dict[type, Callable[[str], Any]]] = {
    Int8: lambda text: convert_to_byte(None, text, mode=KAFKA_4_3),
    Int16: lambda text: convert_to_short(None, text, mode=KAFKA_4_3),
    Int32: lambda text: convert_to_integer(None, text, mode=KAFKA_4_3),
    int: lambda text: convert_to_long(None, text, mode=KAFKA_4_3),
    Float32: lambda text: convert_to_float(None, text, mode=KAFKA_4_3),
    float: lambda text: convert_to_double(None, text, mode=KAFKA_4_3),
    str: str,
    Decimal: parse_decimal,
    BigInteger: parse_big_integer,
}


def _kafka_empty(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return []
    if isinstance(value, dict):
        return {}
    if isinstance(value, datetime):
        return _EPOCH
    raise ConnectDataError(f"a value of class {type(value).__name__} cannot be masked")


def _kafka_replaced(kind: type, text: str) -> Any:
    convert = _KAFKA_REPLACED.get(kind)
    if convert is None:
        raise ConnectDataError(f"a value of class {kind.__name__} cannot be masked by a replacement")
    try:
        return convert(text)
    except NumberTextError as error:
        raise ConnectDataError(f"the replacement is not a valid {kind.__name__}") from error


# Random values, from the system's secure source
#
# texts      of the same length; digits become digits, letters letters, separators stay, other characters
#            become letters or digits
# numbers    of the same sign and count of digits
# booleans   true or false
# decimals   of the same sign, count of digits and scale
# bytes      of the same length
# times      a day of the hundred years from 1970, with a time of day if there was one
# arrays, dicts, structs   of the same shape, with random values; a dict's keys become random, too

_DIGITS: Final = "0123456789"
_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_SEPARATORS: Final = frozenset(" -_.:/,@+()")
_CENTURY_DAYS: Final = 36_525
_ABOVE: Final[dict[type, int]] = {Int8: 1 << 7, Int16: 1 << 15, Int32: 1 << 31, int: 1 << 63}
"""The first number too large for a class; a larger number keeps its count of bits instead of digits."""


class _RandomMask:
    """Replace values by random ones of the same type and shape."""

    def of_value(self, value: Any) -> Any:
        try:
            return _like(value, None)
        except RecursionError:
            raise ConnectDataError("the value is nested too deeply to be made random") from None

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        del name
        return lambda value: _like(value, schema)


def _like(value: Any, schema: Schema | None) -> Any:
    if value is None:
        return None
    make = _OF_CLASS.get(type(value)) or next(
        (_OF_CLASS[kind] for kind in (list, tuple, dict) if isinstance(value, kind)), None
    )
    if make is None:
        raise ConnectDataError(f"a value of class {type(value).__name__} cannot be made random")
    return make(value, schema)


def _boolean(_: bool, __: Schema | None) -> bool:  # noqa: FBT001 - it is the value to replace
    return secrets.randbits(1) == 1


def _integer(value: int, _: Schema | None) -> int:
    kind, size = type(value), abs(int(value))
    above = _ABOVE.get(kind, _ABOVE[int])
    if size > above:
        made = secrets.randbits(size.bit_length()) | 1 << size.bit_length() - 1
    else:
        digits = len(str(size))
        lowest = 10 ** (digits - 1) if digits > 1 else 0
        made = lowest + secrets.randbelow(min(10**digits, above) - lowest)
    return kind(-made if value < 0 else made)


def _float(value: float, _: Schema | None) -> float:
    kind, (mantissa, mark, exponent) = type(value), float.__repr__(value).partition("e")
    if math.isfinite(value):
        made = kind(_text_like(mantissa) + mark + exponent)
        if math.isfinite(made):
            return made
    return kind(secrets.randbits(53) / (1 << 53))


def _decimal(value: Decimal, _: Schema | None) -> Decimal:
    exponent = -scale_of(value)
    sign, digits, _exponent = value.as_tuple()
    return Decimal((sign, [secrets.randbelow(10) for _ in digits], exponent))


def _text(value: str, _: Schema | None) -> str:
    if not any(character.isalnum() for character in value):
        return "".join(secrets.choice(_LOWER) for _ in value)
    return _text_like(value)


def _text_like(value: str) -> str:
    return "".join(map(_character, value))


def _character(character: str) -> str:
    if character in _SEPARATORS:
        return character
    if character.isdigit():
        return secrets.choice(_DIGITS)
    if character.isupper():
        return secrets.choice(_UPPER)
    return secrets.choice(_LOWER if character.isalpha() else _LOWER + _DIGITS)


def _bytes(value: bytes | bytearray | memoryview, _: Schema | None) -> bytes:
    return secrets.token_bytes(memoryview(value).nbytes)


def _time(value: datetime | Instant, schema: Schema | None) -> Any:
    of_day = secrets.randbelow(DAY_MS)
    if schema is not None and schema.name == TIME:
        return from_epoch_ms(of_day)
    has_time = to_epoch_ms(value) % DAY_MS != 0
    return from_epoch_ms(secrets.randbelow(_CENTURY_DAYS) * DAY_MS + (of_day if has_time else 0))


def _array(value: list[Any] | tuple[Any, ...], schema: Schema | None) -> list[Any]:
    element = None if schema is None else schema.value_schema
    return [_like(item, element) for item in value]


def _dict(value: dict[Any, Any], schema: Schema | None) -> dict[Any, Any]:
    of_key, of_value = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
    return {_like(key, of_key): _like(item, of_value) for key, item in value.items()}


def _struct(value: Struct, _: Schema | None) -> Struct:
    schema = value.schema
    values = zip(value.values, schema.fields, strict=True)
    return Struct.trusted(schema, [_like(item, field.schema) for item, field in values])


_OF_CLASS: Final[dict[type, Callable[[Any, Schema | None], Any]]] = {
    bool: _boolean,
    **dict.fromkeys((Int8, Int16, Int32, int, BigInteger), _integer),
    **dict.fromkeys((Float32, float), _float),
    Decimal: _decimal,
    str: _text,
    **dict.fromkeys((bytes, bytearray, memoryview), _bytes),
    **dict.fromkeys((datetime, Instant), _time),
    **dict.fromkeys((list, tuple), _array),
    dict: _dict,
    Struct: _struct,
}
