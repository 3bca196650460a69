"""What the fixtures raise, beside :class:`~headerware.core.errors.MissingPartError`.

HeaderwareError
├── BrokerError              a cluster that did not start, stop or do what was asked
└── MissingPartError         a part that cannot be had here: no Java, no jars; tests may skip on it
"""

from __future__ import annotations

from headerware.core.errors import HeaderwareError, MissingPartError

__all__ = ["BrokerError", "MissingPartError"]


class BrokerError(HeaderwareError):
    """A cluster or a Java tool that did not do what was asked of it."""
