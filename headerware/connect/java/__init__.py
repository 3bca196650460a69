"""Regular expressions, dates and numbers as Java reads and writes them, for configuration and values."""
