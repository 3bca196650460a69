"""What converters are: between Connect's values and bytes, for keys and values, and for headers (KIP-145)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headerware.connect.config import Configured
from headerware.connect.data.schema import Schema, SchemaAndValue


class Converter(Configured, ABC):
    """Turn keys or values into bytes, and back.

    A converter of your own extends this, and is named by an entry point of the group
    ``headerware.converters``. It must be safe for use by several threads at once.
    """

    @abstractmethod
    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a value.

        Args:
            topic: the record's topic.
            schema: what the value is; None for a schemaless one.
            value: the value.

        Raises:
            ConnectError: the value cannot be written.
        """

    @abstractmethod
    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the value of bytes, with its schema where it has one.

        Raises:
            ConnectError: the bytes cannot be read.
        """


class HeaderConverter(Configured, ABC):
    """Turn header values into bytes, and back; several of our classes are a :class:`Converter`, too."""

    @abstractmethod
    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a header's value.

        Args:
            topic: the record's topic.
            key: the header's name.
            schema: what the value is; None for a schemaless one.
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
