"""Counts of the executors, summed on the driver through an accumulator.

Spark may compute a part of a batch more than once: it tries a task again, runs it twice (speculation), or
computes a frame that is read twice and not kept. The accumulator has the counts by part, so that each part
counts once; of two attempts at a part, the attempt that read more rows counts, because the other was cut
short.

Counts of a frame that is kept may be lost with speculation: one attempt computes a part and keeps it, another
attempt reads what is kept and is ready first, and Spark drops the counts of the first one.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from uuid import uuid4

from pyspark import AccumulatorParam

from headerware.core.native import native_module
from headerware.spark_bridge.driver import driver_of
from headerware.spark_bridge.frames.schema import COUNTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, SparkSession

    from headerware.core.record import Record
    from headerware.core.session import Session
    from headerware.spark_bridge.frames.output import OutputRows


Counts = dict[str, Any]
"""``records_in``, ``records_out``, ``bytes_in``, ``bytes_out``, ``refused``; ``steps``: counters by
interceptor; ``traces``: some of the ``traceparent`` headers that were read; ``topics``, with ``lineage``
in the chain: records by topic, which a reading chain has read or a writing chain sends (also with
``metrics``); ``given``, with ``metrics``: records by topic that a reading chain passes on; ``audit``: the
counts of each ``audit``; ``native``: tasks by what their process says about native steps."""
TRACES_LIMIT: Final = 128
BY_ROW: Final = b""
"""What tasks are given in place of an accumulator if they return their counts as a row."""
_TOTALS: Final = ("records_in", "records_out", "bytes_in", "bytes_out", "refused")
_TRACEPARENT_BYTES: Final = 64


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Counts:
    """Add two counts; lists are joined up to a limit."""
    sums = dict(ours)
    for name, theirs_of in theirs.items():
        ours_of = sums.get(name)
        if ours_of is None:
            sums[name] = theirs_of
        elif isinstance(theirs_of, Mapping):
            sums[name] = merged(ours_of, theirs_of)
        elif isinstance(theirs_of, list):
            sums[name] = [*ours_of, *(item for item in theirs_of if item not in ours_of)][:TRACES_LIMIT]
        else:
            sums[name] = ours_of + theirs_of
    return sums


Part = tuple[Any, ...]
"""The identity of a part of a batch, the same each time the part is computed."""


class CountsParam(AccumulatorParam[dict[Part, Counts]]):
    """Tell Spark how to add the counts of parts."""

    def zero(self, value: dict[Part, Counts]) -> dict[Part, Counts]:  # noqa: ARG002 - Spark's signature
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: dict[Part, Counts], value2: dict[Part, Counts]
    ) -> dict[Part, Counts]:
        sums = dict(value1)
        for part, counts in value2.items():
            known = sums.get(part)
            if known is None or known.get("records_in", 0) < counts.get("records_in", 0):
                sums[part] = counts
        return sums


class CountsAccumulator:
    """The driver's accumulator of counts."""

    by_row: Final = False

    def __init__(self, spark: SparkSession) -> None:
        self._accumulator = spark.sparkContext.accumulator({}, CountsParam())
        self.pickled: bytes = pickle.dumps(self._accumulator)

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        return reduce(merged, self._accumulator.value.values(), {})

    def clear(self) -> None:
        """Start again at 0."""
        self._accumulator.value = {}

    def columns(self) -> list[Column]:
        """Return no columns: frames have no rows with counts."""
        return []

    def read(self, found: Any) -> None:
        """Do nothing."""


class RowCounts:
    """The counts of decoding where the driver has no SparkContext: each task returns its counts as a row.

    The batch's rows are kept and counted in any case; the same job reads the tasks' counts.
    """

    by_row: Final = True
    pickled: Final = BY_ROW

    def __init__(self) -> None:
        self._parts: dict[Part, Counts] = {}

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        return reduce(merged, self._parts.values(), {})

    def clear(self) -> None:
        """Start again at 0."""
        self._parts = {}

    def columns(self) -> list[Column]:
        """Return the aggregates by which :meth:`read` gets the counts of tasks."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's custom; executors need no SQL

        return [F.concat_ws("\n", F.collect_list(COUNTS)).alias(COUNTS)]

    def read(self, found: Any) -> None:
        """Add the counts of tasks, from a result with :meth:`columns`."""
        for line in found[COUNTS].split():
            counted = pickle.loads(b64decode(line))  # noqa: S301 - Spark's own channel
            self._parts = CountsParam().addInPlace(self._parts, counted)


class NoCounts:
    """What stands for the accumulator where tasks cannot tell what they count."""

    by_row: Final = False
    pickled: Final = None
    counts: Final[Counts] = {}

    def clear(self) -> None:
        """Do nothing."""

    def columns(self) -> list[Column]:
        """Return no columns."""
        return []

    def read(self, found: Any) -> None:
        """Do nothing."""


class QueryAccumulators(NamedTuple):
    """The accumulators of a query, for decoding and for encoding."""

    decoded: CountsAccumulator | RowCounts
    encoded: CountsAccumulator | NoCounts

    @classmethod
    def of(cls, spark: SparkSession) -> QueryAccumulators:
        """Make the accumulators, or what stands for them in a session without a SparkContext."""
        if driver_of(spark).jvm is None:
            return cls(RowCounts(), NoCounts())
        return cls(CountsAccumulator(spark), CountsAccumulator(spark))


class TaskCounter:
    """Count what one task does, and report it once; the session may have counted for earlier tasks."""

    def __init__(self, session: Session, accumulator: bytes | None) -> None:
        self._session = session
        # Spark forgets a worker's accumulators when a task begins, so each task makes its own.
        self._accumulator: Any = pickle.loads(accumulator) if accumulator else None  # noqa: S301 - Spark's own channel
        self._by_row = accumulator == BY_ROW
        self.row: str | None = None
        """The counts as the text of a row, once they are reported, if there is no accumulator."""
        self._before = session.stats()
        self._part: Part | None = None
        self.counts: Counts = dict.fromkeys(_TOTALS, 0)
        self.traces: list[str] = []

    @property
    def wants_traces(self) -> bool:
        """Whether to note more traces."""
        return (self._by_row or self._accumulator is not None) and len(self.traces) < TRACES_LIMIT

    def note_traces(self, records: Sequence[Record]) -> None:
        """Note the traces of some records, for the links of the batch's span."""
        for record in records[:TRACES_LIMIT]:
            for name, value in record.headers:
                if name == "traceparent" and value is not None and len(value) <= _TRACEPARENT_BYTES:
                    self.traces.append(value.decode("ascii", "replace"))

    def begin(self, part: Part | None) -> None:
        """Note which part of a batch the task computes; only the first call counts."""
        self._part = part if self._part is None else self._part

    def count_topics(self, topics: Iterable[str], name: Literal["topics", "given"] = "topics") -> None:
        """Count one record for each topic given."""
        counts = self.counts.setdefault(name, {})
        for topic, count in Counter(topics).items():
            counts[topic] = counts.get(topic, 0) + count

    def count_out(self, rows: OutputRows) -> None:
        """Count the rows of a finished batch, without those that were refused or wait."""
        records, size_bytes = rows.totals()
        self.counts["records_out"] += records
        self.counts["bytes_out"] += size_bytes

    def report(self, **more: Any) -> None:
        """Add the task's counts to the driver's; a part without an identity counts each time."""
        if not (self._by_row or self._accumulator is not None):
            return
        steps = _difference(self._before, self._session.stats())
        part = (uuid4().hex,) if self._part is None else self._part
        native = {native_module()[1]: 1}
        counted = {part: {**self.counts, "steps": steps, "traces": self.traces, "native": native, **more}}
        if self._by_row:
            self.row = b64encode(pickle.dumps(counted)).decode()
        else:
            self._accumulator.add(counted)


def _difference(before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]) -> Counts:
    return {
        step: {
            name: value - before.get(step, {}).get(name, 0)
            for name, value in counts.items()
            if not name.startswith("pending_")
        }
        for step, counts in after.items()
    }
