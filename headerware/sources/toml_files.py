"""The TOML files of sources: one for each source, and ``kafka.toml`` for shared settings of a folder.

sources/kafka.toml      [kafka] alone: brokers, a chain, and other settings of all producers
sources/orders.toml     a source; each setting in its own [kafka] overrides the shared setting
sources/clicks.toml     another source
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from headerware.core.config import FILE
from headerware.core.errors import ConfigError
from headerware.core.files import read_text
from headerware.core.plain_files import require_path
from headerware.core.toml import read_toml
from headerware.kafka.settings import dotted

SHARED: Final = "kafka.toml"
"""The name of the file with the settings that the sources of a folder share."""


def source_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a folder's sources, sorted by name; or the file itself.

    Raises:
        ConfigError: the folder has no file of a source.
    """
    require_path(path)
    given = Path(path)
    if not given.is_dir():
        return [given]
    found = sorted(each for each in given.glob("*.toml") if each.name != SHARED and each.is_file())
    if not found:
        raise ConfigError(
            f"expected a file NAME.toml for each source in this folder, found none except {SHARED}",
            path=str(path),
        )
    return found


def read_source_file(path: str | os.PathLike[str], texts: dict[str, str]) -> dict[str, Any]:
    """Return the table of a source's file, with the settings of ``[kafka]`` under their dotted names.

    Args:
        path: the file.
        texts: gets the texts of the files, for the lines of errors.

    Raises:
        ConfigError: the file or ``kafka.toml`` cannot be read.
    """
    require_path(path)
    file = Path(path)
    table = read_toml(file, read_text, texts)
    shared = _shared(file.with_name(SHARED), texts)
    own = table.get("kafka", {})
    if not isinstance(own, dict):
        raise ConfigError(f"expected a table, found {type(own).__name__}", path=f"{file}: kafka")
    kafka = {**shared, **dotted(own)}
    if isinstance(kafka.get(FILE), str):
        require_path(kafka[FILE], f"{file}: kafka.{FILE}")
        kafka[FILE] = str(file.parent / kafka[FILE])
    return {**table, "kafka": kafka}


def _shared(file: Path, texts: dict[str, str]) -> dict[str, Any]:
    if not file.exists():
        return {}
    table = read_toml(file, read_text, texts)
    kafka = table.pop("kafka", None)
    if table or not isinstance(kafka, dict):
        found = ", ".join(sorted(table)) or "none"
        raise ConfigError(
            f"expected only the table [kafka], which the sources of this folder share; also found: {found}",
            path=str(file),
        )
    return dotted(kafka)
