"""Fixtures for tests, benches and demos: an embedded cluster, a real broker, Java's own console tools.

Loaded lazily, so that ``python -m headerware.testing.broker`` runs its module once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headerware.testing.broker import KafkaBroker
    from headerware.testing.embedded import EmbeddedCluster
    from headerware.testing.errors import BrokerError, MissingPartError
    from headerware.testing.java_tools import JavaTools

__all__ = ["BrokerError", "EmbeddedCluster", "JavaTools", "KafkaBroker", "MissingPartError"]

_HOMES = {
    "BrokerError": "errors",
    "EmbeddedCluster": "embedded",
    "JavaTools": "java_tools",
    "KafkaBroker": "broker",
    "MissingPartError": "errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
