"""Rebalances: the application's callbacks, with what a chain has to do before or after them.

The wrappers are module-level functions that get the consumer as an argument: a closure over it would be
a cycle through C, which keeps the client's threads alive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from headerware.clients.offsets import as_committed
from headerware.core.session import Session

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]
CommitCallback = Callable[[KafkaError | None, list[TopicPartition]], Any]


def rebalance_callbacks(
    on_assign: RebalanceCallback | None,
    on_revoke: RebalanceCallback | None,
    on_lost: RebalanceCallback | None,
) -> dict[str, RebalanceCallback]:
    """Wrap an application's callbacks; without ``on_lost`` the C client falls back to ``on_revoke``.

    Raises:
        TypeError: one that cannot be called.
    """
    given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
    for name, callback in given.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    wrapped: dict[str, RebalanceCallback] = {
        "on_assign": partial(_assigned, on_assign),
        "on_revoke": partial(_revoked, on_revoke),
    }
    if on_lost is not None:
        wrapped["on_lost"] = partial(_lost, on_lost)
    return wrapped


def commit_callback(session: Session, callback: CommitCallback | None) -> CommitCallback:
    """Wrap ``on_commit``: interceptors hear of what was committed, the application of everything."""
    return partial(_committed, session, callback)


def tell_committed(session: Session, partitions: list[TopicPartition]) -> None:
    """Tell interceptors of those offsets that were committed."""
    done = [partition for partition in partitions if partition.offset >= 0 and partition.error is None]
    if done:
        session.committed(done)


def _assigned(callback: RebalanceCallback | None, consumer: Any, partitions: list[TopicPartition]) -> None:
    consumer._arrive(partitions)  # noqa: SLF001 - the client itself, without a cycle
    if callback is not None:
        callback(consumer, partitions)


def _revoked(callback: RebalanceCallback | None, consumer: Any, partitions: list[TopicPartition]) -> None:
    try:
        if callback is not None:
            callback(consumer, partitions)
    finally:
        consumer._leave(partitions, commit=True)  # noqa: SLF001 - as above


def _lost(callback: RebalanceCallback, consumer: Any, partitions: list[TopicPartition]) -> None:
    try:
        callback(consumer, partitions)
    finally:
        consumer._leave(partitions, commit=False)  # noqa: SLF001 - as above


def _committed(
    session: Session,
    callback: CommitCallback | None,
    error: KafkaError | None,
    partitions: list[TopicPartition],
) -> None:
    own = [as_committed(partition) for partition in partitions]
    if error is None:
        tell_committed(session, own)
    if callback is not None:
        callback(error, own)
