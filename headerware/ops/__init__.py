"""Commands and workers that read, check, copy and clean topics by their records' headers.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""
