"""The error of the fixtures, beside :class:`~headerware.core.errors.MissingPartError`."""

from __future__ import annotations

from headerware.core.errors import HeaderwareError


class BrokerError(HeaderwareError):
    """A failure of a cluster or a Java tool."""
