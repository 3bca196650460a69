"""Moments in headers: the last at which a record is worth reading, and the first at which it may be read."""

from headerware.interceptors.times.delay import Delay
from headerware.interceptors.times.expire import Expire
from headerware.interceptors.times.moments import expires_header, not_before_header

__all__ = ["Delay", "Expire", "expires_header", "not_before_header"]
