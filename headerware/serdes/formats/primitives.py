"""Kafka's own primitives, mostly for keys: the layouts of the serializers that come with Kafka.

    short    int16    2 bytes
    integer  int32    4 bytes
    long     int64    8 bytes
    float    IEEE 754 4 bytes
    double   IEEE 754 8 bytes
    uuid     text     36 characters in UTF-8
    string   text     UTF-8

Numbers are big-endian. No content type is stated, because other clients do not state one. Safe for use by
several threads at once.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from headerware.core.errors import SerdeError
from headerware.serdes.formats.refusals import cannot_read, cannot_write
from headerware.serdes.serde import Serde

if TYPE_CHECKING:
    from headerware.core.headers import Headers


class _Number(Serde, frozen=True, kw_only=True):
    """Write and read a number of a fixed size, big-endian."""

    layout: ClassVar[struct.Struct]
    accepts: ClassVar[tuple[Any, ...]] = (int,)

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:  # noqa: ARG002
        """Write a number.

        Raises:
            SerdeError: the value is not a number, or does not fit.
        """
        if value is None:
            return None, headers
        if not isinstance(value, self.accepts) or isinstance(value, bool):
            raise SerdeError(f"expected a number for {self.type!r}, found {type(value).__qualname__}")
        try:
            return self.layout.pack(value), headers
        except (struct.error, OverflowError):
            raise SerdeError(
                f"expected a number that fits the {self.layout.size} bytes of {self.type!r}"
            ) from None

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read a number.

        Raises:
            SerdeError: the payload has another size.
        """
        if payload is None:
            return None, headers
        try:
            return self.layout.unpack(payload)[0], headers
        except struct.error:
            expected = f"expected the {self.layout.size} bytes of {self.type!r}"
            raise SerdeError(f"{expected}, found {len(payload)}") from None


class Short(_Number, frozen=True, kw_only=True):
    """Write and read an int16."""

    type: ClassVar[str] = "short"
    layout: ClassVar[struct.Struct] = struct.Struct(">h")


class Integer(_Number, frozen=True, kw_only=True):
    """Write and read an int32."""

    type: ClassVar[str] = "integer"
    layout: ClassVar[struct.Struct] = struct.Struct(">i")


class Long(_Number, frozen=True, kw_only=True):
    """Write and read an int64."""

    type: ClassVar[str] = "long"
    layout: ClassVar[struct.Struct] = struct.Struct(">q")


class Float(_Number, frozen=True, kw_only=True):
    """Write and read a float of 4 bytes; numbers that it cannot hold exactly are rounded."""

    type: ClassVar[str] = "float"
    layout: ClassVar[struct.Struct] = struct.Struct(">f")
    accepts: ClassVar[tuple[Any, ...]] = (float, int)


class Double(_Number, frozen=True, kw_only=True):
    """Write and read a float of 8 bytes."""

    type: ClassVar[str] = "double"
    layout: ClassVar[struct.Struct] = struct.Struct(">d")
    accepts: ClassVar[tuple[Any, ...]] = (float, int)


class Uuid(Serde, frozen=True, kw_only=True):
    """Write and read a UUID in its textual form."""

    type: ClassVar[str] = "uuid"

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:  # noqa: ARG002
        """Write a UUID.

        Raises:
            SerdeError: the value is not a UUID.
        """
        if value is None:
            return None, headers
        if not isinstance(value, UUID):
            raise SerdeError(f"expected a UUID, found {type(value).__qualname__}")
        return str(value).encode(), headers

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read a UUID.

        Raises:
            SerdeError: the payload is not a UUID of 36 characters.
        """
        if payload is None:
            return None, headers
        if _UUID.fullmatch(payload):
            return UUID(payload.decode()), headers
        raise SerdeError(
            f"expected a UUID as text of 36 characters, found {len(payload)} bytes of another form"
        )


class String(Serde, frozen=True, kw_only=True):
    """Write and read text in UTF-8, regardless of headers; ``text`` states and reads a content type."""

    type: ClassVar[str] = "string"

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:  # noqa: ARG002
        """Write text.

        Raises:
            SerdeError: the value is not text, or UTF-8 cannot express it.
        """
        if value is None:
            return None, headers
        if not isinstance(value, str):
            raise SerdeError(f"expected str, found {type(value).__qualname__}")
        try:
            return value.encode(), headers
        except UnicodeEncodeError as error:
            raise cannot_write("text", value, error) from None

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read text.

        Raises:
            SerdeError: the payload is not UTF-8.
        """
        if payload is None:
            return None, headers
        try:
            return payload.decode(), headers
        except UnicodeDecodeError as error:
            raise cannot_read("text", payload, error) from None


_UUID: Final = re.compile(rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
"""Python's own UUID also accepts braces, and hyphens anywhere."""
