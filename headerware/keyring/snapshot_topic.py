"""Snapshots of keyrings in a compacted topic, and a file that is kept up to date with one of them.

The topic has a row for each snapshot: the row's key is the snapshot's name, its value the snapshot's JSON.
Nobody has to trust the topic: a snapshot that the root did not sign, that is older than the last one, or that
has expired never reaches the file. A writer of the topic can keep new snapshots from followers; they notice
this when their last snapshot expires.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headerware.core.errors import KeyringError
from headerware.core.plain_files import read_plain
from headerware.keyring.file import MAX_BYTES
from headerware.keyring.snapshot import Snapshot, SnapshotChecks, verify_snapshot
from headerware.keyring.writing import write_snapshot

if TYPE_CHECKING:
    import os

    from headerware.keyring.keyring import Keyring
    from headerware.topic_table import Rows, TopicTable

_log = logging.getLogger("headerware.keyring")


def publish_snapshot(
    table: TopicTable[Rows], name: str, text: bytes, roots: Keyring, *, timeout_s: float
) -> Snapshot:
    """Write a snapshot to a topic, wait until the brokers have it, and return it.

    Args:
        table: the topic.
        name: the snapshot's name, by which readers follow it.
        text: the snapshot's JSON.
        roots: the public halves of the root keys that are trusted.
        timeout_s: how long to wait for the brokers, in seconds.

    Raises:
        KeyringError: none of the roots signed it, it holds secrets, or the topic has a newer one.
        RegistryError: the brokers did not answer in time, or refused.
    """
    snapshot, keyring = verify_snapshot(text, roots)
    if keyring.is_secret:
        raise KeyringError(
            "the snapshot holds secrets, and all readers of the topic could read them: sign the keyring that "
            "headerware keys export-public makes"
        )
    table.refresh(timeout_s)
    before = table.get(name.encode())
    if before is not None:
        try:
            last = verify_snapshot(before, roots)[0].counter
        except KeyringError as error:
            _log.warning("topic %s had no valid snapshot under %r: %s", table.topic, name, error)
        else:
            if last > snapshot.counter or (last == snapshot.counter and before != text):
                raise KeyringError(
                    f"the snapshot has counter {snapshot.counter}, expected more than {last}, which topic "
                    f"{table.topic!r} has already"
                )
    table.put(name.encode(), text, timeout_s)
    return snapshot


class SnapshotFollower:
    """Write the newest snapshot of a topic to a file, which readers of keyrings follow.

    For one caller at a time.

    Args:
        table: the topic.
        name: the snapshot's name in it.
        roots: the public halves of the root keys that are trusted.
        path: the file. A snapshot that is there already counts as accepted, so that no older one replaces it.
    """

    def __init__(
        self, table: TopicTable[Rows], name: str, roots: Keyring, path: str | os.PathLike[str]
    ) -> None:
        self._table: Final = table
        self._name: Final = name
        self._path: Final = Path(path)
        self._checks: Final = SnapshotChecks(roots)
        self._seen: bytes | None = None
        if self._path.exists():
            self._seen = read_plain(self._path, MAX_BYTES, follow=False)[0]
            self._checks.remember(self._seen, source=str(self._path))

    def trust(self, roots: Keyring) -> None:
        """Trust these roots from now on, and no others; raise KeyringError if one has its private half."""
        self._checks.trust(roots)

    def look(self, now_ms: int) -> Snapshot | None:
        """Write the file and return the snapshot if the topic has a newer one; return None if not.

        Args:
            now_ms: the clock, in milliseconds since the epoch.

        Raises:
            KeyringError: the topic's value is not a snapshot, was not signed by a root, is older than the
                last snapshot, or has expired; or the file cannot be written.
        """
        text = self._table.get(self._name.encode())
        if text is None or text == self._seen:
            return None
        source = f"{self._name!r} in topic {self._table.topic!r}"
        snapshot, keyring = self._checks.accept(text, now_ms, source=source)
        write_snapshot(self._path, lambda _: snapshot, is_secret=keyring.is_secret)
        self._seen = text
        return snapshot
