"""What the fixtures raise.

HeaderwareError
└── BrokerError              a cluster that did not start, stop or do what was asked
    └── MissingPartError     a part that cannot be had here: no Java, no jars, no librdkafka
"""

from __future__ import annotations

from headerware.core.errors import HeaderwareError


class BrokerError(HeaderwareError):
    """A cluster or a Java tool that did not do what was asked of it."""


class MissingPartError(BrokerError):
    """A part that cannot be had on this machine; tests may skip on it, and on nothing else."""
