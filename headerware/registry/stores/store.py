"""The interface of registry stores, and opening a store by its location."""

from __future__ import annotations

from abc import abstractmethod
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from headerware.core.errors import RegistryError
from headerware.core.options import from_home
from headerware.registry.registry import Problem, built_in, problems, with_built_in, without_built_in

if TYPE_CHECKING:
    from types import TracebackType

    from headerware.registry.registry import Registry
    from headerware.registry.values import Change


class Store(Protocol):
    """Keep a registry for several writers at once.

    If two changes exclude each other, the first one wins, and the refusal of the second names it. Every store
    is a context manager that closes itself.
    """

    @abstractmethod
    def load(self) -> Registry:
        """Return the current registry, built-in entries included.

        Raises:
            RegistryError: it is out of reach, or breaks rules.
        """

    @abstractmethod
    def apply(self, change: Change) -> Registry:
        """Check a change against the current registry, store it, and return the registry after it.

        A refused change leaves the store as it was.

        Args:
            change: the change and its author.

        Raises:
            RegistryError: a rule refuses the change, or the store is out of reach.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the store's resources; a second call does nothing."""

    def problems(self) -> list[Problem]:
        """Return all problems of the stored registry.

        Raises:
            RegistryError: it is out of reach, or too broken to be examined.
        """
        return problems(self.load())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BuiltInStore(Store):
    """Provide the built-in registry, which cannot be changed."""

    def load(self) -> Registry:
        """Return the built-in registry."""
        return built_in()

    def apply(self, change: Change) -> Registry:
        """Refuse a change.

        Raises:
            RegistryError: always.
        """
        raise RegistryError(f"the built-in registry does not change; {type(change).__name__} needs a store")

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def require_sound(found: list[Problem]) -> None:
    """Refuse a registry with problems; the error lists all, one on each line."""
    if found:
        raise RegistryError("\n".join(map(str, found)))


def own_part(registry: Registry) -> Registry:
    """Return the part of a sound registry that a new store keeps: all but the built-in entries."""
    require_sound(problems(registry))
    own = without_built_in(registry)
    if with_built_in(own.blocks, own.entries, registrar=own.registrar) != registry:
        raise RegistryError("the registry lacks what comes with Headerware: begin with with_built_in()")
    return own


BUILT_IN: Final = "built-in"
_TOPIC: Final = "kafka://"
_SQLITE: Final = "sqlite:"
_HOMES: Final = {
    ".toml": "headerware.registry.stores.toml:TomlStore",
    ".db": "headerware.registry.stores.sqlite:SqliteStore",
    ".sqlite": "headerware.registry.stores.sqlite:SqliteStore",
    _TOPIC: "headerware.registry.stores.topic:TopicStore",
}
"""The class of the store by the path's suffix or the location's prefix; loaded on demand."""


def open_store(location: str) -> Store:
    """Open the store at a location.

    Args:
        location: a path that ends with ``.toml``, ``.db`` or ``.sqlite``; ``sqlite:PATH`` for any other
            SQLite file; ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``; or ``built-in`` for the built-in
            registry.

    Raises:
        RegistryError: the location has another form, or there is nothing at it. A missing TOML file or topic
            is reported by the first read.
    """
    if location == BUILT_IN:
        return BuiltInStore()
    if location.startswith(_TOPIC):
        return _loaded(_TOPIC).from_location(location)  # type: ignore[no-any-return]  # loaded on demand
    suffix, path = _file(location)
    return _loaded(suffix)(path)  # type: ignore[no-any-return]  # loaded on demand


def create_store(location: str, registry: Registry) -> Store:
    """Create a store that holds a registry: a new one, or a copy of another store's.

    Args:
        location: as for :func:`open_store`. A file must not exist; an existing topic gets the changes that
            it lacks.
        registry: the registry to store.

    Raises:
        RegistryError: the registry has problems, the file exists, or the store is out of reach.
    """
    if location == BUILT_IN:
        raise RegistryError(f"{BUILT_IN} comes with Headerware; expected a file or a topic to write to")
    form, place = (_TOPIC, location) if location.startswith(_TOPIC) else _file(location)
    return _loaded(form).create(place, registry)  # type: ignore[no-any-return]  # loaded on demand


def _file(location: str) -> tuple[str, str]:
    """Return the kind of a file, by its suffix, and its path."""
    if location.startswith(_SQLITE):
        return ".db", from_home(location.removeprefix(_SQLITE))
    suffix = PurePath(location).suffix
    if suffix in _HOMES:
        return suffix, from_home(location)
    raise RegistryError(
        f"expected a registry's location, PATH.toml, PATH.db, sqlite:PATH, kafka://HOST:PORT/TOPIC or "
        f"{BUILT_IN}; found {location!r}"
    )


def _loaded(form: str) -> Any:
    module, name = _HOMES[form].split(":")
    return getattr(import_module(module), name)


def no_such_file(path: str | Path) -> RegistryError:
    """Return the error for a registry's file or folder that does not exist."""
    folder = Path(path).parent
    if not folder.is_dir():
        return RegistryError(f"{path}: there is no folder {folder}")
    return RegistryError(f"{path}: there is no such file; `headerware header-ids init` makes a registry")
