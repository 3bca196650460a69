"""The fields of keys and values, for all transforms: names, paths, and changes of structs and dicts."""
