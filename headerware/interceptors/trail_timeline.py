"""Show a trail as a timeline: each entry with its service, time and topics, and the gaps between entries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headerware.interceptors.trail import TrailEntry, TrailReading
    from headerware.interceptors.trail_proof import HopProof

ClusterAndTopic = tuple[str | None, str | None]
"""A cluster and a topic; None is unknown."""


class TimelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a timeline.

    Args:
        kind: ``produced``, ``read``, ``forwarded`` (read and produced), ``gap`` (something happened that
            left no entry), ``dead_letter`` or ``left_out`` (entries that the trail's bounds dropped).
        text: what happened, without characters that control a terminal.
        by_whom: the service, if the step is an entry that names one.
        when_ms: when, in milliseconds since the epoch, if the step is an entry.
        after_ms: how long after the previous entry, in milliseconds; negative if two clocks disagree.
        proof: ``proven``, ``unproven``, ``broken`` or ``read``, as in :class:`HopProof`; None if the entry
            was not checked.
        proof_text: which key has proven the entry, or why none has; empty if the entry was not checked.
    """

    kind: Literal["produced", "read", "forwarded", "gap", "dead_letter", "left_out"]
    text: str
    by_whom: str | None = None
    when_ms: int | None = None
    after_ms: int | None = None
    proof: Literal["proven", "unproven", "broken", "read"] | None = None
    proof_text: str = ""

    def __str__(self) -> str:
        """Return the step as one line."""
        if self.when_ms is None:
            return f"  ({self.text})"
        after = "" if self.after_ms is None else f"  {duration_text(self.after_ms)}"
        proof = f" ({self.proof_text})" if self.proof_text else ""
        return f"{time_text(self.when_ms)}{after}  {self.by_whom or 'someone'} {self.text}{proof}"


def timeline(
    trail: TrailReading,
    *,
    found_in: ClusterAndTopic | None = None,
    dead_letter_of: str | None = None,
    hops: Sequence[HopProof] = (),
) -> list[TimelineStep]:
    """Return a trail as steps, oldest first; ``str`` of a step is a line of text.

    Args:
        trail: the trail, as :func:`read_trail` returned it.
        found_in: the cluster and topic in which the record was found, to show a gap at the end.
        dead_letter_of: if the record is a dead letter, the position of the original record, as text; a dead
            letter adds no entry to the trail.
        hops: the proofs of the entries, as :func:`prove_trail` returned them; empty if they were not checked.
    """
    steps: list[TimelineStep] = []
    before: TrailEntry | None = None
    for index, entry in enumerate(trail):
        if index == 1 and trail.left_out:
            is_covered = len(hops) > 1 and hops[1].state == "proven"
            steps.append(_left_out(trail.left_out, is_covered=is_covered))
        elif before is not None:
            steps.extend(_gap(before, entry))
        steps.append(_step(entry, before, hops[index] if index < len(hops) else None))
        before = entry
    if trail.left_out and len(trail) < 2:
        steps.append(_left_out(trail.left_out))
    if dead_letter_of is not None:
        where = "" if found_in is None else f" in {_shown(found_in)}"
        text = f"kept{where} as the dead letter of {printable(dead_letter_of)}"
        steps.append(TimelineStep(kind="dead_letter", text=text))
    elif before is not None and found_in is not None:
        steps.extend(_gap_at_end(before, found_in))
    return steps


def time_text(when_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, or as a number if no calendar has it."""
    try:
        moment = datetime.fromtimestamp(when_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{when_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{when_ms % 1000:03}Z"


def duration_text(after_ms: int) -> str:
    """Return a duration with its sign, in the largest unit that it fills."""
    if after_ms < 0:
        return f"-{duration_text(-after_ms)[1:]} (the clocks disagree)"
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if after_ms >= size_ms:
            return f"+{after_ms / size_ms:.1f} {unit}"
    return f"+{after_ms} ms"


def _step(entry: TrailEntry, before: TrailEntry | None, hop: HopProof | None) -> TimelineStep:
    read, produced = _read(entry), _produced(entry)
    parts = []
    if read != _NOWHERE:
        parts.append(f"read from {_shown(read)}")
    if produced != _NOWHERE:
        parts.append(f"produced into {_shown(produced)}")
    kind: Literal["produced", "read", "forwarded"] = "read" if produced == _NOWHERE else "produced"
    return TimelineStep(
        kind="forwarded" if len(parts) == 2 else kind,
        text=", ".join(parts) or "left an entry without a topic",
        by_whom=None if entry.by_whom is None else printable(entry.by_whom),
        when_ms=entry.when_ms,
        after_ms=None if before is None else entry.when_ms - before.when_ms,
        proof=None if hop is None else hop.state,
        proof_text="" if hop is None else _proof_text(hop),
    )


def _proof_text(hop: HopProof) -> str:
    if hop.state == "proven":
        return f"proven by key {printable(hop.key_id or '')!r}"
    words = {"unproven": "not proven", "broken": "broken", "read": ""}[hop.state]
    return words if hop.reason is None else f"{words}: {hop.reason}"


def _gap(before: TrailEntry, entry: TrailEntry) -> list[TimelineStep]:
    came_to, read = _produced(before), _read(entry)
    if came_to == _NOWHERE and read == _NOWHERE:
        return []
    if came_to == _NOWHERE:
        return [] if _same(_read(before), read) else [_missing(f"produced into {_shown(read)}")]
    if read == _NOWHERE:
        return [_missing(f"read from {_shown(came_to)}")]
    return [] if _same(came_to, read) else [_copied(came_to, read)]


def _gap_at_end(last: TrailEntry, found_in: ClusterAndTopic) -> list[TimelineStep]:
    came_to = _produced(last)
    if came_to == _NOWHERE:
        return [] if _same(_read(last), found_in) else [_missing(f"produced into {_shown(found_in)}")]
    return [] if _same(came_to, found_in) else [_copied(came_to, found_in)]


def _copied(came_from: ClusterAndTopic, came_to: ClusterAndTopic) -> TimelineStep:
    what = f"from {_shown(came_from)} to {_shown(came_to)}: copied by something that leaves no entry"
    return TimelineStep(kind="gap", text=what)


def _missing(what: str) -> TimelineStep:
    return TimelineStep(kind="gap", text=f"{what} by something that leaves no entry")


def _left_out(count: int, *, is_covered: bool = False) -> TimelineStep:
    covered = ", covered by the next hop's signature" if is_covered else ""
    text = f"{counted(count, 'entry', 'entries')} left out to keep the trail short{covered}"
    return TimelineStep(kind="left_out", text=text)


_NOWHERE: ClusterAndTopic = (None, None)


def _read(entry: TrailEntry) -> ClusterAndTopic:
    return (entry.read_from_cluster, entry.read_from_topic)


def _produced(entry: TrailEntry) -> ClusterAndTopic:
    return (entry.produced_into_cluster, entry.produced_into_topic)


def _same(one: ClusterAndTopic, other: ClusterAndTopic) -> bool:
    """Return whether two clusters and topics may be the same; an unknown part may be anything."""
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _shown(cluster_and_topic: ClusterAndTopic) -> str:
    return "/".join("?" if part is None else printable(part) for part in cluster_and_topic)
