"""A registry in a compacted Kafka topic, which many services follow live (spec/registry-topic.md).

How writers contend, and why compaction takes nothing away, stands in
:mod:`headerware.registry.stores.topic.ledger`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Lock
from typing import Any

from headerware.core.errors import RegistryError
from headerware.registry.changes import Change
from headerware.registry.differences import changes, diff
from headerware.registry.registry import Registry
from headerware.registry.stores.store import Store
from headerware.registry.stores.topic.changes import Found, encode_change
from headerware.registry.stores.topic.ledger import KEY_BYTES, Conflict, Ledger
from headerware.registry.stores.topic.location import TopicLocation, read_location
from headerware.registry.topic_table.clients import UnreachableError
from headerware.registry.topic_table.table import TIMEOUT_S, TopicTable


class TopicStore(Store):
    """A registry in a topic.

    While the brokers are out of reach, it gives the registry as it was last read, by this process or by
    one that left a snapshot, and refuses changes. Safe for use by several threads; a forked child opens its
    own.

    Args:
        conf: librdkafka's properties, ``bootstrap.servers`` among them.
        topic: the topic, of one partition.
        snapshot: the file for the changes as they were last read, or None for none.
        create: whether to create the topic where there is none.
        replication_factor: of a topic that is created; -1 leaves it to the brokers.
        timeout_s: how long `load` and `apply` wait for the brokers, in seconds.

    Raises:
        RegistryError: the configuration is none that librdkafka takes.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        *,
        snapshot: str | os.PathLike[str] | None = None,
        create: bool = False,
        replication_factor: int = -1,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._table = TopicTable(
            conf,
            topic,
            rows=Ledger,
            snapshot=snapshot,
            create=create,
            replication_factor=replication_factor,
        )
        self._topic = topic
        self._timeout_s = timeout_s

    @classmethod
    def from_location(cls, location: str) -> TopicStore:
        """Open the store at ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``.

        Args:
            location: with options as in :mod:`headerware.registry.stores.topic.location`; unless they name
                a snapshot, it is a file in the user's cache.

        Raises:
            RegistryError: the location is of another form, or names what is not there.
        """
        return _opened(cls, read_location(location), create=False)

    @classmethod
    def create(cls, location: str, registry: Registry) -> TopicStore:
        """Put a registry into a topic, which is created where there is none.

        A topic that holds changes already gets those that it lacks.

        Args:
            location: as for `from_location`.
            registry: what the topic is to hold.

        Raises:
            RegistryError: the topic is another registrar's, holds what the registry does not, or is out of
                reach.
        """
        store = _opened(cls, read_location(location), create=True)
        try:
            store.fill(registry)
        except BaseException:
            store.close()
            raise
        return store

    def fill(self, registry: Registry) -> None:
        """Write the changes that lead from the registry as it stands to another one.

        Raises:
            RegistryError: no changes lead there, or the brokers are out of reach.
        """
        present = self._present()
        with self._table.rows() as ledger:
            is_new = ledger.is_new
        if is_new and present.registrar != registry.registrar:
            present = self._write(Found(registry.registrar))
        wrong = [d for d in diff(present, registry) if d.kind in ("forbidden", "handed-over")]
        if wrong:
            raise RegistryError("\n".join(map(str, wrong)))
        for change in changes(present, registry):
            self.apply(change)

    def load(self) -> Registry:
        """Read the topic to its end, and give the registry; offline, as it was last read.

        Raises:
            RegistryError: the topic is out of reach and nothing is known of it, or it cannot be used.
        """
        self._table.refresh(self._timeout_s)
        with self._table.rows() as ledger:
            return ledger.registry

    def apply(self, change: Change) -> Registry:
        """Write a change, and give the registry after it once it was read back and counts.

        Raises:
            UnreachableError: the brokers are out of reach, or the change may have been written, or not.
            RegistryError: the change is refused; another writer may have been first.
        """
        self._present().apply(change)  # what is refused anyway need not stand in the topic for ever
        return self._write(change)

    def follow(self, on_change: Callable[[Registry], object]) -> None:
        """Follow the topic in the background until `close`.

        Args:
            on_change: called with the registry whenever it has changed, from a thread of the store's; such
                as :func:`headerware.registry.use_registry`. What it raises is logged.
        """
        with self._table.rows() as ledger:  # nothing comes between what it begins with and what it hears
            self._table.on_change(_Telling(self._table, ledger.registry, on_change))
        self._table.follow()

    @property
    def conflicts(self) -> list[Conflict]:
        """The records that changed nothing, as far as the topic was read, in its order."""
        with self._table.rows() as ledger:
            return list(ledger.conflicts)

    @property
    def stale(self) -> datetime | None:
        """Since when the registry may have changed unseen, or None where the brokers answered last time."""
        return self._table.stale

    def close(self) -> None:
        """End following, leave the brokers and save the snapshot; a second call does nothing."""
        self._table.close()

    def _present(self) -> Registry:
        if not self._table.refresh(self._timeout_s):
            raise UnreachableError(
                f"the registry in topic {self._topic!r} does not change while its brokers are out of reach "
                f"(it was last read at {self.stale:%Y-%m-%d %H:%M:%S} UTC)"
            )
        with self._table.rows() as ledger:
            return ledger.registry

    def _write(self, change: Change | Found) -> Registry:
        key = secrets.token_bytes(KEY_BYTES)
        self._table.put(key, encode_change(change), self._timeout_s)
        with self._table.rows() as ledger:
            refusal = ledger.refusal(key)
            if refusal is not None:
                raise RegistryError(f"another writer was first: {refusal}")
            return ledger.registry


class _Telling:
    """Tell of a registry when it is another one: rows also change by records that change nothing in it."""

    def __init__(
        self, table: TopicTable[Ledger], told: Registry, on_change: Callable[[Registry], object]
    ) -> None:
        self._table = table
        self._on_change = on_change
        self._told = told
        self._lock = Lock()

    def __call__(self, _key: bytes, _value: bytes | None) -> None:
        """Hear of a row."""
        with self._lock:
            with self._table.rows() as ledger:
                registry = ledger.registry
            if registry is self._told:
                return
            self._told = registry
        self._on_change(registry)


def _opened(cls: type[TopicStore], location: TopicLocation, *, create: bool) -> TopicStore:
    return cls(location.conf, location.topic, snapshot=location.snapshot, create=create)
