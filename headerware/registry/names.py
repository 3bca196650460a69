"""Look up names by id and ids by name, in the registry that a process or a chain uses."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from headerware.registry.registry import built_in
from headerware.registry.wire.codec import HeaderIdCodec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.headers import Headers
    from headerware.core.record import Record
    from headerware.registry.registry import Registry
    from headerware.registry.values import Encoding


class Names:
    """The names of ids, and the ids of names.

    Built-in entries are always included. A retired entry can be read, but not written: its id has a name, but
    its name has no id.

    Args:
        registry: the registry that holds them.
    """

    __slots__ = ("_encodings", "_ids", "_names", "foreign")

    def __init__(self, registry: Registry) -> None:
        entries = (*built_in().entries, *registry.entries)
        written = {entry.name: entry for entry in entries if entry.retired is None}
        self._names: Final = {int(entry.id): entry.name for entry in entries}
        self._ids: Final = {name: int(entry.id) for name, entry in written.items()}
        self._encodings: Final = {entry.name: entry.encoding for entry in entries}
        self.foreign: Final = frozenset(name for name, entry in written.items() if entry.foreign)
        """Names that other software defines and looks for: their ids are used only on demand."""

    def id_of(self, name: str) -> int | None:
        """Return the id to write for a name, or None for a name that has none or whose id is retired."""
        return self._ids.get(name)

    def items(self) -> Iterable[tuple[int, str]]:
        """Return all ids with their names, those of retired entries included."""
        return self._names.items()

    def encoding_of(self, name: str) -> Encoding | None:
        """Return the encoding of a header's value, or None for a name that is not registered."""
        return self._encodings.get(name)

    def name_of(self, header_id: int) -> str | None:
        """Return the name of an id, retired or not, or None for an unknown one."""
        return self._names.get(header_id)


_default: Names | None = None


@cache
def _built_in_names() -> Names:
    return Names(built_in())


def default_names() -> Names:
    """Return the names that this process uses: the built-in registry's, unless another is in use."""
    # Nothing is set here: another thread may choose the registry meanwhile.
    return _built_in_names() if _default is None else _default


def default_name_of(header_id: int) -> str | None:
    """Return the name of an id as this process knows it."""
    return default_names().name_of(header_id)


def named_headers(record: Record) -> Headers:
    """Return the headers of a record on the wire, with the names of our headers in place of ids.

    Raises:
        WireFormatError: headers whose ids cannot be decoded.
        HeaderError: likewise.
    """
    return _reading.decode(record.headers)


def _no_id(name: str) -> None:
    """Write no ids: they are only read here."""


_reading: Final = HeaderIdCodec(_no_id, default_name_of)


def use_registry(registry: Registry | None) -> Names:
    """Use a registry in all threads of this process, and return its names.

    Args:
        registry: the registry; None for the built-in one alone.
    """
    global _default  # noqa: PLW0603 - one registry of names a process, as core asks for
    _default = names = _built_in_names() if registry is None else Names(registry)
    return names


class NamesSource:
    """Provide the current names of the registry at a location.

    A topic is followed by a thread of the store's until :meth:`close`; other stores are read once. Without
    a location, the names are those of the process at each call. Safe for use by several threads at once.
    """

    __slots__ = ("_names", "_store")

    def __init__(self, location: str | None) -> None:
        self._names: Names | None = None
        self._store: Any = None
        if location is None:
            return
        from headerware.registry.stores import open_store  # noqa: PLC0415 - needed for a location only

        store: Any = open_store(location)
        try:
            self._take(store.load())
            if hasattr(store, "follow"):
                store.follow(self._take)
                self._store = store
        finally:
            if self._store is None:
                store.close()

    def current(self) -> Names:
        """Return the names; the same object as before unless they have changed."""
        return default_names() if self._names is None else self._names

    def close(self) -> None:
        """Stop following the topic; the names stay as they are. A second call does nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _take(self, registry: Registry) -> None:
        self._names = Names(registry)
