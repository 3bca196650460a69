"""Chains for applications that do not know of us: our clients under confluent-kafka's names.

confluent-kafka's clients are classes of C, which cannot be changed. So there are two ways:

- Each name of such a class (in ``confluent_kafka``, in a module that imported it, in a class, a list, a
  closure or a function's default) is replaced by our subclass, such as :class:`_Producer`. Classes that the
  application derives later inherit the chain. The same is done for the asyncio clients.
- If a class was derived from a class of C earlier, our methods are inserted before the class of C among its
  bases. confluent-kafka's own serializing clients are such classes. Their chain works on the bytes that they
  make; nothing else of them changes. A class that was derived from an asyncio client does not change, because
  it makes its client of C by a name, which is replaced.

Either way a record goes through one chain, because our methods call the methods of C directly.
``confluent_kafka.cimpl`` keeps the classes of C, and our own code takes them from there.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from abc import ABCMeta
from collections.abc import Iterator
from threading import RLock
from types import CellType, FunctionType, ModuleType
from typing import Any, Final

import confluent_kafka.aio
from confluent_kafka import cimpl

from headerware.clients.aio import AIOConsumer, AIOProducer
from headerware.clients.aio.consumer import InterruptibleConsumer
from headerware.clients.aio.producer import QueueingProducer
from headerware.clients.consumer import Consumer
from headerware.clients.live_chain import FollowsFile
from headerware.clients.producer import Producer
from headerware.clients.share import ShareConsumer
from headerware.core.chain import Chain, load_chain
from headerware.core.client_chain import CONFIG_VARIABLE, declares_chain, is_disabled
from headerware.core.config import FILE
from headerware.core.options import from_home
from headerware.core.other_clients import OTHER_CLIENTS, warn_of_other_client

RUN_VARIABLE: Final = "HEADERWARE_RUN"
"""The variable that ``headerware run`` sets for its process."""
_log: Final = logging.getLogger("headerware")
_lock: Final = RLock()
_is_on = False
_file: str | None = None
"""The chain's file, if :func:`instrument` was given one."""
_has_warned = False


def instrument(config: str | os.PathLike[str] | None = None) -> None:
    """Give a chain to every client of confluent-kafka that is made from now on.

    The chain comes from the client's own configuration (``interceptors``, ``headerware.config``), or else
    from a file, as for :class:`headerware.Producer`. This covers the producer, the consumer, the serializing
    and asyncio clients, subclasses, and names that were imported earlier. Existing clients do not change. A
    second call replaces only names that the first call has missed. Any thread may call it.

    Args:
        config: the chain's file; without this, ``HEADERWARE_CONFIG`` names the file.

    Raises:
        ConfigError: the file is wrong.
    """
    global _is_on, _file, _has_warned  # noqa: PLW0603 - it is the process that is instrumented
    with _lock:
        if config is not None:
            found = os.path.abspath(from_home(os.fspath(config)))  # noqa: PTH100 - the process may change its folder
            if not is_disabled():
                load_chain(found)
            _file = found
        if not (_is_on or is_disabled()):
            _warn_of_clients()
        _is_on, _has_warned = True, False
        for c_class, methods in _INSERTED:
            _insert_methods(c_class, methods)
        _replace_names(_STANDING)
    for name in OTHER_CLIENTS:
        if (module := sys.modules.get(name)) is not None:
            warn_of_other_client(name, module)


def uninstrument() -> None:
    """Undo what :func:`instrument` did: restore the names and bases of classes.

    Open clients keep their chain, and their classes keep their bases; new clients have no chain.
    """
    global _is_on, _file
    with _lock:
        _is_on, _file = False, None
        _replace_names(tuple((ours, theirs) for theirs, ours in _STANDING))
        for c_class, methods in _INSERTED:
            _remove_methods(c_class, methods)


def instrument_under_run() -> None:
    """Instrument if this process is under ``headerware run``; OpenTelemetry calls it before its own turn.

    ``opentelemetry-instrument`` puts its ``sitecustomize`` before ours, so Python does not import ours.
    """
    if RUN_VARIABLE in os.environ:
        instrument()


# Our subclasses that replace confluent-kafka's classes


def _while_on(ours: Any, always: type | tuple[()] = ()) -> Any:
    """Return the method by which a client finds its chain, without a chain after the instrumentation is off.

    A subclass may still be in use then. Instances of ``always`` have their chain in any case.
    """

    def chain_for(client: Any, conf: dict[str, Any], chain: Chain | None) -> tuple[Chain, dict[str, Any]]:
        if not _is_on and chain is None and not isinstance(client, always):
            return Chain(), conf
        if _is_on and chain is None and not declares_chain(conf):
            if _file is not None:
                conf = {**conf, FILE: _file}
            elif not os.environ.get(CONFIG_VARIABLE):
                _warn_of_no_chain()
        found: tuple[Chain, dict[str, Any]] = ours._hw_chain_for(client, conf, chain)  # noqa: SLF001 - our own
        return found

    return chain_for


def _warn_of_no_chain() -> None:
    """Warn once that a client has no chain; ``headerware run`` has said so already."""
    global _has_warned  # noqa: PLW0603 - once for the process
    if not (_has_warned or RUN_VARIABLE in os.environ or is_disabled()):
        _has_warned = True
        _log.warning(
            "neither instrument() nor %s names a chain's file, so only clients whose own configuration has a "
            "chain get one",
            CONFIG_VARIABLE,
        )


def _warn_of_clients() -> None:
    """Warn that clients of confluent-kafka exist already, which have no chain."""
    kinds = tuple(c_class for c_class, _ in _INSERTED)
    # By their types, because isinstance asks an object for __class__, which a lazy object answers.
    types = [type(each) for each in gc.get_objects()]
    count = sum(issubclass(kind, kinds) and not _is_client_of_ours(kind) for kind in types)
    if count:
        _log.warning(
            "%s made before instrument(): %s records pass no chain; call instrument() first",
            *(
                ("1 client of confluent-kafka was", "its")
                if count == 1
                else (f"{count} clients of confluent-kafka were", "their")
            ),
        )


def _is_client_of_ours(kind: type) -> bool:
    return issubclass(kind, FollowsFile) or _is_our_module(kind.__module__)


@classmethod  # type: ignore[misc]  # the classes below share it
def _counts(cls: type, other: type) -> Any:
    """Count every class that is derived from confluent-kafka's class as derived from ours."""
    theirs = vars(cls).get("_hw_stands_for")
    return NotImplemented if theirs is None else issubclass(other, theirs)


# ABCMeta rather than a metaclass of ours: an application's class may have another base with ABCMeta.
class _Producer(Producer, metaclass=ABCMeta):
    _hw_stands_for = cimpl.Producer
    _hw_chain_for = _while_on(Producer)
    __subclasshook__ = _counts


class _Consumer(Consumer, metaclass=ABCMeta):
    _hw_stands_for = cimpl.Consumer
    _hw_hides_headers = True
    _hw_chain_for = _while_on(Consumer)
    __subclasshook__ = _counts


class _ShareConsumer(ShareConsumer, metaclass=ABCMeta):
    _hw_stands_for = getattr(cimpl, "ShareConsumer", None)
    _hw_hides_headers = True
    _hw_chain_for = _while_on(ShareConsumer)
    __subclasshook__ = _counts


class _QueueingProducer(QueueingProducer):
    _hw_chain_for = _while_on(QueueingProducer)


class _InterruptibleConsumer(InterruptibleConsumer):
    _hw_hides_headers = True
    _hw_chain_for = _while_on(InterruptibleConsumer)


# A class that was derived before calls ``AIOProducer.__init__(self, conf)`` by a name that now is ours, and
# keeps their methods. No ``super()`` here: its cell would be a name that is replaced.
class _AIOProducer(AIOProducer, metaclass=ABCMeta):
    _hw_stands_for = confluent_kafka.aio.AIOProducer
    _hw_core_type = _QueueingProducer
    __subclasshook__ = _counts

    def __init__(self, *args: Any, **options: Any) -> None:
        side = AIOProducer if _AIOProducer in type(self).__mro__ else _AIOProducer._hw_stands_for
        side.__init__(self, *args, **options)


class _AIOConsumer(AIOConsumer, metaclass=ABCMeta):
    _hw_stands_for = confluent_kafka.aio.AIOConsumer
    _hw_core_type = _InterruptibleConsumer
    __subclasshook__ = _counts

    def __init__(self, *args: Any, **options: Any) -> None:
        side = AIOConsumer if _AIOConsumer in type(self).__mro__ else _AIOConsumer._hw_stands_for
        side.__init__(self, *args, **options)


def _named(ours: type, theirs: type, module: str) -> type:
    """Give our class the name of the class that it replaces, for pickling and printing."""
    ours.__module__, ours.__name__, ours.__qualname__ = module, theirs.__name__, theirs.__name__
    ours.__doc__ = theirs.__doc__
    return ours


def _methods_of(ours: type, c_class: type) -> type:
    """Return our client without the class of C and without fields, as a base to insert before the class of C.

    The methods are copies, whose ``super()`` would still mean our client; a test checks that none uses it.
    """
    kept = {name: value for name, value in vars(ours).items() if name not in {"__dict__", "__weakref__"}}
    bases = tuple(base for base in ours.__bases__ if base is not c_class)
    # Our serializing clients are derived from confluent-kafka's, which get this base.
    kept |= {"__slots__": (), "_hw_chain_for": _while_on(ours, always=ours), "_hw_hides_headers": True}
    return type(f"Chained{ours.__name__}", bases, kept)


_STANDING: Final = tuple(
    (each, _named(standing_for, each, module))
    for each, standing_for, module in (
        (cimpl.Producer, _Producer, "confluent_kafka"),
        (cimpl.Consumer, _Consumer, "confluent_kafka"),
        (_ShareConsumer._hw_stands_for, _ShareConsumer, "confluent_kafka"),  # noqa: SLF001 - our own
        (confluent_kafka.aio.AIOProducer, _AIOProducer, "confluent_kafka.aio"),
        (confluent_kafka.aio.AIOConsumer, _AIOConsumer, "confluent_kafka.aio"),
    )
    if each is not None  # confluent-kafka before 2.16 has no share consumers
)
_INSERTED: Final = tuple(
    (standing_for._hw_stands_for, _methods_of(ours, standing_for._hw_stands_for))  # noqa: SLF001 - our own
    for standing_for, ours in ((_Producer, Producer), (_Consumer, Consumer), (_ShareConsumer, ShareConsumer))
    if standing_for._hw_stands_for is not None  # noqa: SLF001
)


# Classes that were derived earlier


def _insert_methods(c_class: type, methods: type) -> None:
    derived: Any
    for derived in c_class.__subclasses__():
        if methods in derived.__bases__ or _is_ours(derived) or not _has_room(derived):
            continue
        at = derived.__bases__.index(c_class)
        derived.__bases__ = (*derived.__bases__[:at], methods, *derived.__bases__[at:])


def _remove_methods(c_class: type, methods: type) -> None:
    derived: Any
    families: dict[Any, set[type]] = {}
    for derived in c_class.__subclasses__():
        if methods in derived.__bases__:
            families[derived] = {derived, *_heirs(derived)}
    chained = _with_chained_instances(set[type]().union(*families.values()))
    for derived, family in families.items():
        if family.isdisjoint(chained):
            derived.__bases__ = tuple(base for base in derived.__bases__ if base is not methods)


def _is_ours(found: type) -> bool:
    return "_hw_stands_for" in vars(found) or _is_our_module(found.__module__)


def _is_our_module(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] == "headerware"


def _has_room(derived: type) -> bool:
    """Return whether instances take attributes and weak references; instances with only slots do not."""
    return bool(derived.__dictoffset__ and derived.__weakrefoffset__)


def _with_chained_instances(classes: set[type]) -> set[type]:
    # All classes in one call, because the collector looks through all objects of the process.
    found = gc.get_referrers(*classes) if classes else []
    return {type(each) for each in found if type(each) in classes and each._hw_chained}  # noqa: SLF001 - our own


def _heirs(derived: type) -> Iterator[type]:
    heir: type
    for heir in type.__subclasses__(derived):
        yield heir
        yield from _heirs(heir)


# Names that were imported earlier


_NewFor = dict[int, type]
"""New classes, by the ids of the classes that they replace."""


def _replace_names(pairs: tuple[tuple[type, type], ...]) -> None:
    """Replace the first class of each pair by the second in names, items and defaults of functions.

    The collector knows most objects that refer to a class. It does not know objects that ``gc.freeze`` has
    put aside, so the modules are listed. It does not know a dict or tuple of only texts, numbers and classes
    of C.
    """
    new_for = {id(old): new for old, new in pairs}
    loaded: list[Any] = list(sys.modules.values())  # a library may put another object in a module's place
    modules = [vars(module) for module in loaded if isinstance(module, ModuleType)]
    objects = gc.get_objects()
    untracked = [
        each for each in gc.get_referents(*objects) if type(each) is dict and not gc.is_tracked(each)
    ]
    referrers = gc.get_referrers(*(old for old, _ in pairs))
    owners = _owners(referrers, objects)
    for container in modules + untracked + referrers:
        if container is objects:
            continue  # our own list of them all
        if isinstance(container, dict) and _keeps_its_names(container.get("__name__")):
            continue
        if id(container) in owners:
            _replace_attributes(owners[id(container)], new_for)
        elif isinstance(container, dict | list):
            _replace_items(container, new_for)
        elif isinstance(container, CellType):
            container.cell_contents = new_for[id(container.cell_contents)]
        elif not isinstance(container, type) and isinstance(getattr(container, "__dict__", None), dict):
            _replace_items(container.__dict__, new_for)
    for function in objects:
        if type(function) is FunctionType and (function.__defaults__ or function.__kwdefaults__):
            _replace_defaults(function, new_for)


def _keeps_its_names(module: object) -> bool:
    return module == cimpl.__name__ or _is_our_module(module)


def _owners(containers: list[Any], objects: list[Any]) -> dict[int, type]:
    """Return the classes whose attributes are in these dicts, by the ids of the dicts."""
    dicts = {id(each) for each in containers if isinstance(each, dict)}
    # By their types, because isinstance asks an object for __class__, which a lazy object answers.
    classes = [each for each in objects if issubclass(type(each), type)]
    # A class shows its attributes by a proxy, and the dict behind the proxy is what the containers have.
    names_of = ((owner, names) for owner in classes for names in gc.get_referents(vars(owner)))
    return {id(names): owner for owner, names in names_of if id(names) in dicts}


def _replace_defaults(function: FunctionType, new_for: _NewFor) -> None:
    # No generator: it would keep the names of this function in cells, which are replaced, too.
    given = list(function.__defaults__ or ())
    _replace_items(given, new_for)
    if given != list(function.__defaults__ or ()):
        function.__defaults__ = tuple(given)
    _replace_items(function.__kwdefaults__ or {}, new_for)


def _replace_attributes(owner: type, new_for: _NewFor) -> None:
    if not _is_ours(owner):
        for name, value in [each for each in vars(owner).items() if id(each[1]) in new_for]:
            setattr(owner, name, new_for[id(value)])


def _replace_items(container: dict[Any, Any] | list[Any], new_for: _NewFor) -> None:
    values = container.values() if isinstance(container, dict) else container
    if new_for.keys().isdisjoint(map(id, values)):
        return  # as nearly all are
    items = list(container.items() if isinstance(container, dict) else enumerate(container))
    for key, value in items:
        if id(value) in new_for:
            container[key] = new_for[id(value)]
