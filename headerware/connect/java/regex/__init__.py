"""Java's regular expressions, as Python's ``re`` compiles them."""
