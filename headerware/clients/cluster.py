"""The cluster's id, which librdkafka learns in the background as soon as it has a connection."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException


def cluster_id_port(client: Any) -> Callable[[], str | None]:
    """Give a function that tells the cluster's id, or None as long as it is unknown.

    It never blocks: a timeout of 0 only looks at what librdkafka's own threads have learned (16 us the
    first time, 3 us while it is unknown, and then nothing). It holds the client weakly.
    """
    reference = weakref.ref(client)
    known: str | None = None

    def cluster_id() -> str | None:
        nonlocal known
        if known is None and (live := reference()) is not None:
            try:
                known = live.cluster_id(0)
            except (KafkaException, RuntimeError):  # unknown as yet; not initialised, or closed
                return None
        return known

    return cluster_id
