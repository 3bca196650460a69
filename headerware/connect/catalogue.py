"""Find the transforms, predicates and converters that a connector's configuration names.

Our own have the name of the Java class that they replace, or its simple name; others come by entry points. A
transform of keys and values is written ``MaskField$Key`` or ``MaskField$Value``, as in Java. Nothing is
imported before a configuration names it.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from headerware.connect.config import Configured
from headerware.connect.errors import ConnectPluginError, NoPartError, UnknownClassError
from headerware.connect.modes import STRICT, Mode
from headerware.core.suggestions import closest

Kind = TypeVar("Kind", bound=Configured)
_PARTS: Final = ("Key", "Value")
"""The two classes that a transform of keys and values has."""


def class_paths(package: str, classes: Mapping[str, str]) -> dict[str, str]:
    """Return where classes are, as ``name: "module:Class"``.

    Args:
        package: the package of their modules.
        classes: their modules, by their names in configuration.
    """
    return {name: f"{package}.{module}:{_simple(name)}" for name, module in classes.items()}


def exports(classes: Mapping[str, str]) -> dict[str, str]:
    """Return the modules of classes by their own names, for :func:`~headerware.core.lazy.lazy`."""
    return {_simple(name): module for name, module in classes.items()}


class Catalogue(Generic[Kind]):
    """The classes of one kind, by the names that configuration uses for them.

    Args:
        what: what one of them is called in errors, such as ``transform``.
        base: the class that all of them extend.
        built_in: our own, as ``name: "module:Class"``; a name with a package, such as
            ``org.apache.kafka.connect.transforms.Filter``, is found by its last word, too.
        group: the entry-point group of the others; None where there are no others.
        not_in_kafka: those of our own that Kafka does not have; unknown in the ``kafka_4_3`` mode.
        other: the catalogue that names may be mistaken for, as ``module:name``.
    """

    def __init__(
        self,
        what: str,
        base: type[Any],
        built_in: Mapping[str, str],
        group: str | None = None,
        *,
        not_in_kafka: frozenset[str] = frozenset(),
        other: str = "",
    ) -> None:
        self._what: Final = what
        self._base: Final = base
        self._built_in: Final = MappingProxyType(dict(built_in))
        self._simple: Final = {_simple(name): name for name in built_in}
        self._group: Final = group
        self._not_in_kafka: Final = not_in_kafka
        self._other: Final = other

    @property
    def built_in(self) -> Mapping[str, str]:
        """Our own, as ``name: "module:Class"``."""
        return self._built_in

    def names(self, mode: Mode = STRICT) -> tuple[str, ...]:
        """Return the short names that there are, plug-ins' too, in alphabetical order."""
        own = (short for short, name in self._simple.items() if mode == STRICT or self._is_kafkas(name))
        return tuple(sorted({*own, *(entry.name for entry in self._entries())}))

    def __call__(self, name: str | type[Kind], *, path: str = "", mode: Mode = STRICT) -> type[Kind]:
        """Load the class that a name stands for.

        Args:
            name: the Java class, its simple name, or the name of a plug-in's entry point; or a class itself.
            path: where it stands in the configuration, for the error.
            mode: ``kafka_4_3`` does not know those that Kafka lacks.

        Raises:
            UnknownClassError: nothing has this name.
            NoPartError: the transform is one of keys and values; say which.
            ConnectPluginError: more than one thing has this name, it cannot be imported, or is of another
                kind.
        """
        if not isinstance(name, str):
            return self._of_kind(name, getattr(name, "__qualname__", type(name).__qualname__), path)
        entry = self._only_entry(name, path)
        if entry is not None:
            return self._of_kind(self._imported(entry, path), name, path)
        base, _, part = name.partition("$")
        own = base if base in self._built_in else self._simple.get(base, "")
        if own and (mode == STRICT or self._is_kafkas(own)):
            loaded = _symbol(self._built_in[own])
        else:
            entry = self._only_entry(base, path) if part else None
            if entry is None:
                raise self._unknown(name, path, mode)
            loaded = self._imported(entry, path)
        return self._of_kind(self._part(loaded, name, path), name, path)

    def _is_kafkas(self, name: str) -> bool:
        return name not in self._not_in_kafka

    def _part(self, loaded: Any, name: str, path: str) -> Any:
        base, _, part = name.partition("$")
        if not part:
            return loaded
        if part in _PARTS and _has_parts(loaded):
            return getattr(loaded, part)
        parts = " or ".join(f"{base}${each}" for each in _PARTS)
        if part.capitalize() in _PARTS:
            parts = f"{base}${part.capitalize()}"
        right = parts if _has_parts(loaded) else base
        raise UnknownClassError(f"there is no {self._what} {name!r}; did you mean {right}?", path=path)

    def _of_kind(self, loaded: Any, name: str, path: str) -> type[Kind]:
        if not (isinstance(loaded, type) and issubclass(loaded, self._base)):
            expected = f"{self._base.__module__}.{self._base.__qualname__}"
            found = getattr(loaded, "__qualname__", f"an object of class {type(loaded).__qualname__}")
            raise ConnectPluginError(
                f"{self._what} {name!r} is {found}; expected a subclass of {expected}", path=path
            )
        if _has_parts(loaded):
            parts = " or ".join(f"{name}${part}" for part in _PARTS)
            raise NoPartError(f"{name!r} works on keys or on values: write {parts}", path=path)
        return loaded

    def _entries(self) -> tuple[EntryPoint, ...]:
        return _entry_points(self._group) if self._group else ()

    def _only_entry(self, name: str, path: str) -> EntryPoint | None:
        """Return the plug-in of a name; our own have precedence over plug-ins."""
        if name in self._built_in or name in self._simple:
            return None
        found = [entry for entry in self._entries() if entry.name == name]
        if len(found) > 1:
            names = ", ".join(sorted(_distribution(entry) for entry in found))
            problem = f"{self._what} {name!r} is provided more than once, by {names}"
            raise ConnectPluginError(problem, path=path)
        return found[0] if found else None

    def _imported(self, entry: EntryPoint, path: str) -> Any:
        try:
            return entry.load()
        except Exception as error:
            raise ConnectPluginError(
                f"{self._what} {entry.name!r} of {_distribution(entry)} cannot be imported from "
                f"{entry.value}: {type(error).__name__}: {error}",
                path=path,
            ) from error

    def _elsewhere(self) -> dict[str, str]:
        """Return the names of the other catalogue, and what to say about them."""
        if not self._other:
            return {}
        other: Catalogue[Any] = _symbol(self._other)
        where = f"is a {other._what}: name it under '{other._what}s'"
        return {name: f"{name} {where}" for name in other.names()}

    def _unknown(self, name: str, path: str, mode: Mode) -> UnknownClassError:
        known = self.names(mode)
        base = name.partition("$")[0]
        if mode != STRICT and self._simple.get(_simple(base)) in self._not_in_kafka:
            hint = "Kafka has none of this name: it is there in the strict mode alone"
        else:
            hint = _name_hint(name, known, self._elsewhere())
        hint += ("" if hint.endswith("?") else ";") + " " if hint else ""
        return UnknownClassError(
            f"there is no {self._what} {name!r}; {hint}known: {', '.join(known)}", path=path
        )


def _symbol(home: str) -> Any:
    module, _, symbol = home.partition(":")
    return getattr(importlib.import_module(module), symbol)


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _has_parts(loaded: Any) -> bool:
    """Return whether this is a transform of keys and values, and neither of its two classes."""
    return isinstance(loaded, type) and hasattr(loaded, "Key") and getattr(loaded, "part", "") is None


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


@cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    unique = {(entry.name, entry.value): entry for entry in entry_points(group=group)}
    return tuple(unique.values())


_DEBEZIUM: Final = "io.debezium.transforms"
_CONFLUENT: Final = "io.confluent.connect"
_FOREIGN: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{_DEBEZIUM}.outbox.EventRouter": "OutboxRouter does what it does",
        f"{_DEBEZIUM}.ExtractNewRecordState": "use ExtractField$Value with field=after",
        f"{_CONFLUENT}.transforms.Filter": "use FilterByField or FilterByExpression",
        f"{_CONFLUENT}.transforms.ReplaceField": "use ReplaceField$Key or ReplaceField$Value",
        f"{_CONFLUENT}.avro.AvroConverter": "use the serde confluent-avro, in the serialize step",
    }
)
"""What replaces the classes of others."""
_DRAFT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NumericCasts": "Cast$Key or Cast$Value",
        "Replace": "ReplaceField$Key or ReplaceField$Value",
        **{
            draft.format(part): f"{name}${part}"
            for part in _PARTS
            for draft, name in (
                ("Mask{}", "MaskField"),
                ("InsertIn{}", "InsertField"),
                ("Hoist{}ToStruct", "HoistField"),
                ("Extract{}FromStruct", "ExtractField"),
                ("Set{}SchemaMetadata", "SetSchemaMetadata"),
            )
        },
    }
)
"""The names of transforms in the draft of KIP-66, and what they are called now."""
_QUOTES: Final = "\"'"


def _name_hint(name: str, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    """Say what was probably meant, or nothing; ``elsewhere`` has the names of another kind."""
    bare = name.strip(_QUOTES)
    if bare != name:
        return f"write it without quotes: {bare}"
    base, _, part = name.partition("$")
    if base in _FOREIGN:
        return _FOREIGN[base]
    simple = base.rpartition(".")[2]
    if not part and simple.capitalize() in _PARTS:
        # As other languages name a class within a class: MaskField.Value.
        base, _, part = base.rpartition(".")
        simple = base.rpartition(".")[2]
    if simple in _DRAFT:
        return f"the draft of KIP-66 called it so; it is {_DRAFT[simple]} now"
    if simple in elsewhere:
        return elsewhere[simple]
    near = closest(simple, known)
    if near is None:
        return ""
    part = part.capitalize() if part.capitalize() in _PARTS else part
    return f"did you mean {near}{'$' + part if part else ''}?"
