"""Work beside Kafka's brokers: accounts of traffic from headers, and looking into topics."""
