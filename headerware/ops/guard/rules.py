"""The rules of the guard: routes, further conditions for admission, and quotas.

The rules use neither a client nor a clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from headerware.clients.partition_picker import partition_of_key
from headerware.core.bounded_cache import BoundedCache
from headerware.core.dead_letter import is_dead_letter_topic
from headerware.core.errors import AdmissionError, ConfigError, InterceptorError
from headerware.core.topics import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headerware.core.record import Record
    from headerware.interceptors.admission import Quota
    from headerware.interceptors.slice.header import SliceHeader

_TOPIC: Final = "{topic}"
_MAX_BUCKETS: Final = 20_000
_MAX_TOPICS: Final = 1_024


class QuotaError(InterceptorError):
    """A record exceeds the quota of its certificate's holder, and the quota refuses such records."""


class Routes:
    """The ingress topics, and the topics for the records of each.

    Args:
        table: an egress topic for each ingress topic. Both may contain ``{topic}`` once, which stands for any
            text: ``ingress.{topic}`` to ``{topic}``. Ingress names without ``{topic}`` are tried first, then
            the others in order; the first match counts.
        dead_letter_topic: the topic for refused records; ``{topic}`` stands for the ingress topic. These
            topics are never ingress topics.
        audit_topic: the topic for accounts, and for nothing else.

    Raises:
        ConfigError: a name is not valid, an egress topic is an ingress topic too, or refused records or
            accounts would go to a topic with other records.
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
                if name.count(_TOPIC) > 1 or not is_topic_name(name.replace(_TOPIC, "x")):
                    raise ConfigError(
                        f"expected a topic's name, with {_TOPIC} at most once, found {name!r}", path="routes"
                    )
            if _TOPIC in egress and _TOPIC not in ingress:
                raise ConfigError(
                    f"expected {_TOPIC} in both topics of a route, found {ingress!r} to {egress!r}",
                    path="routes",
                )
        for path, kept in (("dead_letter_topic", dead_letter_topic), ("audit_topic", audit_topic)):
            if kept is not None and not is_topic_name(kept.replace(_TOPIC, "x")):
                raise ConfigError(f"expected a topic's name, found {kept!r}", path=path)
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
                    f"the ingress topic {name!r} is a dead-letter topic by the pattern "
                    f"{dead_letter_topic!r}; change one of them",
                    path="dead_letter_topic",
                )
            self.check(name)

    def egress(self, topic: str) -> str | None:
        """Return the topic for admitted records of an ingress topic; None for any other topic."""
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
        """The topics for refused records and accounts, in words."""
        return f"refused to {self._dead_letter_topic}, accounts to {self._audit_topic or 'no topic'}"

    def written(self, topics: Iterable[str]) -> set[str]:
        """Return the topics that the guard writes to for the ingress topics among the given topics."""
        written = set()
        for topic in topics:
            if (egress := self.egress(topic)) is not None:
                written |= {egress, *(kept for _, kept in self.kept_in(topic))}
        return written

    def unused(self, topics: Iterable[str]) -> list[str]:
        """Return the ingress names and patterns that match none of the topics; they may be misspelled."""
        ingress = [topic for topic in topics if self.egress(topic) is not None]
        return [name for name, fits in self._fits.items() if not any(map(fits.fullmatch, ingress))]

    def dead_letters(self, topic: str) -> str:
        """Return the topic for refused records of an ingress topic."""
        return self._dead_letter_topic.replace(_TOPIC, topic)

    def kept_in(self, topic: str) -> tuple[tuple[str, str], ...]:
        """Return the dead-letter and audit topics of an ingress topic, each after its description."""
        letters = "dead-letter topic", self.dead_letters(topic)
        return (letters,) if self._audit_topic is None else (letters, ("audit topic", self._audit_topic))

    def check(self, topic: str) -> None:
        """Raise a ConfigError if the topics for the records of an ingress topic conflict."""
        egress = self.egress(topic)
        if egress is None:
            return
        if self.egress(egress) is not None:
            raise ConfigError(
                f"records of {topic!r} go to {egress!r}, which is an ingress topic too: the guard would read "
                f"them again",
                path="routes",
            )
        letters = self.dead_letters(topic)
        if self._audit_topic in (topic, egress, letters):
            raise ConfigError(
                f"the audit topic {self._audit_topic!r} is also the ingress, egress or dead-letter topic of "
                f"{topic!r}; set another audit_topic",
                path="audit_topic",
            )
        if letters in (egress, topic) or letters in self._exact.values():
            raise ConfigError(
                f"refused records of {topic!r} would go to {letters!r}, which is an ingress or egress topic; "
                f"set another dead_letter_topic",
                path="dead_letter_topic",
            )


def require_admitted(record: Record, slices: Sequence[SliceHeader], *, by_certificate: bool) -> None:
    """Raise an AdmissionError for a record that passed the chain without being verified and admitted.

    A chain can be configured to pass such records (``require``, ``on_error = "skip"``, ``topics``), but a
    guard must not. The guard therefore checks what was verified, not what is configured.

    Args:
        record: the record after the chain; a message in slices is reassembled.
        slices: the headers of the slices that the record was reassembled from.
        by_certificate: whether the chain has ``admission``, which must then have admitted the record.
    """
    verified = record.verified
    if verified is None:
        raise AdmissionError(
            "expected a verified signature, found none; the chain passes such records, but the guard does not"
        )
    if by_certificate and not verified.subject:
        raise AdmissionError(
            "expected a certificate that admission has accepted, found none; the chain passes such records, "
            "but the guard does not"
        )
    if slices and len(slices) != slices[0].count:
        raise AdmissionError(
            f"{slices[0].count - len(slices)} of the {slices[0].count} slices of the message were refused"
        )


def require_own_partition(record: Record, partitioner: str, partitions: int) -> None:
    """Raise an AdmissionError for a record in another partition than the partitioner chooses for its key.

    A signature does not cover the partition, so anyone could put a copy into another partition. The window
    that detects copies has only the partitions of its own process.
    """
    expected = partition_of_key(record.key, partitioner, partitions)
    if expected is not None and expected != record.partition:
        raise AdmissionError(
            f"the key belongs to partition {expected} ({partitioner}), but the record is in "
            f"{record.partition}"
        )


class Buckets:
    """Token buckets for the quotas of each certificate's holder; for one caller at a time.

    A bucket fills at the quota's rate, up to the amount of ``burst_s`` seconds. A record passes when its
    bucket has enough for the record. A record that is larger than the bucket passes when the bucket is full,
    and the records after it wait longer.
    """

    def __init__(self) -> None:
        self._levels: BoundedCache[tuple[Quota, str, str, bool], tuple[float, int]] = BoundedCache(
            _MAX_BUCKETS
        )

    def take(
        self, quotas: Sequence[Quota], who: tuple[str, str], *, records: int, size_bytes: int, now_ms: int
    ) -> tuple[int, Literal["wait", "refuse"]]:
        """Take from all buckets; take nothing if any bucket has too little.

        Args:
            quotas: the quotas of the holder.
            who: the issuer and the subject of the holder's certificate.
            records: the number of records.
            size_bytes: their total size.
            now_ms: the time, in milliseconds since the epoch.

        Returns:
            0, or the time to ask again, in milliseconds since the epoch; and ``refuse`` if any quota without
            enough refuses records, else ``wait``.
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
                if now_ms < at_ms:  # if the clock went back, fill from now on
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
