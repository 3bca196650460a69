"""The Spark session: what the bridge needs of it, set before it starts."""
