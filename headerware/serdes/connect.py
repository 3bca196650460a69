"""Connect's converters as a serde, to exchange records with connectors (KIP-26).

The configuration or the bytes themselves determine the format; no header states it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from headerware.connect.converters.base import TYPE_KEY
from headerware.connect.converters.catalogue import converter_type
from headerware.connect.data.schema import SchemaAndValue
from headerware.connect.data.struct import Struct, plain
from headerware.connect.errors import ConnectConfigError, ConnectError
from headerware.connect.modes import STRICT, Mode
from headerware.core.errors import SerdeError
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from headerware.connect.converters.base import Converter
    from headerware.core.headers import Headers


class Connect(Serde, frozen=True, kw_only=True):
    """Serialize and deserialize with one of Connect's converters.

    It writes and reads Structs, values with their schema (:class:`~headerware.connect.data.SchemaAndValue`)
    and schemaless values.

    Args:
        converter: the converter, by its Java class, its simple name, or a plug-in's name.
        mode: ``strict`` or ``kafka_4_3``.
        options: the converter's keys, such as ``{"schemas.enable": False}``.
        plain: whether to read plain Python values instead: dicts for structs, and no schemas.

    Raises:
        ConfigError: there is no such converter, or it refuses its options.
    """

    type: ClassVar[str] = "connect"

    converter: str = "JsonConverter"
    mode: Mode = STRICT
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    plain: bool = False

    def __post_init__(self) -> None:
        """Refuse options that the converter refuses."""
        self._made(self.options).close()

    def open(self, context: SerdeContext) -> ConnectFunctions:
        """Return the functions for one client, with a converter of its own that is closed with it."""
        converter = self._made({**self.options, **self._use(context)})
        return ConnectFunctions(converter, self.converter, plain_values=self.plain)

    def _made(self, options: Mapping[str, Any]) -> Converter:
        kind = converter_type(self.converter, path="converter", mode=self.mode)
        try:
            return kind(options, mode=self.mode)
        except ConnectConfigError as error:
            problem = str(error).removeprefix(f"{error.path}: ")
            raise ConnectConfigError(problem, path=f"options.{error.path}") from None
        except ConnectError as error:
            raise ConnectConfigError(str(error), path="options") from None

    def _use(self, context: SerdeContext) -> dict[str, str]:
        known = converter_type(self.converter, mode=self.mode).config(self.mode)
        return {TYPE_KEY: context.part} if any(key.name == TYPE_KEY for key in known) else {}


class ConnectFunctions:
    """Write and read with a converter; safe for use by several threads if the converter is."""

    __slots__ = ("_converter", "_name", "_plain")

    def __init__(self, converter: Converter, name: str, *, plain_values: bool) -> None:
        self._converter: Final = converter
        self._name: Final = name
        self._plain: Final = plain_values

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write a Struct, a value with its schema, or a schemaless value."""
        schema = None
        if isinstance(value, Struct):
            schema = value.schema
        elif isinstance(value, SchemaAndValue):
            schema, value = value
        try:
            return self._converter.from_connect_data(topic, schema, value), headers
        except ConnectError as error:
            raise self._refused("write the object", error) from error

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read a Struct, a value with its schema, or a schemaless value; a tombstone is None."""
        if payload is None:
            return None, headers
        try:
            found = self._converter.to_connect_data(topic, payload)
            if self._plain:
                return plain(found.value), headers
        except ConnectError as error:
            raise self._refused("read the payload", error) from error
        return found.value if found.schema is None or isinstance(found.value, Struct) else found, headers

    def close(self) -> None:
        self._converter.close()

    def _refused(self, what: str, error: ConnectError) -> SerdeError:
        refused = SerdeError(f"{type(self._converter).__name__} cannot {what}: {error}")
        refused.converter, refused.java = self._name, error.java
        return refused
