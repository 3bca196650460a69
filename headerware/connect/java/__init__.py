"""What Java reads and writes, as Connect's configuration and values have it: patterns, dates, numbers."""
