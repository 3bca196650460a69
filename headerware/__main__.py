"""``python -m headerware`` is the ``headerware`` command."""

from headerware.cli import main

main()
