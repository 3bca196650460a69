"""The interface of registry stores, and the store of the built-in registry."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol, Self

from msgspec.structs import replace

from headerware.core.errors import RegistryError
from headerware.registry.registry import Problem, built_in, problems, with_built_in, without_built_in

if TYPE_CHECKING:
    from types import TracebackType

    from headerware.registry.registry import Registry
    from headerware.registry.values import Change


class Store(Protocol):
    """Keep a registry for several writers at once.

    If two changes exclude each other, the first one wins, and the refusal of the second names it. Every store
    is a context manager that closes itself.
    """

    @abstractmethod
    def load(self) -> Registry:
        """Return the current registry, built-in entries included.

        Raises:
            RegistryError: the registry is out of reach, or breaks rules.
        """

    @abstractmethod
    def apply(self, change: Change) -> Registry:
        """Check a change against the current registry, store it, and return the registry after it.

        A refused change leaves the store as it was.

        Args:
            change: the change and its author.

        Raises:
            RegistryError: a rule refuses the change, or the store is out of reach.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the store's resources; a second call does nothing."""

    def problems(self) -> list[Problem]:
        """Return all problems of the stored registry.

        Raises:
            RegistryError: the registry is out of reach, or too broken to be examined.
        """
        return problems(self.load())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BuiltInStore(Store):
    """Provide the built-in registry, which cannot be changed."""

    def load(self) -> Registry:
        """Return the built-in registry."""
        return built_in()

    def apply(self, change: Change) -> Registry:
        """Refuse a change.

        Raises:
            RegistryError: always.
        """
        raise RegistryError(f"the built-in registry does not change; {type(change).__name__} needs a store")

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def require_sound(found: list[Problem]) -> None:
    """Refuse a registry with problems; the error lists all, one on each line, at the place of the first."""
    if not found:
        return
    file, _, line = found[0].where.rpartition(":")
    if not line.isdigit():
        raise RegistryError("\n".join(map(str, found)))
    first = replace(found[0], where="")
    raise RegistryError("\n".join(map(str, [first, *found[1:]]))).located(file, int(line), 1)


def own_part(registry: Registry) -> Registry:
    """Return the part of a sound registry that a new store keeps: all but the built-in entries."""
    require_sound(problems(registry))
    own = without_built_in(registry)
    if with_built_in(own.blocks, own.entries, registrar=own.registrar) != registry:
        raise RegistryError("the registry lacks the built-in blocks and entries: begin with with_built_in()")
    return own
