"""The shared parts of all code that speaks with Kafka: settings, errors, an admin client, and readers."""
