"""Read prices from TOML: rates of incoming and outgoing traffic, owners for what has none, and budgets.

    currency = "EUR"
    decimals = 2                         # of rounded amounts

    [incoming]                           # records produced into Kafka
    per_gib = 0.09                       # a GiB is 2**30 bytes
    per_million_records = 0.20

    [outgoing]                           # records read from it
    per_gib = 0.05

    [[topics]]                           # the first that matches; rates that it leaves out are as above
    pattern = "payments.*"
    incoming = { per_gib = 0.30 }

    [owners]                             # for records without hw.owner, by topic
    "payments.*" = "payments"

    [groups]                             # payers for the reads of consumer groups, else the record's owner
    "billing-*" = "billing"

    [budgets]                            # the planned costs of an owner in the time of one report
    payments = 120

Numbers are decimal from the file to the page: no binary fraction comes between.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.errors import ConfigError
from headerware.core.options import table_from
from headerware.core.patterns import fits
from headerware.core.plain_files import read_plain

if TYPE_CHECKING:
    import os

    from headerware.ops.chargeback.usage import Direction

_MAX_DECIMALS: Final = 12
_MAX_RATE: Final = Decimal(10) ** 15
_MAX_PLACES: Final = 15
"""Beyond these bounds sums might not be exact (bill.py)."""


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
        per_gib: for 2**30 bytes.
        per_million_records: for a million records.
    """

    per_gib: Decimal | None = None
    per_million_records: Decimal | None = None

    def over(self, default: Rates) -> Rates:
        """Return these rates, completed by others."""
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
        incoming: for what is produced into them.
        outgoing: for what is read from them.
    """

    pattern: str
    incoming: Rates = Rates()
    outgoing: Rates = Rates()


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of traffic, and who pays them.

    Args:
        currency: what amounts are called.
        decimals: how many decimals amounts are rounded to, 0 to 12.
        incoming: for what is produced into Kafka; free if it is left out.
        outgoing: for what is read from it.
        topics: rates of their own for some topics; of several that match the first counts.
        owners: who owns records without an owner of their own, by patterns of topics; the first counts.
        groups: who pays for what consumer groups read, by patterns of groups; for others the records' owner
            pays.
        budgets: what owners mean to spend in the time of one report.

    Raises:
        ConfigError: an amount that is negative, no number or beyond all bounds, or too many decimals.
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
        """Refuse prices that make no bill possible."""
        if not 0 <= self.decimals <= _MAX_DECIMALS:
            raise ConfigError(f"expected 0 to {_MAX_DECIMALS}, found {self.decimals}", path="decimals")
        for path, rates in self._every_rates():
            for name in rates.__struct_fields__:
                _require_amount(getattr(rates, name), f"{path}.{name}")
        for owner, budget in self.budgets.items():
            _require_amount(budget, f"budgets.{owner}")

    def rates(self, topic: str, direction: Direction) -> Rates:
        """Return the rates of a topic, all of them set."""
        default = (self.incoming if direction == "in" else self.outgoing).over(_FREE)
        for each in self.topics:
            if fits(each.pattern, topic):
                return (each.incoming if direction == "in" else each.outgoing).over(default)
        return default

    def owner_of(self, topic: str, group: str | None, owner: str | None) -> str | None:
        """Return who pays: the group's owner, else the record's, else the topic's, else None.

        Args:
            topic: the topic.
            group: the consumer group that read, or None for what came in.
            owner: what the record itself says.
        """
        payer = None if group is None else _first(self.groups, group)
        return payer or owner or _first(self.owners, topic)

    def _every_rates(self) -> Iterator[tuple[str, Rates]]:
        """Return all rates, each with its path."""
        yield from (("incoming", self.incoming), ("outgoing", self.outgoing))
        for number, topic in enumerate(self.topics):
            yield f"topics[{number}].incoming", topic.incoming
            yield f"topics[{number}].outgoing", topic.outgoing


def load_prices(path: str | os.PathLike[str]) -> Prices:
    """Read prices from a TOML file.

    Args:
        path: the file.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or holds what prices do not have: where, and the
            nearest right name.
    """
    try:
        # Decimal numbers, as they are written: 0.1 must not become the nearest binary fraction.
        table = tomllib.loads(read_plain(path, _MAX_BYTES)[0].decode(), parse_float=Decimal)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=str(path)) from error
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError, and a number without end
        raise ConfigError(f"is not TOML: {error}", path=str(path)) from error
    return table_from(table, Prices, source=str(path))


_MAX_BYTES: Final = 16 << 20
_FREE: Final = Rates(per_gib=Decimal(0), per_million_records=Decimal(0))


def _first(table: Mapping[str, str], name: str) -> str | None:
    return next((owner for pattern, owner in table.items() if fits(pattern, name)), None)
