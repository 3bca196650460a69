"""Commands and workers that read, check, copy and clean topics by their records' headers."""
