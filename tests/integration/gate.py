"""A broker that clients reach only through a port in front of it, which can be shut.

A broker that starts answers requests for a moment before the cluster counts it as alive, with metadata that
names no broker. librdkafka then forgets every broker that it knew and never connects again (confluentinc's
librdkafka, issue 5301). A cluster of several brokers does not show this; with one, a test of restarts keeps
the clients away until the broker is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from headerware.testing import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

HOST: Final = "127.0.0.1"
Answer = TypeVar("Answer")
_CHUNK: Final = 1 << 16
_QUIET_S: Final = 0.5


class GatedBroker:
    """A broker behind a gate; the gate is shut while the broker is not there."""

    def __init__(self, config: Mapping[str, str | int | bool] | None = None) -> None:
        self._gate = Gate()
        self.servers: Final = f"{HOST}:{self._gate.port}"
        """Where clients connect."""
        self.broker: Final = KafkaBroker(
            {**(config or {}), "advertised.listeners": f"PLAINTEXT://{self.servers}"}
        )

    def start(self) -> None:
        """Start the broker, and let clients in once it is ready."""
        self.broker.start()
        self.admit()

    def stop(self) -> None:
        """Shut clients out, then stop the broker."""
        self._gate.shut()
        self.broker.stop()

    def cut(self) -> None:
        """Cut all connections, and admit no new ones."""
        self._gate.shut()

    def admit(self) -> None:
        """Let clients connect."""
        self._gate.open(int(self.broker.bootstrap_servers.rpartition(":")[2]))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop both for good."""
        self._gate.close()
        self.broker.close()


class Gate:
    """Forward connections to a port of this machine while it is open; while it is shut, cut them at once."""

    def __init__(self) -> None:
        self._target: int | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._answered = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server = self._call(asyncio.start_server(self._forward, HOST, 0))
        self.port: Final[int] = self._server.sockets[0].getsockname()[1]
        """Where clients connect."""

    def open(self, target: int) -> None:
        """Forward connections to a port."""
        self._target = target

    def shut(self) -> None:
        """Let the broker answer what it has, then cut the connections that there are, and those that come.

        A broker that restarts remembers only the last batch of an idempotent producer; the repetition of an
        earlier one that was stored and not answered would be a fatal error.
        """
        self._target = None
        self._call(self._cut())

    def close(self) -> None:
        """Shut it for good."""
        self.shut()
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _cut(self) -> None:
        self._answered = self._loop.time()
        while self._pipes and self._loop.time() - self._answered < _QUIET_S:  # noqa: ASYNC110 - silence is no event
            await asyncio.sleep(_QUIET_S / 5)
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        target = self._target
        if task is None or target is None:
            writer.transport.abort()
            return
        self._pipes.add(task)
        try:
            there, back = await asyncio.open_connection(HOST, target)
            try:
                await asyncio.gather(self._requests(reader, back), self._answers(there, writer))
            finally:
                back.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # one of the two ends is gone
        finally:
            self._pipes.discard(task)
            writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if self._target is None:
                    return  # neither this nor what follows reaches the broker
                broker.write(chunk)
                await broker.drain()
        broker.close()

    async def _answers(self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await broker.read(_CHUNK):
                self._answered = self._loop.time()
                writer.write(chunk)
                await writer.drain()
        writer.close()
