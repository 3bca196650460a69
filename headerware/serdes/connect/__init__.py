"""Connect's converters as a serde."""
