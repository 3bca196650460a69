"""One topic, many formats: the content type chooses the serde."""

from headerware.serdes.polyglot.serde import Polyglot

__all__ = ["Polyglot"]
