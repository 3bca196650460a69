"""Read prices from TOML: rates of incoming and outgoing traffic, default owners, and budgets.

    currency = "EUR"
    decimals = 2                         # of rounded amounts

    [incoming]                           # records produced into Kafka
    per_gib = 0.09                       # a GiB is 2**30 bytes
    per_million_records = 0.20

    [outgoing]                           # records read from Kafka
    per_gib = 0.05

    [[topics]]                           # the first match counts; rates that it leaves out are as above
    pattern = "payments.*"
    incoming = { per_gib = 0.30 }

    [owners]                             # for records without hw.owner, by topic
    "payments.*" = "payments"

    [groups]                             # who pays for the reads of a group; else the record's owner pays
    "billing-*" = "billing"

    [budgets]                            # the planned costs of an owner in the period of one report
    payments = 120

Numbers stay decimal from the file to the report and are never converted to binary fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.errors import ConfigError
from headerware.core.options import table_from
from headerware.core.patterns import fits
from headerware.core.plain_files import read_plain
from headerware.core.toml import naming_lines, read_toml

if TYPE_CHECKING:
    import os

    from headerware.ops.chargeback.usage import Direction

_MAX_DECIMALS: Final = 12
_MAX_RATE: Final = Decimal(10) ** 15
_MAX_PLACES: Final = 15
"""Larger values could make sums inexact (bill.py)."""


def _require_amount(amount: Decimal | None, path: str) -> None:
    if amount is None:
        return
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or not 0 <= amount <= _MAX_RATE or exponent < -_MAX_PLACES:
        raise ConfigError(
            f"expected 0 to 10**15 with at most {_MAX_PLACES} decimals, found {amount}", path=path
        )


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The costs of traffic in one direction.

    Args:
        per_gib: the price of 2**30 bytes; None if it is not set.
        per_million_records: the price of a million records; None if it is not set.
    """

    per_gib: Decimal | None = None
    per_million_records: Decimal | None = None

    def over(self, default: Rates) -> Rates:
        """Return these rates, with the rates that are not set taken from ``default``."""
        return Rates(
            per_gib=default.per_gib if self.per_gib is None else self.per_gib,
            per_million_records=(
                default.per_million_records if self.per_million_records is None else self.per_million_records
            ),
        )


class TopicRates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rates of some topics.

    Args:
        pattern: a pattern of topics.
        incoming: the rates of records produced into these topics.
        outgoing: the rates of records read from these topics.
    """

    pattern: str
    incoming: Rates = Rates()
    outgoing: Rates = Rates()


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of traffic, and the owners that pay them.

    Args:
        currency: the name of the currency.
        decimals: how many decimals amounts are rounded to, 0 to 12.
        incoming: the rates of records produced into Kafka; rates that are not set are 0.
        outgoing: the rates of records read from Kafka; rates that are not set are 0.
        topics: different rates for some topics; the first pattern that matches counts.
        owners: the owners of records that name none, by patterns of topics; the first match counts.
        groups: the owners that pay for the reads of consumer groups, by patterns of groups; for other groups,
            the record's owner pays.
        budgets: the planned costs of owners in the period of one report.

    Raises:
        ConfigError: an amount is negative, not a number or too large, or has too many decimals.
    """

    currency: str = "EUR"
    decimals: int = 2
    incoming: Rates = Rates()
    outgoing: Rates = Rates()
    topics: tuple[TopicRates, ...] = ()
    owners: Mapping[str, str] = {}
    groups: Mapping[str, str] = {}
    budgets: Mapping[str, Decimal] = {}

    def __post_init__(self) -> None:
        """Refuse amounts for which no exact bill can be computed."""
        if not 0 <= self.decimals <= _MAX_DECIMALS:
            raise ConfigError(f"expected 0 to {_MAX_DECIMALS}, found {self.decimals}", path="decimals")
        for path, rates in self._every_rates():
            for name in rates.__struct_fields__:
                _require_amount(getattr(rates, name), f"{path}.{name}")
        for owner, budget in self.budgets.items():
            _require_amount(budget, f"budgets.{owner}")

    def rates(self, topic: str, direction: Direction) -> Rates:
        """Return the rates of a topic; rates that are not set are 0."""
        default = (self.incoming if direction == "in" else self.outgoing).over(_FREE)
        for each in self.topics:
            if fits(each.pattern, topic):
                return (each.incoming if direction == "in" else each.outgoing).over(default)
        return default

    def owner_of(self, topic: str, group: str | None, owner: str | None) -> str | None:
        """Return the owner that pays: the group's owner, else the record's, else the topic's, else None.

        Args:
            topic: the topic.
            group: the consumer group that read the record; None for incoming records.
            owner: the owner that the record names.
        """
        payer = None if group is None else _first(self.groups, group)
        return payer or owner or _first(self.owners, topic)

    def _every_rates(self) -> Iterator[tuple[str, Rates]]:
        """Yield all rates, each with its path."""
        yield from (("incoming", self.incoming), ("outgoing", self.outgoing))
        for number, topic in enumerate(self.topics):
            yield f"topics[{number}].incoming", topic.incoming
            yield f"topics[{number}].outgoing", topic.outgoing


def load_prices(path: str | os.PathLike[str]) -> Prices:
    """Read prices from a TOML file.

    Args:
        path: the file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has an unknown name; the message tells where,
            and the nearest valid name.
    """
    texts: dict[str, str] = {}
    with naming_lines(texts):
        # Parse numbers as Decimal, so that 0.1 does not become the nearest binary fraction.
        table = read_toml(Path(path), _read, texts, parse_float=Decimal)
        return table_from(table, Prices, source=str(path))


def _read(path: Path) -> str:
    return read_plain(path, _MAX_BYTES)[0].decode()


_MAX_BYTES: Final = 16 << 20
_FREE: Final = Rates(per_gib=Decimal(0), per_million_records=Decimal(0))


def _first(table: Mapping[str, str], name: str) -> str | None:
    return next((owner for pattern, owner in table.items() if fits(pattern, name)), None)
