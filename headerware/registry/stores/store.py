"""Where registries are kept, and how one is opened by its location."""

from __future__ import annotations

from abc import abstractmethod
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from headerware.core.errors import RegistryError
from headerware.registry.registry import Problem, built_in, problems, with_built_in, without_built_in

if TYPE_CHECKING:
    from types import TracebackType

    from headerware.registry.registry import Registry
    from headerware.registry.values import Change


class Store(Protocol):
    """Keeps a registry, for several writers at once.

    Of two changes that exclude each other the first one wins; the refusal of the other says which was first.
    Every store is a context manager that closes itself.
    """

    @abstractmethod
    def load(self) -> Registry:
        """Return the registry as it stands, with what comes with Headerware.

        Raises:
            RegistryError: it is out of reach, or breaks rules.
        """

    @abstractmethod
    def apply(self, change: Change) -> Registry:
        """Check a change against the registry as it stands, keep it, and return the registry after it.

        A change that is refused leaves the store as it was.

        Args:
            change: what is to change, and who does it.

        Raises:
            RegistryError: a rule speaks against it, or the store is out of reach.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds open; it may be closed more than once."""

    def problems(self) -> list[Problem]:
        """Return all that is wrong with what is kept, for a check that is to tell everything.

        Raises:
            RegistryError: it is out of reach, or too broken to be looked at.
        """
        return problems(self.load())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BuiltInStore(Store):
    """What comes with Headerware, which no change reaches."""

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
        """Do nothing: it holds nothing open."""


def require_sound(found: list[Problem]) -> None:
    """Refuse a registry with problems.

    Raises:
        RegistryError: with all of them, one a line.
    """
    if found:
        raise RegistryError("\n".join(map(str, found)))


def own_part(registry: Registry) -> Registry:
    """Return what a new store is to hold of a registry: all but what comes with Headerware.

    Raises:
        RegistryError: the registry has problems, or lacks what comes with Headerware.
    """
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
"""By what a path ends with, or by how a location begins: the class of the store, loaded on demand."""


def open_store(location: str) -> Store:
    """Open the store at a location.

    Args:
        location: a path that ends with ``.toml``, ``.db`` or ``.sqlite``; ``sqlite:PATH`` for any other
            SQLite file; ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``; or ``built-in`` for what comes with
            Headerware.

    Raises:
        RegistryError: there is no such form of location, or nothing there; for a TOML file and a topic, the
            first read says so.
    """
    if location == BUILT_IN:
        return BuiltInStore()
    if location.startswith(_TOPIC):
        return _loaded(_TOPIC).from_location(location)  # type: ignore[no-any-return]  # loaded on demand
    suffix, path = _file(location)
    return _loaded(suffix)(path)  # type: ignore[no-any-return]  # loaded on demand


def create_store(location: str, registry: Registry) -> Store:
    """Make a store that holds a registry: a new one, or a copy of another store's.

    Args:
        location: as for :func:`open_store`. A file must not exist; a topic that does gets the changes that
            it lacks.
        registry: what the store is to hold.

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
        return ".db", location.removeprefix(_SQLITE)
    suffix = PurePath(location).suffix
    if suffix in _HOMES:
        return suffix, location
    raise RegistryError(
        f"expected a registry's location, PATH.toml, PATH.db, sqlite:PATH, kafka://HOST:PORT/TOPIC or "
        f"{BUILT_IN}; found {location!r}"
    )


def _loaded(form: str) -> Any:
    module, name = _HOMES[form].split(":")
    return getattr(import_module(module), name)


def no_such_file(path: str | Path) -> RegistryError:
    """Return the error for a registry's file, or its folder, that is not there."""
    folder = Path(path).parent
    if not folder.is_dir():
        return RegistryError(f"{path}: there is no folder {folder}")
    return RegistryError(f"{path}: there is no such file; `headerware registry init` makes a registry")
