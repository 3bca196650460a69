"""The core: records, headers, hooks, chains and their configuration. No Kafka client is imported here.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""
