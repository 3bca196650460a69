"""Compute the bill: usage times prices, summed exactly by owner, topic, producer and hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final

import msgspec

from headerware.ops.chargeback.prices import Prices
from headerware.ops.chargeback.rules import require_zone
from headerware.ops.chargeback.shares import EXACT
from headerware.ops.chargeback.usage import Direction, Usage

GIB: Final = 2**30
_MILLION: Final = 10**6


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic and its cost.

    Args:
        records_in: records produced into Kafka.
        bytes_in: the size of these records on the wire.
        records_out: records read from Kafka, as far as reads are known.
        bytes_out: the size of these records.
        cost: the exact cost of both directions, in the currency of the prices.
    """

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    cost: Decimal = Decimal(0)


class UnknownReads(msgspec.Struct, frozen=True, kw_only=True):
    """Reads whose size is not known; they are not charged.

    Args:
        topic: the topic.
        group: the consumer group; None if it is not known.
        offsets: how many offsets the group advanced; None if that is not known.
    """

    topic: str
    group: str | None = None
    offsets: int | None = None


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic and its costs, in total and by owner, topic, producer, hour and group.

    Args:
        prices: the prices that were used.
        total: the total.
        by_owner: by the owner that pays; None stands for no owner.
        by_topic: by topic.
        by_producer: by the service that began the trail; None stands for an unknown producer.
        by_hour: by hour in UTC; None stands for records without a timestamp.
        by_group: the outgoing traffic by consumer group.
        unknown: the reads that are not in the bill because their size is not known, by topic and group.
        malformed: how many incoming records have a trail or a block of ids that cannot be read.
        sources: the sources of the figures for outgoing traffic.
    """

    prices: Prices
    total: Traffic
    by_owner: Mapping[str | None, Traffic]
    by_topic: Mapping[str, Traffic]
    by_producer: Mapping[str | None, Traffic]
    by_hour: Mapping[datetime | None, Traffic]
    by_group: Mapping[str | None, Traffic]
    unknown: tuple[UnknownReads, ...] = ()
    malformed: int = 0
    sources: frozenset[str] = frozenset()


def charge(usage: Iterable[Usage], prices: Prices) -> Bill:
    """Return the bill for usage.

    If a topic has incoming rows but no outgoing rows, its reads are unknown.

    Args:
        usage: the rows, in any order, read once. Memory grows with the number of distinct names and hours,
            not with the number of rows.
        prices: the prices.

    Raises:
        ConfigError: an hour has no time zone.
    """
    sums = _Sums(prices)
    for row in usage:
        sums.add(row)
    return sums.bill()


class _Sum:
    """One sum, to which rows are added."""

    __slots__ = ("bytes", "cost", "records")

    def __init__(self) -> None:
        self.records: Final = {"in": 0, "out": 0}
        self.bytes: Final = {"in": 0, "out": 0}
        self.cost = Decimal(0)

    def add(self, direction: Direction, records: int, size: int, cost: Decimal) -> None:
        self.records[direction] += records
        self.bytes[direction] += size
        self.cost = EXACT.add(self.cost, cost)

    def traffic(self) -> Traffic:
        return Traffic(
            records_in=self.records["in"],
            bytes_in=self.bytes["in"],
            records_out=self.records["out"],
            bytes_out=self.bytes["out"],
            cost=self.cost,
        )


class _Sums:
    """All sums of a bill, to which rows are added."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._rates = cache(prices.rates)
        self._owner_of = cache(prices.owner_of)
        self._total = _Sum()
        self._by: dict[str, dict[Any, _Sum]] = {
            name: {} for name in ("by_owner", "by_topic", "by_producer", "by_hour", "by_group")
        }
        self._unknown: dict[tuple[str, str | None], int | None] = {}
        self._malformed = 0
        self._sources: set[str] = set()
        self._topics: dict[str, set[str]] = {"in": set(), "out": set()}

    def add(self, row: Usage) -> None:
        require_zone(row.hour, "usage.hour")
        self._topics[row.direction].add(row.topic)
        if row.records is None or row.bytes is None:
            self._add_unknown(row)
            return
        if row.direction == "out":
            self._sources.add(row.source)
        else:
            self._malformed += row.malformed
        if not row.records and not row.bytes:
            return  # the row tells that a group read nothing: the topic's reads are known, and cost nothing
        names = {
            "by_owner": self._owner_of(row.topic, row.group, row.owner),
            "by_topic": row.topic,
            "by_producer": row.producer,
            "by_hour": None if row.hour is None else row.hour.astimezone(UTC),
        }
        if row.direction == "out":
            names["by_group"] = row.group
        cost = self._cost(row, row.records, row.bytes)
        for by, name in names.items():
            self._by[by].setdefault(name, _Sum()).add(row.direction, row.records, row.bytes, cost)
        self._total.add(row.direction, row.records, row.bytes, cost)

    def bill(self) -> Bill:
        found = {by: {name: own.traffic() for name, own in sums.items()} for by, sums in self._by.items()}
        for topic in self._topics["in"] - self._topics["out"]:
            self._unknown[topic, None] = None
        unknown = [
            UnknownReads(topic=topic, group=group, offsets=offsets)
            for (topic, group), offsets in sorted(
                self._unknown.items(), key=lambda item: (item[0][0], item[0][1] or "")
            )
        ]
        return Bill(
            prices=self._prices,
            total=self._total.traffic(),
            unknown=tuple(unknown),
            malformed=self._malformed,
            sources=frozenset(self._sources),
            **found,
        )

    def _add_unknown(self, row: Usage) -> None:
        before = self._unknown.get((row.topic, row.group), 0)
        known = before is not None and row.records is not None
        self._unknown[row.topic, row.group] = (before or 0) + (row.records or 0) if known else None

    def _cost(self, row: Usage, records: int, size: int) -> Decimal:
        rates = self._rates(row.topic, row.direction)
        by_size = EXACT.divide(EXACT.multiply(rates.per_gib or Decimal(0), Decimal(size)), Decimal(GIB))
        by_count = EXACT.divide(
            EXACT.multiply(rates.per_million_records or Decimal(0), Decimal(records)), Decimal(_MILLION)
        )
        return EXACT.add(by_size, by_count)
