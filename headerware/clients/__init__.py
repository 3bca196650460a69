"""Clients: confluent-kafka's producers and consumers, with a chain around every record.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.clients.consumer import Consumer
from headerware.clients.live_chain import ChainInForce
from headerware.clients.producer import Producer
from headerware.clients.serializing import DeserializingConsumer, SerializingProducer
from headerware.clients.share import ShareConsumer

__all__ = [
    "ChainInForce",
    "Consumer",
    "DeserializingConsumer",
    "Producer",
    "SerializingProducer",
    "ShareConsumer",
]
