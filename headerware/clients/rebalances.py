"""An application's rebalance callbacks, between what the consumer does itself.

They are functions of the module that get the consumer as an argument: a closure over it would be a cycle
through C, which keeps the client's threads alive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import TopicPartition

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]


def rebalance_callbacks(
    on_assign: RebalanceCallback | None,
    on_revoke: RebalanceCallback | None,
    on_lost: RebalanceCallback | None,
) -> dict[str, RebalanceCallback]:
    """Wrap an application's callbacks; without ``on_lost`` the C client falls back to ``on_revoke``."""
    given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
    for name, callback in given.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    wrapped: dict[str, RebalanceCallback] = {
        "on_assign": partial(_on_assign, on_assign),
        "on_revoke": partial(_on_revoke, on_revoke),
    }
    if on_lost is not None:
        wrapped["on_lost"] = partial(_on_lost, on_lost)
    return wrapped


def _on_assign(callback: RebalanceCallback | None, consumer: Any, partitions: list[TopicPartition]) -> None:
    consumer._hw_add_partitions(partitions)  # noqa: SLF001 - the client itself, without a cycle
    if callback is not None:
        callback(consumer, partitions)


def _on_revoke(callback: RebalanceCallback | None, consumer: Any, partitions: list[TopicPartition]) -> None:
    try:
        consumer._hw_before_revocation(partitions)  # noqa: SLF001 - as above
        if callback is not None:
            callback(consumer, partitions)
    finally:
        consumer._hw_remove_partitions(partitions, commit=True)  # noqa: SLF001 - as above


def _on_lost(callback: RebalanceCallback, consumer: Any, partitions: list[TopicPartition]) -> None:
    try:
        consumer._hw_before_revocation(partitions, lost=True)  # noqa: SLF001 - as above
        callback(consumer, partitions)
    finally:
        consumer._hw_remove_partitions(partitions, commit=False)  # noqa: SLF001 - as above


CALLBACKS: Final = frozenset(callback.__code__ for callback in (_on_assign, _on_revoke, _on_lost))
"""By which a caller knows that it is inside of one."""
