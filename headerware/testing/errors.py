"""What the fixtures raise, beside :class:`~headerware.core.errors.MissingPartError`."""

from __future__ import annotations

from headerware.core.errors import HeaderwareError


class BrokerError(HeaderwareError):
    """A cluster or a Java tool that did not do what was asked of it."""
