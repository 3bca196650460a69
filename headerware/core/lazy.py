"""Public names of a package that are loaded when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Give what a package's ``__getattr__`` calls.

    Args:
        package: the package's name.
        homes: the module that each name lives in, as seen from the package.
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        found = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return load
