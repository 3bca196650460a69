"""Parts for tests, benches and demos: clusters, Java's own console tools, what plug-ins must do.

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
    from headerware.testing.key_service_conformance import KeyServiceConformance
    from headerware.testing.object_store_conformance import ObjectStoreConformance

__all__ = [
    "BrokerError",
    "EmbeddedCluster",
    "JavaTools",
    "KafkaBroker",
    "KeyServiceConformance",
    "MissingPartError",
    "ObjectStoreConformance",
]

_HOMES: Final = {
    "BrokerError": "errors",
    "EmbeddedCluster": "embedded",
    "JavaTools": "java_tools",
    "KafkaBroker": "broker",
    "KeyServiceConformance": "key_service_conformance",
    "ObjectStoreConformance": "object_store_conformance",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return sorted(__all__)
