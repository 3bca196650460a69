"""Whether a value fits its schema."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal as DecimalNumber
from typing import Any, Final

from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.schema import Schema, Type
from headerware.connect.data.times import Instant
from headerware.connect.errors import ConnectDataError

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"

CLASSES: Final[dict[Type, tuple[type, ...]]] = {
    Type.INT8: (Int8,),
    Type.INT16: (Int16,),
    Type.INT32: (Int32,),
    Type.INT64: (int,),
    Type.FLOAT32: (Float32,),
    Type.FLOAT64: (float,),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list, tuple),
    Type.MAP: (dict,),
    Type.STRUCT: (),
}
"""The classes of each type's values; a struct's is :class:`~headerware.connect.data.struct.Struct`."""
LOGICAL_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    DECIMAL: (DecimalNumber,),
    DATE: (datetime, Instant),
    TIME: (datetime, Instant),
    TIMESTAMP: (datetime, Instant),
}
"""The classes of the logical types' values, by the schema's name."""
_NESTED: Final = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_SCALARS: Final = {kind: classes for kind, classes in CLASSES.items() if kind not in _NESTED}
_NO_INT64: Final = (bool, Int8, Int16, Int32, BigInteger, Instant)


def classes_of(schema: Schema) -> tuple[type, ...]:
    """Return the classes that a schema's values have."""
    return LOGICAL_CLASSES.get(schema.name or "") or CLASSES[schema.type]


def is_instance(value: Any, classes: tuple[type, ...]) -> bool:
    """Return whether a value is of one of these classes, as Connect sees them: an Int8 is no int64."""
    if value.__class__ in classes:
        return True
    if not isinstance(value, classes):
        return False
    if isinstance(value, int) and int in classes:
        return not isinstance(value, _NO_INT64)
    return not (isinstance(value, Float32) and float in classes)


def is_plain(schema: Schema, value: Any) -> bool:
    """Return whether a value fits its schema as most do: of the very class of a type that has no name.

    It tells at once what :func:`validate_value` need not look at, nor be given a place for its errors.
    """
    return schema.name is None and value.__class__ in _SCALARS.get(schema.type, ())


def validate_value(schema: Schema, value: Any, where: str = "value") -> None:
    """Refuse a value that does not fit its schema.

    Args:
        schema: the schema.
        value: the value; a plain int is an int64, see :class:`~headerware.connect.data.numbers.Int32`.
        where: what the value is called in the error.

    Raises:
        ConnectDataError: it does not fit, at which place, and the type that was found.
    """
    if value is None:
        if not schema.optional:
            raise ConnectDataError(f"expected {described(schema)} for required {where}, found null")
        return
    kind = schema.type
    if kind is Type.STRUCT and (schema.name is None or schema.name not in LOGICAL_CLASSES):
        value_schema = getattr(value, "schema", None)
        if not isinstance(value_schema, Schema):
            raise _mismatch(schema, value, where)
        if value_schema is not schema and value_schema != schema:
            raise ConnectDataError(
                f"{where} is a struct of another schema, {value_schema}; expected {schema}"
            )
        value.validate()
        return
    if not is_instance(value, classes_of(schema)):
        raise _mismatch(schema, value, where)
    if kind is Type.ARRAY:
        _validate_array(schema, value, where)
    elif kind is Type.MAP:
        _validate_map(schema, value, where)


def _validate_array(schema: Schema, values: Any, where: str) -> None:
    where = f"element of array {where}"
    element = _present(schema.value_schema, where)
    for value in values:
        validate_value(element, value, where)


def _validate_map(schema: Schema, entries: Any, where: str) -> None:
    of_key, of_value = f"key of map {where}", f"value of map {where}"
    key_schema, value_schema = _present(schema.key_schema, of_key), _present(schema.value_schema, of_value)
    for key, value in entries.items():
        validate_value(key_schema, key, of_key)
        validate_value(value_schema, value, of_value)


def _present(schema: Schema | None, where: str) -> Schema:
    if schema is None:
        raise ConnectDataError(f"there is no schema for {where}")
    return schema


def _mismatch(schema: Schema, value: Any, where: str) -> ConnectDataError:
    found = type(value).__name__
    return ConnectDataError(f"expected {described(schema)} for {where}, found a value of class {found}")


def described(schema: Schema) -> str:
    """Say what a schema's values are: ``int32``, or ``int32 (a ...Date)``."""
    return schema.type.value if schema.name is None else f"{schema.type.value} ({schema.name})"
