"""Clients: confluent-kafka's producer and consumer, with a chain around every record."""

from headerware.clients.consumer import Consumer
from headerware.clients.producer import Producer

__all__ = ["Consumer", "Producer"]
