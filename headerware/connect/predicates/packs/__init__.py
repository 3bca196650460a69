"""Predicates beyond Kafka's own: by a field, by a header, by an expression."""
