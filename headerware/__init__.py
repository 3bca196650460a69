"""Headers as metadata for Kafka: interceptor chains around every produce and every consume.

Importing this loads nothing heavy; clients come with confluent_kafka when they are first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headerware import _wiring  # noqa: F401 - it completes the core
from headerware.core.chain import Chain, load_chain
from headerware.core.context import Context
from headerware.core.errors import (
    AdmissionError,
    ClaimError,
    CompressionError,
    ConfigError,
    DeadLetterError,
    DecryptionError,
    DelayedError,
    DictionaryError,
    ExpiredError,
    HeaderError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    KeyringError,
    MissingObjectError,
    ObjectStoreError,
    PluginError,
    ReassemblyError,
    RecordError,
    RegistryError,
    SerdeError,
    ShreddedError,
    SignatureError,
    TransformError,
    TransportHeaderError,
    UnknownSchemaError,
    WireFormatError,
)
from headerware.core.header_ids import HeaderId
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, FanOut, Interceptor, Place, Role, Stage
from headerware.core.record import Record, RecordMetadata, TimestampType, Verified
from headerware.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from headerware.clients import (
        Consumer,
        DeserializingConsumer,
        Producer,
        SerializingProducer,
        ShareConsumer,
    )
    from headerware.clients.aio import (
        AsyncConsumer,
        AsyncDeserializingConsumer,
        AsyncProducer,
        AsyncSerializingProducer,
    )
    from headerware.clients.instrumentation import instrument, uninstrument
    from headerware.clients.processing import carrying

__version__ = "0.1.0"

__all__ = [
    "DROP",
    "AdmissionError",
    "AsyncConsumer",
    "AsyncDeserializingConsumer",
    "AsyncProducer",
    "AsyncSerializingProducer",
    "Chain",
    "ClaimError",
    "CompressionError",
    "ConfigError",
    "Consumer",
    "Context",
    "DeadLetterError",
    "DecryptionError",
    "DelayedError",
    "DeserializingConsumer",
    "DictionaryError",
    "ExpiredError",
    "FanOut",
    "HeaderError",
    "HeaderId",
    "Headers",
    "HeaderwareError",
    "HeldBackError",
    "Interceptor",
    "InterceptorError",
    "KeyringError",
    "MissingObjectError",
    "ObjectStoreError",
    "Place",
    "PluginError",
    "Producer",
    "ReassemblyError",
    "Record",
    "RecordError",
    "RecordMetadata",
    "RegistryError",
    "Role",
    "SerdeError",
    "SerializingProducer",
    "ShareConsumer",
    "ShreddedError",
    "SignatureError",
    "Stage",
    "TimestampType",
    "TransformError",
    "TransportHeaderError",
    "UnknownSchemaError",
    "Verified",
    "WireFormatError",
    "carrying",
    "instrument",
    "load_chain",
    "uninstrument",
]

_CLIENTS = ("Consumer", "DeserializingConsumer", "Producer", "SerializingProducer", "ShareConsumer")
_ASYNC = ("AsyncConsumer", "AsyncDeserializingConsumer", "AsyncProducer", "AsyncSerializingProducer")
_INSTRUMENTATION = ("instrument", "uninstrument")
_LAZY = {
    **dict.fromkeys(_CLIENTS, "headerware.clients"),
    **dict.fromkeys(_ASYNC, "headerware.clients.aio"),
    **dict.fromkeys(_INSTRUMENTATION, "headerware.clients.instrumentation"),
    "carrying": "headerware.clients.processing",
}


_PACKAGES = ("interceptors", "serdes", "keyring", "connect", "registry", "sources", "testing", "spark_bridge")
"""The packages that have public names of their own."""


def __getattr__(name: str) -> Any:
    """Load a client, or what makes clients, when it is first named; say where another public name is."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name[:1].isupper():
        for package in _PACKAGES:
            home = f"{__name__}.{package}"
            if name in importlib.import_module(home).__all__:
                # Of an AttributeError, `from headerware import` would not show the text.
                raise ImportError(f"{name} is not in headerware itself; write: from {home} import {name}")
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; {did_you_mean(name, __all__)}".rstrip("; ")
    )


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
