"""MaskField: hide the values of fields (KIP-66, KIP-437).

transforms=mask
transforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value
transforms.mask.fields=password,customer.iban
transforms.mask.clobber.fields=name:xxx,age:0
transforms.mask.randomize.fields=phone

In the strict mode no value that was to be hidden comes through: what cannot be masked is refused.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from headerware.connect.config import ConfigDef
from headerware.connect.config import ConfigKey
from headerware.connect.config import DISTINCT
from headerware.connect.config import DISTINCT_SOME
from headerware.connect.config import NOT_EMPTY_TEXT
from headerware.connect.data.logical import Decimal as DecimalType
from headerware.connect.data.logical import of_unscaled
from headerware.connect.data.logical import scale_of
from headerware.connect.data.logical import unscaled_of
from headerware.connect.data.numbers import BigInteger
from headerware.connect.data.numbers import Float32
from headerware.connect.data.numbers import Int16
from headerware.connect.data.numbers import Int32
from headerware.connect.data.numbers import Int8
from headerware.connect.data.schema import Schema
from headerware.connect.data.schema import Type
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import DAY_MS
from headerware.connect.data.times import Instant
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.data.times import to_epoch_ms
from headerware.connect.data.validation import DECIMAL
from headerware.connect.data.validation import LOGICAL_CLASSES
from headerware.connect.data.validation import TIME
from headerware.connect.errors import ConnectConfigError
from headerware.connect.errors import ConnectDataError
from headerware.connect.errors import NumberTextError
from headerware.connect.fields.copying import copier
from headerware.connect.fields.keys import KeysByMode
from headerware.connect.fields.keys import REPLACE_NULL_WITH_DEFAULT
from headerware.connect.fields.lists import pairs
from headerware.connect.fields.lists import unescaped
from headerware.connect.fields.paths import FieldPath
from headerware.connect.fields.paths import parse_path
from headerware.connect.fields.requirements import require_map
from headerware.connect.fields.requirements import require_struct
from headerware.connect.fields.rewrites import Change
from headerware.connect.fields.rewrites import Edits
from headerware.connect.fields.rewrites import rewrite
from headerware.connect.fields.rewrites import rewrite_dict
from headerware.connect.java.numbers import parse_big_integer
from headerware.connect.java.numbers import parse_decimal
from headerware.connect.java.numbers import parse_int64
from headerware.connect.modes import KAFKA_4_3
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import Plan
from headerware.connect.transforms.structs import StructTransform
from headerware.connect.values import convert_to_byte
from headerware.connect.values import convert_to_double
from headerware.connect.values import convert_to_float
from headerware.connect.values import convert_to_integer
from headerware.connect.values import convert_to_long
from headerware.connect.values import convert_to_short
from typing import Any
from typing import ClassVar
from typing import Final
from typing import Protocol
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from headerware.connect.data.schema import Field
    from headerware.connect.modes import Mode

_PURPOSE: Final = "the masking of fields"


def _fields(*, required: bool) -> ConfigKey:
    given = {"check": DISTINCT_SOME} if required else {"check": DISTINCT, "default": []}
    return ConfigKey(name="fields", type="LIST", importance="HIGH", doc="The fields to mask.", **given)


class MaskField(StructTransform):
    """Replace fields by a value that says nothing: zero, an empty text, or a replacement.

    In the strict mode ``a.b`` is the field b in a; ``clobber.fields`` gives fields replacements of their own,
    and ``randomize.fields`` makes others random, of the same type and shape: texts keep their length and
    separators, numbers their count of digits. A field that a schema does not have is refused, one that a dict
    does not have stays away; bytes can be masked, and null keys and values have nothing to mask.

    Raises:
        ConnectConfigError: no field is named, or one is named twice.
    """

    CONFIG: ClassVar[ConfigDef] = KeysByMode(
        _fields(required=True),
        ConfigKey(
            name="replacement",
            type="STRING",
            default=None,
            importance="LOW",
            check=NOT_EMPTY_TEXT,
            doc="What the fields become, converted to their types.",
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
        self._with_default: Final = self.options[REPLACE_NULL_WITH_DEFAULT.name]
        self._kafka: KafkaMask | None = None
        self._masks: Edits[Mask] = Edits((), "fields")
        if mode != STRICT:
            self._kafka = KafkaMask(self.options["replacement"])
            return
        self._masks = Edits(self._named(), "fields")
        if not self._masks.paths:
            raise ConnectConfigError("expected fields, clobber.fields or randomize.fields; found none")

    def _named(self) -> Iterator[tuple[FieldPath, Mask]]:
        options, replacement = self.options, self.options["replacement"]
        if replacement is not None and not options["fields"]:
            raise ConnectConfigError("a replacement without fields goes nowhere", path="replacement")
        mask = BlankMask() if replacement is None else TextMask(replacement)
        for text in options["fields"]:
            yield parse_path(text, STRICT, "fields"), mask
        for text, replacement in pairs(options["clobber.fields"], STRICT, "clobber.fields"):
            own = TextMask(unescaped(replacement, "clobber.fields"))
            yield parse_path(text, STRICT, "clobber.fields"), own
        for text in options["randomize.fields"]:
            yield parse_path(text, STRICT, "randomize.fields"), RandomMask()

    def apply(self, record: Any) -> Any:
        """Return the record with the fields masked; its schema stays, even where its struct has another."""
        made = super().apply(record)
        if self._kafka is not None:
            made.key_schema, made.value_schema = record.key_schema, record.value_schema
        return made

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return a null as it is, for it holds nothing.

        Raises:
            ConnectDataError: always in ``kafka_4_3``.
        """
        if self.mode == STRICT:
            return record
        return require_map(None, _PURPOSE) if schema is None else require_struct(None, _PURPOSE)

    def schemaless(self, value: Any, record: Any) -> dict[Any, Any]:
        """Return a dict with the fields masked.

        Raises:
            ConnectDataError: this is no dict, or a value cannot be masked.
        """
        del record
        given = require_map(value, _PURPOSE)
        if self._kafka is None:
            return rewrite_dict(given, self._masks.root, _masked)
        made, mask = dict(given), self._kafka.of
        for name in self.options["fields"]:
            made[name] = mask(given.get(name))
        return made

    def plan(self, schema: Schema) -> Plan:
        """Say how to mask structs of a schema.

        Raises:
            ConnectDataError: there is no such field, or its values cannot be masked.
        """
        if self._kafka is not None:
            return self._kafka_plan(schema, self._kafka)
        updated, apply = rewrite(schema, self._masks, _change, mode=STRICT, with_default=self._with_default)
        return Plan(updated, lambda struct, _: apply(struct))

    def _kafka_plan(self, schema: Schema, kafka: KafkaMask) -> Plan:
        fields, schemas, mask = schema.fields, [field.schema for field in schema.fields], kafka.of
        copy = copier(fields, schemas, mode=self.mode, with_default=self._with_default)
        names = self.options["fields"]
        masked = [schema.by_name[name].index for name in names if name in schema.by_name]

        def apply(struct: Struct, _: Any) -> Struct:
            values = copy(struct.values)
            for at in masked:
                values[at] = mask(values[at])
            return Struct.trusted(schema, values)

        return Plan(schema, apply)


def _masked(value: Any, mask: Mask) -> Any:
    return mask.of_value(value)


def _change(field: Field, mask: Mask) -> Change:
    return Change(field.name, field.schema, mask.for_schema(field.schema, field.name))


_EPOCH: Final = from_epoch_ms(0)


class Mask(Protocol):
    """Hide values."""

    def of_value(self, value: Any) -> Any:
        """Return what takes the place of a value without a schema; null stays null.

        Raises:
            ConnectDataError: it cannot be masked.
        """

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema.

        Args:
            schema: the schema.
            name: the field's name, for errors.

        Raises:
            ConnectDataError: they cannot be masked.
        """


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
"""By class, what has nothing in it; lists and dicts are made anew, for they may be changed later."""
_CONTAINERS: Final[dict[type, Callable[[], Any]]] = {list: list, tuple: list, dict: dict}
"""Those of which there may be subclasses, such as an OrderedDict."""
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


def class_of(schema: Schema) -> type | None:
    """Return the class of a schema's values; None for structs."""
    logical = LOGICAL_CLASSES.get(schema.name or "")
    return logical[0] if logical else _OF_TYPE.get(schema.type)


class BlankMask:
    """Replace values by zero, false, or what is empty."""

    def of_value(self, value: Any) -> Any:
        """Return what takes the place of a value without a schema."""
        if value is None:
            return None
        make = _BLANK.get(type(value)) or next(
            (made for kind, made in _CONTAINERS.items() if isinstance(value, kind)), None
        )
        if make is None:
            raise ConnectDataError(f"a value of class {type(value).__name__} cannot be masked")
        return make()

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema."""
        kind = class_of(schema)
        if kind is None:
            raise ConnectDataError(f"field {name!r} is a struct; name the fields in it that are to be masked")
        if kind is Decimal:
            zero = of_unscaled(0, _scale(schema, name))
            return lambda value: None if value is None else zero
        make = _BLANK[kind]
        return lambda value: None if value is None else make()


class TextMask:
    """Replace values by what a text says, in their own types.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._known: dict[type, Any] = {}

    def of_value(self, value: Any) -> Any:
        """Return what takes the place of a value without a schema."""
        if value is None:
            return None
        kind = type(value)
        mask = self._known.get(kind)
        if mask is None:
            mask = self._known[kind] = _converted(self._text, kind, f"a value of class {kind.__name__}")
        return mask

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema."""
        mask = _converted(self._text, class_of(schema), f"field {name!r}")
        if schema.name == DECIMAL:
            mask = _rescaled(mask, _scale(schema, name), name)
        return lambda value: None if value is None else mask


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_BOOLEANS: Final = {"true": True, "false": False}
_MOST_ZEROS: Final = 10_000
"""A schema may say a scale of ten digits; a number of so many zeros would fill the memory."""
_STRICT_REPLACED: Final[dict[type, tuple[re.Pattern[str], Callable[[str], Any]]]] = {
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
    if kind is None or kind not in _STRICT_REPLACED:
        raise ConnectDataError(f"{what} cannot be masked by a replacement")
    pattern, convert = _STRICT_REPLACED[kind]
    try:
        if pattern.fullmatch(text):
            return convert(text)
    except ValueError:
        pass
    raise ConnectDataError(f"the replacement for {what} is no {kind.__name__}")


def _scale(schema: Schema, name: str) -> int:
    if schema.parameters is None:
        raise ConnectDataError(f"field {name!r} is a decimal, but its schema says no scale")
    return DecimalType.scale(schema)


def _rescaled(number: Decimal, scale: int, name: str) -> Decimal:
    missing = scale - scale_of(number)
    if missing < 0:
        raise ConnectDataError(f"the replacement for field {name!r} has over {scale} digits after the point")
    if missing > _MOST_ZEROS:
        raise ConnectDataError(f"field {name!r} has too many digits after the point: {scale}")
    return of_unscaled(unscaled_of(number) * 10**missing, scale)


_EPOCH: Final = from_epoch_ms(0)
_KAFKA_BLANK: Final[dict[type, Any]] = {
    bool: False,
    Int8: Int8(0),
    Int16: Int16(0),
    Int32: Int32(0),
    int: 0,
    Float32: Float32(0),
    float: 0.0,
    BigInteger: BigInteger(0),
    Decimal: Decimal(0),
    datetime: _EPOCH,
    Instant: _EPOCH,
    str: "",
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


class KafkaMask:
    """Give masks by the classes of values.

    Args:
        replacement: the text of numbers and texts; None for zeros and empty ones.
    """

    def __init__(self, replacement: str | None) -> None:
        self._replacement: Final = replacement
        self._known: dict[type, Any] = dict(_KAFKA_BLANK) if replacement is None else {}

    def of(self, value: Any) -> Any:
        """Return the mask of a value; null stays null.

        Raises:
            ConnectDataError: values of this class cannot be masked, or not so.
        """
        if value is None:
            return None
        kind = type(value)
        mask = self._known.get(kind)
        if mask is not None:
            return mask
        if self._replacement is None:
            return _empty(value)
        mask = self._known[kind] = _replaced(kind, self._replacement)
        return mask


def _empty(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return []
    if isinstance(value, dict):
        return {}
    if isinstance(value, datetime):
        return _EPOCH
    raise ConnectDataError(f"a value of class {type(value).__name__} cannot be masked")


def _replaced(kind: type, text: str) -> Any:
    convert = _KAFKA_REPLACED.get(kind)
    if convert is None:
        raise ConnectDataError(f"a value of class {kind.__name__} cannot be masked by a replacement")
    try:
        return convert(text)
    except NumberTextError as error:
        raise ConnectDataError(f"the replacement is no {kind.__name__}") from error


_DIGITS: Final = "0123456789"
_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_SEPARATORS: Final = frozenset(" -_.:/,@+()")
_CENTURY_DAYS: Final = 36_525
_ABOVE: Final[dict[type, int]] = {Int8: 1 << 7, Int16: 1 << 15, Int32: 1 << 31, int: 1 << 63}
"""What is too large for a class; of larger numbers the count of bits is kept, not that of decimal digits."""


class RandomMask:
    """Replace values by random ones."""

    def of_value(self, value: Any) -> Any:
        """Return a random value like one without a schema; null stays null.

        Raises:
            ConnectDataError: there is none like it.
        """
        try:
            return _like(value, None)
        except RecursionError:
            raise ConnectDataError("a value with so many levels in it cannot be made random") from None

    def for_schema(self, schema: Schema, name: str) -> Callable[[Any], Any]:
        """Return a function that does so for values of a schema."""
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
