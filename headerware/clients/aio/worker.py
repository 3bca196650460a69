"""The common part of the asyncio clients: jobs on a thread, one at a time, with results on the event loop.

No thread starts before the first use, and a call starts no thread of its own: a worker uses one thread of an
executor while it has jobs.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from threading import Condition, get_ident
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_AT_ONCE: Final = 1_000
"""How many results the event loop takes before it looks at its other tasks."""
_log: Final = logging.getLogger("headerware")
in_callback: Final = contextvars.ContextVar("headerware_in_callback", default=False)
"""Whether this task runs an application's callback for which a thread of a consumer waits."""


class LoopResults:
    """Queue calls from threads for the event loop, and wake the loop once for many calls."""

    def __init__(self, owner: str, client_id: object = None) -> None:
        self._owner: Final = f"{owner} {client_id}" if client_id else owner
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop on which the client was first awaited; None until then."""
        self.loop_thread: int = 0
        """The thread of that loop."""

    def bind(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; from the first use on, it is the client's loop.

        Raises:
            RuntimeError: no loop is running, or the client belongs to another loop.
        """
        running = asyncio.get_running_loop()
        if running is not self.loop:
            if self.loop is not None:
                state = "a closed" if self.loop.is_closed() else "another"
                raise RuntimeError(
                    f"this {self._owner} belongs to {state} event loop, on which it was first used; "
                    f"make one for each loop"
                )
            self.loop, self.loop_thread = running, get_ident()
        return running

    def closed(self, what: str, topic: str | None = None) -> RuntimeError:
        """Return the error of a call to a client that is closed; ``topic`` is the topic of its record."""
        record = "" if topic is None else f"; the record for topic {topic!r} was not sent"
        return RuntimeError(f"{what} closed ({self._owner}){record}")

    @property
    def is_open(self) -> bool:
        """Whether there is a loop, and it is not closed."""
        return self.loop is not None and not self.loop.is_closed()

    def __len__(self) -> int:
        """Count the calls that the loop has not made yet."""
        return len(self._calls)

    def add(self, call: Callable[..., object], *arguments: Any) -> None:
        """Queue a call, which the loop makes after the next :meth:`wake`."""
        self._calls.append((call, arguments))

    def wake(self) -> None:
        """Wake the loop if calls are queued."""
        if not self._calls or self._woken:
            return
        self._woken = True
        try:
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._take)
        except RuntimeError:  # the loop is closed
            self._calls.clear()

    async def taken(self) -> None:
        """Wait until the loop has made all queued calls."""
        while self._calls:
            self.wake()
            await asyncio.sleep(0)

    def _take(self) -> None:
        self._woken = False
        try:
            for _ in range(_AT_ONCE):
                if not self._calls:
                    return
                call, arguments = self._calls.popleft()
                call(*arguments)
        finally:
            self.wake()

    def run_callback(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Run an application's callback; call this on the loop. A coroutine becomes a task."""
        assert self.loop is not None  # noqa: S101 - it runs this
        try:
            answer = callback(*arguments)
            if inspect.isawaitable(answer):
                task = asyncio.ensure_future(answer)
                _running.add(task)
                task.add_done_callback(partial(self._report_callback, callback))
        except Exception as error:  # noqa: BLE001 - the loop reports it, as it reports errors of its own callbacks
            self._report_error(callback, error)

    def _report_callback(self, callback: Callable[..., Any], task: asyncio.Future[Any]) -> None:
        _running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report_error(callback, error)

    def _report_error(self, callback: Callable[..., Any], error: BaseException) -> None:
        assert self.loop is not None  # noqa: S101 - as above
        name = getattr(callback, "__qualname__", type(callback).__name__)
        self.loop.call_exception_handler(
            {"message": f"the callback {name} of this {self._owner} raised", "exception": error}
        )

    def on_loop(self, callback: Callable[..., Any]) -> Callable[..., None]:
        """Return a function for threads that runs a callback on the loop, and does not wait for it."""

        def call(*arguments: Any) -> None:
            self.add(self.run_callback, callback, *arguments)
            self.wake()

        return call


_running: Final[set[asyncio.Future[Any]]] = set()
"""Callbacks under way, kept here because the event loop holds its tasks weakly."""


class Job:
    """One call that a task waits for; it runs in a copy of the task's context.

    Args:
        call: what to run.
        future: the future that the task waits for; None if no task waits.
        undo: called with the result and the error of a call whose task was cancelled.
        fetches: whether it fetches, so that it cannot run in a callback of another fetch.
    """

    __slots__ = ("_call", "_context", "cancelled", "ended", "error", "fetches", "found", "future", "undo")

    def __init__(
        self,
        call: Callable[[], Any],
        future: asyncio.Future[Any] | None = None,
        *,
        undo: Callable[[Any, BaseException | None], None] | None = None,
        fetches: bool = False,
    ) -> None:
        self._call = call
        self._context = contextvars.copy_context()
        self.future: Final = future
        self.undo: Final = undo
        self.fetches: Final = fetches
        self.cancelled: bool = False
        self.ended: bool = False
        self.found: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call, and keep its result or its error."""
        try:
            self.found = self._context.run(self._call)
        except BaseException as raised:  # noqa: BLE001 - it is raised in the task
            self.error = raised

    def take_back(self) -> None:
        """Undo the call, if it can be undone."""
        if self.undo is not None:
            self.undo(self.found, self.error)


class Worker:
    """Jobs that run one at a time, in the order in which they came, on a thread of an executor.

    Args:
        executor: called for the executor at the first job.
        results: gets the results.
    """

    def __init__(self, executor: Callable[[], Executor], results: LoopResults) -> None:
        self._executor: Final = executor
        self.results: Final = results
        """The results, and the name of the client."""
        self._jobs: deque[Job] = deque()
        self._changed: Final = Condition()
        self.busy: bool = False
        """Whether any job waits or runs."""
        self.thread: int = 0
        """The thread that runs jobs now; 0 if none does."""
        self.current: Job | None = None
        """The job that runs now, if any; not one that runs within it."""

    def __len__(self) -> int:
        """Count the jobs that wait."""
        return len(self._jobs)

    def submit(self, job: Job, *, first: bool = False) -> None:
        """Append a job, or put it in front of the waiting jobs."""
        with self._changed:
            (self._jobs.appendleft if first else self._jobs.append)(job)
            self._changed.notify_all()
            if self.busy:
                return
            self.busy = True
        try:
            self._executor().submit(self._work)
        except BaseException:
            with self._changed:
                self._jobs.clear()
                self.busy = False
            raise

    async def run(
        self,
        call: Callable[[], Any],
        *,
        undo: Callable[[Any, BaseException | None], None] | None = None,
        forget: Callable[[], None] | None = None,
        fetches: bool = False,
    ) -> Any:
        """Run a call in its turn, and return what it returns.

        If the task is cancelled, a call that has not begun is never made, and ``forget`` is called. A call
        that has begun goes on; then ``undo`` gets its result and error, before any later job runs.
        """
        job = Job(call, self.results.bind().create_future(), undo=undo, fetches=fetches)
        self.submit(job)
        assert job.future is not None  # noqa: S101 - just made
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._changed:
                job.cancelled = True
                waits, ended = job in self._jobs, job.ended
                if waits:
                    self._jobs.remove(job)
            if waits and forget is not None:
                forget()
            if ended and undo is not None:
                self.submit(Job(job.take_back), first=True)
            raise

    def _work(self) -> None:
        self.thread = get_ident()
        while True:
            with self._changed:
                if not self._jobs:
                    self.busy, self.thread = False, 0
                    break
                job = self.current = self._jobs.popleft()
            self._do(job)
            self.current = None

    def _do(self, job: Job) -> None:
        job.run()
        with self._changed:
            job.ended = True
            cancelled = job.cancelled
        if cancelled:
            job.take_back()
        elif job.future is not None:
            self.results.add(set_result, job.future, job.found, job.error)
            self.results.wake()

    def serve(self) -> None:
        """Do the jobs that may run within another job, on that job's thread."""
        while (job := self._next_nested()) is not None:
            self._do(job)

    def _next_nested(self) -> Job | None:
        with self._changed:
            for index, job in enumerate(self._jobs):
                if not job.fetches:
                    del self._jobs[index]
                    return job
        return None

    def wait_for(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Run an application's callback on the loop, and do the jobs that it submits until it has returned.

        Raises:
            Exception: the callback raised it.
        """
        loop = self.results.loop
        if loop is None or loop.is_closed():
            return None
        ended: list[asyncio.Task[Any]] = []

        def end(task: asyncio.Task[Any]) -> None:
            with self._changed:
                ended.append(task)
                self._changed.notify_all()

        def begin() -> None:
            task = loop.create_task(_call(callback, arguments))
            _running.add(task)
            task.add_done_callback(_running.discard)
            task.add_done_callback(end)

        loop.call_soon_threadsafe(begin)
        while True:
            self.serve()
            with self._changed:
                if ended:
                    return ended[0].result()
                if loop.is_closed():
                    raise RuntimeError("the event loop was closed while a callback ran on it")
                if not any(not job.fetches for job in self._jobs):
                    self._changed.wait(_LOOK_AT_THE_LOOP_S)


_LOOK_AT_THE_LOOP_S: Final = 1.0


async def _call(callback: Callable[..., Any], arguments: Iterable[Any]) -> Any:
    in_callback.set(True)
    answer = callback(*arguments)
    return await answer if isinstance(answer, Awaitable) else answer


def set_result(future: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
    """Give a future its result, unless its task was cancelled meanwhile."""
    if future.done():
        return
    if error is None:
        future.set_result(found)
    elif isinstance(error, StopIteration):  # a future refuses it
        future.set_exception(RuntimeError(f"{type(error).__name__} was raised by a call"))
    else:
        future.set_exception(error)
