"""The ``headerware`` command: thin, over library calls."""

from headerware.cli.main import main

__all__ = ["main"]
