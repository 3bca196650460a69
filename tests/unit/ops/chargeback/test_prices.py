from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.prices import Prices, Rates, TopicRates, load_prices

EXAMPLE = Path(__file__).parents[4] / "examples" / "chargeback_prices.toml"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prices.toml"


class TestLoadPrices:
    def test_reads_decimals_as_they_are_written(self, path: Path) -> None:
        path.write_text("[incoming]\nper_gib = 0.1\nper_million_records = 3\n")
        assert load_prices(path).incoming == Rates(per_gib=Decimal("0.1"), per_million_records=Decimal(3))

    def test_reads_the_example(self) -> None:
        prices = load_prices(EXAMPLE)
        assert prices.incoming.per_gib
        assert prices.owners
        assert prices.budgets

    def test_of_nothing_are_free(self, path: Path) -> None:
        path.write_text("")
        assert load_prices(path) == Prices()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("curency = 'EUR'", "curency: unknown key; did you mean 'currency'?"),
            ("[incoming]\nper_gb = 1", "incoming.per_gb: unknown key; did you mean 'per_gib'?"),
            (
                "[[topics]]\npattern = 'a'\n[[topics]]\npatern = 'b'",
                "topics[1].patern: unknown key; did you mean 'pattern'?",
            ),
            (
                "[[topics]]\npattern = 'a'\noutgoing = { per_million = 1 }",
                "topics[0].outgoing.per_million: unknown key; did you mean 'per_million_records'?",
            ),
            ("[[topics]]\nincoming = { per_gib = 1 }", "topics[0].pattern: is missing, and has no default"),
            ("[incoming]\nper_gib = true", "incoming.per_gib: expected a number, found true or false"),
            ("[incoming]\nper_gib = -1", "incoming.per_gib: expected 0 to 10**15"),
            ("[incoming]\nper_gib = inf", "incoming.per_gib: expected 0 to 10**15"),
            ("[incoming]\nper_gib = nan", "incoming.per_gib: expected 0 to 10**15"),
            ("[incoming]\nper_gib = 1e-400", "incoming.per_gib: expected 0 to 10**15"),
            ("[incoming]\nper_gib = 1e400", "incoming.per_gib: expected 0 to 10**15"),
            (
                "[[topics]]\npattern = 'a'\noutgoing = { per_million_records = -1 }",
                "topics[0].outgoing.per_million_records: expected 0 to 10**15",
            ),
            ("[budgets]\nshop = -1", "budgets.shop: expected 0 to 10**15"),
            ("decimals = 13", "decimals: expected 0 to 12, found 13"),
            ("owners = 1", "owners: expected a table, found a whole number"),
            ("= 1", "is not TOML"),
        ],
    )
    def test_says_what_is_wrong_and_where(self, text: str, message: str, path: Path) -> None:
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_prices(path)
        assert re.match(rf"{re.escape(str(path))}:\d+:\d+: ", str(caught.value))
        assert message in str(caught.value)

    def test_says_that_a_file_is_not_there(self, path: Path) -> None:
        with pytest.raises(ConfigError, match=r"prices\.toml: cannot be read: No such file"):
            load_prices(path)

    def test_says_that_a_file_is_no_text(self, path: Path) -> None:
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match="is not TOML"):
            load_prices(path)


class TestPrices:
    PRICES = Prices(
        incoming=Rates(per_gib=Decimal(1), per_million_records=Decimal(2)),
        topics=(
            TopicRates(pattern="a.*", incoming=Rates(per_gib=Decimal(5))),
            TopicRates(pattern="*", outgoing=Rates(per_gib=Decimal(7))),
        ),
        owners={"a.*": "first", "a.b": "never"},
        groups={"billing-*": "billing"},
    )

    def test_a_topic_has_the_rates_of_the_first_pattern(self) -> None:
        assert self.PRICES.rates("a.b", "in") == Rates(per_gib=Decimal(5), per_million_records=Decimal(2))
        assert self.PRICES.rates("a.b", "out") == Rates(per_gib=Decimal(0), per_million_records=Decimal(0))
        assert self.PRICES.rates("b", "out").per_gib == Decimal(7)

    @pytest.mark.parametrize(
        ("topic", "group", "owner", "payer"),
        [
            ("a.b", None, "shop", "shop"),
            ("a.b", None, None, "first"),
            ("b", None, None, None),
            ("a.b", "billing-1", "shop", "billing"),
            ("a.b", "fraud", "shop", "shop"),
            ("b", "fraud", None, None),
        ],
    )
    def test_who_pays(self, topic: str, group: str | None, owner: str | None, payer: str | None) -> None:
        assert self.PRICES.owner_of(topic, group, owner) == payer

    def test_an_exclamation_mark_stands_for_itself(self) -> None:
        prices = Prices(
            topics=(TopicRates(pattern="!a", incoming=Rates(per_gib=Decimal(5))),),
            owners={"!a": "never"},
            groups={"!a": "own"},
        )
        assert prices.rates("b", "in").per_gib == Decimal(0)
        assert prices.owner_of("b", "b", None) is None
        assert prices.owner_of("b", "!a", None) == "own"
