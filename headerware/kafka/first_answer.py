"""The first answer of a cluster: waiting for it ends early if no broker can be reached."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from headerware.kafka.errors import Kind, kind_of, with_text

_FIRST_ANSWER_S: Final = 10.0
"""How long brokers may take to answer at all."""
_REFUSED_S: Final = 3.0
"""How long to wait for another broker when one cannot be reached."""
TO_REACH_A_CLUSTER: Final = (
    "look at the addresses, the network, and the security.*, sasl.* and ssl.* settings"
)
"""What to do if no broker answers."""


class Troubles:
    """Remember the latest error about a client's brokers; this is the client's ``error_cb``."""

    def __init__(self) -> None:
        self._latest: deque[KafkaError] = deque(maxlen=1)

    def __call__(self, error: KafkaError) -> None:
        if kind_of(error) is not Kind.ALL_UNREACHABLE:
            self._latest.append(error)  # it says which broker, and why

    def first_metadata(self, client: Any, servers: object, topic: str | None, deadline: float) -> Any:
        """Return the metadata of a topic from the client's cluster.

        Args:
            client: a client of confluent-kafka with this as its ``error_cb``.
            servers: the cluster's addresses, for the error.
            topic: the topic; None for all topics.
            deadline: until when to wait, by ``time.monotonic()``.

        Raises:
            KafkaException: the cluster cannot be reached; the text says why, and what to look at.
        """
        began_s, wait_s = time.monotonic(), 1.0
        while True:
            try:
                return client.list_topics(topic, timeout=min(wait_s, max(0.0, deadline - time.monotonic())))
            except KafkaException as error:
                client.poll(0)  # this calls error_cb
                patience_s = _REFUSED_S if self._latest else _FIRST_ANSWER_S
                if time.monotonic() < min(began_s + patience_s, deadline):
                    wait_s *= 2
                    continue
                failure = error.args[0]
                reason = (self._latest[-1] if self._latest else failure).str().partition(" (after ")[0]
                text = f"{servers} cannot be reached: {reason}; {TO_REACH_A_CLUSTER}"
                raise with_text(failure, text) from error
