"""The command that installs Headerware or an optional part of it, for errors about what is missing.

``cli/bootstrap`` runs this file alone, with any Python, if Headerware is not installed.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install_command(extra: str | None = None) -> str:
    """Return the command that adds Headerware, with an extra if one is named, to the running Python.

    The command names the clone if this Headerware runs in a clone or was installed from one; else it names
    the distribution, which pip looks up on the package index. A clone has the extra ``native`` as sources.
    """
    *options, source = _source()
    if extra == "native" and (crate := Path(source) / "native" / "headerware-native").is_dir():
        return shlex.join([sys.executable or "python", "-m", "pip", "install", str(crate)])
    part = "" if extra is None else f"[{extra}]"
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *options, f"{source}{part}"])


def _source() -> list[str]:
    """Return the arguments of pip that name this Headerware, the requirement last."""
    from importlib.metadata import distributions  # noqa: PLC0415 - slow to import

    root, options = Path(__file__).parents[2], ["--editable"]
    for installed in distributions(name="headerware", path=[str(root)]):
        # pip writes direct_url.json unless the distribution came from an index (PEP 610).
        origin = json.loads(installed.read_text("direct_url.json") or "{}")
        if "dir_info" not in origin:
            return ["headerware"]
        root, options = Path(unquote(urlsplit(origin["url"]).path)), []
    return [*options, str(root)] if (root / "pyproject.toml").is_file() else ["headerware"]
