"""Prove the trails of a topic's records, by the step ``trail`` of a chain (spec/trail.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headerware.core.chain import raising
from headerware.core.context import Context, wall_clock_ms
from headerware.core.errors import ConfigError, HeldBackError, KeyringError
from headerware.core.headers import Headers
from headerware.core.hooks import Role
from headerware.core.order import role_of
from headerware.core.record import Record
from headerware.core.step import wrapped
from headerware.core.topics import works_on
from headerware.interceptors.trail import Trail, TrailReading
from headerware.interceptors.trail_proof import PROVEN, TrailProof

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.chain import Chain


class TrailProofs:
    """Prove the trails of records one by one; for one caller at a time.

    The steps to the right of ``trail`` decode each record first, because a proof is about the record as its
    writer had it there.

    Args:
        chain: a chain with a signed ``trail``.
        topic: the topic.
        cluster_id: its cluster's id.
        bootstrap_servers: the cluster's brokers, from which a step may read a topic of its own.
        now_ms: the clock that ``not_before`` of keys is compared with.

    Raises:
        ConfigError: the chain has no signed trail for this topic.
        HeaderwareError: an interceptor cannot start, for example because its keyring is missing.
    """

    def __init__(
        self,
        chain: Chain,
        topic: str,
        *,
        cluster_id: str | None = None,
        bootstrap_servers: str | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        steps = [step for step in chain if works_on(step, topic)]
        signed = next((step for step in steps if isinstance(step, Trail) and step.signed), None)
        if signed is None:
            raise ConfigError(f"expected a chain with a signed trail for topic {topic!r}, found none")
        running: list[object] = [msgspec.structs.replace(signed, require="off")]
        later = steps[steps.index(signed) + 1 :]
        running += [step for step in later if role_of(step) is not Role.OBSERVE]
        context = Context(
            side="consumer",
            client_id="headerware-trail",
            now_ms=now_ms,
            bootstrap_servers=bootstrap_servers,
            cluster_id=lambda: cluster_id,
            dry_run=True,
        )
        self._session = raising(running).open(context)  # a refusal is shown, and no dead letter is written

    def prove(self, record: Record) -> TrailProof | None:
        """Return which hops of a record from the wire are proven; None if the chain keeps or drops it.

        Raises:
            KeyringError: a keyring or a key service does not answer, so no record can be proven now.
        """
        outcome = self._session.consume_outcome(record.replace(headers=Headers(record.headers)))
        if isinstance(outcome, Exception):
            error = wrapped(outcome)
            if isinstance(error, HeldBackError):
                raise KeyringError(error.message) from error
            return TrailProof(trail=TrailReading(), problem=f"its record is refused: {error.message}")
        if not isinstance(outcome, Record) or outcome.local is None:
            return None
        found: TrailProof | None = outcome.local.get(PROVEN)
        return found

    def close(self) -> None:
        """Close the interceptors."""
        self._session.close()
