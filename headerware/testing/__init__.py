"""Fixtures for tests, benches and demos: an embedded cluster, a real broker, Java's own console tools.

Loaded lazily, so that ``python -m headerware.testing.broker`` runs its module once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import MissingPartError
from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.testing.broker import KafkaBroker
    from headerware.testing.embedded import EmbeddedCluster
    from headerware.testing.errors import BrokerError
    from headerware.testing.java_tools import JavaTools

__all__ = ["BrokerError", "EmbeddedCluster", "JavaTools", "KafkaBroker", "MissingPartError"]

_HOMES: Final = {
    "BrokerError": "errors",
    "EmbeddedCluster": "embedded",
    "JavaTools": "java_tools",
    "KafkaBroker": "broker",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return sorted(__all__)
