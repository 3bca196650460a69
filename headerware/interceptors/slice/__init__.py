"""Slice: messages that are too large for one record are split, and reassembled on the other side.

A record that fits passes untouched. One that does not becomes several slices: all have its key, timestamp,
topic and partition, the first has its headers, and each has a header ``hw.slice`` (spec/slice.md).

``header`` is that header, ``interceptor`` the options and the splitting, ``reassembly`` the other side.
"""

from headerware.interceptors.slice.header import SliceHeader
from headerware.interceptors.slice.interceptor import Slice

__all__ = ["Slice", "SliceHeader"]
