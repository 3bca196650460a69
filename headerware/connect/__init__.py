"""Kafka Connect in Python: data, headers, converters, transforms and predicates (KIP-145, KIP-66)."""
