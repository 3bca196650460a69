"""The core: records, headers, hooks, chains and their configuration. No Kafka client is imported here."""
