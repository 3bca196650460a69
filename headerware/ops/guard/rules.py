"""What is decided about a record: where it goes, whether it passes, and whether its writer may write more.

Nothing here has a client or a clock of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from headerware.clients.partition_picker import partition_of_key
from headerware.core.bounded_cache import BoundedCache
from headerware.core.dead_letter import is_dead_letter_topic
from headerware.core.errors import AdmissionError, ConfigError, InterceptorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headerware.core.record import Record
    from headerware.interceptors.admission import Quota
    from headerware.interceptors.slice.header import SliceHeader

_TOPIC: Final = "{topic}"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_BUCKETS: Final = 20_000
_MAX_TOPICS: Final = 1_024


class QuotaError(InterceptorError):
    """A record above the quota of whoever wrote it, where such records are refused."""


class Routes:
    """Which topics are ingress, and where the records of each go.

    Args:
        table: an egress topic for each ingress topic. Both may have ``{topic}`` once, which stands for any
            text: ``ingress.{topic}`` to ``{topic}``. Names without it count first, then the first that fits.
        dead_letter_topic: the topic of refused records; ``{topic}`` is the ingress topic. Such topics are
            never ingress.
        audit_topic: the topic of accounts, where nothing else may go.

    Raises:
        ConfigError: a topic that is no name, records that would go round in circles, or refused records that
            would go where admitted ones go.
    """

    def __init__(
        self,
        table: Mapping[str, str],
        *,
        dead_letter_topic: str = "{topic}.dead-letter",
        audit_topic: str | None = None,
    ) -> None:
        if not table:
            raise ConfigError("expected at least one route, such as 'ingress.{topic}={topic}'", path="routes")
        for ingress, egress in table.items():
            for name in (ingress, egress):
                if name.count(_TOPIC) > 1 or not _NAME.fullmatch(name.replace(_TOPIC, "x")):
                    raise ConfigError(f"expected a topic's name, {_TOPIC} in it, not {name!r}", path="routes")
            if _TOPIC in egress and _TOPIC not in ingress:
                raise ConfigError(f"{egress!r} has {_TOPIC}, and {ingress!r} says none", path="routes")
        for path, kept in (("dead_letter_topic", dead_letter_topic), ("audit_topic", audit_topic)):
            if kept is not None and not _NAME.fullmatch(kept.replace(_TOPIC, "x")):
                raise ConfigError(f"expected a topic's name, not {kept!r}", path=path)
        self._dead_letter_topic: Final = dead_letter_topic
        self._audit_topic: Final = audit_topic
        self._table: Final = dict(table)
        self._exact: Final = {ingress: egress for ingress, egress in table.items() if _TOPIC not in ingress}
        self._fits: Final = {
            ingress: re.compile("(.+)".join(map(re.escape, ingress.split(_TOPIC)))) for ingress in table
        }
        self._patterns: Final = [
            (self._fits[ingress], egress) for ingress, egress in table.items() if _TOPIC in ingress
        ]
        self._egress_of: Final = BoundedCache[str, str | None](_MAX_TOPICS, self._egress)
        for ingress in table:
            name = ingress.replace(_TOPIC, "x")
            if is_dead_letter_topic(dead_letter_topic, name):
                raise ConfigError(
                    f"records of {name!r} would be dead letters already; no ingress topic may fit "
                    f"{dead_letter_topic!r}",
                    path="dead_letter_topic",
                )
            self.check(name)

    def egress(self, topic: str) -> str | None:
        """Return the topic that admitted records of a topic go to; None if it is no ingress topic."""
        return self._egress_of[topic]

    def _egress(self, topic: str) -> str | None:
        if is_dead_letter_topic(self._dead_letter_topic, topic):
            return None
        found = self._exact.get(topic)
        if found is not None:
            return found
        for pattern, egress in self._patterns:
            if match := pattern.fullmatch(topic):
                return egress.replace(_TOPIC, match[1])
        return None

    @property
    def named(self) -> list[str]:
        """The routes as they were given."""
        return [f"{name} -> {egress}" for name, egress in self._table.items()]

    @property
    def kept(self) -> str:
        """Where refused records and accounts go, in words."""
        return f"refused to {self._dead_letter_topic}, accounts to {self._audit_topic or 'no topic'}"

    def written(self, topics: Iterable[str]) -> set[str]:
        """Return the topics that records of the ingress topics among some go to, admitted or not."""
        written = set()
        for topic in topics:
            if (egress := self.egress(topic)) is not None:
                written |= {egress, *(kept for _, kept in self.kept_in(topic))}
        return written

    def unused(self, topics: Iterable[str]) -> list[str]:
        """Return the ingress sides that none of the topics fits; they may be misspelled."""
        there = [topic for topic in topics if self.egress(topic) is not None]
        return [name for name, fits in self._fits.items() if not any(map(fits.fullmatch, there))]

    def dead_letters(self, topic: str) -> str:
        """Return the topic that refused records of an ingress topic go to."""
        return self._dead_letter_topic.replace(_TOPIC, topic)

    def kept_in(self, topic: str) -> tuple[tuple[str, str], ...]:
        """Return where refused records and accounts of an ingress topic are kept, each with what it is."""
        letters = "dead-letter topic", self.dead_letters(topic)
        return (letters,) if self._audit_topic is None else (letters, ("audit topic", self._audit_topic))

    def check(self, topic: str) -> None:
        """Raise a ConfigError if records of an ingress topic cannot go where they should."""
        egress = self.egress(topic)
        if egress is None:
            return
        if self.egress(egress) is not None:
            raise ConfigError(
                f"records of {topic!r} go to {egress!r}, which is an ingress topic itself: they would go "
                f"round, or pass twice",
                path="routes",
            )
        letters = self.dead_letters(topic)
        if self._audit_topic in (topic, egress, letters):
            raise ConfigError(
                f"records of {topic!r} would come from or go to {self._audit_topic!r}, where only accounts "
                f"may go; set audit_topic",
                path="audit_topic",
            )
        if letters in (egress, topic) or letters in self._exact.values():
            raise ConfigError(
                f"refused records of {topic!r} would go to {letters!r}, where admitted ones go, or come "
                f"from; set dead_letter_topic",
                path="dead_letter_topic",
            )


def require_admitted(record: Record, slices: Sequence[SliceHeader], *, by_certificate: bool) -> None:
    """Raise an AdmissionError for a record that the chain lets pass, and that nothing has admitted.

    A chain may be told to let such records through: ``require``, ``on_error = "skip"``, ``topics``. A guard
    may not. So it looks at what was verified, and not at what is configured.

    Args:
        record: the record behind the chain, whole.
        slices: the headers of the slices that it was made of; none for others.
        by_certificate: whether the chain has ``admission``, which must then have admitted it.
    """
    verified = record.verified
    if verified is None:
        raise AdmissionError(
            "expected a verified signature, found none; the chain passes such records, and the guard does not"
        )
    if by_certificate and not verified.subject:
        raise AdmissionError(
            "expected a certificate that admission has judged, found none; the chain passes such records, "
            "and the guard does not"
        )
    if slices and len(slices) != slices[0].count:
        raise AdmissionError(
            f"{slices[0].count - len(slices)} of the {slices[0].count} slices of its message were refused"
        )


def require_own_partition(record: Record, partitioner: str, partitions: int) -> None:
    """Raise an AdmissionError for a record that stands in another partition than its key decides.

    A signature does not cover the partition, so a copy could be put into any; a window against copies sees
    only the partitions that its own process reads.
    """
    expected = partition_of_key(record.key, partitioner, partitions)
    if expected is not None and expected != record.partition:
        raise AdmissionError(
            f"its key belongs to partition {expected} ({partitioner}), and it stands in {record.partition}"
        )


class Buckets:
    """Count what each holder of a certificate writes, by quotas; for one caller at a time.

    A bucket fills up with its rate, to ``burst_s`` seconds of it, and a record is let through as soon as
    there is enough for it. One that is larger than the bucket passes when that is full, and the next wait
    longer.
    """

    def __init__(self) -> None:
        self._levels: BoundedCache[tuple[Quota, str, str, bool], tuple[float, int]] = BoundedCache(
            _MAX_BUCKETS
        )

    def take(
        self, quotas: Sequence[Quota], who: tuple[str, str], *, records: int, size_bytes: int, now_ms: int
    ) -> tuple[int, Literal["wait", "refuse"]]:
        """Take from all buckets, or take nothing if there is not enough in any.

        Args:
            quotas: those that count for the holder.
            who: the holder: issuer and subject.
            records: how many records.
            size_bytes: how large they are together.
            now_ms: the time, in milliseconds since the epoch.

        Returns:
            0, or when to ask again, in milliseconds since the epoch; and what those that lack say of a record
            above them, of which ``refuse`` counts for more.
        """
        taken: dict[tuple[Quota, str, str, bool], tuple[float, int]] = {}
        until_ms = 0
        over: Literal["wait", "refuse"] = "wait"
        for quota in quotas:
            for is_bytes, rate, cost in (
                (False, quota.records_per_s, records),
                (True, quota.bytes_per_s, size_bytes),
            ):
                if rate is None:
                    continue
                key = (quota, *who, is_bytes)
                most = rate * quota.burst_s
                level, at_ms = self._levels.get(key) or (most, now_ms)
                level = min(most, level + rate * max(0, now_ms - at_ms) / 1_000)
                if now_ms < at_ms:  # a clock that has gone back fills from now on, not from where it was
                    self._levels[key] = level, now_ms
                missing = min(cost, most) - level
                if missing > 0:
                    until_ms = max(until_ms, now_ms + int(missing / rate * 1_000) + 1)
                    over = "refuse" if quota.over == "refuse" else over
                taken[key] = level - cost, now_ms
        if until_ms:
            return until_ms, over
        for key, state in taken.items():
            self._levels[key] = state
        return 0, over
