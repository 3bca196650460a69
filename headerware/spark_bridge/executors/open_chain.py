"""A chain, opened once in each worker process and kept for the tasks that follow.

A Python worker runs one task at a time. The records that a session keeps (incomplete messages) are
dropped when a task is done with a partition; keys and dictionaries are kept.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import msgspec
from pyspark import SparkFiles, TaskContext

from headerware.core.chain import Chain
from headerware.core.context import Context, wall_clock_ms
from headerware.core.dead_letter import dead_letter, is_dead_letter_topic
from headerware.core.errors import HeaderwareError, HeldBackError, InterceptorError
from headerware.core.hooks import Interceptor, Place
from headerware.core.order import place_of
from headerware.core.record import Operation
from headerware.interceptors.audit import Audit
from headerware.interceptors.lineage import Lineage
from headerware.interceptors.metrics import Metrics
from headerware.interceptors.serialize import Serialize
from headerware.serdes.serde import PARTS
from headerware.spark_bridge.chain_source import CANNOT_WAIT, without_dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headerware.core.record import Record
    from headerware.core.session import Session
    from headerware.spark_bridge.chain_source import TaskSpec


_MAX_OPEN_CHAINS: Final = 16
_DEAD_LETTER_LOOP: Final = (
    "and the record is a dead letter already, for which no other is written: do not read dead-letter topics "
    "here"
)
_KEEP_APART: Final = (
    'to keep such rows apart and go on, give failures="route", or dead_letters= in foreach_batch()'
)
_NO_TOPIC: Final = "unknown"
"""The topic that a dead letter names for a row without one."""
_HEADER = "hw.id"
_LOCAL = "dedup"


class _BatchClock:
    """The time of a batch, the same in a replay; wall-clock time if none is set."""

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms: int | None = None

    def __call__(self) -> int:
        """Return the milliseconds since the epoch."""
        return wall_clock_ms() if self.ms is None else self.ms


class TaskPartitionPicker:
    """Pick the partition of a message without a key, so that its slices stay together, also in a replay.

    ``counts`` has the number of partitions by topic; any other topic counts as having one.
    """

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts: Mapping[str, int] = counts or {}

    def __call__(self, record: Record) -> int | None:
        """Return the partition, or None if Kafka's partitioner chooses by the key."""
        if record.key is not None:
            return None
        return crc32(_seed(record)) % (self.counts.get(record.topic) or 1)


class _DeadLetterRoute(NamedTuple):
    """The topic of a step's dead letters, and the style of their header names."""

    topic: str
    names: str


class OpenChain:
    """A chain that is open in this process."""

    def __init__(self, spec: TaskSpec) -> None:
        chain = spec.source.load(local_path)
        steps = [
            without_dead_letters(_with_typed_parts(step, name, spec.typed), name)
            for step, name in zip(chain, chain.names, strict=True)
            if spec.typed or place_of(step) is not Place.SERIALIZE
        ]
        self.spec: Final = spec
        self.dedups: Final = any(place_of(step) is Place.DEDUP for step in steps)
        """Whether records get identities."""
        writes = spec.side == "producer"
        measured = any(isinstance(step, Metrics) for step in steps)
        self.counts_topics: Final = any(isinstance(step, Lineage) for step in steps) or (writes and measured)
        """Whether tasks count the records by topic for the driver."""
        self.observes: Final = not writes and (measured or any(isinstance(step, Audit) for step in steps))
        """Whether tasks count the records that a reading chain passes on."""
        self.clock: Final = _BatchClock()
        self.identities: Final[dict[tuple[Any, ...], bytes]] = {}
        """The identities that ``dedup`` found, by position; the task empties it."""
        self._dead_letter_routes = {
            name: _DeadLetterRoute(step.dead_letter_topic, step.dead_letter_headers)
            for step, name in zip(chain, chain.names, strict=True)
            if isinstance(step, Interceptor) and step.on_error == "dead_letter"
        }
        self.pick_partition: Final = TaskPartitionPicker()
        self.session: Final[Session] = Chain(steps, carry=chain.carry).open(self._context())
        self._audits = [step for step in self.session.steps if isinstance(step.interceptor, Audit)]

    def begin(self) -> None:
        """Tell the chain the job and batch of this task."""
        task = TaskContext.get()
        batch = task.getLocalProperty("streaming.sql.batchId") if task else None
        self.session.begin(self.spec.job if batch is None else f"{self.spec.job}#{batch}")

    def give(self, records: Sequence[Record]) -> None:
        """Tell ``audit`` which records are passed on, as a receiving client does."""
        for step in self._audits:
            own = [record for record in records if step.topics.matches(record.topic)]
            step.opened.on_operation(Operation(name="receive", began_ns=0, ended_ns=0, records=own))

    def observed(self) -> dict[str, Any]:
        """Return what ``audit`` has counted since the last call."""
        dead_letters = self.spec.failures == "route"
        counts = {step.name: step.opened.take_counts(dead_letters=dead_letters) for step in self._audits}
        return {"audit": counts} if counts else {}

    def refused(self, error: HeaderwareError, original: Record) -> dict[str, Any]:
        """Return the failure of a row, with its dead letter; raise the error if failures fail the job."""
        error = (
            error.at("chain", original)
            if isinstance(error, InterceptorError)
            else _at_position(error, original)
        )
        spec = self.spec
        hidden = spec.side == "producer" and self.session.hides(original.topic or "")
        if isinstance(error, HeldBackError) or hidden:
            raise error
        if spec.failures == "fail":
            error.add_note(_KEEP_APART)
            raise error
        default_route = _DeadLetterRoute(spec.dead_letter_topic, spec.dead_letter_headers)
        topic, names = self._dead_letter_routes.get(error.step or "", default_route)
        if spec.side == "consumer" and is_dead_letter_topic(topic, original.topic or ""):
            raise InterceptorError(f"{error}; {_DEAD_LETTER_LOOP}") from error
        stage = "ON_CONSUME" if spec.side == "consumer" else "ON_SEND"
        made = dead_letter(
            original.replace(topic=original.topic or _NO_TOPIC, headers=_named_headers(original.headers)),
            error,
            topic=topic,
            names=names,
            stage=stage,
            group_id=spec.group_id,
            cluster=spec.cluster_id,
            now_ms=self.clock(),
        )
        return {
            "step": error.step,
            "error": type(error).__name__,
            "reason": str(error),
            "topic": made.topic,
            "key": made.key,
            "value": made.value,
            "headers": [{"key": name, "value": value} for name, value in made.headers],
        }

    def _context(self) -> Context:
        spec = self.spec
        return Context(
            side=spec.side,
            client_id="spark",
            group_id=spec.group_id,
            now_ms=self.clock,
            cluster_id=lambda: spec.cluster_id,
            is_duplicate=self._note_identity,
            pick_partition=self.pick_partition,
            max_message_bytes=spec.max_message_bytes,
            cannot_wait=CANNOT_WAIT if spec.side == "consumer" else None,
            warns=False,
        )

    def _note_identity(self, identity: bytes, record: Record) -> bool:
        self.identities[record.topic, record.partition, record.offset] = identity
        return False


_open_chains: Final[OrderedDict[bytes, OpenChain]] = OrderedDict()


def open_chain(pickled: bytes) -> OpenChain:
    """Return the chain of a pickled :class:`TaskSpec`, opened at most once in this process."""
    found = _open_chains.get(pickled)
    if found is None:
        found = _open_chains[pickled] = OpenChain(pickle.loads(pickled))  # noqa: S301 - Spark's own channel
        if len(_open_chains) > _MAX_OPEN_CHAINS:
            _open_chains.popitem(last=False)[1].session.close()
    _open_chains.move_to_end(pickled)
    found.clock.ms = None
    found.identities.clear()
    found.begin()
    return found


def local_path(path: str) -> str:
    """Return a file's path, or the path of the file of that name that Spark shipped."""
    if os.path.exists(path):  # noqa: PTH110 - options are plain text
        return path
    shipped: str = SparkFiles.get(os.path.basename(path))  # noqa: PTH119 - as above
    return shipped if os.path.exists(shipped) else path  # noqa: PTH110 - as above


def _with_typed_parts(step: Any, name: str, typed: frozenset[str]) -> Any:
    """Restrict a serialize step to the parts whose columns hold objects."""
    if not isinstance(step, Serialize):
        return step
    return msgspec.structs.replace(step, name=name, **{part: None for part in PARTS if part not in typed})


def _named_headers(headers: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Leave out headers without a name, which frames can hold and Kafka cannot."""
    return [pair for pair in headers if pair[0] is not None]


def _at_position(error: HeaderwareError, record: Record) -> InterceptorError:
    placed = InterceptorError(
        str(error), step="chain", topic=record.topic, partition=record.partition, offset=record.offset
    )
    placed.__cause__ = error
    return placed


def _seed(record: Record) -> bytes:
    """Return bytes that are the same in a replay: the identity, or else the value."""
    # The header may be in a packed block of header ids; the record keeps the identity itself.
    identity = record.local.get(_LOCAL) if record.local else None
    if identity is not None:
        encoded: bytes = identity.encode()
        return encoded
    header = record.headers.last(_HEADER)
    return (record.value if header is None else header) or b""
