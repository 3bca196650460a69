"""What an executor is told to do: plain values, pickled once and sent with each task."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headerware.spark_bridge.chain_source import ChainSource

Failures = Literal["fail", "route"]
"""What a row does that a chain refuses: fail the job, or go on in the column ``failure``."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a chain over the rows of a frame.

    Args:
        source: the chain.
        side: which half of it is used.
        job: what the trail calls the work, before the number of the batch.
        failures: what a refused row does.
        schema: the schema of the frame that goes on, as Spark's JSON.
        typed: the parts (key, value) whose columns hold objects.
        cluster_id: the cluster that is read from or written to, where it is known.
        group_id: the consumer group that dead letters name, if any.
        max_message_bytes: the largest message that the sink takes, or None where it is unknown.
        scope: what makes the identities of rows unique to a query or job; None where rows get none.
        dead_letter_topic: where dead letters go, unless their step says another; ``{topic}`` is the row's.
        dead_letter_headers: whose names the reason gets, unless the step says others.
    """

    source: ChainSource
    side: Literal["consumer", "producer"]
    job: str
    failures: Failures = "fail"
    schema: str = ""
    typed: frozenset[str] = frozenset()
    cluster_id: str | None = None
    group_id: str | None = None
    max_message_bytes: int | None = None
    scope: str | None = None
    dead_letter_topic: str = "{topic}.dead-letter"
    dead_letter_headers: Literal["connect", "spring"] = "connect"

    def replace(self, **changes: Any) -> Work:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)
