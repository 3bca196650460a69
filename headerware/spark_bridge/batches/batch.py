"""One micro-batch at work: who it is, what it counts, and where its refused rows go."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headerware.core.errors import ConfigError
from headerware.spark_bridge.executors.progress import Counts, CountsParam

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from headerware.spark_bridge.decoding import Decoded


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch came to.

    Counts come from the executors: a task that was tried again counts again.

    Args:
        batch: the batch's number.
        query_id: the streaming query's id.
        skipped: the ledger says that it was done before; nothing was counted.
        replay: it was begun before, and not finished.
        waiting: slices that wait for the next batch.
        decoded: counts of the reading chain: ``records_in``, ``records_out``, ``bytes_in``, ``bytes_out``,
            ``refused``, and ``steps``: counters by interceptor, as ``client.stats()`` has them.
        encoded: the same of the writing chain.
    """

    batch: int
    query_id: str
    skipped: bool = False
    replay: bool = False
    waiting: int = 0
    decoded: Mapping[str, Any] = {}
    encoded: Mapping[str, Any] = {}


class Counter:
    """An accumulator of counts, as the executors take it."""

    def __init__(self, spark: SparkSession) -> None:
        self._accumulator = spark.sparkContext.accumulator({}, CountsParam())
        self.pickled: bytes = pickle.dumps(self._accumulator)

    @property
    def counts(self) -> Counts:
        """What was counted so far."""
        return dict(self._accumulator.value)

    def clear(self) -> None:
        """Begin again at 0."""
        self._accumulator.value = {}


class Counters(NamedTuple):
    """The counters of a query: of what is decoded, and of what is encoded."""

    decoded: Counter
    encoded: Counter


class Batch:
    """What a sink knows of the batch that it writes.

    Args:
        spark: the batch's session.
        id: the batch's number.
        query_id: the streaming query's id; it stays the same over restarts.
        job: what trails call the work.
        dead_letters: where rows go that a chain refuses; None where they fail the query.
        letters: what dead letters are like: ``dead_letter_topic`` and ``dead_letter_headers``.
        counters: what the executors count with.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        id: int,  # noqa: A002 - what Spark calls it
        query_id: str,
        job: str,
        dead_letters: Any = None,
        letters: Mapping[str, Any] | None = None,
        counters: Counters,
    ) -> None:
        self.spark = spark
        self.id = id
        self.query_id = query_id
        self.job = job
        self.dead_letters: Any = dead_letters
        self.letters: Mapping[str, Any] = letters or {}
        self.carrier: dict[str, str] = {}
        """The trace context of the batch, as headers have it."""
        self.decoded: Final = counters.decoded
        self.encoded: Final = counters.encoded
        self.uncomputed: Decoded | None = None
        """The clean frame, if it is not computed, for a sink that encodes it in the pass that decodes it."""
        self._cached: list[DataFrame] = []

    def cache(self, frame: DataFrame) -> DataFrame:
        """Keep a frame until the batch is over, for it is read more than once."""
        self._cached.append(frame.persist())
        return frame

    def bury(self, letters: DataFrame) -> None:
        """Write dead letters.

        Raises:
            ConfigError: there is nowhere to write them.
        """
        if self.dead_letters is None:
            raise ConfigError("the query has no sink for dead letters", path="dead_letters")
        sink, self.dead_letters = self.dead_letters, None
        try:
            sink.write(letters, self)  # a letter that is refused in its turn fails the query
        finally:
            self.dead_letters = sink

    def release(self) -> None:
        """Let go of what was kept."""
        while self._cached:
            self._cached.pop().unpersist()
