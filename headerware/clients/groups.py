"""Consumers by their group metadata, so that a transaction's offsets are held back as commits are."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


class Clamping(Protocol):
    """A consumer that knows which offsets are safe."""

    def clamped(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the positions, held back to where a restart loses nothing."""
        ...


_consumers: Final[dict[bytes, weakref.WeakSet[Any]]] = {}
_latest: Final[weakref.WeakKeyDictionary[Any, bytes]] = weakref.WeakKeyDictionary()
_LIMIT: Final = 1_000


def register(metadata: Any, consumer: Clamping) -> None:
    """Remember, weakly, which consumer gave out group metadata.

    The bytes name group, member and generation; consumers that assign partitions themselves have no
    member's name, so that several may share them. Each of them knows its own partitions. A consumer's
    earlier generations are forgotten, for the broker refuses them.
    """
    earlier = _latest.get(consumer)
    if earlier == metadata:
        return
    _latest[consumer] = metadata
    if earlier is not None:
        _forget(earlier, consumer)
    if metadata not in _consumers and len(_consumers) >= _LIMIT:
        for stale in [known for known, living in _consumers.items() if not living]:
            del _consumers[stale]
    _consumers.setdefault(metadata, weakref.WeakSet()).add(consumer)


def clamped(metadata: Any, positions: list[TopicPartition]) -> list[TopicPartition]:
    """Hold positions back by the consumers that gave out this metadata; by none, they stay as they are."""
    consumers = list(_consumers.get(metadata, ())) if isinstance(metadata, bytes) else []
    if not consumers or not isinstance(positions, list):
        return positions
    return [_lowest(consumers, position) for position in positions]


def _forget(metadata: bytes, consumer: Clamping) -> None:
    living = _consumers.get(metadata)
    if living is not None:
        living.discard(consumer)
        if not living:
            del _consumers[metadata]


def _lowest(consumers: list[Any], position: TopicPartition) -> TopicPartition:
    """Return what the consumer makes of a position that reads its partition; the others leave it alone."""
    held: TopicPartition
    for consumer in consumers:
        held = consumer.clamped([position])[0]
        if held.offset != position.offset:
            break
    return held
