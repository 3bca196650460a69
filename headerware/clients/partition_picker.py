"""The choice of a partition for all slices of a message whose key does not decide it."""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException

from headerware.clients.raw import UNKNOWN_TOPIC
from headerware.core.record import Record

_SCATTERED: Final[Mapping[str, tuple[bool, bool, bool]]] = {
    "random": (True, True, True),
    "consistent": (False, False, False),
    "consistent_random": (True, True, False),
    "murmur2": (False, False, False),
    "murmur2_random": (True, False, False),
    "fnv1a": (False, False, False),
    "fnv1a_random": (True, False, False),
}
"""Whether librdkafka's partitioners scatter null keys, empty keys and other keys, as measured."""


def _murmur2(key: bytes) -> int:
    """Return the hash of Java's default partitioner: MurmurHash2 with 32 bits, without the sign."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        found = (found * multiplier & mask) ^ word
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return (found ^ found >> 15) & 0x7FFFFFFF


def _fnv1a(key: bytes) -> int:
    """Return the FNV-1a hash with 32 bits as Go's Sarama uses it: the absolute value of a signed number."""
    found = 0x811C9DC5
    for byte in key:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found if found < 1 << 31 else (1 << 32) - found


_HASHES: Final[Mapping[str, Callable[[bytes], int]]] = {
    "consistent": crc32,
    "murmur2": _murmur2,
    "fnv1a": _fnv1a,
}


def partition_of_key(key: bytes | None, partitioner: str, count: int) -> int | None:
    """Return the partition of a key, out of ``count``; None if the partitioner scatters such keys."""
    null, empty, other = _SCATTERED.get(partitioner, _SCATTERED["consistent_random"])
    if null if key is None else other if key else empty:
        return None
    return _HASHES.get(partitioner.removesuffix("_random"), crc32)(key or b"") % count


_REFRESH_S: Final = 60.0
_MARGIN_S: Final = 10.0
_TIMEOUT_S: Final = 5.0


class PartitionPicker:
    """Choose one partition for all slices of a message whose key does not decide it.

    The metadata has the number of partitions. It is asked for at most once a minute for each topic. Only the
    first message of a topic waits for the answer, 5 s at most. The producer is held weakly.
    """

    def __init__(self, client: Any, partitioner: str) -> None:
        self._client = weakref.ref(client)
        self._partitioner = partitioner
        self._known: dict[str, tuple[float, list[int]]] = {}
        self._learn_again: dict[str, float] = {}

    def __call__(self, record: Record) -> int | None:
        """Return a partition, or None if the record or its key decides."""
        if record.partition is not None:
            return None
        if partition_of_key(record.key, self._partitioner, 1) is not None:
            return None
        return secrets.choice(self._partitions(record.topic))

    def knows(self, topic: str) -> bool:
        """Return whether the partitions of a topic are known, so that a choice does not ask the cluster."""
        asked_at, partitions = self._known.get(topic, (0.0, ()))
        return bool(partitions) and time.monotonic() - asked_at <= _REFRESH_S - _MARGIN_S

    def learn(self, topic: str) -> None:
        """Ask for the partitions of a topic unless they are known; without partitions it remains unknown."""
        now = time.monotonic()
        client = self._client()
        if client is None or self.knows(topic) or now < self._learn_again.get(topic, 0.0):
            return
        self._learn_again[topic] = now + _TIMEOUT_S
        with suppress(KafkaException):
            if partitions := list(client.list_topics(topic, _TIMEOUT_S).topics[topic].partitions):
                self._known[topic] = (time.monotonic(), partitions)

    def _partitions(self, topic: str) -> list[int]:
        asked_at, partitions = self._known.get(topic, (0.0, []))
        if not partitions or time.monotonic() - asked_at > _REFRESH_S:
            try:
                partitions = self._ask(topic)
            except KafkaException:
                # librdkafka itself would use an old count, too.
                if not partitions:
                    raise
            self._known[topic] = (time.monotonic(), partitions)
        return partitions

    def _ask(self, topic: str) -> list[int]:
        client = self._client()
        deadline = time.monotonic() + _TIMEOUT_S
        while client is not None and (left := deadline - time.monotonic()) > 0:
            partitions = list(client.list_topics(topic, left).topics[topic].partitions)
            if partitions:
                return partitions
            time.sleep(0.05)  # a topic that is being created has none yet
        raise KafkaException(KafkaError(UNKNOWN_TOPIC, f"no partitions of {topic!r} are known"))
