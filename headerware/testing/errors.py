"""The error of clusters and tools; a missing part raises MissingPartError instead."""

from __future__ import annotations

from headerware.core.errors import HeaderwareError


class BrokerError(HeaderwareError):
    """A failure of a cluster or a Java tool."""
