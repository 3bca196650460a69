"""Content types: how they are written, what they mean, and the headers that state them."""
