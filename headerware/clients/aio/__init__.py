"""Asyncio clients: confluent-kafka's, with a chain around every record, headers and timestamps.

It has the names of ``confluent_kafka.aio``, whose classes these replace.
"""

from headerware.clients.aio.consumer import AsyncConsumer
from headerware.clients.aio.producer import AsyncProducer
from headerware.clients.aio.serializing import AsyncDeserializingConsumer, AsyncSerializingProducer

AIOConsumer = AsyncConsumer
AIOProducer = AsyncProducer

__all__ = [
    "AIOConsumer",
    "AIOProducer",
    "AsyncConsumer",
    "AsyncDeserializingConsumer",
    "AsyncProducer",
    "AsyncSerializingProducer",
]
