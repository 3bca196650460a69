"""Headers as metadata for Kafka: interceptor chains around every produce and every consume.

Importing the package loads nothing heavy; confluent_kafka is imported when a client is first named.
The names of this package and of ``headerware.testing`` are stable, others provisional (docs/stability.md).
"""

from __future__ import annotations

import importlib
from typing import Any

from headerware import _wiring  # noqa: F401 - it completes the core
from headerware.core.lazy import lazy
from headerware.core.suggestions import did_you_mean

__version__ = "0.1.0"

_load, _, __all__ = lazy(__name__)

_PACKAGES = ("interceptors", "serdes", "keyring", "connect", "registry", "sources", "testing", "spark_bridge")
"""The packages that have public names of their own."""
_OF_CONFLUENT = {"AIOProducer": "AsyncProducer", "AIOConsumer": "AsyncConsumer"}
"""What is called otherwise in confluent-kafka."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used; the error for a name of another package names its home."""
    if name in __all__:
        return _load(name)
    if name[:1].isupper():
        for package in _PACKAGES:
            home = f"{__name__}.{package}"
            if name in importlib.import_module(home).__all__:
                # `from headerware import ...` would not show the text of an AttributeError.
                raise ImportError(f"{name} is not in headerware itself; write: from {home} import {name}")
    if ours := _OF_CONFLUENT.get(name):
        raise ImportError(f"confluent-kafka's {name} is {ours} here; write: from {__name__} import {ours}")
    found = f"module {__name__!r} has no attribute {name!r}{did_you_mean(name, __all__)}"
    raise AttributeError(found, name=None)  # or Python adds a suggestion of its own


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
