"""A folder of ``.avsc`` files as a schema store: it suits a git repository, and needs no service.

A file may have any name; its schema is found by all three digests. When an unknown schema is requested, the
folder is scanned again, though no more often than the option allows; only new and changed files are read. A
file without a valid schema is skipped, with one warning.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import msgspec

from headerware.core.atomic_files import replace_file
from headerware.core.errors import HeldBackError, SerdeError, UnknownSchemaError
from headerware.core.options import PATH
from headerware.core.plain_files import read_plain, require_folder
from headerware.serdes.avro.limits import STORED
from headerware.serdes.avro.schema import DIGEST_BYTES, AvroSchema, Fingerprint, Schema
from headerware.serdes.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIX: Final = ".avsc"

_log: Final = logging.getLogger("headerware.serdes")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME: Final = 100
_Stamp = tuple[int, int]


class FolderSchemas(Store, frozen=True, kw_only=True):
    """Keep schemas in a folder of ``.avsc`` files.

    Args:
        path: the folder; a deposit creates a missing one.
        rescan_s: the least time between two scans of the folder, in seconds.
    """

    type: ClassVar[str] = "folder"

    path: Annotated[str, PATH]
    rescan_s: Annotated[float, msgspec.Meta(ge=0)] = 1.0

    def check_files(self) -> None:
        """Refuse anything but a folder; a deposit creates a missing one."""
        require_folder(self.path)

    def open(self) -> FolderStore:
        """Return the store; the folder is read with the first request."""
        return FolderStore(Path(self.path), rescan_s=self.rescan_s)


class FolderStore:
    """The schemas of a folder; safe for use by several threads and processes at once."""

    def __init__(
        self, folder: Path, *, rescan_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder: Final = folder
        self._rescan_s: Final = rescan_s
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._looked_at: float | None = None
        self._stamps: dict[Path, _Stamp] = {}
        self._files: dict[Path, AvroSchema] = {}
        self._texts: dict[Fingerprint, str] = {}

    def get(self, fingerprint: Fingerprint) -> str:
        """Return a schema's text; see :class:`SchemaStore`."""
        with self._lock:
            if fingerprint not in self._texts:
                self._look()
            text = self._texts.get(fingerprint)
        if text is None:
            raise UnknownSchemaError(
                f"no file in {self._folder} has a schema with fingerprint {fingerprint}; "
                f"put the schema there as a file that ends in {_SUFFIX}"
            )
        return text

    def put(self, schema: Schema) -> None:
        """Write a schema to a file of its own, unless a file has it; see :class:`SchemaStore`."""
        with self._lock:
            try:
                if self._folder.is_dir():
                    self._look(now=True)
                if schema.fingerprint in self._texts:
                    return
                self._folder.mkdir(parents=True, exist_ok=True)
                # Two processes may write the same schema at once.
                path = self._folder / _file_name(schema)
                replace_file(path, schema.text.encode() + b"\n", new_mode=0o666)
            except OSError as error:
                raise SerdeError(f"cannot write a schema to {self._folder}: {error.strerror}") from error
            self._look(now=True)

    def close(self) -> None:
        with self._lock:
            self._looked_at = None
            self._stamps.clear()
            self._files.clear()
            self._texts.clear()

    def _look(self, *, now: bool = False) -> None:
        """Scan the folder, unless the last scan was just done."""
        at = self._clock()
        if not now and self._looked_at is not None and at - self._looked_at < self._rescan_s:
            return
        try:
            found = {
                path: _stamp(path)
                for path in sorted(self._folder.iterdir())
                if path.suffix == _SUFFIX and not path.name.startswith(".")
            }
        except OSError as error:
            raise HeldBackError(f"cannot read the schema folder {self._folder}: {error.strerror}") from error
        self._looked_at = at
        if found != self._stamps:
            self._take_in(found)

    def _take_in(self, found: dict[Path, _Stamp]) -> None:
        files: dict[Path, AvroSchema] = {}
        for path, stamp in found.items():
            known = self._files.get(path) if self._stamps.get(path) == stamp else self._read(path)
            if known is not None:
                files[path] = known
        self._stamps, self._files = found, files
        self._texts = {
            schema.fingerprint(algorithm): schema.text
            for schema in files.values()
            for algorithm in DIGEST_BYTES
        }

    @staticmethod
    def _read(path: Path) -> AvroSchema | None:
        try:
            return AvroSchema.parsed(read_plain(path, STORED.max_schema_bytes)[0], STORED)
        except OSError as error:
            _log.warning("skipping schema file %s: %s", path, error.strerror)
        except SerdeError as error:
            detail = getattr(error, "detail", "")
            _log.warning(
                "skipping schema file %s: %s", path, f"{error.message}: {detail}" if detail else error
            )
        return None


def _stamp(path: Path) -> _Stamp:
    """Return a stamp that differs between a file's versions; a missing file and a broken link share one."""
    try:
        status = path.stat()
    except OSError:
        return (0, -1)
    return (status.st_mtime_ns, status.st_size)


def _file_name(schema: Schema) -> str:
    """Return a readable and unique name: the schema's name and its digest."""
    name = _UNSAFE.sub("_", schema.name)[-_MAX_NAME:].lstrip(".-") or "schema"
    return f"{name}-{schema.fingerprint.digest.hex()}{_SUFFIX}"
