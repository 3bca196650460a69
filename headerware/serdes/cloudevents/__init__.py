"""CloudEvents in Kafka: binary mode in headers, and structured mode."""

from headerware.serdes.cloudevents.event import CloudEvent
from headerware.serdes.cloudevents.serde import CloudEvents

__all__ = ["CloudEvent", "CloudEvents"]
