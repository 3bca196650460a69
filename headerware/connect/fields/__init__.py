"""Fields of keys and values, for all transforms: their names and paths, and rewriting structs along them."""
