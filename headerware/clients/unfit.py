"""Records that a topic refuses for their size, key or time.

A broker refuses a request as a whole, and reports the error for each record in it. To find the record that is
the cause, each one is sent in a request of its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headerware.clients.dead_letters import UNFIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confluent_kafka import KafkaError


def only_unfit(failed: Mapping[int, KafkaError]) -> dict[int, KafkaError]:
    """Return the errors that are those of one record."""
    return {index: error for index, error in failed.items() if error.code() in UNFIT}


def unfit_alone(
    producer: Any,
    indexes: Iterable[int],
    attempt: Callable[[int, dict[int, KafkaError]], object],
    timeout_s: float,
) -> dict[int, KafkaError]:
    """Send records, each in a request of its own, undo that, and return which a topic refuses.

    Args:
        producer: a transactional producer without an open transaction.
        indexes: the records.
        attempt: sends the record of an index; notes an error under it in the mapping, now or later.
        timeout_s: how long the cluster may take to answer, in seconds.
    """
    unfit: dict[int, KafkaError] = {}
    left = deque(indexes)
    while left:
        producer.begin_transaction()
        failed: dict[int, KafkaError] = {}
        # A transaction takes nothing more after a record that was refused.
        while left and not failed:
            attempt(left.popleft(), failed)
            producer.flush(timeout_s)
        producer.abort_transaction(timeout_s)
        unfit |= only_unfit(failed)
    return unfit
