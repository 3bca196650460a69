"""Retention by header: which records have outlived their time, and how Kafka lets them be removed."""
