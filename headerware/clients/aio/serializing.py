"""The asyncio serializing clients: objects to bytes and back, by serdes that block or that are awaited.

Serdes run on the client's thread, in the chain's ``serialize`` step. A serde that is awaited, such as
confluent-kafka's asyncio serializers, runs on the event loop while the thread waits for its result.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self

from headerware.clients.aio.consumer import AsyncConsumer, InterruptibleConsumer
from headerware.clients.aio.producer import AsyncProducer, QueueingProducer
from headerware.clients.deliveries import DeliveryCallback
from headerware.clients.serializing import DeserializingConsumer, K, SerializingProducer, V
from headerware.clients.settings import chain_by_name
from headerware.core.chain import Chain
from headerware.core.errors import ConfigError
from headerware.core.headers import HeadersLike
from headerware.serdes.serde import PARTS

if TYPE_CHECKING:
    from confluent_kafka import Message


_ASYNC_SERDES: Final = "confluent_kafka.schema_registry._async."


class _Serializing(QueueingProducer, SerializingProducer[Any, Any]):
    """The synchronous serializing producer inside."""


class _Deserializing(InterruptibleConsumer, DeserializingConsumer[Any, Any]):
    """The synchronous deserializing consumer inside."""


class _MadeByAwait:
    """A client that is made when it is awaited, because its serdes may have to be built on the event loop."""

    _hw_suffix: ClassVar[str]
    """The word for its serdes in the configuration: ``serializer`` or ``deserializer``."""

    @chain_by_name
    def __init__(self, conf: dict[str, Any], *, chain: Chain | None = None, **options: Any) -> None:
        self._hw_serdes: Final = _AsyncSerdes(self._hw_suffix, conf)
        self._hw_make: Final = lambda ready: super(_MadeByAwait, self).__init__(  # type: ignore[call-arg]  # the client's
            ready,
            chain=chain,
            **options,
        )

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError that says how to make the client, which was not awaited."""
        made = type(self).__name__
        raise AttributeError(
            f"this {made} is not made yet, so it cannot be used: write `client = await {made}(...)`, or "
            f"`async with {made}(...) as client`",
            name=name,
        )

    def __await__(self) -> Generator[Any, Any, Self]:
        """Build the asynchronous serdes, and return the client."""
        return self._hw_ready().__await__()

    async def _hw_ready(self) -> Self:
        await self._hw_serdes.make(self._hw_make, self._hw_cluster_id_of_serdes)
        return self

    async def _hw_cluster_id_of_serdes(self, *args: Any, **kwargs: Any) -> Any:
        """Return the id of the cluster to a serde that asks for it."""
        return await self.cluster_id(*args, **kwargs)

    async def __aenter__(self) -> Self:
        await self
        return await super().__aenter__()  # type: ignore[misc,no-any-return]  # the client's

    async def close(self) -> None:
        """Close the client as its base class does, and then the serdes that builders have made."""
        await super().close()  # type: ignore[misc]  # the client's
        await self._hw_serdes.close()


class AsyncSerializingProducer(_MadeByAwait, AsyncProducer, Generic[K, V]):
    """Serialize objects and produce them through a chain, in asyncio.

    A drop-in for ``confluent_kafka.aio.AsyncSerializingProducer``: made by
    ``await AsyncSerializingProducer(conf)``, or by ``async with``.

    Args:
        conf: as :class:`~headerware.SerializingProducer` takes. Serializers may also be coroutine functions,
            and builders may be asynchronous, such as confluent-kafka's for asyncio.
        chain: the chain, if code makes it.
        options: ``max_workers``, ``executor``, ``batch_size`` and ``buffer_timeout``, as
            :class:`AsyncProducer` takes them.

    Raises:
        ConfigError: the chain's or a serde's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.
    """

    _hw_core_type: ClassVar[type[QueueingProducer]] = _Serializing
    _hw_suffix: ClassVar[str] = "serializer"

    async def produce(  # type: ignore[override]  # confluent-kafka's has the key first
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: HeadersLike = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> asyncio.Future[Message]:
        """Serialize a record, send it through the chain, and return the future of its delivery.

        Args:
            topic: the topic.
            key: the key, as its serializer takes it.
            value: the value, as its serializer takes it; None is a tombstone.
            partition: the partition; -1 leaves it to the partitioner.
            timestamp: milliseconds since the epoch; 0 is now.
            headers: a mapping or pairs; the serializers see them and may add to them.
            on_delivery: called with ``(error, message)`` on the event loop.

        Raises:
            SerdeError: the key or value could not be serialized.
            HeaderwareError: an interceptor refused the record.
            KafkaException: librdkafka refused it.
        """
        return await super().produce(
            topic, value, key, partition, on_delivery=on_delivery, timestamp=timestamp, headers=headers
        )


class AsyncDeserializingConsumer(_MadeByAwait, AsyncConsumer, Generic[K, V]):
    """Consume through a chain, and deserialize keys and values, in asyncio.

    A drop-in for ``confluent_kafka.aio.AsyncDeserializingConsumer``: made by
    ``await AsyncDeserializingConsumer(conf)``, or by ``async with``.

    Args:
        conf: as :class:`~headerware.DeserializingConsumer` takes. Deserializers may also be coroutine
            functions, and builders may be asynchronous, such as confluent-kafka's for asyncio.
        chain: the chain, if code makes it.
        options: ``max_workers`` and ``executor``, as :class:`AsyncConsumer` takes them.

    Raises:
        ConfigError: the chain's or a serde's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    ``poll`` and ``consume`` raise as :class:`~headerware.DeserializingConsumer` does.
    """

    _hw_core_type: ClassVar[type[InterruptibleConsumer]] = _Deserializing
    _hw_suffix: ClassVar[str] = "deserializer"

    async def _hw_cluster_id_of_serdes(self, *args: Any, **kwargs: Any) -> Any:
        # Not in turn: the client's thread waits for the serde that asks.
        return await asyncio.to_thread(self._hw_core.cluster_id, *args, **kwargs)


class _AsyncSerdes:
    """Turn the serdes of a configuration that are awaited into serdes that block a thread."""

    def __init__(self, suffix: str, conf: Mapping[str, Any]) -> None:
        self._names: Final = [f"{part}.{suffix}" for part in PARTS]
        self._conf: Final = dict(conf)
        self._built: Final[list[Any]] = []
        self._made = False
        self._making: Final = asyncio.Lock()

    async def make(self, make: Callable[[dict[str, Any]], None], cluster_id: Callable[..., Any]) -> None:
        """Build the serdes, and make the client of the remaining configuration; do so once only."""
        async with self._making:
            if self._made:
                return
            try:
                make(await self._with_serdes(asyncio.get_running_loop(), cluster_id))
            except BaseException:
                await self.close()
                raise
            self._made = True

    async def _with_serdes(
        self, loop: asyncio.AbstractEventLoop, cluster_id: Callable[..., Any]
    ) -> dict[str, Any]:
        given, conf = dict(self._conf), dict(self._conf)
        for name in self._names:
            builder = conf.get(f"{name}.builder")
            if builder is not None and inspect.iscoroutinefunction(builder.build):
                if conf.get(name) is not None:
                    raise ConfigError(f"give this or {name}.builder, not both", path=name)
                serde, rest = await builder.build(_without(given, self._names), name.startswith("key"))
                self._built.append(serde)
                kept = {key for key in conf if key in rest or key.startswith(tuple(self._names))}
                conf = {key: value for key, value in conf.items() if key in kept and key != f"{name}.builder"}
                conf[name] = serde
            serde = conf.get(name)
            if callable(serde) and _is_awaited(serde):
                offer = getattr(serde, "set_async_cluster_id_resolver", None)
                if callable(offer):
                    offer(cluster_id)
                conf[name] = _Awaited(serde, loop)
        return conf

    async def close(self) -> None:
        """Close the serdes that asynchronous builders have made."""
        while self._built:
            serde = self._built.pop()
            close = getattr(serde, "aclose", None) or getattr(serde, "close", None)
            if callable(close):
                answer = close()
                if inspect.isawaitable(answer):
                    await answer


class _Awaited:
    """An asyncio serde that blocks the client's thread while the event loop runs the serde."""

    def __init__(self, serde: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> None:
        self.__wrapped__: Final = serde  # so that others see its arguments and its module
        self._loop: Final = loop

    def __call__(self, *arguments: Any) -> Any:
        """Run the serde on the loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(self._result(arguments), self._loop).result()

    async def _result(self, arguments: tuple[Any, ...]) -> Any:
        return await self.__wrapped__(*arguments)


def _is_awaited(serde: Any) -> bool:
    """Return whether a serde is a coroutine function, or an object that is called as one.

    confluent-kafka's serdes return a coroutine, which cannot be seen before the call.
    """
    is_theirs = any(kind.__module__.startswith(_ASYNC_SERDES) for kind in type(serde).__mro__)
    return is_theirs or any(map(inspect.iscoroutinefunction, (serde, type(serde).__call__)))


def _without(conf: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return {key: value for key, value in conf.items() if not key.startswith(tuple(names))}
