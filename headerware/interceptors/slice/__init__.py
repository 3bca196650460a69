"""Slice: messages that are too large for one record are split on send, and reassembled on consume.

A record that fits passes unchanged. A larger record becomes several slices: all have its key, timestamp,
topic and partition, the first has its headers, and each has a header ``hw.slice`` (spec/slice.md).

``header`` has that header, ``interceptor`` the options and the splitting, ``reassembly`` the reassembly.
"""

from headerware.interceptors.slice.header import SliceHeader
from headerware.interceptors.slice.interceptor import Slice

__all__ = ["Slice", "SliceHeader"]
