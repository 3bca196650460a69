"""The shared parts of all code that speaks with Kafka: settings, errors, an admin client, and readers.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""
