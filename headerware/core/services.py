"""Services that an opened interceptor may offer in addition to its hooks, each a Protocol.

A session asks once, when it opens, which interceptors offer which services. The methods of one service go
together: an interceptor has all of them, and the attributes of the service, or none. Unless a service says
otherwise, it is called on the thread that calls the session, one call at a time.
"""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from headerware.core.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from headerware.core.batch import Batch
    from headerware.core.headers import Headers, Pair
    from headerware.core.hooks import HookResult
    from headerware.core.record import Operation, Record, RecordMetadata

TopicPartitionKey = tuple[str, int]
"""A topic and a partition of it."""
Direction = Literal["send", "consume"]
Service = TypeVar("Service")


class HearsAcknowledgements(Protocol):
    """Is told the outcome of each record that the application sent."""

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> object:
        """Called once for each record, on the thread that polls the producer."""


class HearsProcessed(Protocol):
    """Is told which records the application has finished with."""

    def on_processed(self, record: Record, error: BaseException | None) -> object:
        """Called once for each record, with the error that occurred, or None.

        It is called on the thread that processes: by several at once if the application has several workers.
        """


class SurroundsProcessing(Protocol):
    """Surrounds the application's processing of records, on its thread or in its task."""

    def processing(self, records: Sequence[Record]) -> AbstractContextManager[object] | None:
        """Return a context manager for processing these records together, or None.

        ``on_processed`` follows for each record. If entering or leaving fails, that is logged and counted.
        Several threads may call this at once, and a record that is tried again is surrounded again.
        """


class HearsOperations(Protocol):
    """Is told of the calls by which a client receives records, commits offsets and ends transactions."""

    def on_operation(self, operation: Operation) -> object:
        """Called once for each operation, before the application gets the records.

        It is called on the thread that makes the call; with asyncio in the task that receives, and with
        ``run`` on the worker that processes, once for each record. So several threads may call it at once.

        Later versions may add operations, so an interceptor ignores names that it does not know.
        """


class Idles(Protocol):
    """Tells when ``on_operation`` would do nothing, for instance because no tracing is set up.

    It is asked only of interceptors that hear operations.
    """

    def is_idle(self) -> bool:
        """Return whether ``on_operation`` would do nothing now; called before an operation begins."""


class HearsCommits(Protocol):
    """Is told which offsets were committed."""

    def on_commit(self, offsets: Sequence[Any]) -> object:
        """Called after each commit, on the thread that polls the consumer."""


class Begins(Protocol):
    """Is told which piece of work the client begins, such as one batch of a job."""

    def begin(self, work: str) -> object:
        """Called whenever the client begins another piece of work, before the first record of it."""


class Polls(Protocol):
    """Releases consumed records that it has held back, or refuses them, once their time has come."""

    def poll(self, now_ms: int) -> Iterable[Record | Exception] | None:
        """Called between records, on the thread that consumes, with the milliseconds since the epoch."""


class Flushes(Protocol):
    """Releases records that it holds back on the sending side."""

    def flush(self) -> Iterable[Record | Exception] | None:
        """Called when the application flushes its producer, on that thread."""


class Revokes(Protocol):
    """Keeps state for each partition."""

    def revoke(self, partitions: list[TopicPartitionKey]) -> object:
        """Called when partitions have gone to another consumer, to forget their state."""


class Reassembles(Polls, Revokes, Protocol):
    """Makes one record of several, so that not every offset may be committed.

    Its records wait for others of their message. It has all these methods, ``poll``, by which it gives
    messages up, and ``revoke``.
    """

    def is_due(self) -> bool:
        """Return whether ``poll`` is to be called before anything else is read; called after each record."""

    def reached(self, topic: str, partition: int, offset: int) -> object:
        """Note how far a partition was read; called for records that do not come through the chain."""

    def seek(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the offset to begin at so that the record at ``offset`` is complete; None for ``offset``."""

    def safe_offset(self, topic: str, partition: int, position: int) -> int:
        """Return the largest offset up to a position from which a restart loses nothing."""

    def safe_offsets(self) -> Mapping[TopicPartitionKey, int]:
        """Return the first waiting offset of each partition that has one."""

    def waiting_offsets(self) -> Mapping[TopicPartitionKey, Sequence[int]]:
        """Return the offsets of the records that wait, by partition."""


class AddsBytes(Protocol):
    """Makes records larger."""

    def overhead_bytes(self, record: Record) -> int:
        """Return an upper bound of what it adds to a record; called while sending, on any thread."""


class Counts(Protocol):
    """Counts more than the session does by itself."""

    def stats(self) -> Mapping[str, int]:
        """Return its counters by name; called on any thread.

        Counters whose names begin with ``pending`` are current numbers; all other counters only grow.
        """


class Closes(Protocol):
    """Has something to close."""

    def close(self) -> object:
        """Called once, when the session is closed."""


class Ticks(Protocol):
    """Has something to do from time to time."""

    def tick(self, now_ms: int) -> object:
        """Called while the application polls or flushes its client, on that thread."""


class HearsStopped(Protocol):
    """Is told of records that another step does not let pass, or fails on."""

    def on_stopped(
        self, direction: Direction, record: Record, step: str, outcome: str, error: BaseException | None
    ) -> object:
        """Called once for each such record, as it came in.

        ``step`` is the name of the interceptor. ``outcome`` is ``dropped``, ``dead_lettered``, ``refused``
        (the application gets the error), ``skipped`` (the record goes on without the step) or ``held_back``
        (the record is tried again). ``error`` is None if the step dropped the record on purpose.

        A record that a consumer's ``run`` gives up because its handler failed has the step ``processing``,
        and is ``skipped`` or ``dead_lettered``. Then the threads of ``run`` call this, several at once.
        """


class WrapsHooks(Protocol):
    """Wraps the hooks of the other steps of its chain, for instance to measure time."""

    def wrap_hook(self, step: str, direction: Direction, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the function to call in place of a step's hook, or the hook; called once for each topic.

        The hook takes a record, or takes and returns a :class:`~headerware.core.batch.Batch`.
        """


class CarriesOn(Protocol):
    """Continues headers of a record that is processed in the records that are sent meanwhile."""

    def carried_on(self, headers: Headers) -> Pair | Headers | None:
        """Return what goes on from a record with these headers: one header, several, or None for none.

        Called on the thread that sends, before ``on_send``; several threads may call it at once. A header
        that the application has set itself takes precedence. ``headerware explain`` calls the interceptor
        itself, not the opened object.
        """


class HearsStatistics(Protocol):
    """Is told librdkafka's own statistics, as often as its attribute ``statistics_interval_ms`` says."""

    statistics_interval_ms: int | None
    """How often it wants them, unless the application has set it; None leaves them off."""

    def on_statistics(self, text: str) -> object:
        """Called with the JSON of ``stats_cb``, on the thread that polls, before the application's own."""


class HearsAccepted(Protocol):
    """Sees each consumed record last, after all steps have accepted it.

    So a step can remember accepted records only, and can give the application headers that no other step may
    see.
    """

    def on_accepted(self, record: Record) -> HookResult:
        """Return what ``on_consume`` may return."""


class HearsAcceptedBatches(Protocol):
    """Sees each batch of consumed records last, as :class:`HearsAccepted` sees each record."""

    def on_accepted_batch(self, batch: Batch) -> Batch:
        """Return what ``on_consume_batch`` may return."""


_SERVICES: Final = (
    SurroundsProcessing,
    HearsOperations,
    Idles,
    Begins,
    Polls,
    Flushes,
    Revokes,
    Reassembles,
    AddsBytes,
    Counts,
    Closes,
    Ticks,
    HearsStopped,
    WrapsHooks,
    CarriesOn,
    HearsStatistics,
    HearsAccepted,
    HearsAcceptedBatches,
)


def _methods(service: object) -> list[str]:
    return [name for name in vars(service) if not name.startswith("_")]


SERVICE_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        method: tuple(inspect.signature(getattr(service, method)).parameters)[1:]
        for service in _SERVICES
        for method in _methods(service)
    }
)
"""The methods of all services, each with the arguments that it is called with."""


def offered(opened: object, service: Callable[..., Service]) -> Service | None:
    """Return an opened interceptor as the service that it offers, or None if it does not.

    Raises:
        PluginError: it has some methods of the service, but not all of them and of its attributes.
    """
    found: Any = opened
    kind: Any = service
    own = _methods(kind)
    has = [method for method in own if getattr(found, method, None) is not None]
    if not has:
        return None
    expected = [*own, *(method for base in kind.__bases__ for method in _methods(base))]
    missing = [method for method in expected if getattr(found, method, None) is None]
    missing += [name for name in getattr(kind, "__annotations__", ()) if not hasattr(found, name)]
    if missing:
        raise PluginError(
            f"{type(opened).__name__} has the method {has[0]!r}; expected {', '.join(map(repr, missing))}, "
            f"too, because a session uses all of them or none"
        )
    return found  # type: ignore[no-any-return]  # it has the methods of the service
