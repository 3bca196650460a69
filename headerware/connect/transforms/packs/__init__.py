"""Transforms beyond Kafka's own: what users add packs for; they behave strictly in both modes."""
