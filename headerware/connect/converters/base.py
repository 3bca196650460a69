"""The base classes of converters between values and bytes, for keys and values and for headers (KIP-145)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey, Configured, one_of
from headerware.connect.data.schema import Schema, SchemaAndValue
from headerware.connect.modes import STRICT, Mode

TYPE_KEY: Final = "converter.type"
TYPE: Final = ConfigKey(
    name=TYPE_KEY,
    type="STRING",
    importance="LOW",
    doc="What the converter is for: keys, values or headers.",
    check=one_of("key", "value", "header"),
)
"""The key that all these converters have; nothing depends on its value."""


class Converter(Configured, ABC):
    """Convert keys or values to bytes and back.

    A converter of your own extends this class, and has an entry point in the group ``headerware.converters``.
    It must be safe for use by several threads at once.
    """

    @abstractmethod
    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a value.

        Args:
            topic: the record's topic.
            schema: the schema of the value; None for a schemaless value.
            value: the value.

        Raises:
            ConnectError: the value cannot be written.
        """

    @abstractmethod
    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the value of bytes, with its schema if it has one.

        Raises:
            ConnectError: the bytes cannot be read.
        """


class HeaderConverter(Configured, ABC):
    """Convert header values to bytes and back; most built-in classes are also a :class:`Converter`."""

    @abstractmethod
    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a header's value.

        Args:
            topic: the record's topic.
            key: the header's name.
            schema: the schema of the value; None for a schemaless value.
            value: the value.

        Raises:
            ConnectError: the value cannot be written.
        """

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Return the value of a header's bytes, with its schema.

        Raises:
            ConnectError: the bytes cannot be read.
        """


class DualConverter(Converter, HeaderConverter):
    """The base class of converters that treat headers as they treat keys and values."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef(TYPE)

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__({TYPE_KEY: "value", **(config or {})}, mode=mode)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the same for all names
        """Return the bytes of a header's value, written like a record's value."""
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the same for all names
        """Return the value of a header's bytes, read like a record's value."""
        return self.to_connect_data(topic, data)
