"""Find the slices on a compacted topic that belong to no message any more, and delete them.

There the first slice of a message has the message's key, and the others have keys of their own
(spec/slice.md). When a later record of that key, or a tombstone, takes the first slice's place, compaction
leaves the others. Only a reader of the whole topic knows them.

A message whose first slice has not come yet looks the same. So what is found is looked at again after a time
in which every producer has sent the rest, or given up. Nothing but keys of slices is ever deleted: those of
applications have another form.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.chain import Chain
from headerware.core.errors import ConfigError, HeaderError, HeaderwareError, WireFormatError
from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.core.topics import TopicPatterns
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader, is_slice_key
from headerware.kafka.messages import is_readable, record_of
from headerware.kafka.reader import BEGINNING, Start, TopicReader
from headerware.registry.names import named_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.core.record import Record
    from headerware.kafka.reader import Progress

GRACE_S: Final = 900.0
"""Longer than a producer tries to deliver (5 min), and as long as a transaction may take (15 min)."""
_PAUSE_S: Final = 0.5


class OrphanedSlices(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on a topic.

    Args:
        topic: the topic.
        messages: how many messages in slices are the latest record of their key.
        orphans: how many messages have no first slice any more.
        slices: how many slices these have left.
        deleted: how many of them were deleted.
        exposed: how many slices behind a first one have the message's own key, of which compaction keeps the
            last one alone: their producer has no ``compacted_topics`` for this topic.
    """

    topic: str
    messages: int
    orphans: int
    slices: int
    deleted: int = 0
    exposed: int = 0


def orphaned_slices(
    settings: Mapping[str, Any],
    topic: str,
    *,
    chain: Chain | None = None,
    delete: bool = False,
    grace_s: float = GRACE_S,
    timeout_s: float = 60.0,
    on_progress: Callable[[Progress], object] = lambda _: None,
) -> OrphanedSlices:
    """Find the slices that belong to no message any more, and delete them if asked to.

    Args:
        settings: the settings of a client.
        topic: the compacted topic.
        chain: the chain of the topic's producers; what stands behind its ``slice`` signs the tombstones.
        delete: whether to write tombstones, each to the partition of its slice.
        grace_s: how long to wait for the first slices of messages that are being sent, in seconds.
        timeout_s: how long the cluster may give no answer, in seconds.
        on_progress: is called with how far reading is.

    Raises:
        ConfigError: there is no such topic, or the chain has no ``slice`` that works on it.
        HeaderwareError: the topic could not be read to its end, also because a transaction stays open, or a
            tombstone was not stored.
        confluent_kafka.KafkaException: the cluster does not answer.
    """
    behind = Chain([]) if chain is None else _behind_slice(chain, topic)
    settings = {**settings, "isolation.level": "read_committed"}
    partitions: dict[int, _Partition] = {}
    _read(settings, topic, None, BEGINNING, timeout_s, partitions, on_progress)
    found = {number: partition.orphans() for number, partition in partitions.items()}
    if any(found.values()):
        time.sleep(grace_s)
        for number in [number for number, orphans in found.items() if orphans]:
            end = _end(settings, topic, number, timeout_s)
            begin = Start("offset", partitions[number].position)
            _read(settings, topic, number, begin, timeout_s, partitions, lambda _: None, up_to=end)
            still = partitions[number].orphans()
            # Those that came meanwhile have not waited yet.
            found[number] = {key for key in found[number] if key in still}
    keys = [(number, key) for number, orphans in sorted(found.items()) for key in sorted(orphans)]
    if delete and keys:
        _delete(settings, topic, behind, keys, timeout_s)
    return OrphanedSlices(
        topic=topic,
        messages=sum(len(set(partition.heads.values())) for partition in partitions.values()),
        orphans=len({(number, _message_of(key)) for number, key in keys}),
        slices=len(keys),
        deleted=len(keys) if delete else 0,
        exposed=sum(partition.exposed for partition in partitions.values()),
    )


class _Partition:
    """The keys of slices in a partition, and the messages whose first slice is the latest of its key."""

    def __init__(self) -> None:
        self.position = self.exposed = 0
        self.heads: dict[bytes, bytes] = {}
        self._keys: set[bytes] = set()

    def take(self, record: Record) -> None:
        """Note one record; they come in the order of their offsets."""
        self.position = (record.offset or 0) + 1
        key = record.key
        if key is None:
            return
        if is_slice_key(key):
            (self._keys.discard if record.value is None else self._keys.add)(key)
            return
        digest = hashlib.blake2b(key, digest_size=16).digest()
        header = slice_header_of(record)
        if header is not None and not header.index:
            self.heads[digest] = _message_of(header.own_key)
        else:
            self.heads.pop(digest, None)
            self.exposed += header is not None

    def orphans(self) -> set[bytes]:
        """Return the keys of slices whose message has no first slice."""
        alive = set(self.heads.values())
        return {key for key in self._keys if _message_of(key) not in alive}


def slice_header_of(record: Record) -> SliceHeader | None:
    """Return which slice of a message a record on the wire is; None for others, and for one that lies."""
    if not is_readable(record):
        return None
    try:
        value = named_headers(record).last(SLICE_HEADER)
        return None if value is None else SliceHeader.decode(value)
    except (WireFormatError, HeaderError):
        return None


def _message_of(key: bytes) -> bytes:
    return key.rpartition(b":")[0]


def _read(
    settings: Mapping[str, Any],
    topic: str,
    partition: int | None,
    start: Start,
    timeout_s: float,
    partitions: dict[int, _Partition],
    on_progress: Callable[[Progress], object],
    *,
    up_to: int = 0,
) -> None:
    """Read from somewhere on to the end, which must be behind an offset."""
    with TopicReader(
        settings, topic, group_id="headerware-slices", partition=partition, timeout_s=timeout_s
    ) as reader:
        reader.start(start)
        deadline = time.monotonic() + timeout_s
        while any(end < up_to for _, end in reader.bounds.values()):
            if time.monotonic() > deadline:
                raise HeaderwareError(
                    f"{topic}[{partition}]: a transaction that is open may hide first slices, so nothing is "
                    f"deleted; try again when it has ended (kafka-transactions.sh find-hanging)"
                )
            time.sleep(_PAUSE_S)
            reader.start(start)
        for batch in reader.to_end(each_batch=True):
            for message in batch:
                partitions.setdefault(message.partition() or 0, _Partition()).take(record_of(message))
            on_progress(reader.progress)


def _end(settings: Mapping[str, Any], topic: str, partition: int, timeout_s: float) -> int:
    """Return the end of a partition, with the records of transactions that are open."""
    uncommitted = {**settings, "isolation.level": "read_uncommitted"}
    with TopicReader(
        uncommitted, topic, group_id="headerware-slices", partition=partition, timeout_s=timeout_s
    ) as reader:
        reader.start(Start("last", 0))
        return reader.bounds[partition][1]


def _behind_slice(chain: Chain, topic: str) -> Chain:
    """Return what a chain does with slices: the steps behind the one that cuts the topic's messages."""
    steps = list(chain.interceptors)
    for index, step in enumerate(steps):
        if place_of(step) is Place.SLICE and TopicPatterns(getattr(step, "topics", ())).matches(topic):
            return Chain(steps[index + 1 :])
    raise ConfigError(f"the chain has no slice that works on {topic}")


def _delete(
    settings: Mapping[str, Any], topic: str, chain: Chain, keys: list[tuple[int, bytes]], timeout_s: float
) -> None:
    from headerware.clients import Producer  # noqa: PLC0415 - slow to import

    failures: list[Any] = []

    def note(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    own = {name: value for name, value in settings.items() if name != "isolation.level"}
    with Producer({**own, "enable.idempotence": True}, chain=chain) as producer:
        for number, key in keys:
            producer.produce(topic, None, key, number, on_delivery=note)
            producer.poll(0)
        left = producer.flush(timeout_s)
    if left or failures:
        reason = f": {failures[0].str()}" if failures else ""
        raise HeaderwareError(
            f"{topic}: {left + len(failures)} tombstones were not stored{reason}; try again"
        )
