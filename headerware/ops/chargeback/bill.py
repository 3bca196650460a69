"""Compute the bill: usage times prices, summed by owner, topic, producer and hour, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final

import msgspec

from headerware.ops.chargeback.prices import Prices
from headerware.ops.chargeback.shares import EXACT
from headerware.ops.chargeback.usage import Direction, Usage

GIB: Final = 2**30
_MILLION: Final = 10**6


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic, and what it costs.

    Args:
        records_in: records produced into Kafka.
        bytes_in: their size on the wire.
        records_out: records read from it, as far as reads are known.
        bytes_out: their size.
        cost: what both cost, exactly, in the currency of the prices.
    """

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    cost: Decimal = Decimal(0)


class UnknownReads(msgspec.Struct, frozen=True, kw_only=True):
    """Reads of unknown size, which therefore cost nothing.

    Args:
        topic: the topic.
        group: the consumer group; None if it is not known either.
        offsets: how many offsets were passed over; None if that is not known either.
    """

    topic: str
    group: str | None = None
    offsets: int | None = None


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of traffic, and who pays them.

    Args:
        prices: the prices that were used.
        total: all of it.
        by_owner: by who pays; None is unattributed.
        by_topic: by topic.
        by_producer: by the service that began the trail; None is unattributed.
        by_hour: by hour in UTC; None is without a time.
        by_group: what consumer groups read; what came in is not in it.
        unknown: reads that are not in it, by topic and group.
        malformed: how many incoming records have a trail or a block of ids that cannot be read.
        sources: where the figures of outgoing traffic come from.
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
    """Return the bill of usage.

    A topic that has incoming rows and no outgoing ones at all counts as one whose reads are unknown.

    Args:
        usage: the rows, in any order. They are read once; memory grows with the names and hours in them, not
            with their number.
        prices: the prices.
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
        self._topics[row.direction].add(row.topic)
        if row.records is None or row.bytes is None:
            self._add_unknown(row)
            return
        if row.direction == "out":
            self._sources.add(row.source)
        else:
            self._malformed += row.malformed
        if not row.records and not row.bytes:
            return  # says that nothing was read, which is worth knowing and no row of a table
        names = {
            "by_owner": self._owner_of(row.topic, row.group, row.owner),
            "by_topic": row.topic,
            "by_producer": row.producer,
            "by_hour": row.hour,
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
