"""Find the transforms, predicates and converters that a connector's configuration names.

A built-in class has the name of the Java class that it replaces, or the simple name of this class; plug-ins
come from entry points. A transform of keys and values is written ``MaskField$Key`` or ``MaskField$Value``, as
in Java. A class is imported only when a configuration names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from headerware.connect.config import Configured
from headerware.connect.errors import ConnectPluginError, NoPartError, UnknownClassError
from headerware.connect.modes import STRICT, Mode
from headerware.core import plugins
from headerware.core.plugins import load_symbol
from headerware.core.suggestions import closest, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = TypeVar("Kind", bound=Configured)
_PARTS: Final = ("Key", "Value")
"""The two classes that a transform of keys and values has."""


class Catalogue(plugins.Catalogue[Kind]):
    """The classes of one kind, by the names that configuration uses for them.

    ``built_in`` lists the built-in classes as ``name: "module:Class"``; a name with a package is also found
    by its last word. ``group`` is the entry-point group of the plug-ins. All classes extend ``base``. Names
    in ``not_in_kafka`` are unknown in the ``kafka_4_3`` mode. ``other``, as ``module:name``, is a catalogue
    whose names a user may give by mistake.
    """

    error: ClassVar[type[ConnectPluginError]] = ConnectPluginError

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
        super().__init__(what, base, {}, group)
        self._names: Final[dict[str, str]] = {}
        """The full names of the built-in classes, by full and by simple name."""
        self._not_in_kafka: Final = not_in_kafka
        self._other: Final = other
        self.add(built_in)

    def __call__(self, word: str | type[Kind], *, path: str = "", mode: Mode = STRICT) -> type[Kind]:
        """Load the class of this name, or return the given class."""
        if not isinstance(word, str):
            return self.checked(word, getattr(word, "__qualname__", type(word).__qualname__), path=path)
        loaded = self.find(word, path=path, mode=mode)
        if loaded is None:
            raise self.unknown(word, path=path, mode=mode)
        return self.checked(loaded, word, path=path)

    def add(self, built_in: Mapping[str, str]) -> None:
        """Add built-in classes, as ``name: "module:Class"``."""
        super().add(built_in)
        self._names.update({name: name for name in built_in} | {_simple(name): name for name in built_in})

    def names(self, mode: Mode = STRICT) -> tuple[str, ...]:
        """Return the simple names of all classes, plug-ins included, in alphabetical order."""
        own = (_simple(name) for name in self.built_in if self._is_known(name, mode))
        return tuple(sorted({*own, *(entry.name for entry in self.entries())}))

    def find(self, word: str, *, path: str = "", mode: Mode = STRICT) -> Any:
        """Load the object of this name, of any class; return None if the name is unknown."""
        entry = self.entry(word, path=path)
        if entry is not None:
            return self.imported(entry, path=path)
        base, _, part = word.partition("$")
        name = self._names.get(base, "")
        if name and self._is_known(name, mode):
            loaded = load_symbol(self.built_in[name])
        else:
            entry = self.entry(base, path=path) if part else None
            if entry is None:
                return None
            loaded = self.imported(entry, path=path)
        return self._part(loaded, word, path) if part else loaded

    def entry(self, word: str, *, path: str = "") -> EntryPoint | None:
        """Return the plug-in of a name, or None; built-in classes have precedence over plug-ins."""
        return None if word in self._names else super().entry(word, path=path)

    def checked(self, loaded: Any, word: str, *, path: str = "") -> type[Kind]:
        """Return the loaded class, or raise ConnectPluginError if it does not extend the base class."""
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            expected = f"{self.base.__module__}.{self.base.__qualname__}"
            found = getattr(loaded, "__qualname__", f"an object of class {type(loaded).__qualname__}")
            raise ConnectPluginError(
                f"{self.what} {word!r} is {found}; expected a subclass of {expected}", path=path
            )
        if _has_parts(loaded):
            parts = " or ".join(f"{word}${part}" for part in _PARTS)
            raise NoPartError(f"{word!r} works on keys or on values: write {parts}", path=path)
        return loaded

    def unknown(self, word: str, *, path: str = "", mode: Mode = STRICT) -> ConnectPluginError:
        """Return the error for an unknown name."""
        known = self.names(mode)
        known_are = f"known: {', '.join(known)}"
        if mode != STRICT and self._names.get(_simple(word.partition("$")[0])) in self._not_in_kafka:
            hint = f"; Kafka does not have it, so only the strict mode does; {known_are}"
        elif instead := _instead(word, self._elsewhere()):
            hint = f"; {instead}; {known_are}"
        else:
            meant = _meant(word, known)
            hint = did_you_mean(meant, [meant] if meant else [], then=known_are)
        return UnknownClassError(f"there is no {self.what} {word!r}{hint}", path=path)

    def _is_known(self, name: str, mode: Mode) -> bool:
        return mode == STRICT or name not in self._not_in_kafka

    def _part(self, loaded: Any, name: str, path: str) -> Any:
        """Return the class of ``Class$Key`` or ``Class$Value``."""
        base, _, part = name.partition("$")
        if part in _PARTS and _has_parts(loaded):
            return getattr(loaded, part)
        parts = _has_parts(loaded)
        right = [f"{base}${each}" for each in _PARTS] if parts else [base]
        hint = did_you_mean(name if parts else base, right, then=f"known: {', '.join(right)}")
        raise UnknownClassError(f"there is no {self.what} {name!r}{hint}", path=path)

    def _elsewhere(self) -> dict[str, str]:
        """Return a hint for each name of the other catalogue."""
        if not self._other:
            return {}
        other: Catalogue[Any] = load_symbol(self._other)
        where = f"is a {other.what}: name it under '{other.what}s'"
        return {name: f"{name} {where}" for name in other.names()}


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _has_parts(loaded: Any) -> bool:
    """Return whether a class has the classes ``Key`` and ``Value``, and is neither of the two."""
    return isinstance(loaded, type) and hasattr(loaded, "Key") and getattr(loaded, "part", "") is None


_DEBEZIUM: Final = "io.debezium.transforms"
_CONFLUENT: Final = "io.confluent.connect"
_FOREIGN: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{_DEBEZIUM}.outbox.EventRouter": "use OutboxRouter",
        f"{_DEBEZIUM}.ExtractNewRecordState": "use ExtractField$Value with field=after",
        f"{_CONFLUENT}.transforms.Filter": "use FilterByField or FilterByExpression",
        f"{_CONFLUENT}.transforms.ReplaceField": "use ReplaceField$Key or ReplaceField$Value",
        f"{_CONFLUENT}.avro.AvroConverter": "use the serde confluent-avro, in the serialize step",
    }
)
"""What to use instead of the classes of Debezium and Confluent."""
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
"""The current names of transforms, by their names in the draft of KIP-66."""


def _instead(name: str, elsewhere: Mapping[str, str]) -> str:
    """Return what to use instead of a name that is of another kind, or is written in another way; or no text.

    ``elsewhere`` has hints for names of another kind.
    """
    bare = name.strip("\"'")
    if bare != name:
        return f"write it without quotes: {bare}"
    if foreign := _FOREIGN.get(name.partition("$")[0]):
        return foreign
    simple, _ = _split(name)
    if simple in _DRAFT:
        return f"this is its name in the draft of KIP-66; use {_DRAFT[simple]}"
    return elsewhere.get(simple, "")


def _meant(name: str, known: Collection[str]) -> str:
    """Return the known name that is most like a name, with the part of the name; or no text."""
    simple, part = _split(name)
    near = closest(simple, known)
    if near is None:
        return ""
    part = part.capitalize() if part.capitalize() in _PARTS else part
    return f"{near}${part}" if part else near


def _split(name: str) -> tuple[str, str]:
    """Return the simple name of a class, and its part, which other languages put after a dot."""
    base, _, part = name.partition("$")
    if not part and _simple(base).capitalize() in _PARTS:
        base, _, part = base.rpartition(".")
    return _simple(base), part
