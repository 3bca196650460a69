"""Find classes by the words of configuration: our own in tables, others by entry points.

A catalogue holds classes of one kind: interceptors, serdes, schema stores, Connect's classes. Nothing is
imported before a configuration names it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from headerware.core.errors import PluginError
from headerware.core.hooks import HOOKS, Interceptor, has_hook
from headerware.core.services import SERVICE_ARGUMENTS
from headerware.core.suggestions import closest, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OPEN: Final = MappingProxyType({"open": ("context",)})
_CALLED: Final = MappingProxyType({**HOOKS, **_OPEN, **SERVICE_ARGUMENTS})
_LIKE_A_HOOK: Final = 0.8
"""How like the name of a hook a method's name is if it is meant to be one: ``on_sent``, not ``on_signal``."""
Kind = TypeVar("Kind")


class Catalogue(Generic[Kind]):
    """The classes of one kind, by the words that configuration uses for them.

    Our own classes take precedence over plug-ins. A subclass may change each step of the look-up:
    :meth:`find` resolves a word, :meth:`checked` refuses an object of another kind, and :meth:`unknown` makes
    the error for an unknown word. ``what`` names the kind in errors, such as ``interceptor type``;
    ``built_in`` has our own classes as ``word: "module:Class"``; ``group`` is the entry-point group of
    plug-ins, or None. ``renamed`` has former words, with the words that replace them.
    """

    error: ClassVar[type[PluginError]] = PluginError
    """The class of the errors."""
    any_case: ClassVar[bool] = False
    """Whether words are found in upper and lower case."""

    def __init__(
        self, what: str, base: type[Any], built_in: Mapping[str, str], group: str | None = None
    ) -> None:
        self.what: Final = what
        self.base: Final = base
        self._built_in: Final = dict(built_in)
        self.group = group
        self.renamed: Mapping[str, str] = {}

    def __call__(self, word: str, *, path: str = "") -> type[Kind]:
        """Load the class that a word stands for."""
        loaded = self.find(word, path=path)
        if loaded is None:
            raise self.unknown(word, path=path)
        return self.checked(loaded, word, path=path)

    @property
    def built_in(self) -> Mapping[str, str]:
        """Our own classes, as ``word: "module:Class"``."""
        return MappingProxyType(self._built_in)

    def add(self, built_in: Mapping[str, str]) -> None:
        """Add classes of our own, as ``word: "module:Class"``."""
        self._built_in.update(built_in)

    def names(self) -> tuple[str, ...]:
        """Return all words, including the words of plug-ins, in alphabetical order."""
        return tuple(sorted({*self._built_in, *(entry.name for entry in self.entries())}))

    def find(self, word: str, *, path: str = "") -> Any:
        """Load the symbol that a word stands for, of any kind; None if the word is unknown."""
        if word in self._built_in:
            return load_symbol(self._built_in[word])
        entry = self.entry(word, path=path)
        return None if entry is None else self.imported(entry, path=path)

    def checked(self, loaded: Any, word: str, *, path: str = "") -> type[Kind]:
        """Return the loaded class; raise a PluginError if it is of another kind."""
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            expected = f"{self.base.__module__}.{self.base.__qualname__}"
            raise self.error(
                f"plug-in {word!r} gives {loaded!r}; expected a subclass of {expected}", path=path
            )
        return loaded

    def unknown(self, word: str, *, path: str = "") -> PluginError:
        """Return the error for an unknown word."""
        known = self.names()
        now = self.renamed.get(word)
        then = f"known: {', '.join(known) or 'none'}"
        if self.group is not None and now is None and closest(word, known) is None:
            then += (
                f"; a package can add others by entry points of {self.group}: install it into this Python "
                f"({sys.executable} -m pip install ...)"
            )
        if "folder" in known and closest(word, known) is None:
            then += f'; for a folder, write the table {{ type = "folder", path = {word!r} }}'
        hint = did_you_mean(word, known, then=then) if now is None else f"; `{word}` is `{now}` now; {then}"
        return self.error(f"there is no {self.what} {word!r}{hint}", path=path)

    def entries(self) -> tuple[EntryPoint, ...]:
        return _entry_points(self.group) if self.group else ()

    def entry(self, word: str, *, path: str = "") -> EntryPoint | None:
        """Return the plug-in of a word, or None; raise PluginError if there are several."""
        found = [entry for entry in self.entries() if entry.name == word]
        if len(found) > 1:
            names = ", ".join(sorted(_distribution(entry) for entry in found))
            raise self.error(f"{self.what} {word!r} is provided more than once, by {names}", path=path)
        return found[0] if found else None

    def imported(self, entry: EntryPoint, *, path: str = "") -> Any:
        """Import a plug-in; raise PluginError with the reason if it cannot be imported."""
        try:
            return entry.load()
        except Exception as error:
            raise self.error(
                f"{self.what} {entry.name!r} of {_distribution(entry)} cannot be imported from "
                f"{entry.value}: {type(error).__name__}: {error}",
                path=path,
            ) from error


class _InterceptorCatalogue(Catalogue[Interceptor]):
    """Also refuse classes without hooks."""

    def checked(self, loaded: Any, word: str, *, path: str = "") -> type[Interceptor]:
        found = super().checked(loaded, word, path=path)
        require_hooks(found, path=path)
        return found


interceptor_type: Final = _InterceptorCatalogue("interceptor type", Interceptor, {})
"""The interceptors, by word; the package adds our own, and the entry-point group of plug-ins."""


def load_symbol(home: str) -> Any:
    """Import the symbol named ``module:name``."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def require_hooks(interceptor: object, *, path: str = "") -> None:
    """Refuse an object or class without any hook, or with a hook that takes other arguments."""
    opens = getattr(interceptor, "open", None)
    opens_something = callable(opens) and getattr(opens, "__func__", opens) is not Interceptor.open
    if has_hook(interceptor) or opens_something:
        if not isinstance(interceptor, type):  # the hooks of a class still need ``self``
            called = _OPEN if opens_something else _CALLED
            require_arguments(interceptor, called, path=path)
        return
    shown = interceptor if isinstance(interceptor, type) else type(interceptor)
    misnamed = misnamed_hooks(shown)
    raise PluginError(
        f"{shown.__name__} has none of the hooks (on_send, on_consume, ...)"
        + f": {misnamed}" * bool(misnamed),
        path=path,
    )


def misnamed_hooks(kind: type) -> str:
    """Return a sentence about the methods whose names are like those of hooks, or an empty text.

    Nobody calls them, so the interceptor would do less than it seems to.
    """
    return "; ".join(
        f"no hook is named {name!r}, so nobody calls it; did you mean {near!r}?"
        for name in dir(kind)
        if name.startswith("on_") and name not in _CALLED and callable(getattr(kind, name, None))
        if (near := closest(name, HOOKS, cutoff=_LIKE_A_HOOK)) is not None
    )


def has_methods(found: object, names: Iterable[str]) -> bool:
    """Return whether an object has all of these methods, its own ones or by delegation (``__getattr__``).

    ``isinstance()`` with a protocol does not see those by delegation since Python 3.12.
    """
    return all(callable(getattr(found, name, None)) for name in names)


def require_arguments(
    plugin: object, called: Mapping[str, tuple[str, ...]] = _CALLED, *, path: str = ""
) -> None:
    """Refuse an object whose methods do not take the arguments in ``called``; methods may be missing."""
    for name, arguments in called.items():
        hook = getattr(plugin, name, None)
        expected = f"{name}({', '.join(arguments)})"
        if hook is None:
            continue
        if not callable(hook):
            raise _wrong_method(plugin, path, expected, f"{name}, a {type(hook).__name__}")
        try:
            found = inspect.signature(hook)
        except (TypeError, ValueError):  # some functions written in C have no signature
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
    """Return a signature without annotations and defaults, because these may be long or secret."""
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
