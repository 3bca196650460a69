"""Find what configuration names by a word: our own stand in tables, others come by entry points.

A catalogue is one kind of them (interceptors, serdes, schema stores). Nothing is imported before a
configuration names it.
"""

from __future__ import annotations

import importlib
import inspect
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from headerware.core.errors import PluginError
from headerware.core.hooks import HOOKS, SERVICES, Interceptor, has_hook

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP: Final = "headerware.interceptors"
_CALLED: Final = MappingProxyType({**HOOKS, **SERVICES})
Kind = TypeVar("Kind", bound=msgspec.Struct)


class Catalogue(Generic[Kind]):
    """The types of one kind, by the word that configuration uses for them.

    Args:
        what: what one of them is called in errors, such as ``interceptor``.
        base: the class that all of them extend.
        built_in: our own, as ``word: "module:Class"``.
        group: the entry-point group of the others; None where there are no others.
    """

    def __init__(
        self, what: str, base: type[Kind], built_in: Mapping[str, str], group: str | None = None
    ) -> None:
        self._what: Final = what
        self._base: Final = base
        self._built_in: Final = MappingProxyType(dict(built_in))
        self._group: Final = group

    @property
    def built_in(self) -> Mapping[str, str]:
        """Our own, as ``word: "module:Class"``."""
        return self._built_in

    def __call__(self, word: str, *, path: str = "") -> type[Kind]:
        """Load the class that a word stands for.

        Args:
            word: the type as configuration writes it.
            path: where it stands in the configuration, for the error.

        Raises:
            PluginError: nothing or more than one thing has this name, or it is of another kind.
        """
        if word in self._built_in:
            module, _, name = self._built_in[word].partition(":")
            loaded = getattr(importlib.import_module(module), name)
        else:
            loaded = self._loaded(self._only_entry_point(word, path), path)
        if not (isinstance(loaded, type) and issubclass(loaded, self._base)):
            expected = f"{self._base.__module__}.{self._base.__qualname__}"
            raise PluginError(
                f"plug-in {word!r} gives {loaded!r}; expected a subclass of {expected}", path=path
            )
        return loaded

    def _only_entry_point(self, word: str, path: str) -> EntryPoint:
        entries = _entry_points(self._group) if self._group else ()
        found = [entry for entry in entries if entry.name == word]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(sorted(_distribution(entry) for entry in found))
            problem = f"{self._what} type {word!r} is provided more than once, by {names}"
            raise PluginError(problem, path=path)
        known = sorted({*self._built_in, *(entry.name for entry in entries)})
        near = get_close_matches(word, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise PluginError(
            f"there is no {self._what} type {word!r}; {hint}known: {', '.join(known)}", path=path
        )

    def _loaded(self, entry: EntryPoint, path: str) -> Any:
        try:
            return entry.load()
        except Exception as error:
            raise PluginError(
                f"{self._what} type {entry.name!r} of {_distribution(entry)} cannot be imported from "
                f"{entry.value}: {type(error).__name__}: {error}",
                path=path,
            ) from error


_interceptors: Final = Catalogue(
    "interceptor",
    Interceptor,
    {
        "compact": "headerware.interceptors.compact:Compact",
        "compress": "headerware.interceptors.compress:Compress",
        "dedup": "headerware.interceptors.dedup:Dedup",
        "schema": "headerware.interceptors.schema:Schema",
        "serialize": "headerware.interceptors.serialize:Serialize",
        "sign": "headerware.interceptors.sign:Sign",
        "slice": "headerware.interceptors.slice:Slice",
        "trace": "headerware.interceptors.trace:Trace",
        "trail": "headerware.interceptors.trail:Trail",
        "transforms": "headerware.interceptors.transforms:Transforms",
    },
    GROUP,
)
BUILT_IN: Final = _interceptors.built_in


def interceptor_type(word: str, *, path: str = "") -> type[Interceptor]:
    """Load the interceptor class that a word stands for.

    Args:
        word: the type as configuration writes it.
        path: where it stands in the configuration, for the error.

    Raises:
        PluginError: nothing or more than one thing has this name, or what has it is no interceptor.
    """
    loaded = _interceptors(word, path=path)
    require_hooks(loaded, path=path)
    return loaded


def require_hooks(interceptor: object, *, path: str = "") -> None:
    """Refuse an object or class that can do nothing.

    Raises:
        PluginError: it has no hook and does not open into anything else, or a hook takes other arguments.
    """
    opens = getattr(interceptor, "open", None)
    opens_something = callable(opens) and getattr(opens, "__func__", opens) is not Interceptor.open
    if has_hook(interceptor) or opens_something:
        if not isinstance(interceptor, type):  # whose hooks still want a self
            called = {"open": SERVICES["open"]} if opens_something else _CALLED
            require_arguments(interceptor, called, path=path)
        return
    shown = interceptor if isinstance(interceptor, type) else type(interceptor)
    raise PluginError(f"{shown.__name__} has none of the hooks (on_send, on_consume, ...)", path=path)


def require_arguments(
    plugin: object, called: Mapping[str, tuple[str, ...]] = _CALLED, *, path: str = ""
) -> None:
    """Refuse an object whose methods cannot be called as they will be.

    Args:
        plugin: the object; a method that it does not have is passed over.
        called: the arguments of each method; an interceptor's hooks without it.
        path: where the object stands in the configuration, for the error.

    Raises:
        PluginError: which method, what it should look like and what it looks like.
    """
    for name, arguments in called.items():
        hook = getattr(plugin, name, None)
        expected = f"{name}({', '.join(arguments)})"
        if hook is None:
            continue
        if not callable(hook):
            raise _wrong_method(plugin, path, expected, f"{name}, a {type(hook).__name__}")
        try:
            found = inspect.signature(hook)
        except (TypeError, ValueError):  # some written in C do not tell
            continue
        if inspect.iscoroutinefunction(hook):
            raise _wrong_method(plugin, path, expected, f"async {name}{_shown(found)}, which nobody awaits")
        try:
            found.bind(*arguments)
        except TypeError:
            raise _wrong_method(plugin, path, expected, name + _shown(found)) from None


def _wrong_method(plugin: object, path: str, expected: str, found: str) -> PluginError:
    return PluginError(f"{type(plugin).__name__}: expected {expected}, found {found}", path=path)


def _shown(signature: inspect.Signature) -> str:
    """Return a signature without annotations and defaults, for these may be long or secret."""
    parameters = [
        parameter.replace(
            annotation=parameter.empty,
            default=parameter.empty if parameter.default is parameter.empty else ...,
        )
        for parameter in signature.parameters.values()
    ]
    bare = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return str(bare).replace("=Ellipsis", "=...")


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


@cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    unique = {(entry.name, entry.value): entry for entry in entry_points(group=group)}
    return tuple(unique.values())
