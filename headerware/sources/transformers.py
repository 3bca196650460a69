"""Native transformers: from any object to any object, before it becomes a record (KIP-66's first draft).

A source reads, transforms and sends; a sink consumes, transforms and stores. Both use the same list:

    transformers = Transformers([Parse(), Enrich()])      # the types are checked here
    with transformers:                                    # initialized once, closed once
        for made in transformers(value):                  # no object if dropped, several if split
            ...

A transformer returns the new object, ``DROP`` to drop the object, or a list to split it into several objects.
The next transformer gets the complete list if its annotation says that it takes lists, and else the objects
one by one. The last transformer's objects come out one by one. To return None is an error, because a
forgotten ``return`` must not lose an object; a list with None in it gives a null value, as in a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import UnionType
from typing import (
    Any,
    Final,
    Generic,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from headerware.core.errors import ConfigError, PluginError
from headerware.core.hooks import DROP
from headerware.core.options import from_option
from headerware.core.plugins import Catalogue, require_arguments
from headerware.core.typed_options import TypedOptions

Given = TypeVar("Given")
Made = TypeVar("Made")
_Step = Callable[[Any], Any]


class Transformer(TypedOptions, Generic[Given, Made], frozen=True, kw_only=True):
    """Hold the options of a transformer, and transform native objects.

    A subclass adds its options as fields, and annotates ``transform``; a list of transformers is checked by
    the annotations. The subclass's entry point is in the group ``headerware.transformers``.
    """

    def initialize(self) -> Callable[[Given], Made]:
        """Return the function that transforms; called once, before the first object.

        A transformer with state returns a method of a new object; the object may have a method ``close()``.
        """
        return self.transform

    def transform(self, given: Given) -> Made:
        """Return the new object, ``DROP``, or a list of several objects.

        Called for one object after the other, in the order of their record numbers. To return one object that
        is a list, return a list that contains it.
        """
        raise NotImplementedError


transformer_type: Final[Catalogue[Transformer[Any, Any]]] = Catalogue(
    "transformer type", Transformer, {}, "headerware.transformers"
)
"""The transformers by name, from entry points of the group ``headerware.transformers``."""


class Transformers:
    """Send objects through transformers, in the listed order, before producing or after consuming.

    Args:
        listed: the transformers; or, from configuration, names or tables of ``type`` and options.
        given: the type of the objects; ``object`` for any type.
        path: the option's path, for errors.

    Raises:
        ConfigError: a transformer does not take the type that the transformer before it returns.
    """

    def __init__(self, listed: Iterable[Any], *, given: Any = object, path: str = "transformers") -> None:
        self._listed: Final[tuple[Transformer[Any, Any], ...]] = tuple(
            _made(item, f"{path}[{index}]") for index, item in enumerate(listed)
        )
        self._steps: tuple[_Step, ...] | None = None
        self._open = ExitStack()
        self._takes_lists: Final[list[bool]] = []
        before, maker, is_split = given, "the type of the input", False
        for index, transformer in enumerate(self._listed):
            takes, gives = _types(transformer)
            takes_lists = list in classes_of(takes)
            self._takes_lists.append(takes_lists)
            if takes_lists and is_split:
                before, is_split = list, False
            if not _fits(before, takes):
                raise ConfigError(
                    f"{type(transformer).__name__} takes {_shown(takes)}, but {maker} is {_shown(before)}",
                    path=f"{path}[{index}]",
                )
            is_split |= list in classes_of(gives)
            before, maker = _split(gives), f"the type that {type(transformer).__name__} returns"
        self.gives: Final = before
        """The type of the objects that come out."""

    def __enter__(self) -> Self:
        """Initialize each transformer once; if one fails, close the transformers before it."""
        if self._steps is None:
            with ExitStack() as made:
                steps = []
                for transformer in self._listed:
                    step = transformer.initialize()
                    close = getattr(getattr(step, "__self__", step), "close", None)
                    if callable(close):
                        made.callback(close)
                    if not callable(step):
                        raise PluginError(
                            f"{type(transformer).__name__}: expected initialize() to return a function, "
                            f"found {type(step).__name__}"
                        )
                    steps.append(step)
                self._open, self._steps = made.pop_all(), tuple(steps)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __call__(self, value: Any) -> list[Any]:
        """Return the objects that an object becomes: none if it was dropped, several if it was split.

        Raises:
            PluginError: a transformer returned None.
            Exception: a transformer raised it.
        """
        if self._steps is None:
            raise PluginError("the transformers are not initialized; enter them with a with statement first")
        values, is_split = [value], False
        for at, step in enumerate(self._steps):
            given = values
            if is_split and self._takes_lists[at]:
                given, is_split = [values], False
            values = []
            for each in given:
                made = step(each)
                if made.__class__ is list:
                    values += made
                    is_split = True
                elif made is None:
                    raise PluginError(
                        f"{type(self._listed[at]).__name__} returned None; expected an object, a list of "
                        "objects, or DROP to drop the object; [None] gives a null value"
                    )
                elif made is not DROP:
                    values.append(made)
        return values

    def __len__(self) -> int:
        """Return the number of transformers."""
        return len(self._listed)


def _made(item: Any, path: str) -> Transformer[Any, Any]:
    found = from_option(item, transformer_type, path=path)
    if not isinstance(found, Transformer):
        raise ConfigError(f"expected a Transformer, found {type(found).__name__}", path=path)
    require_arguments(found, {"transform": ("given",), "initialize": ()}, path=path)
    return found


def _types(transformer: Transformer[Any, Any]) -> tuple[Any, Any]:
    """Return the annotations of the argument and the result of ``transform``."""
    try:
        hints = get_type_hints(type(transformer).transform)
    except (NameError, TypeError):  # the annotations use names that only type checkers import
        hints = {}
    gives = hints.pop("return", object)
    takes = next(iter(hints.values()), object)
    return takes, gives


def _split(gives: Any) -> Any:
    """Return the type of one object that a transformer returns; ``object`` if unknown."""
    origin = get_origin(gives)
    if origin in (Union, UnionType):
        return Union[tuple(_split(part) for part in get_args(gives))]  # noqa: UP007 - of parts that were found
    if gives is list or origin is list:
        return (get_args(gives) or (object,))[0]
    return gives


def _fits(given: Any, takes: Any) -> bool:
    """Return whether a value of one type may be of the other type; unknown types fit."""
    if given in (Any, object) or takes in (Any, object) or TypeVar in (type(given), type(takes)):
        return True
    given_kinds, taken_kinds = classes_of(given), classes_of(takes)
    if not given_kinds or not taken_kinds:
        return True
    try:
        return any(
            issubclass(one, other) or issubclass(other, one) for one in given_kinds for other in taken_kinds
        )
    except TypeError:  # a Protocol, for instance, which only type checkers compare
        return True


def classes_of(hint: Any) -> tuple[type, ...]:
    """Return the classes of a type, or of each part of a union; a TypedDict is a dict."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return tuple(kind for part in get_args(hint) for kind in classes_of(part))
    found = origin or (dict if is_typeddict(hint) else hint)
    return (found,) if isinstance(found, type) else ()


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
