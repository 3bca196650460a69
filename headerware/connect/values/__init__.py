"""Connect's values: read from text, inferred, converted to one another (KIP-145)."""
