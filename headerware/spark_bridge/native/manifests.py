"""Manifests: which objects a micro-batch reads, so that a batch that is repeated reads the same rows.

    RUN/source                   the name of the source
    RUN/manifests/BATCH          the objects of a batch, with their versions
    RUN/ends/BATCH/DIGEST        how far a growing object was read in the batch; its task writes this
    RUN/snapshots/BATCH          how far every object was read, up to this batch

Spark's offset names the run and the batch. A query with a new checkpoint begins a new run, so that several
queries may share a folder. A manifest is written once, before Spark has the offset. If a manifest exists
already, because a process ended before Spark had the offset or still runs, the batch has that manifest.
Later, a manifest only loses objects that are gone or have changed when their batch is repeated.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec
from pyarrow import fs

from headerware.core.atomic_files import created_file, replace_file
from headerware.core.errors import ConfigError, SourceError
from headerware.sources.offsets import OffsetEntry, OffsetKey

_log: Final = logging.getLogger("headerware.sources")
KEPT_BATCHES: Final = 100
"""How many batches can be repeated, the latest ones: as many as Spark keeps in its checkpoint."""


_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
"""The errors of file systems without hard links, such as mounted object stores."""
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/]*:[^/]*@")
_HADOOPS_S3: Final = re.compile(r"^s3[an]:")


class ManifestFolder:
    """Small files in a folder: of a file system that all nodes share, or of an object store.

    It is pickled for tasks, and connects where it is first used. ``pyarrow.fs`` reaches the file systems.

    Args:
        location: a path, or an address such as ``s3://bucket/path``, ``gs://``, ``abfs://``, ``hdfs://``.

    Raises:
        ConfigError: there is no file system for such an address.
    """

    def __init__(self, location: str) -> None:
        self.location: Final = location
        self.shown: Final = _CREDENTIALS.sub("", location.partition("?")[0])
        """The location in error messages, without credentials."""
        self._files: fs.FileSystem | None = None
        if not _ADDRESS.match(location):
            self._root = os.path.abspath(location)  # noqa: PTH100 - options are plain text
            return
        try:
            self._files, self._root = fs.FileSystem.from_uri(_HADOOPS_S3.sub("s3:", location))
        except (ValueError, OSError, NotImplementedError):  # whose text quotes the address
            raise ConfigError(
                f"pyarrow.fs reaches no folder at {self.shown}; name a path that all nodes share, or an "
                "address such as s3://, gs://, abfs:// or hdfs://",
                path="manifestLocation",
            ) from None

    @property
    def is_exclusive(self) -> bool:
        """Whether of two processes that write a file once, only one can write it."""
        return self._files is None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the absolute location, because a relative path leads elsewhere in another process."""
        return ManifestFolder, (self._root if self._files is None else self.location,)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none."""
        try:
            if self._files is None:
                return self._path(name).read_bytes()
            with self._files.open_input_stream(self._at(name)) as stream:
                return bytes(stream.readall())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure("read", name, error) from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file completely or not at all; replace an existing file."""
        try:
            if self._files is None:
                path = self._path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, content, new_mode=0o644)
                return
            temporary = f"{self._at(name)}.{secrets.token_hex(8)}.tmp"
            self._files.create_dir(temporary.rpartition("/")[0], recursive=True)
            with self._files.open_output_stream(temporary) as stream:
                stream.write(content)
            self._files.move(temporary, self._at(name))
        except OSError as error:
            raise self._failure("write", name, error) from error

    def write_once(self, name: str, content: bytes) -> bytes:
        """Write a file unless it exists, and return the content of the file."""
        found = self.read(name)
        if found is not None:
            return found
        if self._files is not None:
            self.write(name, content)  # pyarrow cannot write on the condition that no file exists
            return self.read(name) or b""
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with created_file(path) as temporary:
                temporary.write_bytes(content)
        except FileExistsError:
            return self.read(name) or b""
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise self._failure("write", name, error) from error
            self.write(name, content)
        return content

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order, without hidden files and unfinished ones."""
        try:
            if self._files is None:
                found = [each.name for each in self._path(folder).iterdir()]
            else:
                chosen = fs.FileSelector(self._at(folder), allow_not_found=True)
                found = [each.base_name for each in self._files.get_file_info(chosen)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failure("list", folder, error) from error
        return sorted(name for name in found if not (name.startswith(".") or name.endswith(".tmp")))

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with what is in it, if it is there."""
        try:
            files = fs.LocalFileSystem() if self._files is None else self._files
            kind = files.get_file_info(self._at(name)).type
            if kind == fs.FileType.Directory:
                files.delete_dir(self._at(name))
            elif kind == fs.FileType.File:
                files.delete_file(self._at(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failure("delete", name, error) from error

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _path(self, name: str) -> Path:
        return Path(self._at(name))

    def _failure(self, verb: str, name: str, error: OSError) -> SourceError:
        return SourceError(f"cannot {verb} {name} in {self.shown}: {error.strerror or error}")


class PlannedObject(msgspec.Struct, frozen=True, array_like=True):
    """One object of a batch.

    Args:
        key: the name of its offset, encoded.
        version: its version when it was listed.
        grows: whether more may come at its end, so that the task says where it ended.
        skip: how many of its records were read before.
        properties: the properties of the offset after these records.
    """

    key: bytes
    version: str | None
    grows: bool = False
    skip: int = 0
    properties: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """A short text for the key, as the name of a file."""
        return hashlib.sha256(self.key).hexdigest()[:32]


class Manifest(msgspec.Struct, frozen=True):
    """The objects of a batch, in the order of listing, and the size of the parts of large ones."""

    split_bytes: int
    objects: list[PlannedObject]


class _End(msgspec.Struct, frozen=True):
    key: bytes
    entry: bytes


class _Snapshot(msgspec.Struct, frozen=True):
    entries: dict[bytes, bytes]


class Manifests:
    """The manifests of a run, and how far each object was read; one driver writes, one batch at a time.

    Memory holds some 200 bytes for each object that was ever read.
    """

    def __init__(self, folder: ManifestFolder, source: str, run: str | None = None) -> None:
        self._folder: Final = folder
        self._source: Final = source
        self.run: Final = run or secrets.token_hex(8)
        self.batch: int = 0
        """The last batch that was planned; 0 is none."""
        self._entries: dict[bytes, bytes] = {}
        self._growing: set[bytes] = set()
        """The objects of the last batch whose ends are not among the entries as yet."""

    def entry(self, key: OffsetKey) -> OffsetEntry | None:
        """Return how far an object was read, or None."""
        found = self._entries.get(key.encoded)
        return None if found is None else OffsetEntry.from_bytes(found)

    def begin(self) -> None:
        """Begin a run, once a file has shown that they can be written there."""
        self._folder.write(f"{self.run}.tmp", b"")
        self._folder.delete(f"{self.run}.tmp")

    def restore(self, batch: int) -> None:
        """Go back to a batch, and forget what was planned after it.

        Raises:
            SourceError: the run or a manifest is missing, or it is the run of another source.
        """
        source = self._folder.read(f"{self.run}/source")
        if source is None:
            raise SourceError(
                f"there is no {self.run} in {self._folder.shown}, with the manifests of this query; name the "
                "manifestLocation that it began with, or begin with a new checkpoint"
            )
        if source != self._source.encode():
            other = source.decode(errors="replace")
            raise SourceError(
                f"the checkpoint belongs to source {other!r}, and this is source {self._source!r}; give each "
                "source a checkpoint of its own"
            )
        self._load(batch)

    def take_ends(self) -> None:
        """Take over how far the growing objects of the last batch were read, once it is done."""
        if not self._growing:
            return
        folder = f"{self.run}/ends/{_named(self.batch)}"
        for name in self._folder.names(folder):
            end = _decoded(self._folder.read(f"{folder}/{name}") or b"", _End, f"{folder}/{name}")
            self._entries[end.key] = end.entry
            self._growing.discard(end.key)
        if self._growing:
            _log.warning(
                "%d of the objects of batch %d have no end in %s, and are read again; all tasks must run, "
                "and write to that folder",
                len(self._growing),
                self.batch,
                self._folder.shown,
            )
        self._growing = set()

    def plan(self, manifest: Manifest) -> Manifest:
        """Keep the manifest of the next batch, unless there is one; return the one that is kept."""
        batch = self.batch + 1
        if batch == 1:
            self._folder.write(f"{self.run}/source", self._source.encode())
        name, content = self._name(batch), msgspec.msgpack.encode(manifest)
        kept = self._folder.write_once(name, content)
        if kept != content:
            _log.warning(
                "batch %d was planned by a process that ended before Spark had it, or still runs; it is read "
                "as planned there",
                batch,
            )
            manifest = _decoded(kept, Manifest, name)
        self._apply(batch, manifest)
        return manifest

    def manifest(self, batch: int) -> Manifest:
        """Return the manifest of a batch.

        Raises:
            SourceError: it is missing.
        """
        name = self._name(batch)
        content = self._folder.read(name)
        if content is None:
            raise SourceError(
                f"there is no {name} in {self._folder.shown}, by which batch {batch} can be repeated; "
                "restore it, or begin with a new checkpoint"
            )
        found: Manifest = _decoded(content, Manifest, name)
        return found

    def leave_out(self, batch: int, keys: Collection[bytes]) -> None:
        """Take objects out of a batch that is repeated without them, as if they had never been in it."""
        manifest = self.manifest(batch)
        left = [planned for planned in manifest.objects if planned.key not in keys]
        left_over = msgspec.structs.replace(manifest, objects=left)
        self._folder.write(self._name(batch), msgspec.msgpack.encode(left_over))
        self._load(self.batch)

    def clean(self, batch: int) -> None:
        """Make one snapshot of manifests that Spark no longer asks for, when there are enough of them."""
        old = batch - KEPT_BATCHES
        if batch % KEPT_BATCHES or old <= 0:
            return
        earlier = Manifests(self._folder, self._source, self.run)
        earlier._load(old)
        earlier.take_ends()
        content = msgspec.msgpack.encode(_Snapshot(earlier._entries))
        self._folder.write(f"{self.run}/snapshots/{_named(old)}", content)
        for kind, least in (("snapshots", old), ("manifests", old + 1), ("ends", old + 1)):
            for name in self._folder.names(f"{self.run}/{kind}"):
                if int(name) < least:
                    self._folder.delete(f"{self.run}/{kind}/{name}")

    def end_name(self, batch: int, planned: PlannedObject) -> str:
        """Return the name of the file that says how far a growing object was read in a batch."""
        return f"{self.run}/ends/{_named(batch)}/{planned.digest}"

    def _name(self, batch: int) -> str:
        return f"{self.run}/manifests/{_named(batch)}"

    def _load(self, batch: int) -> None:
        self.batch, self._entries, self._growing = 0, {}, set()
        snapshots = self._folder.names(f"{self.run}/snapshots")
        if snapshots:
            first = int(snapshots[-1])
            if first > batch:
                raise SourceError(
                    f"batch {batch} can no longer be repeated: {self._folder.shown} begins after "
                    f"batch {first}"
                )
            name = f"{self.run}/snapshots/{snapshots[-1]}"
            self._entries = _decoded(self._folder.read(name) or b"", _Snapshot, name).entries
            self.batch = first
        for number in range(self.batch + 1, batch + 1):
            self.take_ends()
            self._apply(number, self.manifest(number))

    def _apply(self, batch: int, manifest: Manifest) -> None:
        self.batch = batch
        for planned in manifest.objects:
            entry = OffsetEntry(
                record_number=planned.skip,
                complete=not planned.grows,
                version=planned.version,
                properties=planned.properties,
            )
            self._entries[planned.key] = entry.to_bytes()
            if planned.grows:
                self._growing.add(planned.key)


def end_of(content: bytes) -> OffsetEntry:
    """Return how far a growing object was read, as its task has written it."""
    return OffsetEntry.from_bytes(_decoded(content, _End, "the end of an object").entry)


def end_bytes(key: OffsetKey, entry: OffsetEntry) -> bytes:
    """Return the content of the file that says how far a growing object was read."""
    return msgspec.msgpack.encode(_End(key.encoded, entry.to_bytes()))


def _named(batch: int) -> str:
    return f"{batch:012d}"


def _decoded(content: bytes, kind: Any, name: str) -> Any:
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SourceError(f"{name} is damaged; restore it") from error
