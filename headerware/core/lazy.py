"""Public names of a package that are loaded when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``; ``homes`` has the module of each name, relative to the package."""
    refuse_link(package, next(iter(homes)))

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        found = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return load


def refuse_link(package: str, name: str) -> None:
    """Refuse a package that was imported through a link, because its classes would exist twice.

    ``name`` is one of its public names, for the hint.
    """
    if package.partition(".")[0] != "headerware":
        message = (
            f"{package!r} is a link for people to look at, and its classes would be there twice; "
            f"write `from headerware.{package} import {name}`"
        )
        raise ImportError(message, name=package)
