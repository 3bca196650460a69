"""Frames of the Kafka connector: their schema, their rows as records, and objects as typed columns."""
