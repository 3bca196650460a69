"""The asyncio producer: the synchronous one with its chain, on the event loop.

A record goes through ``await produce()`` in these steps:

1. The chain runs on the loop's thread, and librdkafka queues the record, which takes microseconds. A record
   without a chain to go through is queued at once.
2. A call that would wait goes to a worker: slices, which need room; records while the queue is full; chains
   that may wait for the network; large payloads; and every record after one of these, to keep the order.
3. A poller thread waits for delivery reports. It takes the first report and wakes the loop, which takes the
   others on its own thread. If two threads called into C for each report, they would pass the interpreter's
   lock back and forth, which takes ten times as long as the reports themselves.

So a record is either queued by librdkafka, all of its slices included, or not sent at all, whenever a task
is cancelled.
"""

from __future__ import annotations

import asyncio
import weakref
from asyncio import get_running_loop
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from math import inf
from threading import Condition, Event, Thread, get_ident
from time import monotonic
from traceback import clear_frames
from typing import Any, ClassVar, Final, Self

import confluent_kafka.aio
import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition, cimpl

from headerware.clients.aio.worker import LoopResults, Worker, set_result
from headerware.clients.cluster_id import ClusterIdPort
from headerware.clients.compacted_topics import CompactedTopics
from headerware.clients.dead_letters import DeadLetters
from headerware.clients.deliveries import Deliveries, DeliveryCallback
from headerware.clients.forked import refuse_in_children
from headerware.clients.live_chain import ChainInForce, ShownChain
from headerware.clients.partition_picker import PartitionPicker
from headerware.clients.producer import SILENT_S, Producer, of_our_types
from headerware.clients.settings import chain_by_name, flattened
from headerware.core.chain import Chain, resolved_on_error
from headerware.core.context import Context
from headerware.core.headers import Headers, HeadersLike
from headerware.core.hooks import FanOut, states
from headerware.core.record import Record
from headerware.kafka.settings import boolean

_POLL_S: Final = 0.1
"""How long the poller waits for a report, and so how long closing may wait for the poller."""
_FLUSH_S: Final = 0.01
"""How long one call of librdkafka's flush lasts at most.

A flush also takes records that are sent meanwhile, which then do not linger. After each callback that raises,
confluent-kafka would repeat a flush of 0.2 s or more, and so take all reports itself.
"""
_ROOM_S: Final = 0.05
_REPORTS_AT_ONCE: Final = 1_000
"""How many reports the loop takes before it looks at its other tasks."""
_IN_A_ROW: Final = 500
"""After how many records without a wait a producing task lets other tasks run."""
_LARGE_BYTES: Final = 262_144
"""A payload from this size on does not go through the chain on the loop's thread."""
_c_produce: Final[Any] = cimpl.Producer.produce
_EVENTS: Final = ("error_cb", "stats_cb", "throttle_cb")


class QueueingProducer(Producer):
    """The synchronous producer inside: on the loop's thread, work that would wait is left in ``rest``.

    On any other thread, which is the worker's thread, it waits for room.
    """

    chain: Chain
    picker: PartitionPicker
    compacted: CompactedTopics
    _cluster_id: ClusterIdPort

    def __init__(self, conf: Mapping[str, Any], chain: Chain | None, results: LoopResults) -> None:
        self.results: Final = results
        self.room: Final = Event()
        """Set when reports have come, which make room in the queue."""
        self.rest: tuple[Callable[[], None], Deliveries, Record] | None = None
        """The work that the last ``produce`` on the loop's thread has left, and its record."""
        self._hw_chain, rest = self._hw_chain_for(dict(conf), chain)
        rest = flattened(rest)
        self.reports_successes: Final = not boolean(rest, "delivery.report.only.error", default=False)
        """Whether callbacks hear of records that were delivered; futures always do."""
        rest["delivery.report.only.error"] = False
        self._hw_open(rest)  # even with an empty chain, because reports have the application's headers
        self.default: Final = self._hw_default
        """The callback of records without a callback of their own."""
        self.dropped: Final = self._hw_reports.dropped
        self._look_at(self._hw_chain)
        if self._hw_live is not None:
            self._hw_live.follow(self)

    def _hw_use_chain(self, chain: Chain) -> None:
        super()._hw_use_chain(chain)
        self._look_at(chain)

    def _look_at(self, chain: Chain) -> None:
        self.is_plain: bool = not chain
        """Whether the chain is empty."""
        self._splits = any(states(step, "splits") for step in chain)
        self._names_cluster = any(states(step, "names_cluster") for step in chain)
        self._blocks = any(
            states(step, "blocks") or resolved_on_error(step) == "dead_letter" for step in chain
        )

    def is_slow(self, topic: str, value: Any) -> bool:
        """Return whether the chain may need long for a record, or wait for the network."""
        if self._blocks or (isinstance(value, bytes | str) and len(value) >= _LARGE_BYTES):
            return True
        if self._names_cluster and self._cluster_id.may_wait:
            return True
        return self._splits and not (self.picker.knows(topic) and self.compacted.knows(topic))

    def _hw_context(self, conf: Mapping[str, Any], report_producer: DeadLetters) -> Context:
        context = super()._hw_context(conf, report_producer)
        assert isinstance(context.pick_partition, PartitionPicker)  # noqa: S101 - the base class makes it
        self.picker = context.pick_partition
        assert isinstance(context.is_compacted, CompactedTopics)  # noqa: S101 - as above
        self.compacted = context.is_compacted
        assert isinstance(context.cluster_id, ClusterIdPort)  # noqa: S101 - as above
        self._cluster_id = context.cluster_id
        return context

    def release(self) -> None:
        """Send the records that interceptors hold back, and report dropped records."""
        self._hw_release()

    def await_reports(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for all reports, and return how many are left."""
        return self._hw_await_reports(timeout)

    def serve_dropped(self) -> None:
        """Report the records that hooks have dropped."""
        if self.dropped:
            self._hw_reports.serve()

    def queue_in_turn(self, queue: Callable[[], None], topic: str) -> None:
        """Send a record on the worker's thread, or do the work that is left of sending it."""
        if self._splits and isinstance(topic, str):
            self.picker.learn(topic)
            self.compacted(topic)
        if self._names_cluster:
            self._cluster_id.wait()  # also if no step of this record needs it: one wait is enough
        queue()
        self.serve_dropped()

    def _on_loop(self) -> bool:
        return get_ident() == self.results.loop_thread

    def _hw_queue_later(self, deliveries: Deliveries, record: Record, report: Any) -> bool:
        queue = partial(self._queue_when_room, record, report)
        if self._on_loop():
            self.rest = (partial(_acknowledged, deliveries, queue, record), deliveries, record)
        else:
            queue()
        return True

    def _queue_when_room(self, record: Record, report: Any) -> None:
        deadline = monotonic() + self._hw_room_timeout_s
        while True:
            try:
                self._hw_produce_wire_record(record, report)
            except BufferError:
                if monotonic() >= deadline:
                    raise
                self._hw_reports.waits += 1
                self._hw_make_room()
            else:
                return

    def _hw_fan_out(
        self,
        deliveries: Deliveries,
        record: Record,
        pieces: list[Record] | FanOut,
        user: DeliveryCallback | None,
    ) -> None:
        queue = partial(super()._hw_fan_out, deliveries, record, pieces, user)
        if self._on_loop():
            self.rest = (queue, deliveries, record)
        else:
            queue()

    def _hw_make_room(self) -> None:
        """Wait for the poller to take reports."""
        self.results.wake()
        if self.room.wait(_ROOM_S):
            self.room.clear()


def _acknowledged(deliveries: Deliveries, queue: Callable[[], None], record: Record) -> None:
    try:
        queue()
    except Exception as error:
        deliveries.acknowledge_failure(record, error)
        raise


class _EnoughError(Exception):
    """Raised in a report's callback so that librdkafka keeps further reports for the next call."""

    def forget_frames(self) -> None:
        """Release the futures of the frames; confluent-kafka never frees what a callback raises.

        A future that lives on never tells that nobody has looked at its exception.
        """
        clear_frames(self.__traceback__)
        self.__traceback__ = None


class _Reports:
    """Take delivery reports on the event loop's thread; other threads only notice that there are any."""

    def __init__(self, core: QueueingProducer) -> None:
        self.core: Final = core
        self._results: Final = core.results
        self._rounds: int = 0
        self._round_ended: Final = Condition()
        self.watchers: Final[set[int]] = set()
        """Threads that are to leave further reports to the loop."""
        self.left: int = 0
        """How many reports the loop still takes in this turn; 0 if it takes none."""
        self._stopped = False
        self._thread: Thread | None = None
        self.count: int = 0
        """How many reports the loop has had."""
        self.awaited: asyncio.Future[None] | None = None
        """The future that is done at the next report, if a task waits for one."""

    # On other threads

    def watch(self, call: Callable[[float], int], timeout: float) -> int:
        """Make a call that would take reports, and have the loop take them; return the call's result.

        The call is made again until it returns 0 or the time is over.
        """
        deadline = inf if timeout < 0 else monotonic() + timeout
        ident = get_ident()
        while True:
            with self._round_ended:
                if self._stopped:
                    return 0
                self.watchers.add(ident)
            found: int | None = None
            try:
                found = call(max(0.0, deadline - monotonic()))
            except _EnoughError as error:
                error.forget_frames()
            finally:
                with self._round_ended:
                    self.watchers.discard(ident)
                    self._round_ended.notify_all()
            if found is not None:
                if not found or monotonic() >= deadline:
                    return found
                continue
            with self._round_ended:
                seen = self._rounds
                self._results.add(self._serve)
                self._results.wake()
                while self._rounds == seen and self._results.is_open and not self._stopped:
                    self._round_ended.wait(_POLL_S)
            if not self._results.is_open:
                return 0

    # On the loop's thread

    def _serve(self) -> None:
        """Take reports; if there are many, let other tasks run and go on."""
        self.left = _REPORTS_AT_ONCE
        try:
            self.core.poll(0)
        except _EnoughError as error:
            error.forget_frames()
            self._results.add(self._serve)
            self._results.wake()
            return
        except Exception as error:  # noqa: BLE001 - a callback of C raised it; the loop reports it
            _report_error(self._results, error)
        finally:
            self.left = 0
            self.core.room.set()
        with self._round_ended:
            self._rounds += 1
            self._round_ended.notify_all()

    def next(self) -> asyncio.Future[None]:
        """Return a future that is done at the next report; all callers share it."""
        if self.awaited is None:
            self.awaited = self._results.bind().create_future()
        return self.awaited

    # The poller

    def start(self) -> None:
        """Start the thread that waits for reports and events, which runs until the end."""
        self._thread = Thread(target=self._poll, name="headerware-poller", daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stopped and self._results.is_open:
            try:
                self.watch(self.core.poll, _POLL_S)
            except Exception as error:  # noqa: BLE001 - as above
                self._results.add(_report_error, self._results, error)
            self._results.wake()

    def stop(self) -> None:
        """Stop after the current poll."""
        self._stopped = True

    def join(self) -> None:
        """Stop, and wait for the poller and for every other thread that watches."""
        self.stop()
        with self._round_ended:
            self._round_ended.wait_for(lambda: not self.watchers)
        if self._thread is not None:
            self._thread.join()


class _Delivery(msgspec.Struct, gc=False):
    """The report of one record, which librdkafka calls; it can be in no reference cycle."""

    reports: _Reports
    future: asyncio.Future[Message]
    callback: DeliveryCallback | None
    headers: list[Any] | None = None
    """The headers of a record that does not go through the chain."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Give the future its result if the loop takes reports now, or else leave that to the loop."""
        reports = self.reports
        if self.headers is not None:
            message.set_headers(self.headers)
        ident, results = get_ident(), reports.core.results
        if reports.left and ident == results.loop_thread:
            self.set_result(error, message)
            reports.left -= 1
            if not reports.left:
                raise _EnoughError
            return
        results.add(self.set_result, error, message)
        if ident in reports.watchers:
            raise _EnoughError

    def set_result(self, error: KafkaError | None, message: Message) -> None:
        """Call the callback, and give the future its result; on the loop's thread."""
        reports, callback, future = self.reports, self.callback, self.future
        if callback is not None and (error is not None or reports.core.reports_successes):
            reports.core.results.run_callback(callback, error, message)
        if not future.done():
            if error is None:
                future.set_result(message)
            else:
                future.set_exception(KafkaException(error))
                if callback is not None:
                    future.exception()  # the callback was told, so asyncio need not warn
        reports.count += 1
        if reports.awaited is not None:
            set_result(reports.awaited, None, None)
            reports.awaited = None


class AsyncProducer(confluent_kafka.aio.AIOProducer):
    """Produce to Kafka through a chain, in asyncio; a drop-in for ``confluent_kafka.aio.AIOProducer``.

    Args:
        producer_conf: confluent-kafka's configuration, with the chain's own keys among it. ``on_delivery``,
            ``error_cb``, ``stats_cb`` and ``throttle_cb`` run on the event loop, and may be coroutine
            functions.
        max_workers: the most threads for calls that wait, such as ``flush`` and transactions; they start
            when they are needed.
        executor: runs these calls instead of threads of our own; it is not shut down.
        batch_size: accepted as ``AIOProducer`` accepts it; librdkafka makes the batches
            (``batch.num.messages``, ``batch.size``).
        buffer_timeout: likewise (``linger.ms``).
        chain: the chain, if code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    It belongs to the event loop on which it is first awaited, and is used there only. Hooks run on the loop's
    thread, in the task's context; if the record has to wait, they run on a thread, in a copy of that context.
    Interceptors hear of deliveries on the loop's thread or on the poller's thread.
    """

    _hw_core_type: ClassVar[type[QueueingProducer]] = QueueingProducer

    @chain_by_name
    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,  # noqa: ARG002 - AIOProducer's signature
        buffer_timeout: float = 1.0,  # noqa: ARG002 - as above
        *,
        chain: Chain | None = None,
    ) -> None:
        if max_workers < 1:
            raise ValueError(f"max_workers is {max_workers}, expected at least 1")
        self._hw_max_workers = max_workers
        self._hw_own_executor: ThreadPoolExecutor | None = None
        self._hw_given_executor = executor
        self._hw_results: Final = LoopResults(type(self).__name__, producer_conf.get("client.id"))
        conf = dict(producer_conf)
        for name in _EVENTS:
            if callable(conf.get(name)):
                conf[name] = self._hw_results.on_loop(conf[name])
        self._hw_core: Final = self._hw_core_type(conf, chain, self._hw_results)
        self._hw_core._hw_name = type(self).__name__  # noqa: SLF001 - our own
        self._hw_worker: Final = Worker(self._hw_threads, self._hw_results)
        self._hw_reports: Final = _Reports(self._hw_core)
        self._hw_finish = weakref.finalize(self, self._hw_reports.stop)
        self._hw_open_on: asyncio.AbstractEventLoop | None = None
        """The loop of the client while it is open."""
        self._hw_closing: asyncio.Task[None] | None = None
        self._hw_asked = self._hw_in_a_row = 0
        if self._hw_core._hw_may_have_a_chain():  # noqa: SLF001 - our own
            refuse_in_children(self)

    chain: ShownChain = ShownChain()
    """The chain."""

    @property
    def _hw_chain(self) -> Chain:
        return self._hw_core._hw_chain  # noqa: SLF001 - our own

    async def reload(self) -> bool:
        """Read the file of the chain again, and let the records after this call go through the new chain.

        It works as ``Producer.reload``, in turn with records that wait to be queued.

        Returns:
            whether the chain has changed.

        Raises:
            ConfigError: the file is wrong, or the chain does not come from a file.
            HeaderwareError: an interceptor cannot be opened. In both cases the chain in force goes on.
            RuntimeError: the producer is closed, or belongs to another event loop.
        """
        self._hw_running_loop()
        changed: bool = await self._hw_worker.run(self._hw_core.reload)
        return changed

    def chain_in_force(self) -> ChainInForce | None:
        """Return the facts about the chain in force; None if it does not come from a file."""
        return self._hw_core.chain_in_force()

    # Sending

    async def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersLike = None,
    ) -> asyncio.Future[Message]:
        """Send a record through the chain, wait until it is queued, and return the future of its delivery.

        Args:
            topic: the topic.
            value: the payload; bytes or text, unless the chain serializes; None is a tombstone.
            key: the key, likewise.
            partition: the partition; -1 leaves it to the partitioner.
            callback: called with ``(error, message)`` on the event loop, before the future is done; it may be
                a coroutine function.
            on_delivery: another name for ``callback``.
            timestamp: milliseconds since the epoch; 0 is now.
            headers: a mapping or pairs.

        Returns:
            a future of the delivered message, with the application's key, value and headers; it raises a
            KafkaException if the record was not delivered, also if a hook dropped it.

        Raises:
            HeaderwareError: an interceptor refused the record.
            BufferError: the queue could never hold all slices of the message, or had no room for as long as
                a delivery may take.
            KafkaException: librdkafka refused it.
            RuntimeError: the producer is closed, or belongs to another event loop.

        It waits only while there is no room in the queue. If the task is cancelled meanwhile, the record is
        not sent, or sent completely.
        """
        loop = get_running_loop()
        if loop is not self._hw_open_on:
            loop = self._hw_running_loop(topic)
        core, future = self._hw_core, loop.create_future()
        user = callback if callback is not None else on_delivery
        if user is None:
            user = core.default
        if core.is_plain and not self._hw_worker.busy:
            headers = wire = None if headers is None else _wire_headers(headers)  # they may come only once
            report = _Delivery(self._hw_reports, future, user, wire)
            try:
                _c_produce(core, topic, value, key, partition, report, None, timestamp, wire)
            except BufferError:
                pass  # it has to wait for room
            except TypeError:
                converted = of_our_types(topic, value, key, headers)
                if converted is None:
                    raise
                value, key = converted.value, converted.key
            else:
                self._hw_in_a_row += 1
                if self._hw_in_a_row >= _IN_A_ROW:
                    self._hw_in_a_row = 0
                    await asyncio.sleep(0)
                return future
        report = _Delivery(self._hw_reports, future, user)
        if self._hw_worker.busy or core.is_slow(topic, value):
            produce = partial(
                Producer.produce, core, topic, value, key, partition, report, None, timestamp, headers
            )
            await self._hw_in_turn(topic, produce, future)
            return future
        Producer.produce(core, topic, value, key, partition, report, None, timestamp, headers)
        if core.rest is not None:
            (queue, deliveries, record), core.rest = core.rest, None
            forget = partial(deliveries.acknowledge_failure, record, asyncio.CancelledError())
            await self._hw_in_turn(topic, queue, future, forget)
            return future
        if core.dropped:
            core.serve_dropped()
            self._hw_results.wake()
        self._hw_in_a_row += 1
        if self._hw_in_a_row >= _IN_A_ROW:
            self._hw_in_a_row = 0
            await asyncio.sleep(0)
        return future

    async def _hw_in_turn(
        self,
        topic: str,
        queue: Callable[[], None],
        future: asyncio.Future[Message],
        forget: Callable[[], None] | None = None,
    ) -> None:
        """Have the worker send a record, after the records that wait already."""
        core = self._hw_core
        try:
            await self._hw_worker.run(partial(core.queue_in_turn, queue, topic), forget=forget)
        except asyncio.CancelledError:
            future.cancel()
            raise

    def __len__(self) -> int:
        """Count the records that wait to be queued or to be delivered; 0 after the close."""
        if self._hw_closing is not None:
            return 0
        return len(self._hw_core) + len(self._hw_worker) + len(self._hw_results)

    async def poll(self, timeout: float = 0, *_: Any, **__: Any) -> int:
        """Wait up to ``timeout`` seconds for a delivery, and count the deliveries since the last call.

        There is no need to call this, because futures and callbacks are served without it. A negative timeout
        waits for ever.
        """
        self._hw_running_loop()
        if self._hw_reports.count == self._hw_asked:
            await asyncio.wait([self._hw_reports.next()], timeout=None if timeout < 0 else timeout)
        found, self._hw_asked = self._hw_reports.count - self._hw_asked, self._hw_reports.count
        return found

    async def flush(self, timeout: float = -1) -> int:
        """Wait up to ``timeout`` seconds for the delivery of all records, and return how many are left."""
        self._hw_running_loop()
        return await self._hw_flush(timeout)

    async def _hw_flush(self, timeout: float) -> int:
        deadline = inf if timeout < 0 else monotonic() + timeout
        if self._hw_worker.busy:
            queued = asyncio.ensure_future(self._hw_worker.run(_nothing))
            while not queued.done():
                # Records that wait for room may wait for records that linger in the queue.
                await self._hw_flush_queue(min(deadline - monotonic(), _POLL_S))
                await asyncio.wait([queued], timeout=max(0.0, min(deadline - monotonic(), _ROOM_S)))
                if not queued.done() and monotonic() >= deadline:
                    queued.cancel()
                    return len(self)
        return await self._hw_flush_queue(-1 if deadline == inf else deadline - monotonic())

    async def _hw_flush_queue(self, timeout: float) -> int:
        """Flush librdkafka's queue; a negative number other than -1 is a deadline that has passed."""
        core, left = self._hw_core, timeout if timeout == -1 else max(0.0, timeout)
        error: Exception | None = None
        if not core.is_plain:
            try:
                await self._hw_on_thread(core.release)
            except Exception as raised:  # noqa: BLE001 - it is raised below, after the others are delivered
                error = raised
        ended = False

        def flush(left: float) -> int:
            return 0 if ended else core.await_reports(min(left, _FLUSH_S))

        flushed: asyncio.Future[int] = self._hw_results.bind().run_in_executor(
            self._hw_threads(), self._hw_reports.watch, flush, left
        )
        try:
            # librdkafka may need 10 ms to see that another thread has taken the last report.
            while not flushed.done() and len(core):
                await asyncio.wait((flushed, self._hw_reports.next()), return_when=asyncio.FIRST_COMPLETED)
            found = flushed.result() if flushed.done() else 0
        finally:
            ended = True
            flushed.cancel()
        await self._hw_results.taken()
        if error is not None:
            raise error
        return found

    async def purge(
        self,
        in_queue: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        in_flight: bool = True,  # noqa: FBT001, FBT002 - as above
        blocking: bool = True,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        """Take records out of the queue, as confluent-kafka does; their futures raise ``_PURGE_QUEUE``."""
        self._hw_running_loop()
        await self._hw_on_thread(self._hw_core.purge, in_queue, in_flight, blocking)

    async def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """Return the metadata of the cluster or of one topic."""
        self._hw_running_loop()
        return await self._hw_on_thread(self._hw_core.list_topics, *args, **kwargs)

    async def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """Return the id of the cluster."""
        self._hw_running_loop()
        return await self._hw_on_thread(self._hw_core.cluster_id, *args, **kwargs)

    async def set_sasl_credentials(self, *args: Any, **kwargs: Any) -> Any:
        """Set the credentials for SASL."""
        self._hw_running_loop()
        return await self._hw_on_thread(self._hw_core.set_sasl_credentials, *args, **kwargs)

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        found = self._hw_core.stats()
        found["client"]["waiting"] = len(self._hw_worker)
        return found

    # Transactions. They are jobs of the worker, after the records that wait to be sent.

    async def init_transactions(self, timeout: float = -1) -> None:
        """Prepare the producer for transactions."""
        await self._hw_transact(self._hw_core.init_transactions, timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        await self._hw_transact(self._hw_core.begin_transaction)

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit a consumer's offsets with the transaction, held back as the consumer's own commits are."""
        await self._hw_transact(self._hw_core.send_offsets_to_transaction, positions, group_metadata, timeout)

    async def commit_transaction(self, timeout: float = -1) -> None:
        """Deliver all sent records, and commit the transaction.

        The commit goes on if the task is cancelled.
        """
        await self._hw_transact(self._hw_core.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction; futures of undelivered records raise ``_PURGE_QUEUE``."""
        await self._hw_transact(self._hw_core.abort_transaction, timeout)

    async def _hw_transact(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._hw_running_loop()
        await self._hw_worker.run(partial(call, *arguments))

    # Threads, and the end

    def _hw_running_loop(self, topic: str | None = None) -> asyncio.AbstractEventLoop:
        """Return the loop, and begin to poll at the first use; ``topic`` is that of a record to send."""
        loop = self._hw_results.bind()
        if self._hw_closing is not None:
            raise self._hw_results.closed("Producer", topic)
        if self._hw_open_on is None:
            self._hw_open_on = loop
            self._hw_reports.start()
        return loop

    def _hw_threads(self) -> Executor:
        if self._hw_given_executor is not None:
            return self._hw_given_executor
        if self._hw_own_executor is None:
            self._hw_own_executor = ThreadPoolExecutor(self._hw_max_workers, "headerware-producer")
        return self._hw_own_executor

    async def _hw_on_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loop = self._hw_results.bind()
        try:
            return await loop.run_in_executor(self._hw_threads(), partial(call, *args, **kwargs))
        finally:
            self._hw_results.wake()

    async def close(self) -> None:
        """Deliver all records; close the client and the interceptors, once. It goes on if cancelled."""
        if self._hw_closing is None:
            self._hw_running_loop()
            self._hw_closing, self._hw_open_on = asyncio.ensure_future(self._hw_close()), None
        await asyncio.shield(self._hw_closing)

    async def _hw_close(self) -> None:
        try:
            if await self._hw_flush(SILENT_S):
                self._hw_core._hw_teller()()  # noqa: SLF001 - our own
                await self._hw_flush(-1)
        finally:
            self._hw_reports.stop()
            await self._hw_on_thread(_close_core, self._hw_core, self._hw_reports)
            await self._hw_results.taken()
            if self._hw_own_executor is not None:
                self._hw_own_executor.shutdown(wait=False)
            self._hw_finish()

    async def __aenter__(self) -> Self:
        self._hw_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        """Do nothing, because the finalizer ends the client; AIOProducer would stop a buffer here."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hw_chain!r}>"


def _wire_headers(headers: Any) -> list[Any] | None:
    """Return a new list of headers, as confluent-kafka takes them and as a report has them."""
    if headers.__class__ is list:
        try:  # not suppress, which takes longer
            for name, value in headers:
                if name.__class__ is not str or (value.__class__ is not bytes and value is not None):
                    return list(Headers(headers))
        except (TypeError, ValueError):
            pass  # these are not pairs, and Headers refuses them
        else:
            return headers.copy() or None
    return list(Headers(headers)) or None


def _close_core(core: QueueingProducer, reports: _Reports) -> None:
    reports.join()
    core.close()


def _nothing() -> None:
    """Do nothing: a job that only waits for its turn."""


def _report_error(results: LoopResults, error: Exception) -> None:
    assert results.loop is not None  # noqa: S101 - it runs this
    results.loop.call_exception_handler({"message": "a callback of a producer raised", "exception": error})
