"""The snapshot file with which a table goes on while the brokers are out of reach.

    0      1                9          11       11+n      15+n
    +------+----------------+----------+--------+---------+---------+--------------------+
    | 0x01 | complete at ms | n        | topic  | rows    | rows... | SHA-256 of all     |
    |      | 8 bytes        | 2 bytes  | n, UTF-8 | 4 bytes |         | before it, 32 bytes |
    +------+----------------+----------+--------+---------+---------+--------------------+

    row: offset, 8 bytes | key's length, 4 | key | value's length, 4 | value; by rising offsets

A file that is corrupt or of another topic is ignored, and the topic is read again. The file is written from
time to time while the table changes, and when the table is closed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.atomic_files import replace_file
from headerware.core.errors import WireFormatError
from headerware.core.plain_files import read_plain
from headerware.topic_table.rows import TableRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headerware.topic_table.rows import TableState

VERSION: Final = 1

_log = logging.getLogger("headerware.topic_table")

_HEAD: Final = struct.Struct(">BQH")
_COUNT: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">Q")
_LENGTH: Final = struct.Struct(">I")
_DIGEST_BYTES: Final = 32
_MAX_BYTES: Final = 1 << 30
_CHANGED_S: Final = 30.0
_UNCHANGED_S: Final = 3600.0
"""An unchanged table is saved as well: if its process is killed, it must not look older than it is."""


class Snapshot(NamedTuple):
    """A table at a point in time, in ms since the epoch, with the record of each row by rising offsets."""

    topic: str
    complete_ms: int
    records: Sequence[TableRecord]


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Write a snapshot, without records that have no key or no value."""
    rows = [
        (offset, key, value)
        for offset, key, value in snapshot.records
        if key is not None and value is not None
    ]
    topic = snapshot.topic.encode()
    parts = [_HEAD.pack(VERSION, snapshot.complete_ms, len(topic)), topic, _COUNT.pack(len(rows))]
    for offset, key, value in rows:
        parts += (_OFFSET.pack(offset), _LENGTH.pack(len(key)), key, _LENGTH.pack(len(value)), value)
    body = b"".join(parts)
    return body + hashlib.sha256(body).digest()


def decode_snapshot(data: bytes) -> Snapshot:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise WireFormatError("the snapshot's checksum is wrong: the file is cut off or was changed")
    try:
        return _decoded(_Cursor(body))
    except (struct.error, UnicodeDecodeError) as error:
        raise WireFormatError(f"the snapshot does not follow its layout: {error}") from error


def read_snapshot(path: str | os.PathLike[str], topic: str) -> Snapshot | None:
    """Read a topic's snapshot file; return None if there is none that can be used.

    A file is ignored with a warning if it cannot be read, is corrupt, belongs to another topic, or can be
    written by others.
    """
    try:
        snapshot = decode_snapshot(_own(path))
    except FileNotFoundError:
        return None
    except (OSError, WireFormatError) as error:
        _log.warning("snapshot %s is ignored, and topic %s is read again: %s", path, topic, error)
        return None
    if snapshot.topic != topic:
        _log.warning("snapshot %s is ignored: it is of topic %s, not %s", path, snapshot.topic, topic)
        return None
    return snapshot


def _own(path: str | os.PathLike[str]) -> bytes:
    """Read a file; refuse one that others can write, because that would bypass the topic's access rules."""
    data, status = read_plain(path, _MAX_BYTES)
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        raise WireFormatError("others than this process's user and root can write it")
    return data


def write_snapshot(path: str | os.PathLike[str], snapshot: Snapshot) -> None:
    """Write a complete snapshot file, readable by its owner only, even if several processes write it."""
    target = Path(path)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(target, encode_snapshot(snapshot), mode=0o600)


class _Cursor:
    """Read one field after another; a length beyond the end raises struct.error before any allocation."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        found: tuple[int, ...] = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def bytes(self, length: int) -> bytes:
        if length > self.left:
            raise struct.error(f"expected a field of {length} bytes, found {self.left}")
        self._at += length
        return self._data[self._at - length : self._at]

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def _decoded(cursor: _Cursor) -> Snapshot:
    version, complete_ms, length = cursor.fields(_HEAD)
    if version != VERSION:
        raise WireFormatError(f"the snapshot is of version {version}, expected {VERSION}")
    topic = cursor.bytes(length).decode()
    records = [_record(cursor) for _ in range(cursor.fields(_COUNT)[0])]
    if cursor.left:
        raise WireFormatError(f"the snapshot has {cursor.left} bytes too many")
    return Snapshot(topic, complete_ms, records)


def _record(cursor: _Cursor) -> TableRecord:
    offset, length = *cursor.fields(_OFFSET), *cursor.fields(_LENGTH)
    key = cursor.bytes(length)
    return TableRecord(offset, key, cursor.bytes(*cursor.fields(_LENGTH)))


class SnapshotFile:
    """Keep a table's snapshot file; safe for use by several threads."""

    def __init__(self, path: str | os.PathLike[str] | None, topic: str) -> None:
        self._path = path
        self._topic = topic
        self._lock = Lock()
        self._saved_at = -_UNCHANGED_S
        self._warned = False

    def load(self) -> Snapshot | None:
        """Read the snapshot, or return None if there is none that can be used."""
        return None if self._path is None else read_snapshot(self._path, self._topic)

    def save_if_due(self, state: TableState[Any]) -> None:
        """Write the snapshot if the rows have changed for a while, or nothing was written for long."""
        age_s = time.monotonic() - self._saved_at
        if age_s >= (_CHANGED_S if state.changed else _UNCHANGED_S):
            self.save(state)

    def save(self, state: TableState[Any]) -> None:
        """Write the snapshot; a failure is only logged, and only once, because the table works without it."""
        if self._path is None or not state.is_complete:
            return
        with self._lock:
            with state.moved:
                snapshot = Snapshot(self._topic, state.complete_ms or 0, state.rows.records())
                state.changed = False
            self._saved_at = time.monotonic()
            try:
                write_snapshot(self._path, snapshot)
            except OSError as error:
                if not self._warned:
                    _log.warning("snapshot %s cannot be written: %s", self._path, error.strerror or error)
                self._warned = True
