"""Avro with the schema in headers, or framed as Confluent does."""

from headerware.serdes.avro.serde import Avro, OpenedAvro

__all__ = ["Avro", "OpenedAvro"]
