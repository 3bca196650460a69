"""Moments in headers: until when a record is worth reading, and from when on."""

from headerware.interceptors.times.delay import Delay
from headerware.interceptors.times.expire import Expire
from headerware.interceptors.times.moments import expires_header, not_before_header

__all__ = ["Delay", "Expire", "expires_header", "not_before_header"]
