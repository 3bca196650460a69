"""Find interceptors by the word that configuration uses for them.

Our own stand in a table; others come by entry points of the group ``headerware.interceptors``, and are
imported only when a configuration names one.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from headerware.core.errors import PluginError
from headerware.core.hooks import Interceptor, has_hook

GROUP: Final = "headerware.interceptors"

BUILT_IN: Final = MappingProxyType(
    {
        "compress": "headerware.interceptors.compress:Compress",
        "sign": "headerware.interceptors.sign:Sign",
        "slice": "headerware.interceptors.slice:Slice",
        "trace": "headerware.interceptors.trace:Trace",
        "trail": "headerware.interceptors.trail:Trail",
    }
)


def interceptor_type(word: str, *, path: str = "") -> type[Interceptor]:
    """Load the interceptor class that a word stands for.

    Args:
        word: the type as configuration writes it.
        path: where it stands in the configuration, for the error.

    Raises:
        PluginError: nothing or more than one thing has this name, or what has it is no interceptor.
    """
    if word in BUILT_IN:
        module, _, name = BUILT_IN[word].partition(":")
        loaded = getattr(importlib.import_module(module), name)
    else:
        loaded = _load(_only_entry_point(word, path), path)
    if not (isinstance(loaded, type) and issubclass(loaded, Interceptor)):
        raise PluginError(
            f"plug-in {word!r} gives {loaded!r}; expected a subclass of headerware.core.hooks.Interceptor",
            path=path,
        )
    require_hooks(loaded, path=path)
    return loaded


def require_hooks(interceptor: object, *, path: str = "") -> None:
    """Refuse an object or class that can do nothing.

    Raises:
        PluginError: it has no hook and does not open into anything else.
    """
    opens = getattr(interceptor, "open", None)
    if has_hook(interceptor) or (
        callable(opens) and getattr(opens, "__func__", opens) is not Interceptor.open
    ):
        return
    shown = interceptor if isinstance(interceptor, type) else type(interceptor)
    raise PluginError(f"{shown.__name__} has none of the hooks (on_send, on_consume, ...)", path=path)


def _only_entry_point(word: str, path: str) -> EntryPoint:
    found = [entry for entry in _entry_points() if entry.name == word]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(_distribution(entry) for entry in found))
        raise PluginError(f"interceptor type {word!r} is provided more than once, by {names}", path=path)
    known = sorted({*BUILT_IN, *(entry.name for entry in _entry_points())})
    near = get_close_matches(word, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise PluginError(f"there is no interceptor type {word!r}; {hint}known: {', '.join(known)}", path=path)


def _load(entry: EntryPoint, path: str) -> object:
    try:
        return entry.load()
    except Exception as error:
        raise PluginError(
            f"interceptor type {entry.name!r} of {_distribution(entry)} cannot be imported from "
            f"{entry.value}: {type(error).__name__}: {error}",
            path=path,
        ) from error


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    unique = {(entry.name, entry.value): entry for entry in entry_points(group=GROUP)}
    return tuple(unique.values())
