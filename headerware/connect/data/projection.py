"""Project a value of one schema onto another: an older record for a newer reader, or the reverse."""

from __future__ import annotations

from typing import Any, Final

from headerware.connect.data.schema import NUMBER_CLASSES, Field, Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import Instant
from headerware.connect.errors import SchemaProjectorError

_WIDENING: Final = tuple(NUMBER_CLASSES)
_NO_NUMBERS: Final = (bool, Instant)


def project(source: Schema, value: Any, target: Schema) -> Any:
    """Return a value of one schema as a value of another.

    Numbers widen. The fields of a struct are found by name; new ones take their default.

    Args:
        source: the schema of the value.
        value: the value.
        target: the schema of the result.

    Raises:
        SchemaProjectorError: the schemas do not agree; the message says where.
    """
    _check(source, target)
    if source.optional and not target.optional and target.default is None:
        raise SchemaProjectorError(f"{source} may be null; {target} may not, and has no default")
    if value is None:
        return target.default if source.optional and not target.optional else None
    if target.type is Type.STRUCT:
        return _struct(source, value, target)
    if target.type is Type.ARRAY:
        return [_nested(source.value_schema, item, target.value_schema) for item in value]
    if target.type is Type.MAP:
        return {
            _nested(source.key_schema, key, target.key_schema): _nested(
                source.value_schema, item, target.value_schema
            )
            for key, item in value.items()
        }
    if (
        isinstance(value, int | float)
        and not isinstance(value, _NO_NUMBERS)
        and target.type in NUMBER_CLASSES
    ):
        return _number(value, target.type)
    return value


def _number(value: float, kind: Type) -> Any:
    try:
        return NUMBER_CLASSES[kind](value)
    except (ValueError, OverflowError) as error:
        problem = f"a value of class {type(value).__name__} does not fit {kind.value}"
        raise SchemaProjectorError(problem) from error


def _check(source: Schema, target: Schema) -> None:
    if source.type is not target.type and not _widens(source.type, target.type):
        raise SchemaProjectorError(f"a value of type {source.type.value} is not of type {target.type.value}")
    if source.name != target.name:
        raise SchemaProjectorError(f"the schemas have different names: {source.name} and {target.name}")
    if source.parameters != target.parameters:
        raise SchemaProjectorError(f"the schemas of {source} have different parameters")


def _widens(source: Type, target: Type) -> bool:
    known = source in NUMBER_CLASSES and target in NUMBER_CLASSES
    return known and _WIDENING.index(source) <= _WIDENING.index(target)


def _struct(source: Schema, value: Struct, target: Schema) -> Struct:
    made = Struct(target)
    for field in target.fields:
        own = source.field(field.name)
        if own is not None:
            made.put(field, _field(own, value, field))
        elif field.schema.optional:
            continue
        elif field.schema.default is not None:
            made.put(field, field.schema.default)
        else:
            raise SchemaProjectorError(
                f"{target} requires the field {field.name!r}, which {source} does not have"
            )
    return made


def _field(own: Field, value: Struct, target: Field) -> Any:
    try:
        return project(own.schema, value.get(own), target.schema)
    except SchemaProjectorError as error:
        raise SchemaProjectorError(f"field {own.name!r}: {error}") from error


def _nested(source: Schema | None, value: Any, target: Schema | None) -> Any:
    if source is None or target is None:
        raise SchemaProjectorError("an array's or a map's schema does not describe its values")
    return project(source, value, target)
