"""Chains for applications that do not know of us: our clients under confluent-kafka's names.

confluent-kafka's two clients are classes of C, which nobody can change. So there are two ways in:

- A name for one of them (in ``confluent_kafka``, in a module that imported it, in a class, a list, a closure
  or a function's default) comes to mean a subclass of ours, :class:`_Producer` or :class:`_Consumer`. Classes
  that the application derives from it later have the chain from there.
- A class that was derived from one of them already gets our methods inserted before the class of C among its
  bases. confluent-kafka's own serializing clients are such classes: their chain works on the bytes that they
  make, and nothing else of them changes.

Either way a record meets one chain, because our methods call those of C directly. ``confluent_kafka.cimpl``
keeps the classes of C, and our own code takes them from there.
"""

from __future__ import annotations

import gc
import os
import sys
from abc import ABCMeta
from collections.abc import Iterator
from threading import RLock
from types import CellType, FunctionType, ModuleType
from typing import Any, Final

import confluent_kafka  # noqa: F401 - whose names are replaced
from confluent_kafka import cimpl

from headerware.clients.consumer import Consumer
from headerware.clients.producer import Producer
from headerware.core.chain import Chain

RUN_VARIABLE: Final = "HEADERWARE_RUN"
"""Set by ``headerware run``: the process that it became."""
_lock: Final = RLock()
_is_on = False


def instrument() -> None:
    """Give a chain to every client of confluent-kafka that is made from now on.

    The chain is the one of the client's own configuration (``interceptors``, ``headerware.config``) or else
    that of the file named by ``HEADERWARE_CONFIG``, as for :class:`headerware.Producer`. This covers the
    producer, the consumer, the serializing and the asyncio ones, subclasses, and names that were imported
    before. Clients that exist already stay as they are. A second call changes nothing, unless something has
    been imported past the first. Any thread may call it.
    """
    global _is_on  # noqa: PLW0603 - it is the process that is instrumented
    with _lock:
        _is_on = True
        for c_class, ours, methods in _REPLACED:
            _insert_methods(c_class, methods)
            _replace_names(c_class, ours)


def uninstrument() -> None:
    """Undo what :func:`instrument` did: names and bases of classes are what they were.

    Clients that are open keep their chain, and a class of theirs its bases; new clients have none.
    """
    global _is_on  # noqa: PLW0603 - it is the process that is instrumented
    with _lock:
        _is_on = False
        for c_class, ours, methods in _REPLACED:
            _replace_names(ours, c_class)
            _remove_methods(c_class, methods)


def instrument_under_run() -> None:
    """Instrument if this process is under ``headerware run``; OpenTelemetry calls it before its own turn.

    ``opentelemetry-instrument`` puts its ``sitecustomize`` before ours, and imports no other.
    """
    if RUN_VARIABLE in os.environ:
        instrument()


# What stands for the classes of C


def _chain_for(client: Any, conf: dict[str, Any], chain: Chain | None) -> tuple[Chain, dict[str, Any]]:
    """Return no chain once the instrumentation is off: a subclass may have outlived it."""
    if not _is_on and chain is None:
        return Chain(), conf
    side: Any = Producer if isinstance(client, cimpl.Producer) else Consumer
    found: tuple[Chain, dict[str, Any]] = side._chain_for(client, conf, chain)  # noqa: SLF001 - our own
    return found


# ABCMeta, and no metaclass of ours: an application's class may have another base with this one. Each counts
# what is derived from the class of C as derived from itself, however it came to be.
class _Producer(Producer, metaclass=ABCMeta):
    __doc__ = cimpl.Producer.__doc__
    _chain_for = _chain_for

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return issubclass(other, cimpl.Producer) if cls is _Producer else NotImplemented


class _Consumer(Consumer, metaclass=ABCMeta):
    __doc__ = cimpl.Consumer.__doc__
    _chain_for = _chain_for

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return issubclass(other, cimpl.Consumer) if cls is _Consumer else NotImplemented


def _named(ours: type, c_class: type) -> type:
    """Give a class the name that it goes by, so that it pickles and prints as what it stands for."""
    ours.__module__, ours.__name__, ours.__qualname__ = "confluent_kafka", c_class.__name__, c_class.__name__
    return ours


def _methods_of(ours: type, c_class: type) -> type:
    """Return our client without the class of C: a base that fits before it, having no fields.

    Its methods are copies, whose ``super()`` would still mean our client; a test holds that none uses it.
    """
    kept = {name: value for name, value in vars(ours).items() if name not in {"__dict__", "__weakref__"}}
    bases = tuple(base for base in ours.__bases__ if base is not c_class)
    return type(f"Chained{ours.__name__}", bases, {**kept, "__slots__": (), "_chain_for": _chain_for})


_REPLACED: Final = tuple(
    (c_class, _named(standing_for, c_class), _methods_of(ours, c_class))
    for c_class, standing_for, ours in (
        (cimpl.Producer, _Producer, Producer),
        (cimpl.Consumer, _Consumer, Consumer),
    )
)


# Classes that were derived before


def _insert_methods(c_class: type, methods: type) -> None:
    derived: Any
    for derived in c_class.__subclasses__():
        if methods in derived.__bases__ or _is_ours(derived) or not _has_room(derived):
            continue
        at = derived.__bases__.index(c_class)
        derived.__bases__ = (*derived.__bases__[:at], methods, *derived.__bases__[at:])


def _remove_methods(c_class: type, methods: type) -> None:
    derived: Any
    for derived in c_class.__subclasses__():
        if methods in derived.__bases__ and not _has_chained_instances(derived):
            derived.__bases__ = tuple(base for base in derived.__bases__ if base is not methods)


def _is_ours(found: type) -> bool:
    return found in {_Producer, _Consumer} or _is_our_module(found.__module__)


def _is_our_module(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] == "headerware"


def _has_room(derived: type) -> bool:
    """Return whether instances take attributes and weak references; those with slots alone take none."""
    return bool(derived.__dictoffset__ and derived.__weakrefoffset__)


def _has_chained_instances(derived: type) -> bool:
    with_heirs = {derived, *_heirs(derived)}
    return any(
        type(found) in with_heirs and found._chained  # noqa: SLF001 - our own
        for heir in with_heirs
        for found in gc.get_referrers(heir)
    )


def _heirs(derived: type) -> Iterator[type]:
    heir: type
    for heir in type.__subclasses__(derived):
        yield heir
        yield from _heirs(heir)


# Names that were imported before


def _replace_names(old: type, new: type) -> None:
    """Let whatever refers to one class by a name, an item or a default refer to the other.

    The collector knows most of what refers to a class. It does not know what ``gc.freeze`` has put aside, so
    the modules are listed; nor a dict or a tuple of nothing but texts, numbers and classes of C.
    """
    loaded: list[Any] = list(sys.modules.values())  # a library may put another object in a module's place
    modules = [vars(module) for module in loaded if isinstance(module, ModuleType)]
    objects = gc.get_objects()
    untracked = [
        each for each in gc.get_referents(*objects) if type(each) is dict and not gc.is_tracked(each)
    ]
    referrers = gc.get_referrers(old)
    owners = _owners(referrers)
    for container in modules + untracked + referrers:
        if isinstance(container, dict) and _keeps_its_names(container.get("__name__")):
            continue
        if id(container) in owners:
            _replace_attributes(owners[id(container)], old, new)
        elif isinstance(container, dict | list):
            _replace_items(container, old, new)
        elif isinstance(container, CellType):
            container.cell_contents = new
        elif not isinstance(container, type) and isinstance(getattr(container, "__dict__", None), dict):
            _replace_items(container.__dict__, old, new)
    for function in objects:
        if type(function) is FunctionType and (function.__defaults__ or function.__kwdefaults__):
            _replace_defaults(function, old, new)


def _keeps_its_names(module: object) -> bool:
    return module == cimpl.__name__ or _is_our_module(module)


def _owners(containers: list[Any]) -> dict[int, type]:
    """Return the classes whose attributes these dicts hold, by the dicts' ids."""
    dicts = [each for each in containers if isinstance(each, dict)]
    classes = [owner for owner in gc.get_referrers(*dicts) if isinstance(owner, type)] if dicts else []
    return {id(names): owner for owner in classes for names in gc.get_referents(vars(owner))}


def _replace_defaults(function: FunctionType, old: type, new: type) -> None:
    # A loop: a generator would keep this function's own names in cells, which are replaced, too.
    given = list(function.__defaults__ or ())
    _replace_items(given, old, new)
    if given != list(function.__defaults__ or ()):
        function.__defaults__ = tuple(given)
    _replace_items(function.__kwdefaults__ or {}, old, new)


def _replace_attributes(owner: type, old: type, new: type) -> None:
    if not _is_ours(owner):
        for name in [name for name, value in vars(owner).items() if value is old]:
            setattr(owner, name, new)


def _replace_items(container: dict[Any, Any] | list[Any], old: type, new: type) -> None:
    items = list(container.items() if isinstance(container, dict) else enumerate(container))
    for key in [key for key, value in items if value is old]:
        container[key] = new
