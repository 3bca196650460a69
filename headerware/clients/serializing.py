"""The serializing producer and the deserializing consumer: confluent-kafka's, with a chain.

Serdes are configured by object, as confluent-kafka's serdes are, or by name: ``value.serializer`` is a
serializer or the word of a serde, and ``value.serializer.<option>`` is an option of that serde. They become
the chain's ``serialize`` step, which works even if ``HEADERWARE_DISABLED`` switches the interceptors off.

Chains raise `SerdeError`. These clients raise an error that is confluent-kafka's, too, so the core needs no
Kafka client.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, Generic

import confluent_kafka
from confluent_kafka import Message

from headerware.clients.consumer import Consumer
from headerware.clients.deliveries import DeliveryCallback
from headerware.clients.producer import Producer
from headerware.core.chain import Chain
from headerware.core.config import nested
from headerware.core.errors import ConfigError
from headerware.core.headers import HeadersLike
from headerware.core.hooks import Place, Stage
from headerware.core.options import from_option
from headerware.core.order import place_of, stage_of, surely_share_topics
from headerware.core.plugins import interceptor_type
from headerware.serdes.plugins import require_serde, serde_type
from headerware.serdes.serde import PARTS

if TYPE_CHECKING:
    # With defaults, a client without parameters needs no annotation. Type checkers have this module.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_BUILDER: Final = "builder"


class SerializingProducer(Producer, confluent_kafka.serializing_producer.SerializingProducer, Generic[K, V]):
    """Serialize objects and produce them through a chain.

    A drop-in for ``confluent_kafka.SerializingProducer``.

    Args:
        conf: as :class:`~headerware.Producer` takes, with ``key.serializer`` and ``value.serializer``: a
            serde's word (its options under ``value.serializer.<option>``), a
            :class:`~headerware.serdes.Serde`, an object with ``serialize``, or a serializer of
            confluent-kafka's; or ``key.serializer.builder`` and ``value.serializer.builder``.
        chain: the chain, if code makes it.

    Raises:
        ConfigError: the chain's or a serde's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    A key or value that cannot be serialized raises an error that is both :class:`~headerware.SerdeError`
    and confluent-kafka's ``KeySerializationError`` or ``ValueSerializationError``.
    """

    _hw_order_of_arguments: str = (
        "the second argument is the key here, and the third the value: for a value alone, write value=..."
    )

    def _hw_chain_for(self, conf: dict[str, Any], chain: Chain | None) -> tuple[Chain, dict[str, Any]]:
        self._hw_serdes = _Serdes("serializer", conf)
        found, rest = super()._hw_chain_for(self._hw_serdes.rest, chain)
        return self._hw_serdes.added_to(found), rest

    def _hw_complete_chain(self, chain: Chain) -> Chain:
        return self._hw_serdes.added_to(chain)

    def _hw_open(self, conf: dict[str, Any]) -> None:
        self._hw_serdes.open(self, super()._hw_open, conf)

    def produce(  # type: ignore[override]  # confluent-kafka's serializing producer has the key first
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersLike = None,
    ) -> None:
        """Serialize a record, send it through the chain and queue it for delivery.

        Args:
            topic: the topic.
            key: the key, as its serializer takes it.
            value: the value, as its serializer takes it; None is a tombstone.
            partition: the partition; -1 leaves it to the partitioner.
            on_delivery: called with ``(error, message)`` by ``poll`` or ``flush``, once for the record.
            timestamp: milliseconds since the epoch; 0 is now.
            headers: a mapping or pairs; the serializers see them and may add to them.

        Raises:
            SerdeError: the key or value could not be serialized.
            HeaderwareError: an interceptor refused the record.
            BufferError: the queue is full, or could never hold all slices of the message.
            KafkaException: librdkafka refused it.
        """
        Producer.produce(self, topic, value, key, partition, on_delivery, None, timestamp, headers)

    def close(self) -> bool:
        """Flush; close the client, the interceptors and the serializers that builders have made."""
        closed = Producer.close(self)
        self._hw_serdes.close()
        return closed


class DeserializingConsumer(
    Consumer, confluent_kafka.deserializing_consumer.DeserializingConsumer, Generic[K, V]
):
    """Consume through a chain, and deserialize keys and values.

    A drop-in for ``confluent_kafka.DeserializingConsumer``, with ``consume()``.

    Args:
        conf: as :class:`~headerware.Consumer` takes, with ``key.deserializer`` and
            ``value.deserializer``, given as :class:`SerializingProducer` takes its serializers.
        chain: the chain, if code makes it.

    Raises:
        ConfigError: the chain's or a serde's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    ``poll`` raises once for a key or value that cannot be deserialized, and goes on after it. The error
    is both :class:`~headerware.SerdeError` and confluent-kafka's ``KeyDeserializationError`` or
    ``ValueDeserializationError``, with the message that was refused as ``kafka_message``.
    """

    _hw_raises_events: bool = True

    def _hw_chain_for(self, conf: dict[str, Any], chain: Chain | None) -> tuple[Chain, dict[str, Any]]:
        self._hw_serdes = _Serdes("deserializer", conf)
        found, rest = super()._hw_chain_for(self._hw_serdes.rest, chain)
        return self._hw_serdes.added_to(found), rest

    def _hw_complete_chain(self, chain: Chain) -> Chain:
        return self._hw_serdes.added_to(chain)

    def _hw_open(self, conf: dict[str, Any]) -> None:
        self._hw_serdes.open(self, super()._hw_open, conf)

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message with its key and value as objects, or None after ``timeout`` seconds.

        Raises:
            SerdeError: a key or value could not be deserialized; it is not delivered again.
            HeaderwareError: the chain refused a record; it is not delivered again.
            ConsumeError: an error event, or the end of a partition, as confluent-kafka's raises it;
                ``consume`` returns these as messages. If the chain comes from configuration, this is also
                raised for records that other interceptors refused, with their error as ``exception``.
        """
        return Consumer.poll(self, timeout)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages with their keys and values as objects.

        Returns those before a refused record. The next call answers for the refused record: it raises if the
        chain was passed in code, or else returns a message whose ``error()`` is set. Events are among the
        messages.

        Raises:
            SerdeError: a key or value could not be deserialized; it is not delivered again.
            HeaderwareError: the chain refused a record; it is not delivered again.
        """
        return Consumer.consume(self, num_messages, timeout)

    def close(self) -> None:
        """Commit what is safe, leave the group, and close the interceptors and built deserializers."""
        Consumer.close(self)
        self._hw_serdes.close()


class _Serdes:
    """Take the serdes out of a client's configuration, open them, and close them.

    ``suffix`` is ``serializer`` or ``deserializer``.
    """

    def __init__(self, suffix: str, conf: dict[str, Any]) -> None:
        self._suffix: Final = suffix
        self._built: Final[list[Any]] = []
        self._serdes: Final[dict[str, Any]] = {}
        prefixes = {part: f"{part}.{suffix}" for part in PARTS}
        self.rest: dict[str, Any] = {
            key: value for key, value in conf.items() if not _belongs(key, prefixes.values())
        }
        for part, prefix in prefixes.items():
            own = {key: value for key, value in conf.items() if _belongs(key, (prefix,))}
            builder = own.pop(f"{prefix}.{_BUILDER}", None)
            if builder is not None and own.get(prefix) is not None:
                raise ConfigError(f"give this or {prefix}.{_BUILDER}, not both", path=prefix)
            self._serdes[part] = (
                self._from_builder(builder, part) if builder is not None else _named(prefix, own)
            )

    def _from_builder(self, builder: Any, part: str) -> Any:
        """Return the serde that confluent-kafka's builder makes; take its settings out of the rest."""
        serde, remaining = builder.build(dict(self.rest), part == "key")
        self._built.append(serde)
        self.rest = {key: value for key, value in self.rest.items() if key in remaining}
        return serde

    def added_to(self, chain: Chain) -> Chain:
        """Return the chain with a serialize step, unless the chain has one and no serde was configured."""
        has_own = any(place_of(step) is Place.SERIALIZE for step in chain)
        if has_own and all(serde is None for serde in self._serdes.values()):
            return chain
        step = interceptor_type("serialize")(**self._serdes)
        objects = sum(stage_of(other) is Stage.OBJECTS for other in chain)
        steps = [*chain.interceptors[:objects], step, *chain.interceptors[objects:]]
        if any(place_of(own) is Place.SERIALIZE and surely_share_topics(own, step) for own in chain):
            given = [f"{part}.{self._suffix}" for part in PARTS if self._serdes[part] is not None]
            raise ConfigError(
                f"the chain has a step that serializes, and the client has {' and '.join(given)}; use one of "
                f"the two",
                path="chain",
            )
        return chain.with_interceptors(steps)

    def open(self, client: Any, opens: Any, conf: dict[str, Any]) -> None:
        """Open the client, and tell confluent-kafka's serdes how to learn its cluster's id."""
        try:
            opens(conf)
        except BaseException:
            self.close()
            raise
        reference = weakref.ref(client)

        def cluster_id() -> Any:
            live = reference()
            return None if live is None else live.cluster_id(timeout=_CLUSTER_ID_TIMEOUT_S)

        for serde in self._serdes.values():
            offer = getattr(serde, "set_cluster_id_resolver", None)
            if callable(offer):
                offer(cluster_id)

    def close(self) -> None:
        """Close the serdes that builders have made; calling it again does nothing."""
        while self._built:
            close = getattr(self._built.pop(), "close", None)
            if callable(close):
                close()


_CLUSTER_ID_TIMEOUT_S: Final = 60.0
"""The timeout of confluent-kafka's own serializing clients."""


def _belongs(key: object, prefixes: Any) -> bool:
    return any(key == prefix or str(key).startswith(f"{prefix}.") for prefix in prefixes)


def _named(prefix: str, own: dict[str, Any]) -> Any:
    """Return the serde that the settings name; None if they name none."""
    if not own:
        return None
    plain = {"serde" + key.removeprefix(prefix): value for key, value in own.items()}
    try:
        found = nested(plain)["serde"]
    except ConfigError as error:
        path = prefix + error.path.removeprefix("serde")
        raise error.with_path(path) from None
    serde = from_option(found, serde_type, path=prefix)
    require_serde(serde, path=prefix)
    return serde
