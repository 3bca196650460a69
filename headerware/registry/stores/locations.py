"""Open the store of a registry by its location."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from headerware.core.errors import RegistryError
from headerware.core.options import from_home
from headerware.core.plain_files import require_path
from headerware.registry.stores.store import BuiltInStore
from headerware.registry.stores.toml import TomlStore

if TYPE_CHECKING:
    from headerware.registry.registry import Registry
    from headerware.registry.stores.store import Store

BUILT_IN: Final = "built-in"
_TOPIC: Final = "kafka://"


def open_store(location: str) -> Store:
    """Open the store at a location.

    Args:
        location: a path that ends with ``.toml``; ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``; or ``built-in``
            for the built-in registry.

    Raises:
        RegistryError: the location has another form. A missing file or topic is reported by the first read.
    """
    if location == BUILT_IN:
        return BuiltInStore()
    if location.startswith(_TOPIC):
        from headerware.registry.stores.topic import TopicStore  # noqa: PLC0415 - needs a Kafka client

        return TopicStore.from_location(location)
    return TomlStore(_file(location))


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
    if location.startswith(_TOPIC):
        from headerware.registry.stores.topic import TopicStore  # noqa: PLC0415 - needs a Kafka client

        return TopicStore.create(location, registry)
    return TomlStore.create(_file(location), registry)


def _file(location: str) -> str:
    """Return the path of a TOML file."""
    require_path(location)
    expected = f"PATH.toml, kafka://HOST:PORT/TOPIC or {BUILT_IN}; found {location!r}"
    suffix = PurePath(location).suffix
    if suffix in {".db", ".sqlite"} or "sqlite:" in location:
        raise RegistryError(
            f"registries are no longer kept in SQLite files; expected {expected}. The Headerware that wrote "
            f"the file prints it as TOML: `headerware registry export`"
        )
    if suffix != ".toml":
        raise RegistryError(f"expected a registry's location, {expected}")
    return from_home(location)
