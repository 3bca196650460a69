"""Which content type the objects of a Python type are written as."""

from __future__ import annotations

import builtins
import importlib
from dataclasses import is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOUD_EVENTS: Final = "application/cloudevents+json"

_BUILT_IN: Final[dict[type, str]] = {
    **dict.fromkeys((bytes, bytearray, memoryview), "application/octet-stream"),
    str: "text/plain",
    **dict.fromkeys((bool, int, float, dict, list, tuple, msgspec.Struct), "application/json"),
}
_WHERE_SERVED: Final = (
    ("protobuf", "google.protobuf.message:Message", "application/protobuf"),
    (CLOUD_EVENTS, "headerware.serdes.cloudevents.event:CloudEvent", CLOUD_EVENTS),
)
"""Format or content type, the objects that it is for, and what they are written as."""


class ObjectTypes:
    """The content types of Python's types.

    Args:
        by_type: the content type for each type or its name.
        served: the formats and content types that a serde is there for.

    Raises:
        ConfigError: a type cannot be imported.
    """

    __slots__ = ("_content_types",)

    def __init__(self, by_type: Mapping[Any, str], served: frozenset[str]) -> None:
        extra = {_imported(name): written for form, name, written in _WHERE_SERVED if form in served}
        named = {_imported(kind): content_type for kind, content_type in by_type.items()}
        self._content_types: Final = {**_BUILT_IN, **extra, **named}

    def content_type_of(self, kind: type) -> str | None:
        """Return the content type for objects of a type: that of its nearest ancestor, or None."""
        for ancestor in kind.__mro__:
            found = self._content_types.get(ancestor)
            if found is not None:
                return found
        return self._content_types[dict] if is_dataclass(kind) else None


def require_object_type(kind: object, *, path: str) -> None:
    """Refuse what can be neither a type nor its name.

    Raises:
        ConfigError: what was expected.
    """
    if not isinstance(kind, type) and not (isinstance(kind, str) and kind):
        raise ConfigError(f"expected a class or its name, found {type(kind).__name__}", path=path)


def _imported(kind: Any) -> type:
    """Return the class that a name stands for: ``dict``, ``builtins.dict`` or ``module:Class``."""
    if isinstance(kind, type):
        return kind
    module, _, name = kind.partition(":") if ":" in kind else kind.rpartition(".")
    try:
        home = importlib.import_module(module) if module else builtins
        found = attrgetter(name)(home)
    except Exception as error:  # whatever the module raises
        raise ConfigError(f"cannot be imported: {error}", path=f"by_type.{kind}") from error
    if not isinstance(found, type):
        raise ConfigError(f"expected a class, found {type(found).__name__}", path=f"by_type.{kind}")
    return found
