"""Find objects in object stores that no record claims, and delete them.

The stores are listed first. The topics are read afterwards, up to their ends at that moment. A record that
claims a listed object was therefore either read, or not sent yet. Young objects are kept because their
records may not have been sent yet. Records of open and aborted transactions count too: an open transaction
hides the committed records after it from a consumer that reads only committed records.

Claims are compared by the object's name without the store's alias, because two aliases may name the same
store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headerware.core.chain import Chain
from headerware.core.context import Context, wall_clock_ms
from headerware.core.errors import ConfigError, HeaderwareError, WireFormatError, position
from headerware.core.headers import Headers
from headerware.core.topics import TopicPatterns, topics_of, works_on
from headerware.interceptors.built_in import HEADERS
from headerware.interceptors.claim_check import CLAIM_HEADER, ClaimCheck, decode_claim
from headerware.interceptors.header_ids import HeaderIds
from headerware.kafka.admin import Admin
from headerware.kafka.messages import is_readable, record_of
from headerware.kafka.reader import Progress, TopicReader
from headerware.object_store import ObjectStore, open_object_store
from headerware.object_store.store import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import Message

    from headerware.core.record import Record

LEAST_AGE_MS: Final = 3_600_000
"""Younger objects are not deleted: their records may still be on their way, or in an open transaction."""
_OWN_NAME: Final = re.compile(rf"[^/]+/([0-9a-f]{{32}}|{re.escape(UNFINISHED)}.*)")
_DEAD_LETTERS: Final = "{topic}.dead-letter"
_CODED: Final = frozenset(
    [name for name, word in HEADERS.encodings.items() if word == HEADERS.ids_interceptor]
    + [key for key, name in HEADERS.compact_keys.items() if name == CLAIM_HEADER]
)
"""Names of headers that may contain a claim that can be read only with a registry of header ids."""


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """An object that no record claims.

    Args:
        store: the alias of its store.
        name: its name in the store, without the store's prefix.
        size_bytes: its size.
        modified_ms: when it was stored, in milliseconds since the epoch.
    """

    store: str
    name: str
    size_bytes: int
    modified_ms: int


class OrphanReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of :func:`find_orphans`.

    Args:
        topics: the topics that were read, including dead-letter topics.
        records: how many records were read.
        objects: how many objects the topics have in the stores.
        claimed: how many of these objects a record claims.
        young: how many objects no record claims, but were stored at ``before_ms`` or later.
        foreign: how many files in the topics' folders have names that Headerware does not give; they are
            kept.
        missing: how many records from before ``before_ms`` claim an object that does not exist.
        unreadable: how many records may contain a claim that could not be read.
        unreadable_at: the position of the first unreadable record and the reason; None if all were readable.
        orphans: the objects that no record claims and that were stored before ``before_ms``, oldest first.
    """

    topics: tuple[str, ...]
    records: int
    objects: int
    claimed: int
    young: int
    foreign: int
    missing: int
    unreadable: int
    unreadable_at: str | None
    orphans: tuple[Orphan, ...]

    @property
    def size_bytes(self) -> int:
        """The total size of the orphans."""
        return sum(orphan.size_bytes for orphan in self.orphans)


class _TopicStore(NamedTuple):
    """A store, and the topic whose objects in this store are listed."""

    alias: str
    store: ObjectStore
    topic: str


def require_topics_and_stores(
    conf: Mapping[str, Any], topics: Sequence[str], chain: Chain, *, timeout_s: float = 60.0
) -> None:
    """Raise the errors that :func:`find_orphans` would raise before it reads.

    Call this before records are removed, so that a mistake in the settings does not come out afterwards.

    Raises:
        ConfigError: the chain has no ``claim_check`` for any of the topics, a topic does not exist, or a
            store cannot be opened.
        confluent_kafka.KafkaException: the cluster does not answer.
    """
    _require_checks(chain, topics)
    with _topic_stores(chain, topics):
        for topic in topics:
            TopicReader(conf, topic, group_id="headerware-claims", timeout_s=timeout_s).close()


def find_orphans(
    conf: Mapping[str, Any],
    topics: Sequence[str],
    chain: Chain,
    *,
    before_ms: int,
    timeout_s: float = 60.0,
    on_progress: Callable[[str, Progress], object] = lambda _topic, _progress: None,
) -> OrphanReport:
    """Return the objects of some topics that no record of these topics claims; delete nothing.

    Args:
        conf: the settings of a client of confluent-kafka.
        topics: the topics whose objects are listed, and all topics that have copies of their records. The
            dead-letter topics of these topics are read too.
        chain: a chain with ``claim_check``, which names the stores. Of the chain's other interceptors only
            ``header_ids`` is used.
        before_ms: only objects that were stored before this time count as orphans, in milliseconds since the
            epoch.
        timeout_s: how long the cluster may be without an answer, in seconds.
        on_progress: called with a topic and how far the topic was read.

    Raises:
        ConfigError: the chain has no ``claim_check`` for any of the topics, or a topic does not exist.
        ObjectStoreError: a store cannot be listed completely.
        HeaderwareError: a topic cannot be read to its end.
        confluent_kafka.KafkaException: likewise.
    """
    _require_checks(chain, topics)
    with ExitStack() as stack:
        listed = _Listed(stack.enter_context(_topic_stores(chain, topics)))
        claims = _Claims(listed, _Names(chain, stack), before_ms)
        read = tuple(dict.fromkeys([*topics, *_dead_letter_topics(conf, topics, chain, timeout_s)]))
        for topic in read:
            # An open transaction hides the committed records after it from read_committed consumers.
            settings = {**conf, "isolation.level": "read_uncommitted"}
            with TopicReader(settings, topic, group_id="headerware-claims", timeout_s=timeout_s) as reader:
                reader.start()
                for batch in reader.to_end(each_batch=True):
                    claims.add(batch)
                    on_progress(topic, reader.progress)
        return claims.report(read)


def delete_orphans(
    report: OrphanReport,
    chain: Chain,
    *,
    on_deleted: Callable[[Orphan], object] = lambda _orphan: None,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> int:
    """Delete the orphans of a report, and return how many objects were deleted.

    Args:
        report: the report that :func:`find_orphans` returned.
        chain: the chain that :func:`find_orphans` was called with.
        on_deleted: called after each deletion.
        now_ms: the clock, in milliseconds since the epoch.

    Raises:
        HeaderwareError: some records may contain a claim that could not be read, or an orphan is younger than
            an hour; nothing is deleted.
        ObjectStoreError: an object cannot be deleted; the orphans before it in the report are deleted.
    """
    if report.unreadable:
        raise HeaderwareError(
            f"no object is deleted: {report.unreadable} records may contain claims that could not be read, "
            f"the first at {report.unreadable_at}"
        )
    if any(orphan.modified_ms > now_ms() - LEAST_AGE_MS for orphan in report.orphans):
        raise HeaderwareError(
            "no object is deleted: the report has objects younger than an hour, whose records may not have "
            "been sent yet"
        )
    topics = sorted({orphan.name.partition("/")[0] for orphan in report.orphans})
    with _topic_stores(chain, topics) as topic_stores:
        stores = {(each.alias, each.topic): each.store for each in topic_stores}
        for orphan in report.orphans:
            stores[orphan.store, orphan.name.partition("/")[0]].delete(orphan.name)
            on_deleted(orphan)
    return len(report.orphans)


class _Listed:
    """The objects in the stores, and the objects that no record has claimed so far."""

    def __init__(self, topic_stores: Iterable[_TopicStore]) -> None:
        self.names: Final[set[str]] = set()
        self.folders: Final = frozenset(each.topic for each in topic_stores)
        self.foreign = 0
        self.unclaimed: Final[dict[str, list[Orphan]]] = {}
        for each in topic_stores:
            for found in each.store.objects(each.topic):
                if not _OWN_NAME.fullmatch(found.name):
                    self.foreign += 1
                    continue
                self.names.add(found.name)
                orphan = Orphan(
                    store=each.alias,
                    name=found.name,
                    size_bytes=found.size_bytes,
                    modified_ms=found.modified_ms,
                )
                self.unclaimed.setdefault(found.name, []).append(orphan)


class _Claims:
    """The claims of the records that were read."""

    def __init__(self, listed: _Listed, names: _Names, before_ms: int) -> None:
        self._listed: Final = listed
        self._names: Final = names
        self._before_ms: Final = before_ms
        self._records = self._missing = self._unreadable = 0
        self._unreadable_at: str | None = None

    def add(self, batch: Iterable[Message]) -> None:
        """Count the records, and mark the objects that they claim."""
        for message in batch:
            self._records += 1
            record = record_of(message)
            if not is_readable(record):
                self._count_unreadable(record, "the name of a header is not UTF-8")
            elif record.headers:
                self._add(record.replace(value=b"", key=None), record.timestamp_ms or 0)

    def report(self, topics: tuple[str, ...]) -> OrphanReport:
        left = [each for found in self._listed.unclaimed.values() for each in found]
        old = [each for each in left if each.modified_ms < self._before_ms]
        objects = len(self._listed.names)
        return OrphanReport(
            topics=topics,
            records=self._records,
            objects=objects,
            claimed=objects - len(self._listed.unclaimed),
            young=len(left) - len(old),
            foreign=self._listed.foreign,
            missing=self._missing,
            unreadable=self._unreadable,
            unreadable_at=self._unreadable_at,
            orphans=tuple(sorted(old, key=lambda each: (each.modified_ms, each.name))),
        )

    def _add(self, record: Record, sent_ms: int) -> None:
        try:
            headers = self._names.expanded(record)
        except HeaderwareError as error:
            self._count_unreadable(record, str(error))
            return
        for text in headers.all(CLAIM_HEADER):
            try:
                claim = decode_claim(text)
            except WireFormatError as error:
                self._count_unreadable(record, str(error))
                continue
            self._listed.unclaimed.pop(claim.name, None)
            gone = claim.topic in self._listed.folders and claim.name not in self._listed.names
            self._missing += gone and sent_ms < self._before_ms

    def _count_unreadable(self, record: Record, why: str) -> None:
        self._unreadable += 1
        if self._unreadable_at is None:
            self._unreadable_at = f"{position(record.topic, record.partition, record.offset)}: {why}"


class _Names:
    """Expands header ids to header names with the chain's ``header_ids``."""

    def __init__(self, chain: Chain, stack: ExitStack) -> None:
        self._steps: Final[list[tuple[TopicPatterns, Any]]] = []
        for interceptor in chain:
            if isinstance(interceptor, HeaderIds):
                step = interceptor.open(Context())
                stack.callback(getattr(step, "close", lambda: None))
                self._steps.append((topics_of(interceptor), step))

    def expanded(self, record: Record) -> Headers:
        """Return the record's headers with their names in place of ids."""
        # A dead letter keeps the ids of its source topic: for a dead-letter topic the first step is used.
        matching = (step for topics, step in self._steps if topics.matches(record.topic))
        step = next(matching, self._steps[0][1] if self._steps else None)
        if step is not None:
            headers: Headers = step.on_consume(record).headers
            return headers
        if any(name in _CODED for name, _ in record.headers):
            raise ConfigError("the record's headers have ids as names, and the chain has no header_ids")
        return record.headers


@contextmanager
def _topic_stores(chain: Chain, topics: Iterable[str]) -> Iterator[list[_TopicStore]]:
    """Open the stores of each topic."""
    with ExitStack() as stack:
        opened: dict[int, dict[str, ObjectStore]] = {}
        topic_stores = []
        for topic in topics:
            for check in _checks(chain, topic):
                if id(check) not in opened:
                    opened[id(check)] = {
                        alias: stack.enter_context(closing(open_object_store(store, path=f"stores.{alias}")))
                        for alias, store in check.stores.items()
                    }
                topic_stores += [
                    _TopicStore(alias, store, topic) for alias, store in opened[id(check)].items()
                ]
        yield topic_stores


def _require_checks(chain: Chain, topics: Sequence[str]) -> None:
    if not any(_checks(chain, topic) for topic in topics):
        raise ConfigError(
            "the chain has no claim_check for any of the topics; add one, which names the object stores"
        )


def _checks(chain: Chain, topic: str) -> list[ClaimCheck]:
    """Return the chain's claim checks that apply to a topic."""
    return [each for each in chain if isinstance(each, ClaimCheck) and works_on(each, topic)]


def _dead_letter_topics(
    conf: Mapping[str, Any], topics: Iterable[str], chain: Chain, timeout_s: float
) -> list[str]:
    """Return the existing dead-letter topics, by the chain's name patterns and the default pattern."""
    patterns = {_DEAD_LETTERS, *(getattr(each, "dead_letter_topic", _DEAD_LETTERS) for each in chain)}
    existing = Admin(conf, timeout_s=timeout_s).metadata().topics
    named = sorted({pattern.replace("{topic}", topic) for topic in topics for pattern in patterns})
    return [name for name in named if name in existing]
