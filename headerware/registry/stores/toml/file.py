"""A registry in a TOML file: for a git repository, where changes are reviewed before they count."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headerware.core.errors import RegistryError
from headerware.core.plain_files import read_plain
from headerware.registry.rules import Problem
from headerware.registry.stores.store import Store, no_such_file, own_part, require_sound
from headerware.registry.stores.toml.text import Reading, changed_text, read_registry, registry_text
from headerware.registry.stores.whole_files import created_file, locked, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.registry.changes import Change
    from headerware.registry.registry import Registry

_MAX_BYTES: Final = 64 << 20


class TomlStore(Store):
    """A registry in a TOML file.

    It is read anew each time. A change holds the file against other writers, checks it, and puts a new file
    in its place, so that no reader sees half of one and no writer loses another's change. Safe for use by
    several threads and processes.

    Args:
        path: the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    @classmethod
    def create(cls, path: str | os.PathLike[str], registry: Registry) -> TomlStore:
        """Write a registry to a new file.

        Args:
            path: the file.
            registry: what it is to hold; what comes with Headerware is left out.

        Raises:
            RegistryError: the registry has problems, the file exists, or it cannot be written.
        """
        store, text = cls(path), registry_text(own_part(registry))
        with store._file_errors(), created_file(Path(path)) as temporary:
            temporary.write_bytes(text.encode())
        return store

    def load(self) -> Registry:
        """Read the file and check it.

        Raises:
            RegistryError: it cannot be read or breaks rules, which are all told, with their lines.
        """
        return _sound(self._read(self._path))

    def problems(self) -> list[Problem]:
        """Return all that is wrong with the file, each with its line.

        Raises:
            RegistryError: it cannot be read.
        """
        return self._read(self._path).problems

    def apply(self, change: Change) -> Registry:
        """Write a change into the file; only the lines of its own table change.

        Raises:
            RegistryError: the change is refused, or the file cannot be read or written.
        """
        with self._file_errors(), locked(self._path) as target:
            text = self._text(target)
            after = _sound(read_registry(text, str(self._path))).apply(change)
            changed = changed_text(text, change)
            if read_registry(changed, str(self._path)) != Reading(after, []):
                raise RegistryError(
                    f"{self._path}: {change!r} cannot be written between what people wrote; "
                    "lay the tables out plainly, one [[block]] or [[entry]] after the other"
                )
            replace_file(target, changed.encode())
        return after

    def close(self) -> None:
        """Do nothing: the file is open only while it is read or written."""

    def _read(self, path: Path) -> Reading:
        with self._file_errors():
            return read_registry(self._text(path), str(self._path))

    def _text(self, path: Path) -> str:
        try:
            return read_plain(path, _MAX_BYTES)[0].decode()
        except UnicodeDecodeError as error:
            raise RegistryError(
                f"{self._path}: expected UTF-8, as TOML is; byte {error.start} is none"
            ) from None

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise RegistryError(f"{self._path}: the file exists, and is not overwritten") from None
        except FileNotFoundError:
            raise no_such_file(self._path) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise RegistryError(f"{self._path}: {reason}") from error


def _sound(reading: Reading) -> Registry:
    require_sound(reading.problems)
    return reading.registry
