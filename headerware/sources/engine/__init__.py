"""The engine of the source framework: list, read, queue, resume and acknowledge, without Kafka."""
