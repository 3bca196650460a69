"""From JSON to the values of a schema: a function for each schema, made once.

What JSON of another kind than the schema's becomes is told in :mod:`.reading_scalars`, for each mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from headerware.connect.converters.json.defaults import default_of
from headerware.connect.converters.json.reading_scalars import GIVES_NULL, scalars
from headerware.connect.data.schema import Schema, Type, described
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import STRICT, Mode

Read = Callable[[Any], Any]
_REFUSED: Final = object()
"""In place of what null stands for, where it stands for nothing."""


_FREE_VALUES: Final = 100_000
_VALUES_PER_BYTE: Final = 16
"""How many values JSON may stand for by its length: so many, and so many more for each byte. A struct has all
fields of its schema, there or not, so that ``{}`` may be thousands of values."""
_STRUCT_BYTES: Final = 3
"""The fewest bytes that a struct takes, with the comma behind it."""

_PAIR: Final = 2


def refuse_too_many(schema: Schema, node: Any, size: int, widest: int) -> None:
    """Refuse JSON whose structs stand for many more values than it has bytes.

    Args:
        schema: its schema.
        node: the JSON.
        size: how many bytes it has.
        widest: how many fields the schema's widest struct has.

    Raises:
        ConnectDataError: it stands for too many.
    """
    most = _FREE_VALUES + _VALUES_PER_BYTE * size
    if size * widest // _STRUCT_BYTES <= most:
        return
    if _values(schema, node) > most:
        raise ConnectDataError(f"JSON of {size} bytes stands for more than {most} values, the limit")


def widest_struct(schema: Schema) -> int:
    """Return how many fields the widest struct of a schema has."""
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


class Readers:
    """Make the functions that read values.

    Args:
        mode: ``strict`` or ``kafka_4_3``.
        replace_null: whether null, and what is missing, stands for the default.
    """

    def __init__(self, mode: Mode, *, replace_null: bool) -> None:
        self._strict: Final = mode == STRICT
        self._replace_null: Final = replace_null
        self._scalar: Final = scalars(mode)
        self._nested: Final[dict[Type, Callable[[Schema, bool], Read]]] = {
            Type.ARRAY: self._array,
            Type.MAP: self._map,
            Type.STRUCT: self._struct,
        }

    def reader(self, schema: Schema, *, checked: bool = False) -> Read:
        """Make the function for a schema; it raises ConnectDataError for JSON that does not fit.

        Args:
            schema: the schema.
            checked: whether a null that comes of other JSON is refused where it is no value, as Kafka does
                inside of a struct.
        """
        read = self._present(schema, checked)
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

    def _present(self, schema: Schema, checked: bool) -> Read:  # noqa: FBT001 - passed on by each of them
        scalar = self._scalar(schema)
        if scalar is None:
            return self._nested[schema.type](schema, checked)
        if checked and not schema.optional and scalar in GIVES_NULL:
            return _required(schema, scalar)
        return scalar

    def _array(self, schema: Schema, checked: bool) -> Read:  # noqa: FBT001 - passed on
        element = self.reader(_nested(schema.value_schema), checked=checked)
        strict = self._strict

        def read(node: Any) -> list[Any]:
            if node.__class__ is not list:
                if strict:
                    raise _mismatch(schema, "list", node)
                node = node.values() if node.__class__ is dict else ()
            return [element(item) for item in node]

        return read

    def _map(self, schema: Schema, checked: bool) -> Read:  # noqa: FBT001 - passed on
        key_schema = _nested(schema.key_schema)
        key = self.reader(key_schema, checked=checked)
        value = self.reader(_nested(schema.value_schema), checked=checked)
        if key_schema.type is Type.STRING:
            return _object_reader(schema, value)
        return _pairs_reader(schema, key, value, strict=self._strict)

    def _struct(self, schema: Schema, checked: bool) -> Read:  # noqa: FBT001 - a struct checks always
        del checked
        strict = self._strict
        fields = tuple(
            (field.name, self._present(field.schema, True), self._null(field.schema))  # noqa: FBT003 - checked
            for field in schema.fields
        )

        def read(node: Any) -> Struct:
            if node.__class__ is not dict:
                raise _mismatch(schema, "object", node)
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
            if strict:
                _refuse_unknown(schema, node)
            return Struct.trusted(schema, values)

        return read


def _required(schema: Schema, read: Read) -> Read:
    def read_required(node: Any) -> Any:
        value = read(node)
        if value is None:
            raise ConnectDataError(f"expected {described(schema)}, found other JSON")
        return value

    return read_required


def _nested(schema: Schema | None) -> Schema:
    if schema is None:
        raise ConnectDataError("expected a schema for what is in a list or map, found none")
    return schema


def _object_reader(schema: Schema, value: Read) -> Read:
    def read(node: Any) -> dict[Any, Any]:
        if node.__class__ is not dict:
            raise _mismatch(schema, "object", node)
        return {name: value(item) for name, item in node.items()}

    return read


def _pairs_reader(schema: Schema, key: Read, value: Read, *, strict: bool) -> Read:
    def read(node: Any) -> dict[Any, Any]:
        if node.__class__ is not list:
            raise _mismatch(schema, "list of pairs", node)
        made: dict[Any, Any] = {}
        for pair in node:
            if pair.__class__ is not list or len(pair) != _PAIR:
                raise ConnectDataError(f"expected lists of a key and a value in {described(schema)}")
            made[_hashable(key(pair[0]))] = value(pair[1])
        if strict and len(made) != len(node):
            raise ConnectDataError(f"a key stands twice in {described(schema)}")
        return made

    return read


def _hashable(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(map(_hashable, key))
    if isinstance(key, dict | Struct):
        raise ConnectDataError("a dict cannot have maps or structs as keys")
    return key


def _refuse_null() -> NoReturn:
    raise ConnectDataError("it is required, found null or nothing")


def _refuse_unknown(schema: Schema, node: dict[str, Any]) -> None:
    known = schema.by_name
    if len(node) > len(known) or any(name not in known for name in node):
        unknown = next(name for name in node if name not in known)
        raise ConnectDataError(f"{described(schema)} has no field {unknown!r}; it has: {', '.join(known)}")


def _mismatch(schema: Schema, expected: str, node: Any) -> ConnectDataError:
    return ConnectDataError(
        f"expected a JSON {expected} for {described(schema)}, found {type(node).__name__}"
    )
