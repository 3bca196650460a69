"""The command that installs an optional part, for errors about a missing one."""

from __future__ import annotations

import sys
from pathlib import Path


def install_command(extra: str) -> str:
    """Return the command that adds an extra of Headerware to the running Python.

    In a clone it is the whole command; elsewhere it must be run in a clone, for no package index has
    Headerware.
    """
    root = Path(__file__).parents[2]
    pip = f"{sys.executable or 'python'} -m pip install"
    if (root / "pyproject.toml").is_file():
        return f"{pip} --editable '{root}[{extra}]'"
    return f"in a clone of Headerware, {pip} '.[{extra}]'"
