"""Serializers and deserializers that see headers live here; none is written yet."""
