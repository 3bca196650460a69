"""A chain: interceptors in order, checked, and ready to be opened for a client."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, get_args

import msgspec

from headerware.core.carry import Carry, carry_option
from headerware.core.config import Configured, at_step, from_file, from_flat, naming_steps
from headerware.core.context import Context
from headerware.core.errors import ConfigError, PluginError, below
from headerware.core.hooks import Interceptor, OnError, Role, has_hook, label, states
from headerware.core.options import check_files, from_home, refused, with_files
from headerware.core.order import (
    check_order,
    idle_steps,
    require_no_plain_dead_letters,
    role_of,
    signing,
)
from headerware.core.plugins import misnamed_hooks, require_arguments, require_hooks
from headerware.core.services import Reassembles, offered
from headerware.core.session import Session
from headerware.core.step import Step
from headerware.core.suggestions import did_you_mean
from headerware.core.toml import within_file
from headerware.core.topics import check_topics, topics_of, works_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headerware.core.errors import HeaderwareError
    from headerware.core.files import Source
    from headerware.core.headers import Name

_Arguments = ParamSpec("_Arguments")
_log: Final = logging.getLogger("headerware")


def _of_one_list(init: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """Return the ``__init__`` of a chain that says so if interceptors are not in a list."""

    @wraps(init)
    def checked(*args: _Arguments.args, **options: _Arguments.kwargs) -> None:
        given = args[1:]
        if len(given) > 1:
            kinds = [each if isinstance(each, type) else type(each) for each in given]
            are_steps = not any(issubclass(kind, Iterable) for kind in kinds)
            steps = ", ".join(f"{kind.__name__}(...)" for kind in kinds) if are_steps else "..."
            raise ConfigError(
                f"expected one list of interceptors, found {len(given)} arguments; write Chain([{steps}])",
                path="chain",
            )
        init(*args, **options)

    return checked


class Chain:
    """Hold interceptors in the order of sending; consuming goes the other way.

    A chain is immutable, holds no state of any client, and may be shared between threads.

    Args:
        interceptors: :class:`Interceptor` objects, or any objects that have hooks.
        carry: names and patterns of headers. A record that is sent while another record is processed gets
            these headers of the other record, besides the headers that interceptors continue, such as the
            trail. False carries on nothing.

    Raises:
        ConfigError: an order that cannot work, an option of a wrong type, two interceptors of one name, or
            an ``on_error`` that the interceptor's role does not allow.
        PluginError: an object without any hook, a hook with other arguments than it is called with, or a
            class instead of an object.
    """

    __slots__ = ("_carry", "_interceptors", "_names", "_sources")

    @_of_one_list
    def __init__(
        self, interceptors: Iterable[object] = (), *, carry: Sequence[Name] | Literal[False] | None = None
    ) -> None:
        found = tuple(map(_from_home, _listed(interceptors)))
        for interceptor in found:
            _require_instance(interceptor)
            require_hooks(interceptor, path=f"interceptors.{label(interceptor)}")
            _check_options(interceptor)
            check_topics(getattr(interceptor, "topics", ("*",)), path=f"{label(interceptor)}.topics")
            resolved_on_error(interceptor)
        check_order(found)
        self._interceptors = found
        self._names = _unique_names(found)
        self._carry = carry_option(carry)
        self._sources: Sequence[Source] = ()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Chain:
        """Make a chain from a flat configuration, such as the part of a client's configuration.

        Args:
            config: ``interceptors`` (aliases, comma-separated) and ``interceptors.<alias>.<option>``;
                ``headerware.carry`` names headers; ``headerware.config`` names a TOML file to start from.
                Other keys are refused.

        Raises:
            ConfigError: what is wrong, with its full path.
        """
        return cls.configured(from_flat(config))

    @classmethod
    def configured(cls, found: Configured) -> Chain:
        """Make a chain from a configuration that has been read."""
        with naming_steps(found.sources):
            chain = cls(found.interceptors, carry=found.carry)
        chain._sources = found.sources
        return chain

    def with_interceptors(self, interceptors: Iterable[object]) -> Chain:
        """Return a chain of other interceptors that carries the same headers and came from the same files."""
        chain = Chain(interceptors, carry=self._carry)
        chain._sources = self._sources
        return chain

    def located(self, error: HeaderwareError) -> HeaderwareError:
        """Return an error about a step with the line and the column, if a file declares the step."""
        return at_step(error, self._sources)

    @property
    def carry(self) -> Carry:
        """The names and patterns of headers that are carried on; False carries on nothing."""
        return self._carry

    @property
    def interceptors(self) -> tuple[object, ...]:
        """The interceptors, in the order of sending."""
        return self._interceptors

    @property
    def names(self) -> tuple[str, ...]:
        """The interceptors' names, in the same order."""
        return self._names

    def check_files(self) -> None:
        """Read the files that the options name, such as policies, without opening the chain.

        Files that belong to another machine, such as keyrings, may be missing.

        Raises:
            HeaderwareError: a file is missing or wrong; the error has its place in this file if it is known.
        """
        with naming_steps(self._sources):
            for name, interceptor in zip(self._names, self._interceptors, strict=True):
                if isinstance(interceptor, Interceptor):
                    with below(f"interceptors.{name}"):
                        check_files(interceptor)

    def for_topic(self, topic: str) -> list[str]:
        """Return the names of the interceptors that work on a topic, in the order of sending."""
        return [
            name
            for name, interceptor in zip(self._names, self._interceptors, strict=True)
            if works_on(interceptor, topic)
        ]

    def open(
        self,
        context: Context | None = None,
        *,
        previous: Session | None = None,
        check: Callable[[Session], object] | None = None,
    ) -> Session:
        """Open the chain for one client.

        Args:
            context: the ports to the surroundings; without one there is only a clock.
            previous: the session of the same client that this session replaces. An interceptor that
                has the same name and options in both keeps its state (incomplete messages, windows,
                counters, keys), and the previous session no longer closes it. An interceptor that makes
                one record of several keeps its state only if everything to its right is the same, too;
                else parts of one message would pass two chains.
            check: called with the opened session, before it replaces the previous one. An exception of it
                is raised here, and the previous session goes on.

        Raises:
            HeaderwareError: an interceptor cannot start, for instance because its keyring is missing. The
                interceptors that were opened are closed again.
            ConfigError: a producer's chain that encrypts has ``on_error = "dead_letter"``.
        """
        with naming_steps(self._sources):
            return self._opened(context, previous, check)

    def _opened(
        self, context: Context | None, previous: Session | None, check: Callable[[Session], object] | None
    ) -> Session:
        if context is not None and context.side == "producer":
            require_no_plain_dead_letters(self._interceptors)
        if previous is None and (context is None or (context.warns and not context.dry_run)):
            for name, why in idle_steps(self._interceptors):
                _log.warning("%s: %s", name, why)
        going_on = self._going_on(previous)
        steps = [
            _opener(
                position,
                name,
                interceptor,
                signing=signing(interceptor, self._interceptors),
                earlier=going_on.get(name),
            )
            for position, (name, interceptor) in enumerate(zip(self._names, self._interceptors, strict=True))
        ]
        context = Context() if context is None else context
        return Session(steps, context, previous, carry=self._carry, check=check)

    def _going_on(self, previous: Session | None) -> dict[str, Step]:
        """Return the previous session's steps that keep their state in this chain, by name."""
        steps = () if previous is None else previous.steps
        before = tuple(step.interceptor for step in steps)
        found: dict[str, Step] = {}
        for index, step in enumerate(steps):
            if step.name not in self._names:
                continue
            own = self._names.index(step.name)
            interceptor = self._interceptors[own]
            same = type(interceptor) is type(step.interceptor) and interceptor == step.interceptor
            signed = _signed(interceptor, self._interceptors) == _signed(step.interceptor, before)
            alone = offered(step.opened, Reassembles) is None
            if same and signed and (alone or self._interceptors[own + 1 :] == before[index + 1 :]):
                found[step.name] = step
        return found

    def __len__(self) -> int:
        """Count the interceptors."""
        return len(self._interceptors)

    def __iter__(self) -> Iterator[object]:
        """Go through the interceptors in the order of sending."""
        return iter(self._interceptors)

    def __bool__(self) -> bool:
        """Return whether the chain does anything."""
        return bool(self._interceptors or self._carry)

    def __eq__(self, other: object) -> bool:
        """Return whether another chain has equal interceptors in the same order, and carries on the same."""
        return (
            isinstance(other, Chain)
            and self._interceptors == other._interceptors
            and self._carry == other._carry
        )

    def __hash__(self) -> int:
        """Hash the interceptors."""
        return hash(self._interceptors)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._interceptors, self._carry)

    def __repr__(self) -> str:
        """Show the names only, for options may be secret."""
        return f"Chain({' -> '.join(self._names)})"


def load_chain(path: str | os.PathLike[str]) -> Chain:
    """Make a chain from a TOML file.

    Args:
        path: the file; the files that it includes are looked for in its folder.

    Raises:
        ConfigError: what is wrong, in which file and where.
    """
    found = from_file(path)
    with within_file(path):
        return Chain.configured(found)


def _unpickled(interceptors: tuple[object, ...], carry: Carry) -> Chain:
    return Chain(interceptors, carry=carry)


def resolved_on_error(interceptor: object) -> OnError:
    """Return the policy for a record that an interceptor fails on; refuse one that its role forbids."""
    role = role_of(interceptor)
    chosen: OnError | None = getattr(interceptor, "on_error", None)
    if chosen is None:
        return "skip" if role is Role.OBSERVE else "raise"
    if chosen not in ("raise", "skip", "drop", "dead_letter"):
        raise ConfigError(
            f"expected raise, skip, drop or dead_letter, found {chosen!r}"
            f"{did_you_mean(chosen, get_args(OnError))}",
            path=f"{label(interceptor)}.on_error",
        )
    if chosen == "skip" and role is Role.PROTECT:
        raise ConfigError(
            "'skip' would let an unprotected record pass; use raise, drop or dead_letter",
            path=f"{label(interceptor)}.on_error",
        )
    if chosen == "skip" and role is Role.TRANSFORM and getattr(interceptor, "decodes", None):
        raise ConfigError(
            "'skip' would hand encoded bytes to the application on consume; use raise, drop or dead_letter",
            path=f"{label(interceptor)}.on_error",
        )
    return chosen


def raising(steps: Iterable[object]) -> Chain:
    """Return a chain whose steps raise their refusals, so that its caller decides what becomes of records."""
    return Chain(
        msgspec.structs.replace(step, on_error="raise")
        if isinstance(step, Interceptor) and step.on_error in ("drop", "dead_letter")
        else step
        for step in steps
    )


def _opener(
    position: int, name: str, interceptor: Any, *, signing: Sequence[object], earlier: Step | None
) -> Callable[[Context], Step]:
    def opened(context: Context) -> Step:
        if earlier is not None:
            return Step(
                position=position,
                name=name,
                interceptor=interceptor,
                opened=earlier.opened,
                topics=earlier.topics,
                on_error=earlier.on_error,
                earlier=earlier,
            )
        context = msgspec.structs.replace(context, signed=bool(signing), signer=partial(_signer, signing))
        opens = getattr(interceptor, "open", None)
        with below(f"interceptors.{name}"):
            step = opens(context) if callable(opens) else interceptor
        step, returned = (interceptor, "None") if step is None else (step, f"a {type(step).__name__}")
        misnamed = misnamed_hooks(type(step))
        if not has_hook(step):
            raise PluginError(
                f"open() of {name!r} returned {returned}; expected an object with some of the hooks "
                f"(on_send, on_consume, ...)" + f": {misnamed}" * bool(misnamed),
                path=f"interceptors.{name}",
            )
        if misnamed and step is not interceptor and context.warns:
            _log.warning("%s: %s", name, misnamed)
        require_arguments(step, path=f"interceptors.{name}")
        return Step(
            position=position,
            name=name,
            interceptor=interceptor,
            opened=step,
            topics=topics_of(interceptor),
            on_error=resolved_on_error(interceptor),
        )

    return opened


def _signed(interceptor: object, interceptors: Iterable[object]) -> object:
    """Return the facts about signatures that an interceptor depends on: if there are any, or which keys."""
    found = signing(interceptor, interceptors)
    if not states(interceptor, "hides"):
        return bool(found)
    return [(getattr(other, "topics", None), getattr(other, "key_id", None)) for other in found]


def _signer(signing: Sequence[object], topic: str) -> str | None:
    """Return the id of the key that the records of a topic are signed with, as ``Context.signer`` does."""
    matching = (other for other in signing if works_on(other, topic))
    return next((getattr(other, "key_id", None) or "" for other in matching), None)


def _listed(interceptors: object) -> tuple[object, ...]:
    """Return the interceptors as a tuple; refuse an interceptor that is not in a list."""
    if isinstance(interceptors, Iterable) and not isinstance(interceptors, str | bytes | type):
        return tuple(interceptors)
    found = type(interceptors).__name__
    if isinstance(interceptors, str):
        hint = "from a file: load_chain(path)"
    elif isinstance(interceptors, type):
        found = f"the class {interceptors.__name__}"
        hint = f"write Chain([{interceptors.__name__}(...)])"
    else:
        hint = f"write Chain([{found}(...)])"
    raise ConfigError(f"expected a list of interceptors, found {found}; {hint}", path="chain")


def _require_instance(interceptor: object) -> None:
    if isinstance(interceptor, type):
        name = interceptor.__name__
        raise PluginError(f"expected an interceptor, found the class {name}; write {name}(...)")
    if isinstance(interceptor, str):
        raise PluginError("expected an interceptor, found text; write one such as Trail(service=...)")


def _from_home(interceptor: object) -> object:
    """Return an interceptor whose options have absolute paths; configuration has already resolved its own."""
    if not isinstance(interceptor, Interceptor):
        return interceptor
    with below(label(interceptor)):
        return with_files(interceptor, from_home)


def _check_options(interceptor: object) -> None:
    """Check the types of options that were given in code, as for options from configuration."""
    if isinstance(interceptor, Interceptor):
        try:
            given = msgspec.structs.asdict(interceptor)
            msgspec.convert(given, type(interceptor), strict=True)
        except msgspec.ValidationError as error:
            # The cause may quote the value.
            raise refused(error, label(interceptor), type(interceptor), given) from None


def _unique_names(interceptors: tuple[object, ...]) -> tuple[str, ...]:
    """Return the names; interceptors of one type that have no name of their own are numbered."""
    given = [name for item in interceptors if (name := getattr(item, "name", None))]
    doubled = next((name for name in given if given.count(name) > 1), None)
    if doubled is not None:
        raise ConfigError(f"two interceptors are named {doubled!r}; names are unique in a chain")
    names: list[str] = []
    for interceptor in interceptors:
        word, name, number = label(interceptor), label(interceptor), 1
        while name in names or (name in given and not getattr(interceptor, "name", None)):
            number += 1
            name = f"{word}-{number}"
        names.append(name)
    return tuple(names)
