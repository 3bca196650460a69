"""Process records in tasks, for ``AsyncConsumer.run``.

The consumer's thread polls, commits, and handles partitions that go, as it does for workers that are threads
(``clients/executor.py``). Only the workers differ: each record is processed in a task on the event loop. The
thread wakes the loop when a job may begin. While the thread waits for tasks, it makes the calls to the
consumer that they ask for.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import Message

from headerware.clients.aio.worker import Worker
from headerware.clients.delivery import Delivery
from headerware.clients.executor import Client, Executor, where
from headerware.clients.progress import Job
from headerware.clients.run_options import RunOptions

AsyncHandler = Callable[[Message], Awaitable[object]]
_SERVE_S: Final = 0.05
"""How long a task may have to wait until the thread makes its call to the consumer."""


class TaskExecutor(Executor):
    """Poll on the consumer's thread, and process in tasks of the loop on which this is made.

    Each task has a copy of the context in which this is made.
    """

    def __init__(
        self,
        client: Client,
        delivery: Delivery,
        handler: AsyncHandler,
        options: RunOptions,
        counts: dict[str, int],
        *,
        thread: Worker,
    ) -> None:
        super().__init__(client, delivery, handler, options, counts)
        if not any(map(inspect.iscoroutinefunction, (inspect.unwrap(handler), type(handler).__call__))):
            name = getattr(handler, "__qualname__", type(handler).__name__)
            raise TypeError(
                f"expected a coroutine function (async def) as handler, found {name}; a handler that blocks "
                f"can call its work by asyncio.to_thread"
            )
        self._thread: Final = thread
        self._loop: Final = asyncio.get_running_loop()
        self._context: Final = contextvars.copy_context()
        self._tasks: Final[set[asyncio.Task[Any]]] = set()
        self._is_woken = False
        self._timer: asyncio.TimerHandle | None = None

    def have_begun_this(self) -> bool:
        """Return whether the current task processes a record of this executor."""
        return asyncio.current_task() in self._tasks

    async def cancel(self) -> None:
        """Cancel the tasks, and wait until they have ended."""
        with self._lock:
            self._closing = True
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # On the consumer's thread

    def _start_workers(self) -> None:
        """Start nothing: a task begins with its record."""

    def _wake_workers(self, *, everyone: bool = False) -> None:  # noqa: ARG002 - the loop starts all tasks
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._start_tasks)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._ended.wait_for(condition, min(_SERVE_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
            self._lock.release()
            try:
                self._thread.serve()
            finally:
                self._lock.acquire()
        return True

    # On the event loop

    def _start_tasks(self) -> None:
        """Start the jobs that may begin, and set a timer for the next postponed job."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            self._is_woken = False
            while not self._closing:
                now = time.monotonic()
                job = self._progress.start(now)
                if job is None:
                    due = self._progress.due()
                    if due is not None:
                        self._timer = self._loop.call_later(max(0.0, due - now), self._start_tasks)
                    return
                task = self._loop.create_task(self._process_in_task(job), context=self._context.copy())
                self._tasks.add(task)
                task.add_done_callback(partial(self._end_task, job))

    def _end_task(self, job: Job, task: asyncio.Task[Callable[[], object]]) -> None:
        """End the job of a task, also if the task was cancelled before it began."""
        self._tasks.discard(task)
        if task.cancelled():
            error: BaseException | None = RuntimeError(
                f"the handler of {where(job.message)} was cancelled, or awaited a cancelled task, so this "
                "record is not processed"
            )
        else:
            error = task.exception()
        ends = task.result() if error is None else partial(self._fail, error, job)
        with self._lock:
            ends()
            self._ended.notify_all()
        self._start_tasks()

    async def _process_in_task(self, job: Job) -> Callable[[], object]:
        """Process a job, as ``_process`` does; a call that may wait for a dead letter runs on a thread."""
        if not self._is_for_the_handler(job):
            return await self._answered(self._answer_unprocessed, job)
        failures: list[Any] = []
        is_awaited = True
        with self._attempt(job, failures):
            answer = self._handler(job.message)
            is_awaited = inspect.isawaitable(answer)
            if inspect.isawaitable(answer):
                await answer
        if failures:
            return await self._answered(self._answer_failed, job, *failures)
        if not is_awaited:
            raise TypeError("expected a coroutine function as handler; its result cannot be awaited")
        return partial(self._end, job, "processed")

    async def _answered(
        self, answer: Callable[..., Callable[[], object]], *arguments: Any
    ) -> Callable[[], object]:
        if self.options.on_failure == "dead_letter":
            return await asyncio.to_thread(answer, *arguments)
        return answer(*arguments)
