"""Fields of keys and values: named, found, read, changed and made, for all transforms alike."""
