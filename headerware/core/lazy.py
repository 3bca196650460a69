"""Public names of a package that are loaded when they are first asked for (PEP 562).

Each name is written once: in the package's stub, ``__init__.pyi``, as ``from module import Name as Name``.
Type checkers read the stub. :func:`lazy` reads it by the package's loader, so that it also works in zip
files.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from headerware.core.errors import MissingPartError
from headerware.core.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Callable


def lazy(
    package: str, *, extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    If an extra is given, and a library that it installs is missing, names raise a MissingPartError with the
    command that installs the extra.
    """
    homes = _homes(package)
    refuse_link(package, next(iter(homes)))

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        try:
            found = getattr(import_module(home), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if extra is None or missing in {"", "headerware"}:
                raise
            message = f"{package} needs {missing}: {install_command(extra)}"
            raise MissingPartError(message) from error
        setattr(sys.modules[package], name, found)
        return found

    names = sorted(homes)
    return load, names.copy, names


def _homes(package: str) -> dict[str, str]:
    """Return the module of each public name, as the package's stub has it."""
    spec: Any = sys.modules[package].__spec__
    stub = ast.parse(spec.loader.get_data(str(PurePath(spec.origin).with_suffix(".pyi"))))
    return {
        alias.name: str(statement.module)
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    }


def refuse_link(package: str, name: str) -> None:
    """Refuse a package that was imported through a link, because its classes would exist twice.

    ``name`` is one of its public names, for the hint.
    """
    if package.partition(".")[0] != "headerware":
        message = (
            f"{package!r} is a link for people to look at, and an import through it would make its classes "
            f"twice; write `from headerware.{package} import {name}`"
        )
        raise ImportError(message, name=package)
