"""Dedup: every record carries an identity, and a consumer takes each one once (spec/dedup.md).

Kafka delivers at least once: a producer without idempotence, a task that is tried again or a mirror that
starts over write a record twice. On send a record gets an identity; on consume a copy is dropped. A record
that is not certainly a copy is delivered: twice is better than never.

``identity`` is the header, ``interceptor`` the options and both directions, ``windows`` what was seen.
"""

from headerware.interceptors.dedup.identity import Identity
from headerware.interceptors.dedup.interceptor import Dedup

__all__ = ["Dedup", "Identity"]
