"""Where what handles records has its names of ids from: the process, a file, or a followed topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headerware.registry.names import Names, default_names

if TYPE_CHECKING:
    from headerware.registry.registry import Registry


class NamesSource:
    """Give the names of a registry as it stands now.

    Args:
        location: as :func:`headerware.registry.stores.open_store` takes it. A topic is followed until
            :meth:`close`, by a thread of the store's; anything else is read once. None is the process's
            registry, as it stands at each call.

    Raises:
        RegistryError: the registry cannot be read.

    Safe for use by several threads at once.
    """

    __slots__ = ("_names", "_store")

    def __init__(self, location: str | None) -> None:
        self._names: Names | None = None
        self._store: Any = None
        if location is None:
            return
        from headerware.registry.stores import open_store  # noqa: PLC0415 - loaded where one is named

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
        """End following; the names stay as they are. Calling it again does nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _take(self, registry: Registry) -> None:
        self._names = Names(registry)
