"""confluent-kafka and its Schema Registry: adapters, its own serdes by name, and its framing."""
