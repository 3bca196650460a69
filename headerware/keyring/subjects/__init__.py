"""Keys of subjects, such as persons: each has a key of its own, kept in a compacted topic, and erasable."""
