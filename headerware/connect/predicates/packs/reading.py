"""Read a field of a record's key or value, or a header, where it may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.paths import parse_path
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.connect.data.schema import Schema

_GETTERS: Final = 64
"""The schemas whose getters are kept."""


def _null(_struct: Struct) -> None:
    """Return what a schema has that lacks the field."""


class FieldReader:
    """Read a field, nested ones too; null where it is missing.

    Args:
        path: the field, as ``a.b``; the whole key or value where it is empty.
        key: the configuration's key, for errors.

    Raises:
        ConnectConfigError: the path is none.

    Safe for use by several threads.
    """

    __slots__ = ("_getters", "_path")

    def __init__(self, path: str | None, key: str) -> None:
        self._path: Final = parse_path(path, STRICT, key) if path else None
        self._getters: dict[int, tuple[Schema, Callable[[Struct], Any]]] = {}

    def __call__(self, value: Any) -> Any:
        """Return the field of a key or value.

        Raises:
            ConnectDataError: the key or value, or something on the way, has no fields.
        """
        if self._path is None or value is None:
            return value
        if isinstance(value, Struct):
            known = self._getters.get(id(value.schema))
            return (known[1] if known is not None else self._getter(value.schema))(value)
        if isinstance(value, dict):
            return self._path.from_dict(value)
        found = type(value).__name__
        raise ConnectDataError(
            f"expected a struct or dict to read the field {self._path.text!r} of, found {found}"
        )

    def _getter(self, schema: Schema) -> Callable[[Struct], Any]:
        if len(self._getters) >= _GETTERS:
            self._getters = {}
        assert self._path is not None  # noqa: S101 - that is where getters are asked for
        getter = _null if self._path.find(schema) is None else self._path.getter(schema)
        self._getters[id(schema)] = (schema, getter)
        return getter
