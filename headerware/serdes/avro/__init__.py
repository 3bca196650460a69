"""Avro with the schema in headers, or framed as Confluent does; loaded when it is first used."""

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.serdes.avro.serde import Avro, OpenedAvro

__all__ = ["Avro", "OpenedAvro"]

_load: Final = lazy(__name__, {"Avro": "serde", "OpenedAvro": "serde"})


def __getattr__(name: str) -> Any:
    return _load(name)
