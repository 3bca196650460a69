"""Dedup: every record carries an identity, and a consumer delivers each identity once (spec/dedup.md).

Kafka delivers at least once: a producer without idempotence, a task that is tried again or a mirror that
starts over may write a record twice. On send a record gets an identity; on consume a copy is dropped. Only
certain copies are dropped, because a record that is delivered twice does less harm than a lost one.

``identity`` has the header, ``interceptor`` the options and both directions, ``windows`` the identities seen.
"""

from headerware.interceptors.dedup.identity import Identity
from headerware.interceptors.dedup.interceptor import Dedup

__all__ = ["Dedup", "Identity"]
