"""Find objects that no record claims any more, or ever did, and delete them.

The stores are listed first and the topics read afterwards, to the ends that they have then. So a record that
claims a listed object is either read, or was not sent yet; for the latter, young objects are left alone. Also
records of transactions that are open or aborted count: a transaction that hangs hides what is behind it.

Claims are compared by the object's name alone, not by the store's alias, for two aliases may mean one place.
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
from headerware.core.topics import TopicPatterns
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
"""How old an object must be to be deleted: longer than a record may be on its way, also in transactions."""
_OWN_NAME: Final = re.compile(rf"[^/]+/([0-9a-f]{{32}}|{re.escape(UNFINISHED)}.*)")
_DEAD_LETTERS: Final = "{topic}.dead-letter"
_CODED: Final = frozenset(
    [name for name, word in HEADERS.encodings.items() if word == HEADERS.ids_interceptor]
    + [key for key, name in HEADERS.compact_keys.items() if name == CLAIM_HEADER]
)
"""Names of headers that may hide a claim from whoever has no registry of ids."""


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
    """What was found in stores and topics.

    Args:
        topics: the topics that were read, those of dead letters included.
        records: how many records were read.
        objects: how many objects the topics have in the stores.
        claimed: how many of them a record claims.
        young: how many are not claimed, and were stored after the moment that was asked for.
        foreign: how many files in the topics' folders are none of ours by their names; they are left alone.
        missing: how many records of before that moment claim an object that is not there.
        unreadable: how many records may claim something that cannot be read here.
        unreadable_at: where the first of them is, and why; None if there is none.
        orphans: the objects that no record claims, oldest first.
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
        """The size of all orphans together."""
        return sum(orphan.size_bytes for orphan in self.orphans)


class _Place(NamedTuple):
    """A store, and the topic whose objects in it are looked at."""

    alias: str
    store: ObjectStore
    topic: str


def require_topics_and_stores(
    conf: Mapping[str, Any], topics: Sequence[str], chain: Chain, *, timeout_s: float = 60.0
) -> None:
    """Raise what :func:`find_orphans` would raise at once; for those who remove records before they call it.

    Raises:
        ConfigError: the chain has no ``claim_check`` for any of the topics, a topic is not there, or a store
            cannot be opened.
        confluent_kafka.KafkaException: the cluster does not answer.
    """
    _require_checks(chain, topics)
    with _places(chain, topics):
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
    """Return the objects of some topics that no record of these topics claims; change nothing.

    Args:
        conf: the settings of a client of confluent-kafka.
        topics: the topics whose objects are looked at, and all others that have copies of their records.
            Their dead-letter topics are read, too, if there are any.
        chain: a chain with ``claim_check``, which has the stores; of its other steps only ``header_ids``
            works.
        before_ms: only objects that were stored before this moment count as orphans, in milliseconds since
            the epoch.
        timeout_s: how long the cluster may give no answer, in seconds.
        on_progress: called with a topic and how far it was read.

    Raises:
        ConfigError: the chain has no ``claim_check`` for any of the topics, or a topic is not there.
        ObjectStoreError: a store cannot be listed completely.
        HeaderwareError: a topic cannot be read to its end.
        confluent_kafka.KafkaException: likewise.
    """
    _require_checks(chain, topics)
    with ExitStack() as stack:
        listed = _Listed(stack.enter_context(_places(chain, topics)))
        walk = _Walk(listed, _Names(chain, stack), before_ms)
        read = tuple(dict.fromkeys([*topics, *_dead_letter_topics(conf, topics, chain, timeout_s)]))
        for topic in read:
            # A transaction that hangs hides records that others have committed behind it.
            settings = {**conf, "isolation.level": "read_uncommitted"}
            with TopicReader(settings, topic, group_id="headerware-claims", timeout_s=timeout_s) as reader:
                reader.start()
                for batch in reader.to_end(each_batch=True):
                    walk.take(batch)
                    on_progress(topic, reader.progress)
        return walk.report(read)


def delete_orphans(
    report: OrphanReport,
    chain: Chain,
    *,
    on_deleted: Callable[[Orphan], object] = lambda _orphan: None,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> int:
    """Delete the orphans of a report, and return how many there were.

    Args:
        report: what :func:`find_orphans` has returned.
        chain: the chain that it was called with.
        on_deleted: called after each.
        now_ms: the clock, in milliseconds since the epoch.

    Raises:
        HeaderwareError: some record may claim what cannot be read, or an object is younger than an hour; then
            nothing is deleted.
        ObjectStoreError: an object cannot be deleted; those before it are.
    """
    if report.unreadable:
        raise HeaderwareError(
            f"{report.unreadable} records may claim objects in a way that cannot be read here, so nothing is "
            f"deleted; the first is at {report.unreadable_at}"
        )
    if any(orphan.modified_ms > now_ms() - LEAST_AGE_MS for orphan in report.orphans):
        raise HeaderwareError("objects of less than an hour may belong to records that are on their way")
    topics = sorted({orphan.name.partition("/")[0] for orphan in report.orphans})
    with _places(chain, topics) as places:
        stores = {(place.alias, place.topic): place.store for place in places}
        for orphan in report.orphans:
            stores[orphan.store, orphan.name.partition("/")[0]].delete(orphan.name)
            on_deleted(orphan)
    return len(report.orphans)


class _Listed:
    """The objects in the stores, and those of them that nobody has claimed yet."""

    def __init__(self, places: Iterable[_Place]) -> None:
        self.names: Final[set[str]] = set()
        self.folders: Final = frozenset(place.topic for place in places)
        self.foreign = 0
        self.unclaimed: Final[dict[str, list[Orphan]]] = {}
        for place in places:
            for found in place.store.objects(place.topic):
                if not _OWN_NAME.fullmatch(found.name):
                    self.foreign += 1
                    continue
                self.names.add(found.name)
                orphan = Orphan(
                    store=place.alias,
                    name=found.name,
                    size_bytes=found.size_bytes,
                    modified_ms=found.modified_ms,
                )
                self.unclaimed.setdefault(found.name, []).append(orphan)


class _Walk:
    """What the records that were read claim."""

    def __init__(self, listed: _Listed, names: _Names, before_ms: int) -> None:
        self._listed: Final = listed
        self._names: Final = names
        self._before_ms: Final = before_ms
        self._records = self._missing = self._unreadable = 0
        self._unreadable_at: str | None = None

    def take(self, batch: Iterable[Message]) -> None:
        """Note what records claim."""
        for message in batch:
            self._records += 1
            record = record_of(message)
            if not is_readable(record):
                self._cannot_read(record, "the name of a header is no UTF-8")
            elif record.headers:
                self._take(record.replace(value=b"", key=None), record.timestamp_ms or 0)

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

    def _take(self, record: Record, sent_ms: int) -> None:
        try:
            headers = self._names.expanded(record)
        except HeaderwareError as error:
            self._cannot_read(record, str(error))
            return
        for text in headers.all(CLAIM_HEADER):
            try:
                claim = decode_claim(text)
            except WireFormatError as error:
                self._cannot_read(record, str(error))
                continue
            self._listed.unclaimed.pop(claim.name, None)
            gone = claim.topic in self._listed.folders and claim.name not in self._listed.names
            self._missing += gone and sent_ms < self._before_ms

    def _cannot_read(self, record: Record, why: str) -> None:
        self._unreadable += 1
        if self._unreadable_at is None:
            self._unreadable_at = f"{position(record.topic, record.partition, record.offset)}: {why}"


class _Names:
    """Expands ids to names of headers, as the chain's ``header_ids`` does."""

    def __init__(self, chain: Chain, stack: ExitStack) -> None:
        self._steps: Final[list[tuple[TopicPatterns, Any]]] = []
        for interceptor in chain:
            if isinstance(interceptor, HeaderIds):
                step = interceptor.open(Context())
                stack.callback(getattr(step, "close", lambda: None))
                self._steps.append((TopicPatterns(interceptor.topics), step))

    def expanded(self, record: Record) -> Headers:
        """Return the headers by their names; a dead letter has them as they were in the first topic."""
        matching = (step for topics, step in self._steps if topics.matches(record.topic))
        step = next(matching, self._steps[0][1] if self._steps else None)
        if step is not None:
            headers: Headers = step.on_consume(record).headers
            return headers
        if any(name in _CODED for name, _ in record.headers):
            raise ConfigError("its headers have ids for names, and the chain has no header_ids to read them")
        return record.headers


@contextmanager
def _places(chain: Chain, topics: Iterable[str]) -> Iterator[list[_Place]]:
    """Open the stores of each topic."""
    with ExitStack() as stack:
        opened: dict[int, dict[str, ObjectStore]] = {}
        places = []
        for topic in topics:
            for check in _checks(chain, topic):
                if id(check) not in opened:
                    opened[id(check)] = {
                        alias: stack.enter_context(closing(open_object_store(store, path=f"stores.{alias}")))
                        for alias, store in check.stores.items()
                    }
                places += [_Place(alias, store, topic) for alias, store in opened[id(check)].items()]
        yield places


def _require_checks(chain: Chain, topics: Sequence[str]) -> None:
    if not any(_checks(chain, topic) for topic in topics):
        raise ConfigError(
            "the chain has no claim_check for any of these topics, so nothing says where to look"
        )


def _checks(chain: Chain, topic: str) -> list[ClaimCheck]:
    """Return the claim checks that work on a topic."""
    return [
        each for each in chain if isinstance(each, ClaimCheck) and TopicPatterns(each.topics).matches(topic)
    ]


def _dead_letter_topics(
    conf: Mapping[str, Any], topics: Iterable[str], chain: Chain, timeout_s: float
) -> list[str]:
    """Return the topics of dead letters that are there, by the chain's patterns and by the default."""
    patterns = {_DEAD_LETTERS, *(getattr(each, "dead_letter_topic", _DEAD_LETTERS) for each in chain)}
    there = Admin(conf, timeout_s=timeout_s).metadata().topics
    named = sorted({pattern.replace("{topic}", topic) for topic in topics for pattern in patterns})
    return [name for name in named if name in there]
