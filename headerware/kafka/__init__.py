"""What all parts that speak with Kafka share: settings, errors, questions to a cluster, and readers."""
