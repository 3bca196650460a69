"""Asyncio clients: confluent-kafka's, with a chain around every record, headers and timestamps."""

from headerware.clients.aio.producer import AsyncProducer

AIOProducer = AsyncProducer

__all__ = ["AIOProducer", "AsyncProducer"]
