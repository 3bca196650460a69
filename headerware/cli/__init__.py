"""The ``headerware`` command: thin, over library calls.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.cli.main import main

__all__ = ["main"]
