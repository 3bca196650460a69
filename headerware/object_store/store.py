"""The interface of object stores, and their options, which configuration names by a word.

An object's name is ``FOLDER/FILE``. Both parts consist of ASCII letters, digits, dots, underscores and
hyphens, and neither is ``.`` or ``..``; the code that makes a name ensures this. So a store may append a name
to its own path or prefix as it is. The path or prefix comes from configuration only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from headerware.core.errors import PluginError
from headerware.core.options import from_option
from headerware.core.plugins import Catalogue, has_methods, require_arguments
from headerware.core.typed_options import TypedOptions

UNFINISHED: Final = ".tmp-"
"""The beginning of the file's name if ``put`` was killed before the object was complete."""


class Found(NamedTuple):
    """An object that is being read."""

    size_bytes: int
    """Its size as the store states it."""
    chunks: Iterator[bytes]
    """Its content. It may end early, or go on for longer than the store has stated: count it."""


class StoredObject(NamedTuple):
    """An object as a store lists it."""

    name: str
    size_bytes: int
    modified_ms: int
    """When it was written, by the store's clock, in milliseconds since the epoch."""


class ObjectStore(Protocol):
    """Keep objects by name.

    Safe for use by several threads at once, and in a forked child too. Calls that take a ``timeout_s`` end
    within that time, as far as an operating system can promise it.

    A store on this machine may also have ``check(access)``, which raises ``ObjectStoreError`` unless objects
    can be read here (``"read"``), or written and read (``"write"``). It asks no network and changes nothing;
    ``headerware check --open`` calls it.
    """

    def put(self, name: str, content: bytes, sha256: bytes, timeout_s: float) -> None:
        """Keep a new object, and return once it is stored; nobody ever sees a part of it.

        Raises:
            ObjectStoreError: the object is not known to be stored.
        """
        ...

    def read(self, name: str, timeout_s: float) -> AbstractContextManager[Found]:
        """Return an object for the length of a block; opening and reading it each end within the time.

        Raises:
            NoSuchObjectError: the store works, and has no such object.
            ObjectStoreError: the store cannot be reached, or refuses, now or while the object is read.
        """
        ...

    def objects(self, folder: str) -> Iterator[StoredObject]:
        """Yield the objects of a folder, in no order, and the files that calls of ``put`` left unfinished.

        Raises:
            ObjectStoreError: the objects cannot be listed completely.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete an object; a missing object is no error.

        Raises:
            ObjectStoreError: the object cannot be deleted.
        """
        ...

    def close(self) -> None:
        """Release the store's resources; a second call does nothing."""
        ...


class ObjectStoreOptions(TypedOptions, frozen=True, kw_only=True):
    """Hold the options of an object store, and open it; a subclass adds its options as fields."""

    def open(self) -> ObjectStore:
        """Return the opened store; each subclass implements this.

        Raises:
            PluginError: the subclass does not implement it.
        """
        raise PluginError(f"{type(self).__name__} is an object store without open()")


object_store_type: Final[Catalogue[ObjectStoreOptions]] = Catalogue(
    "object store type",
    ObjectStoreOptions,
    {
        "folder": "headerware.object_store.folder:FolderObjects",
        "s3": "headerware.object_store.s3:S3Objects",
    },
    "headerware.object_stores",
)
"""The object stores by word; others come from entry points of the group ``headerware.object_stores``."""

_CALLED: Final = {
    "put": ("name", "content", "sha256", "timeout_s"),
    "read": ("name", "timeout_s"),
    "objects": ("folder",),
    "delete": ("name",),
    "close": (),
}


def open_object_store(options: Any, *, path: str) -> ObjectStore:
    """Open the object store that an option names.

    Args:
        options: an :class:`ObjectStoreOptions`; or, as configuration has it, a table of ``type`` and its
            options; or an object with the methods of :class:`ObjectStore`, which is returned as it is.
        path: the option's path, for errors.

    Raises:
        ConfigError: an option that cannot work, or no such store.
        MissingPartError: a package that the store needs is not installed.
    """
    found = from_option(options, object_store_type, path=path)
    store = found.open() if isinstance(found, ObjectStoreOptions) else found
    if not has_methods(store, _CALLED):
        shown = store.__name__ if isinstance(store, type) else type(store).__name__
        raise PluginError(
            f"expected an object store, an object with {', '.join(_CALLED)}, found {shown}", path=path
        )
    require_arguments(store, _CALLED | {"check": ("access",)}, path=path)
    return store
