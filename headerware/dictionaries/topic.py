"""A compacted topic as a store of dictionaries: clients follow it, so a new dictionary is used at once.

    key                              value
    dictionary/<id>                  the dictionary
    use/<topic>                      JSON: the use, with its versions
    use/<topic>/<content type>

Users who may write to the topic may write anything. So a dictionary whose bytes do not fit its id is no row,
and neither is a use whose number falls; rows beyond a total size are left out. Writers use the dictionary
that the topic names, so they trust the topic: ``trusted_dictionaries`` of ``compress`` limits this trust.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Annotated, Any, ClassVar, Final
from weakref import WeakSet

import msgspec

from headerware.core.errors import DictionaryError, KeptError, WireFormatError
from headerware.core.options import PATH
from headerware.dictionaries.dictionary import (
    DICTIONARY_PREFIX,
    USE_PREFIX,
    Dictionary,
    Use,
    decode_use,
    dictionary_key,
    encode_use,
    is_dictionary,
    use_key,
)
from headerware.dictionaries.store import Dictionaries
from headerware.kafka.settings import dotted
from headerware.topic_table.rows import Rows, TableRecord
from headerware.topic_table.table import TIMEOUT_S, TopicTable, errors_as

MAX_TOTAL_BYTES: Final = 64 << 20
"""How many bytes of dictionaries and uses are kept in memory; beyond it new rows are left out."""
_START_S: Final = 2.0
"""How long a new client waits for the topic at most; it goes on without it, and uses it when it is read."""
_ASK_AGAIN_S: Final = 1.0
"""How long to wait before the topic is read to its end again for an unknown dictionary."""

_log = logging.getLogger("headerware.dictionaries")


class TopicDictionaries(Dictionaries, frozen=True, kw_only=True):
    """Keep dictionaries in a compacted topic of one partition.

    Args:
        servers: the brokers, as in ``bootstrap.servers``.
        topic: the topic.
        config: further properties of librdkafka, such as ``security.protocol``.
        snapshot: the file in which the topic is saved, for a start while the brokers are out of reach.
        create: whether to create the topic if it does not exist.
        replication_factor: of a created topic; -1 leaves it to the brokers.
        timeout_s: how long to wait for the brokers, in seconds.
    """

    type: ClassVar[str] = "topic"

    servers: str
    topic: str
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    snapshot: Annotated[str | None, PATH] = None
    create: bool = False
    replication_factor: Annotated[int, msgspec.Meta(ge=-1)] = -1
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = TIMEOUT_S

    def open(self) -> TopicDictionaryStore:
        """Return the store; the topic is read with the first request.

        Raises:
            DictionaryError: librdkafka refuses the properties.
        """
        return TopicDictionaryStore(self)


class DictionaryRows(Rows):
    """The rows that fit their keys; other records change nothing.

    A changed dictionary would not fit its id, and an older use was replaced for a reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uses: dict[bytes, Use] = {}
        self._total_bytes = 0

    def apply(self, record: TableRecord) -> bool:
        """Apply the next record, if it is sound, and return whether a row has changed."""
        key, value = record.key, record.value
        if key is None:
            return False
        before = self.get(key)
        if value is not None:
            grown = self._total_bytes + len(key) + len(value) - _size(key, before)
            if problem := self._problem(key, value, grown):
                _log.warning("a record at offset %d of the dictionaries' topic: %s", record.offset, problem)
                return False
        elif key.startswith(USE_PREFIX):
            self.uses.pop(key, None)
        changed = super().apply(record)
        self._total_bytes += _size(key, value) - _size(key, before)
        return changed

    def _problem(self, key: bytes, value: bytes, grown: int) -> str | None:
        """Return why a record is no row, or None; note a use."""
        if grown > MAX_TOTAL_BYTES:
            return f"the topic holds more than {MAX_TOTAL_BYTES:,} bytes of rows, so it is left out"
        if key.startswith(DICTIONARY_PREFIX):
            name = key.removeprefix(DICTIONARY_PREFIX).decode("utf-8", "replace")
            return None if is_dictionary(value, name) else "it is not the dictionary that its key names"
        if not key.startswith(USE_PREFIX):
            return "its key belongs neither to a dictionary nor to a use"
        try:
            use = decode_use(key, value)
        except WireFormatError as error:
            return str(error)
        known = self.uses.get(key)
        if known is not None and use.current.number < known.current.number:
            return "it would restore an earlier version of a use"
        self.uses[key] = use
        return None


def _size(key: bytes, value: bytes | None) -> int:
    return 0 if value is None else len(key) + len(value)


class TopicDictionaryStore:
    """The dictionaries of a topic; safe for use by several threads and processes at once."""

    def __init__(self, options: TopicDictionaries, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._place: Final = f"the dictionaries' topic {options.topic!r} at {options.servers}"
        self._timeout_s: Final = options.timeout_s
        self._clock: Final = clock

        def make() -> TopicTable[DictionaryRows]:
            with errors_as(DictionaryError):
                return TopicTable(
                    {**dotted(options.config), "bootstrap.servers": options.servers},
                    options.topic,
                    rows=DictionaryRows,
                    snapshot=options.snapshot,
                    create=options.create,
                    replication_factor=options.replication_factor,
                )

        self._make_table: Final = make
        self.generation: int = 0
        self._begin()
        _open_stores.add(self)

    def _begin(self) -> None:
        """Begin without a table; a forked child makes its own, because the parent's threads are not there."""
        self._asking = Lock()
        self._asked_at = float("-inf")
        self._answer: KeptError[DictionaryError] | None = None
        self._table: TopicTable[DictionaryRows] | None = None
        self.generation += 1

    def _opened(self) -> TopicTable[DictionaryRows]:
        table = self._table
        if table is None:
            table = self._table = self._make_table()
            table.on_change(self._changed)
        return table

    def _changed(self, _key: bytes, _value: bytes | None) -> None:
        self.generation += 1

    def read(self) -> None:
        """Read the topic to its end."""
        self._read(self._timeout_s)

    def _read(self, timeout_s: float) -> None:
        with self._asking:
            self._ask(timeout_s)
            failure = self._answer
        if failure is not None:
            raise failure.again()

    def start(self) -> None:
        """Read the topic, for two seconds at most, and follow it from now on, even if reading failed."""
        try:
            self._read(min(self._timeout_s, _START_S))
        finally:
            with errors_as(DictionaryError):
                self._opened().follow()

    def use(self, topic: str, content_type: str | None) -> Use | None:
        """Return the use of exactly this topic and content type, as far as the topic was read."""
        with self._rows() as rows:
            return rows.uses.get(use_key(topic, content_type))

    def known(self, dictionary_id: str) -> bytes | None:
        """Return a dictionary as far as the topic was read."""
        with self._rows() as rows:
            return rows.get(dictionary_key(dictionary_id))

    def get(self, dictionary_id: str) -> bytes | None:
        """Return a dictionary; if it is unknown, read the topic to its end, once a second at most.

        So readers need no thread that follows the topic.
        """
        found = self.known(dictionary_id)
        if found is None:
            with self._asking:
                if self._clock() - self._asked_at >= _ASK_AGAIN_S:
                    self._ask(self._timeout_s)
                failure = self._answer
            found = self.known(dictionary_id)
            if found is None and failure is not None:
                raise failure.again()
        return found

    def uses(self) -> list[Use]:
        """Return all uses as far as the topic was read."""
        with self._rows() as rows:
            return list(rows.uses.values())

    def ids(self) -> list[str]:
        """Return the ids of all dictionaries as far as the topic was read."""
        with self._rows() as rows:
            keys = [record.key or b"" for record in rows.records()]
        return [
            key.removeprefix(DICTIONARY_PREFIX).decode() for key in keys if key.startswith(DICTIONARY_PREFIX)
        ]

    def put(self, dictionary: Dictionary) -> None:
        """Write a dictionary, unless the topic has it."""
        self.read()
        if self.known(dictionary.id) is None:
            self._write(dictionary_key(dictionary.id), dictionary.content)

    def assign(self, use: Use) -> None:
        """Write a use."""
        self._write(use.key, encode_use(use))

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        table = self._table
        if table is not None:
            table.close()

    def _write(self, key: bytes, value: bytes) -> None:
        with errors_as(DictionaryError):
            self._opened().put(key, value, self._timeout_s)

    def _ask(self, timeout_s: float) -> None:
        """Read the topic to its end, and note the failure, if any."""
        self._answer = None
        try:
            with errors_as(DictionaryError):
                table = self._opened()
                complete = table.refresh(timeout_s)
        except DictionaryError as error:
            self._answer = KeptError(error)
        else:
            if not complete:
                stale = table.stale
                since = "" if stale is None else f"; it was last read at {stale:%Y-%m-%d %H:%M:%S} UTC"
                self._answer = KeptError(DictionaryError(f"{self._place} is out of reach{since}"))
        self._asked_at = self._clock()

    @contextmanager
    def _rows(self) -> Iterator[DictionaryRows]:
        with self._opened().rows() as rows:
            yield rows


_open_stores: Final[WeakSet[TopicDictionaryStore]] = WeakSet()
_of_parents: Final[list[Any]] = []
"""The tables of parents, kept: closing librdkafka's clients where their threads are not would never end."""


def _begin_in_child() -> None:
    for store in tuple(_open_stores):
        _of_parents.append(store._table)  # noqa: SLF001 - its own module
        store._begin()  # noqa: SLF001 - likewise


os.register_at_fork(after_in_child=_begin_in_child)
