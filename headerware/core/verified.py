"""What a step has verified of a record: whose it is, from when, and what of it nobody vouches for."""

from __future__ import annotations

from typing import Final

import msgspec

from headerware.core.headers import EMPTY, Headers

LOCAL: Final = "hw.verified"
"""Where a record carries its :class:`Verified` in ``record.local``."""


class Verified(msgspec.Struct, frozen=True, gc=False):
    """What was verified of a consumed record, in ``record.verified`` and ``consumer.verified(message)``.

    Of a message that was put together from slices it is that of the first slice: all slices of a message have
    one signer.

    Args:
        key_id: the key that signed.
        key_version: its version.
        signed_at_ms: when, by the signer's clock, in milliseconds since the epoch.
        cluster: the cluster that it was signed for; empty where the signer did not know it.
        topic: the topic that it was signed for.
        producer: the session that signed, 8 bytes drawn at random.
        sequence: the number of the record in that session.
        uncovered: the names of the headers that were added later and that nobody vouches for, in order.
        set_aside: these headers themselves, where the application is to get them; no step sees them.
    """

    key_id: str
    key_version: int
    signed_at_ms: int
    cluster: str
    topic: str
    producer: bytes
    sequence: int
    uncovered: tuple[str, ...] = ()
    set_aside: Headers = EMPTY

    @property
    def signer(self) -> tuple[str, bytes]:
        """The key's id and the session that signed with it: the same for all slices of one message."""
        return self.key_id, self.producer
