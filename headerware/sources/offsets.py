"""Offsets: how far objects were read, and the interface of stores of offsets.

    key      the partition map, such as {"key": "2026/11/orders.jsonl"}, which identifies the object
    entry    record_number   the last record that is stored in Kafka; the first is 1, and 0 means none
             complete        whether the object was read to its end
             version         the version of the object that was read, None if its source has no versions
             properties      of the source or the extractor, such as the position in bytes

Values in keys and properties are text, bytes, integers of 64 bits, finite floats (not in keys), and lists and
maps of these, with text as names. All stores return them unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

import msgspec

from headerware.core.errors import SourceError
from headerware.core.suggestions import did_you_mean

_INT64: Final = range(-(2**63), 2**63)
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_decode: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode


class OffsetKey:
    """The key of an object's offset; two keys are equal if their partition maps are.

    Args:
        partition: the partition map; text, bytes, integers, and lists and maps of these.

    Raises:
        SourceError: the map is empty, or has a value of another type.
    """

    __slots__ = ("_encoded", "_hash")

    def __init__(self, partition: Mapping[str, Any]) -> None:
        if not partition:
            raise SourceError("expected a partition map that identifies the object, found an empty one")
        self._encoded: Final[bytes] = _encode(checked_properties(partition, floats=False))
        self._hash: Final = hash(self._encoded)

    @classmethod
    def from_bytes(cls, encoded: bytes) -> Self:
        """Return the key that has these :attr:`encoded` bytes.

        Raises:
            SourceError: the bytes are not an encoded key.
        """
        return cls(_decoded(encoded))

    @property
    def encoded(self) -> bytes:
        """The map as bytes (MessagePack, names in order), which are equal for equal maps in all processes."""
        return self._encoded

    @property
    def partition(self) -> dict[str, Any]:
        """A copy of the partition map."""
        return _decode(self._encoded)

    def __eq__(self, other: object) -> bool:
        """Return whether the partition maps are equal, value by value and type by type."""
        return isinstance(other, OffsetKey) and self._encoded == other._encoded

    def __hash__(self) -> int:
        """Return a hash of the partition map, which differs between processes."""
        return self._hash

    def __repr__(self) -> str:
        """Show the partition map."""
        return f"OffsetKey({self.partition!r})"


class OffsetEntry:
    """How far an object was read; immutable.

    Args:
        record_number: the number of the last record that is stored in Kafka; 0 if none is.
        complete: whether the object was read to its end.
        version: the version of the object that was read; None if the source has no versions.
        properties: the properties of the source and the extractor.

    Raises:
        SourceError: a property has a type that stores do not support, or the number is negative.
    """

    __slots__ = ("_complete", "_properties", "_record_number", "_version")

    def __init__(
        self,
        *,
        record_number: int = 0,
        complete: bool = False,
        version: str | None = None,
        properties: Mapping[str, Any] = _NONE,
    ) -> None:
        if record_number not in _INT64 or record_number < 0:
            raise SourceError(f"expected a record number from 0, found {record_number}")
        self._record_number: Final = record_number
        self._complete: Final = complete
        self._version: Final = version
        self._properties: Final = checked_properties(properties)

    @property
    def record_number(self) -> int:
        """The number of the last record that is stored in Kafka; 0 if none is."""
        return self._record_number

    @property
    def complete(self) -> bool:
        """Whether the object was read to its end."""
        return self._complete

    @property
    def version(self) -> str | None:
        """The version of the object that was read; None if the source has no versions."""
        return self._version

    @property
    def properties(self) -> dict[str, Any]:
        """A copy of the properties of the source and the extractor."""
        return deepcopy(self._properties)

    def get(self, name: str) -> Any:
        """Return a copy of one property.

        Raises:
            SourceError: there is no property with this name, or the name is not text.
        """
        if not isinstance(name, str):
            raise SourceError(f"expected the name of a property as text, found {type(name).__name__}")
        if name not in self._properties:
            it_has = f"it has: {', '.join(sorted(self._properties)) or 'none'}"
            hint = did_you_mean(name, self._properties, then=it_has)
            raise SourceError(f"the offset has no property {name!r}{hint}")
        return deepcopy(self._properties[name])

    def replace(self, **changes: Any) -> OffsetEntry:
        """Return a copy with some of the arguments changed.

        Raises:
            SourceError: as for a new entry.
        """
        return OffsetEntry(**{**self._arguments(), **changes})

    def _arguments(self) -> dict[str, Any]:
        return {
            "record_number": self._record_number,
            "complete": self._complete,
            "version": self._version,
            "properties": self._properties,
        }

    def __eq__(self, other: object) -> bool:
        """Return whether all fields are equal."""
        return isinstance(other, OffsetEntry) and self._arguments() == other._arguments()

    def __hash__(self) -> int:
        """Return a hash without the properties, which may contain lists and maps."""
        return hash((self._record_number, self._complete, self._version))

    def __repr__(self) -> str:
        """Show the arguments."""
        return f"OffsetEntry({', '.join(f'{name}={value!r}' for name, value in self._arguments().items())})"

    def to_bytes(self) -> bytes:
        """Return the entry as bytes for a store (MessagePack)."""
        stored: dict[str, Any] = {"n": self._record_number, "p": self._properties}
        if self._complete:
            stored["c"] = 1
        if self._version is not None:
            stored["v"] = self._version
        return _encode(stored)

    @classmethod
    def from_bytes(cls, encoded: bytes) -> Self:
        """Return the entry in bytes from a store.

        Raises:
            SourceError: the bytes are not an entry; the message names the missing field.
        """
        stored = _decoded(encoded)
        for name, meaning in (("n", "record number"), ("p", "properties")):
            if name not in stored:
                raise SourceError(f"expected {name!r} ({meaning}) in a stored offset, found none")
        number, version, properties = stored["n"], stored.get("v"), stored["p"]
        if type(number) is not int or not isinstance(version, str | None) or not isinstance(properties, dict):
            raise SourceError("a stored offset has a value of an unexpected type")
        return cls(
            record_number=number, complete=stored.get("c") == 1, version=version, properties=properties
        )


class Offsets(Protocol):
    """A store of offsets. Several threads may call it at once.

    Only one task at a time writes an object's offset. When :meth:`put` returns, the entries survive a crash.
    """

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the entry of an object; None if there is none.

        Raises:
            SourceError: the store cannot be read.
        """
        ...

    def put(self, entries: Mapping[OffsetKey, OffsetEntry | None]) -> None:
        """Store all entries or none; None removes an entry.

        Raises:
            SourceError: the entries could not be stored, or another process writes to the store too.
        """
        ...

    def items(self) -> list[tuple[OffsetKey, OffsetEntry]]:
        """Return all entries."""
        ...

    def close(self) -> None:
        """Release the store; a second call does nothing."""
        ...


class MemoryOffsets:
    """Offsets that are lost when the process ends, for tests and previews."""

    def __init__(self) -> None:
        self._entries: dict[OffsetKey, bytes] = {}

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the entry of an object, or None."""
        found = self._entries.get(key)
        return None if found is None else OffsetEntry.from_bytes(found)

    def put(self, entries: Mapping[OffsetKey, OffsetEntry | None]) -> None:
        """Store entries; None removes an entry."""
        for key, entry in entries.items():
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry.to_bytes()

    def items(self) -> list[tuple[OffsetKey, OffsetEntry]]:
        """Return all entries."""
        return [(key, OffsetEntry.from_bytes(entry)) for key, entry in list(self._entries.items())]

    def close(self) -> None:
        """Do nothing; the entries stay."""


def checked_properties(properties: Mapping[str, Any], *, floats: bool = True) -> dict[str, Any]:
    """Return a deep copy of properties.

    Args:
        properties: text, bytes, integers of 64 bits, finite floats, and lists and maps of these.
        floats: whether floats are allowed.

    Raises:
        SourceError: a property has another type; the message tells where, and which type.
    """
    return {name: _checked(value, name, floats=floats) for name, value in _named(properties, "properties")}


def _checked(value: Any, path: str, *, floats: bool) -> Any:
    kind = type(value)
    if kind is bytes:
        return value
    if kind is str:
        return _text(value, path)
    if kind is int:
        if value not in _INT64:
            raise SourceError(f"{path}: expected an integer of 64 bits, found a larger one")
        return value
    if kind is float:
        if not floats or not math.isfinite(value):
            expected = "a finite number, found another" if floats else "no float in a key, found one"
            raise SourceError(f"{path}: expected {expected}")
        return value
    if isinstance(value, list | tuple):
        return [_checked(item, f"{path}[{index}]", floats=floats) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {name: _checked(item, f"{path}.{name}", floats=floats) for name, item in _named(value, path)}
    raise SourceError(f"{path}: expected text, bytes, a number, a list or a map, found {kind.__name__}")


def _text(text: str, path: str) -> str:
    """Return text if it can be encoded; names of files may contain bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{path}: expected text in UTF-8, found other bytes; use bytes for them") from None
    return text


def _named(properties: Mapping[Any, Any], path: str) -> list[tuple[str, Any]]:
    for name in properties:
        if type(name) is not str:
            raise SourceError(f"{path}: expected text as a name, found {type(name).__name__}")
    return list(properties.items())


def _decoded(encoded: bytes) -> dict[str, Any]:
    try:
        return _decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SourceError("expected a stored offset, found other bytes") from None
