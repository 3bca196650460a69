"""Connect's converters, between values and bytes (KIP-145)."""
