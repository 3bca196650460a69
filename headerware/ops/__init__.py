"""What Kafka's brokers have no place for, done beside them: accounts of traffic, from headers."""
