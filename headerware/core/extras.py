"""The command that installs Headerware or an optional part of it, for errors about what is missing.

``cli/bootstrap`` runs this file alone, with any Python, if Headerware is not installed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def install_command(extra: str | None = None) -> str:
    """Return the command that adds Headerware, with an extra if one is named, to the running Python.

    In a clone the command is complete; elsewhere it must be run in a clone, because no package index has
    Headerware.
    """
    root = Path(__file__).parents[2]
    pip = f"{sys.executable or 'python'} -m pip install"
    part = "" if extra is None else f"[{extra}]"
    if (root / "pyproject.toml").is_file():
        return f"{pip} --editable '{root}{part}'"
    return f"in a clone of Headerware, {pip} '.{part}'"
