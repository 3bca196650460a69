"""The registry of integer header ids, its stores and wire codec live here; none is written yet."""
