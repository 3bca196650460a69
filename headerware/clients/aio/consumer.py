"""The asyncio consumer: the synchronous one with its chain, on a thread that serves one event loop.

All calls run on one thread, in the order in which they came. A fetch that waits for records lets other calls
run in between, so that a ``commit`` does not wait for a ``poll``. Callbacks run on the event loop; the thread
waits for them, and meanwhile makes the calls to the consumer that they ask for.

The task that processes a record enters the interceptors' context managers, so a span is current there.

A task that is cancelled loses no message: the messages that were fetched for it go back into the inbox, their
offsets are held back, and the next fetch returns the messages.
"""

from __future__ import annotations

import asyncio
import sys
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from threading import get_ident
from typing import Any, ClassVar, Final, Self

import confluent_kafka.aio
from confluent_kafka import Message, TopicPartition

from headerware.clients.aio.task_executor import AsyncHandler, TaskExecutor
from headerware.clients.aio.worker import LoopResults, Worker, in_callback
from headerware.clients.consumer import Consumer
from headerware.clients.forked import refuse_in_children
from headerware.clients.live_chain import ChainInForce, ShownChain
from headerware.clients.processing import (
    Begun,
    MessageLoop,
    handed_over,
)
from headerware.clients.run_options import OnFailure, Order, RunOptions
from headerware.clients.settings import chain_by_name, flattened
from headerware.core.chain import Chain
from headerware.core.errors import ConfigError
from headerware.core.hooks import DeadLetterHeaders, DeadLetterUnavailable
from headerware.core.record import Verified

_SLICE_S: Final = 0.05
"""How long a fetch may keep other calls waiting."""
_EVENTS: Final = ("error_cb", "stats_cb", "throttle_cb")
_REBALANCES: Final = ("on_assign", "on_revoke", "on_lost")


class _StoppedError(Exception):
    """Raised in a fetch whose task was cancelled, or whose consumer closes; the consumer recovers."""


class InterruptibleConsumer(Consumer):
    """The synchronous consumer inside: its fetches let other calls run in between, and can be stopped."""

    _hw_is_given_later = True

    def __init__(self, conf: Mapping[str, Any], chain: Chain | None) -> None:
        self.worker: Worker | None = None
        self.closing: bool = False
        self._hw_raises_errors = chain is not None
        self._hw_chain, rest = self._hw_chain_for(dict(conf), chain)
        self._hw_take_options(rest, chain)
        self._in_tasks: Final[dict[asyncio.Task[Any], Begun]] = {}
        self._hw_open(flattened(rest))  # even with an empty chain, so that a message can be given back
        if self._hw_live is not None:
            self._hw_live.follow(self)

    def fetched(self, fetch: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a fetch; if it is stopped, the next fetch returns all its messages."""
        try:
            return fetch(self, *arguments)
        except _StoppedError:
            self._hw_recover(sys._getframe())  # noqa: SLF001 - as the consumer's own calls do
            if self.closing and self.worker is not None:
                raise self.worker.results.closed("Consumer") from None
            return None

    def give_back(self, found: Any, error: BaseException | None) -> None:
        """Take back the messages or the error of a fetch whose task was cancelled."""
        if isinstance(error, Exception):
            self._hw_fetch.deferred_error = error
        messages = found if isinstance(found, list) else [] if found is None else [found]
        if messages and self._hw_finish.alive:
            self._hw_delivery.given = messages
            self._hw_fetch.thread = get_ident()
            self._hw_recover(sys._getframe())  # noqa: SLF001 - as above

    # Messages that a task has fetched; their implicit processing lasts until the task's next fetch

    def hand_over_in_task(self, found: Any, began_ns: int) -> None:
        """Tell interceptors of the fetched messages; if processing is implicit, begin it."""
        messages = found if isinstance(found, list) else [] if found is None else [found]
        task = asyncio.current_task()
        is_implicit = self._hw_is_implicit and task is not None
        begun = handed_over(messages, self._hw_in_use, began_ns, is_implicit=is_implicit)
        if begun is not None and task is not None:
            self._in_tasks[task] = begun
            task.add_done_callback(self._end_with_task)

    def end_in_task(self, error: BaseException | None = None, *, goes_on: bool = False) -> None:
        """End the implicit processing of the task's last fetch; ``goes_on`` if it becomes explicit."""
        task = asyncio.current_task() if self._in_tasks else None
        if task is not None:
            self._end_in_task(task, error, goes_on=goes_on)

    def end_in_all_tasks(self) -> None:
        """End the implicit processing of all tasks, because the consumer closes."""
        for task in list(self._in_tasks):
            self._end_in_task(task)

    def _end_with_task(self, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._end_in_task(task, error)

    def _end_in_task(
        self, task: asyncio.Task[Any], error: BaseException | None = None, *, goes_on: bool = False
    ) -> None:
        if task not in self._in_tasks:
            return
        scope, told, _ = self._in_tasks.pop(task)
        task.remove_done_callback(self._end_with_task)
        if goes_on:
            told.clear()
        scope.__exit__(None if error is None else type(error), error, None)

    def task_executor(self, handler: AsyncHandler, options: RunOptions, thread: Worker) -> TaskExecutor:
        """Return the executor that processes records in tasks; processing is explicit from now on."""
        self._hw_begin_explicit()
        return TaskExecutor(
            self._hw_client(), self._hw_delivery, handler, options, self._hw_run_counts, thread=thread
        )

    def run_executor(self, executor: TaskExecutor) -> None:
        """Let an executor process the records."""
        self._hw_run(executor)

    def message_loop(self, timeout: float) -> MessageLoop:
        """Return the iterator that surrounds each message with its processing."""
        return self.messages(timeout)

    def _hw_begin_explicit(self) -> None:
        super()._hw_begin_explicit()
        self.end_in_task(goes_on=True)

    def _hw_is_polled_elsewhere(self) -> bool:
        return self.worker is not None and self.worker.thread != get_ident()

    def _hw_poll_timeout(self, left: float) -> float:
        # Before the fetch, so that no other call comes between a message and its outcome.
        self._let_others_in()
        return min(left, _SLICE_S) if left >= 0 else _SLICE_S

    def _hw_wait_for_retry(self, left: float) -> bool:
        return super()._hw_wait_for_retry(self._hw_poll_timeout(left))

    def _let_others_in(self) -> None:
        worker = self.worker
        if worker is None:
            return
        self._hw_cluster_id.ask_for_others()
        if worker.current is not None and worker.current.cancelled:
            raise _StoppedError
        if len(worker):
            worker.serve()
        if self.closing:
            raise _StoppedError


class AsyncConsumer(confluent_kafka.aio.AIOConsumer):
    """Consume from Kafka through a chain, in asyncio; a drop-in for ``confluent_kafka.aio.AIOConsumer``.

    Args:
        consumer_conf: confluent-kafka's configuration, with the chain's own keys among it. ``on_commit``,
            ``error_cb``, ``stats_cb`` and ``throttle_cb`` run on the event loop, and may be coroutine
            functions.
        max_workers: accepted as ``AIOConsumer`` accepts it; one thread serves the consumer.
        executor: runs the calls, one at a time, instead of a thread of our own; it is not shut down.
        chain: the chain, if code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    It belongs to the event loop on which it is first awaited, and is used there only. Hooks run on the
    consumer's thread, in a copy of the context of the task that fetches. Refused records come as
    :class:`~headerware.Consumer` gives them. ``async for message in consumer`` polls until it is closed.
    """

    _hw_core_type: ClassVar[type[InterruptibleConsumer]] = InterruptibleConsumer

    @chain_by_name
    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: Executor | None = None,
        *,
        chain: Chain | None = None,
    ) -> None:
        if max_workers < 1:
            raise ValueError(f"max_workers is {max_workers}, expected at least 1")
        self._hw_given_executor = executor
        self._hw_own_executor: ThreadPoolExecutor | None = None
        self._hw_results: Final = LoopResults(type(self).__name__, consumer_conf.get("client.id"))
        self._hw_worker: Final = Worker(self._hw_threads, self._hw_results)
        conf = dict(consumer_conf)
        for name in _EVENTS:
            if callable(conf.get(name)):
                conf[name] = self._hw_results.on_loop(conf[name])
        if callable(conf.get("on_commit")):
            conf["on_commit"] = partial(self._hw_worker.wait_for, conf["on_commit"])
        self._hw_core: Final = self._hw_core_type(conf, chain)
        self._hw_core.worker = self._hw_worker
        self._hw_core._hw_name = type(self).__name__  # noqa: SLF001 - our own
        self._hw_closing: asyncio.Task[None] | None = None
        self._hw_running: asyncio.Task[None] | None = None
        self._hw_tasks: TaskExecutor | None = None
        if self._hw_core._hw_may_have_a_chain():  # noqa: SLF001 - our own
            refuse_in_children(self)

    chain: ShownChain = ShownChain()
    """The chain."""

    @property
    def _hw_chain(self) -> Chain:
        return self._hw_core._hw_chain  # noqa: SLF001 - our own

    async def reload(self) -> bool:
        """Read the file of the chain again, and take the next record from the wire through the new chain.

        It works as :meth:`headerware.Consumer.reload`, and does not wait until a fetch or :meth:`run` ends.

        Returns:
            whether the chain has changed.

        Raises:
            ConfigError: the file is wrong, or the chain does not come from a file.
            HeaderwareError: an interceptor cannot be opened. In both cases the chain in force goes on.
            RuntimeError: the consumer is closed, or belongs to another event loop.
        """
        changed: bool = await self._hw_in_turn("reload")
        return changed

    def chain_in_force(self) -> ChainInForce | None:
        """Return the facts about the chain in force; None if it does not come from a file."""
        return self._hw_core.chain_in_force()

    # Records

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message, or None after ``timeout`` seconds without one.

        If the task is cancelled, the next call returns the message. Use :meth:`consume` for many messages a
        second, because each call goes to the thread and back.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
            RuntimeError: the consumer is closed, or belongs to another event loop.
        """
        found: Message | None = await self._hw_fetch(type(self._hw_core).poll, timeout)
        return found

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages, or those that came within ``timeout`` seconds.

        A refused record comes as :meth:`~headerware.Consumer.consume` gives it. If the task is cancelled, the
        next call returns the messages.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
            RuntimeError: the consumer is closed, or belongs to another event loop.
        """
        found: list[Message] | None = await self._hw_fetch(type(self._hw_core).consume, num_messages, timeout)
        return found or []

    async def _hw_fetch(self, fetch: Callable[..., Any], *arguments: Any) -> Any:
        self._hw_require_open()
        if in_callback.get():
            raise RuntimeError("a callback of a consumer cannot fetch: it runs within a fetch or a close")
        if self._hw_running is not None:
            raise RuntimeError("run is under way, and only it fetches; end it with stop()")
        core = self._hw_core
        core.end_in_task()
        began_ns = time.time_ns()
        found = await self._hw_worker.run(
            partial(core.fetched, fetch, *arguments), undo=core.give_back, fetches=True
        )
        core.hand_over_in_task(found, began_ns)
        return found

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over messages until the consumer is closed, as :meth:`poll` gives them."""
        self._hw_core._hw_warn_unless_directed("async for")  # noqa: SLF001 - our own
        return self

    async def __anext__(self) -> Message:
        """Return the next message."""
        while True:
            try:
                message = await self.poll()
            except RuntimeError:
                if self._hw_closing is None:
                    raise
                raise StopAsyncIteration from None
            if message is not None:
                return message

    async def _hw_next_message(self, timeout: float) -> Message | None:
        """Return the next message for a loop, or None at its end."""
        try:
            found: Message | None = await self._hw_fetch(Consumer._hw_next_message, timeout)  # noqa: SLF001 - our own
        except RuntimeError:
            if self._hw_closing is None:
                raise
            return None
        return found

    # Processing

    def messages(self, timeout: float = -1) -> AsyncMessageLoop:
        """Iterate over messages; each is in :meth:`processing` while the loop's body runs.

        Args:
            timeout: end after so many seconds without a message; a negative number waits for ever.

        The loop also ends after :meth:`stop` and :meth:`close`. Refused records, and events, come as
        :meth:`poll` gives them. In ``async with consumer.messages() as messages: async for message in
        messages: ...`` interceptors get an error of the body; in an ``async for`` loop alone they do not.
        """
        return AsyncMessageLoop(self, timeout)

    async def run(
        self,
        handler: AsyncHandler,
        *,
        workers: int = 8,
        order: Order = "key",
        on_failure: OnFailure = "raise",
        attempts: int = 1,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        dead_letter_topic: str = "{topic}.dead-letter",
        dead_letter_headers: DeadLetterHeaders = "connect",
        dead_letter_unavailable: DeadLetterUnavailable = "hold",
        max_pending: int = 1_000,
        stop_timeout_s: float = 30.0,
        revoke_timeout_s: float = 10.0,
    ) -> None:
        """Process messages in tasks until :meth:`stop`, as :meth:`headerware.Consumer.run` does on threads.

        The options are the same; options that are not below are explained there. The consumer's thread polls.
        If this task is cancelled, handlers at work are cancelled, processed records are committed, and all
        other records are read again.

        Args:
            handler: a coroutine function, called with each message in a task of its own, which has a copy of
                this task's context. The message is processed when it returns.
            workers: how many messages are processed at once.
            stop_timeout_s: how long to wait for records at work at the end, in seconds; then their handlers
                are cancelled.

        Raises:
            ConfigError: an option cannot work; or ``run`` is under way already.
            TypeError: the handler is not a coroutine function.
            KafkaException: the client failed.
            RuntimeError: a handler was cancelled; or the consumer is closed, or is another event loop's.
            Exception: with ``on_failure="raise"``, the error of the handler, or of the chain that refused.
        """
        options = RunOptions(
            workers=workers,
            order=order,
            on_failure=on_failure,
            attempts=attempts,
            retry_on=retry_on,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            dead_letter_topic=dead_letter_topic,
            dead_letter_headers=dead_letter_headers,
            dead_letter_unavailable=dead_letter_unavailable,
            max_pending=max_pending,
            stop_timeout_s=stop_timeout_s,
            revoke_timeout_s=revoke_timeout_s,
        )
        self._hw_require_open()
        if in_callback.get():
            raise RuntimeError("a callback of a consumer cannot run: it runs within a fetch or a close")
        if self._hw_running is not None:
            raise ConfigError("run is under way already; a consumer has one at a time")
        core = self._hw_core
        tasks = self._hw_tasks = core.task_executor(handler, options, self._hw_worker)
        core._hw_warn_unless_directed("run")  # noqa: SLF001 - our own
        job = self._hw_worker.run(
            partial(core.fetched, InterruptibleConsumer.run_executor, tasks), fetches=True
        )
        running = self._hw_running = asyncio.ensure_future(job)
        running.add_done_callback(self._hw_end_run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if not tasks.has_begun:
                running.cancel()
                raise
            core.stop()
            await tasks.cancel()
            await asyncio.wait({running})
            raise
        finally:
            await tasks.cancel()  # tasks that did not end within stop_timeout_s

    def _hw_end_run(self, _: object) -> None:
        self._hw_running = self._hw_tasks = None

    def stop(self) -> None:
        """End :meth:`run` and :meth:`messages`, now or at their next call; records at work are finished.

        Any thread may call it, and so may a signal's handler.
        """
        self._hw_core.stop()

    @asynccontextmanager
    async def processing(self, message: Message) -> AsyncIterator[Message]:
        """Surround the processing of a message: interceptors surround the block, and hear of its end.

        If they make something current, such as a span, it is current in the task. An exception of the block
        goes to them, and is raised again.
        """
        with self._hw_core.processing(message):
            yield message

    def local(self, message: Message) -> Mapping[str, Any]:
        """Return the interceptors' state of a delivered message, by interceptor; empty if there is none."""
        return self._hw_core.local(message)

    def verified(self, message: Message) -> Verified | None:
        """Return the facts that a signature verified of a delivered message; None if no signature did."""
        return self._hw_core.verified(message)

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        return self._hw_core.stats()

    # Subscription and assignment

    async def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        """Subscribe to topics.

        Args:
            topics: names, or patterns that begin with ``^``.
            callbacks: ``on_assign``, ``on_revoke`` and ``on_lost``, functions or coroutine functions; called
                on the event loop with this consumer and the partitions, while the consumer waits.
        """
        for name in _REBALANCES:
            if callable(callbacks.get(name)):
                callbacks[name] = partial(_rebalanced, weakref.ref(self), callbacks[name])
        await self._hw_in_turn("subscribe", topics, **callbacks)

    async def unsubscribe(self) -> None:
        """Leave the subscription, and forget records that were not delivered."""
        self._hw_core.end_in_task()
        await self._hw_in_turn("unsubscribe")

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions; those without an offset begin at their committed offset."""
        await self._hw_in_turn("assign", partitions)

    async def unassign(self) -> None:
        """Give up all partitions."""
        await self._hw_in_turn("unassign")

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        await self._hw_in_turn("incremental_assign", partitions)

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        await self._hw_in_turn("incremental_unassign", partitions)

    async def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        found: list[TopicPartition] = await self._hw_in_turn("assignment")
        return found

    # Position and offsets

    async def seek(self, partition: TopicPartition) -> None:
        """Go to an offset."""
        await self._hw_in_turn("seek", partition)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause partitions."""
        await self._hw_in_turn("pause", partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume partitions."""
        await self._hw_in_turn("resume", partitions)

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the positions on the wire."""
        found: list[TopicPartition] = await self._hw_in_turn("position", partitions)
        return found

    async def store_offsets(self, *args: Any, **kwargs: Any) -> None:
        """Store the offset after a message, or offsets, held back to where a restart loses nothing."""
        await self._hw_in_turn("store_offsets", *args, **kwargs)

    async def commit(self, *args: Any, **kwargs: Any) -> Any:
        """Commit the offset after a message, offsets, or the stored offsets, as ``Consumer`` does."""
        return await self._hw_in_turn("commit", *args, **kwargs)

    async def committed(self, *args: Any, **kwargs: Any) -> list[TopicPartition]:
        """Return the group's committed offsets, with the application's own metadata."""
        found: list[TopicPartition] = await self._hw_in_turn("committed", *args, **kwargs)
        return found

    async def get_watermark_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """Return the first and the next offset of a partition."""
        return await self._hw_in_turn("get_watermark_offsets", *args, **kwargs)

    async def offsets_for_times(self, *args: Any, **kwargs: Any) -> list[TopicPartition]:
        """Return the first offsets that are not older than given times."""
        found: list[TopicPartition] = await self._hw_in_turn("offsets_for_times", *args, **kwargs)
        return found

    # The cluster and the group

    async def consumer_group_metadata(self) -> Any:
        """Return the group metadata, by which a transaction's offsets find this consumer again."""
        return await self._hw_in_turn("consumer_group_metadata")

    async def memberid(self) -> str:
        """Return the consumer's id in its group."""
        found: str = await self._hw_in_turn("memberid")
        return found

    async def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """Return the metadata of the cluster or of one topic."""
        return await self._hw_in_turn("list_topics", *args, **kwargs)

    async def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """Return the id of the cluster."""
        return await self._hw_in_turn("cluster_id", *args, **kwargs)

    async def set_sasl_credentials(self, *args: Any, **kwargs: Any) -> Any:
        """Set the credentials for SASL."""
        return await self._hw_in_turn("set_sasl_credentials", *args, **kwargs)

    # The thread, and the end

    async def _hw_in_turn(self, method: str, *args: Any, **kwargs: Any) -> Any:
        self._hw_require_open()
        return await self._hw_worker.run(partial(getattr(self._hw_core, method), *args, **kwargs))

    def _hw_require_open(self) -> None:
        if self._hw_closing is not None and self._hw_running is None and not in_callback.get():
            raise self._hw_results.closed("Consumer")

    def _hw_threads(self) -> Executor:
        if self._hw_given_executor is not None:
            return self._hw_given_executor
        if self._hw_own_executor is None:
            self._hw_own_executor = ThreadPoolExecutor(1, "headerware-consumer")
        return self._hw_own_executor

    async def close(self) -> None:
        """Commit safe offsets, leave the group, and close the interceptors, once.

        This ends :meth:`run` as :meth:`stop` does. Fetches that wait raise a RuntimeError. Closing goes on if
        the task is cancelled.
        """
        if in_callback.get():
            raise RuntimeError("a callback of a consumer cannot close it: it runs within a fetch or a close")
        if self._hw_tasks is not None and self._hw_tasks.have_begun_this():
            raise RuntimeError("a handler cannot close its consumer, which waits for it; call stop()")
        if self._hw_closing is None:
            self._hw_results.bind()
            self._hw_core.end_in_all_tasks()
            self._hw_closing = asyncio.ensure_future(self._hw_close())
        await asyncio.shield(self._hw_closing)

    async def _hw_close(self) -> None:
        if self._hw_running is not None:
            self._hw_core.stop()
            await asyncio.wait({self._hw_running})
        self._hw_core.closing = True
        try:
            await self._hw_worker.run(self._hw_core.close, fetches=True)
        finally:
            if self._hw_own_executor is not None:
                self._hw_own_executor.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        self._hw_results.bind()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: object
    ) -> None:
        self._hw_core.end_in_task(exc_value)
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hw_chain!r}>"


class AsyncMessageLoop:
    """Iterate over an asyncio consumer's messages; each is in processing until the next is asked for."""

    def __init__(self, consumer: AsyncConsumer, timeout: float) -> None:
        self._consumer: Final = consumer
        self._timeout: Final = timeout
        self._loop: Final = consumer._hw_core.message_loop(timeout)  # noqa: SLF001 - the consumer's own iterator

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """End the processing of the message before, and return the next one."""
        self._loop.end()
        message = await self._consumer._hw_next_message(self._timeout)  # noqa: SLF001 - as above
        if message is None:
            raise StopAsyncIteration
        return self._loop.begin(message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: object
    ) -> None:
        self._loop.end(exc_value)


def _rebalanced(
    reference: weakref.ref[AsyncConsumer],
    callback: Callable[..., Any],
    _: object,
    partitions: list[TopicPartition],
) -> None:
    """Call an application's callback with the asyncio consumer, unless the consumer is gone."""
    consumer = reference()
    if consumer is not None:
        consumer._hw_worker.wait_for(callback, consumer, partitions)  # noqa: SLF001 - our own
