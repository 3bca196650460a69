from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.errors import ConfigError, MissingPartError
from headerware.ops.chargeback import report
from headerware.ops.chargeback.bill import charge
from headerware.ops.chargeback.figures import bytes_text, count_text, money_text, share_text
from headerware.ops.chargeback.prices import Prices, Rates
from headerware.ops.chargeback.report import report_html, write_report
from headerware.ops.chargeback.report_rows import LISTED, MAX_BARS, SHOWN, periods, ranking
from headerware.ops.chargeback.usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

HOUR = datetime(2026, 1, 31, 9, tzinfo=UTC)
GIB = 2**30
PRICES = Prices(incoming=Rates(per_gib=Decimal("0.09")), outgoing=Rates(per_gib=Decimal("0.05")))
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror='alert(\"1\")'>"


class Page(HTMLParser):
    """What a browser makes of a report: its elements, the texts in them, and whether all are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.cells: list[list[str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("th", "td"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if {"th", "td"} & set(self.open) and "small" not in self.open and "svg" not in self.open:
            self.cells[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def tables(self) -> list[tuple[list[Decimal], Decimal]]:
        """Return the amounts of each table, and what it says their sum is."""
        found: list[tuple[list[Decimal], Decimal]] = []
        amounts: list[Decimal] = []
        for row in self.cells:
            if row[0] == "Sum":
                found.append((amounts, Decimal(row[-1].replace(",", ""))))
                amounts = []
            elif len(row) in (3, 4) and row[1] not in ("In", "Out"):
                amounts.append(Decimal(row[-1].replace(",", "")))
        return found


def came(name: str = "shop", hour: datetime | None = HOUR, size: int = GIB, **more: Any) -> Usage:
    fields: dict[str, Any] = {"topic": name, "owner": name, "producer": name, "records": 7, **more}
    return Usage(hour=hour, direction="in", bytes=size, source="records", **fields)


def page(rows: list[Usage], prices: Prices = PRICES, **more: Any) -> Page:
    found = Page(report_html(charge(rows, prices), **more))
    assert found.open == []
    return found


class TestReport:
    @pytest.mark.parametrize(
        "rows",
        [
            [],
            [came()],
            [came(hour=None)],
            [came(size=0, records=0)],
            [came(f"owner-{number:03}", size=10**15 // (number + 1)) for number in range(500)],
            [came(f"owner-{number}", size=number * 12_345_678) for number in range(1_000)],
            [came(hour=HOUR + timedelta(hours=number), size=number * 10**9 + 1) for number in range(500)],
        ],
        ids=["none", "one", "timeless", "zero", "large", "many-owners", "many-hours"],
    )
    def test_adds_up(self, rows: list[Usage]) -> None:
        found = page(rows)
        total = Decimal(re.findall(r"Cost\s+([\d,.]+) EUR", found.text)[0].replace(",", ""))
        tables = found.tables()
        assert all(sum(amounts, Decimal(0)) == said for amounts, said in tables)
        assert all(said <= total for _, said in tables)
        assert sum(said == total for _, said in tables) >= (4 if rows and rows[0].records else 0)

    def test_asks_the_network_for_nothing_and_runs_nothing(self) -> None:
        text = report_html(charge([came()], PRICES))
        found = Page(text)
        assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(found.tags)
        assert not {"src", "href", "srcset", "action"} & {name for name, _ in found.attributes}
        assert "url(" not in text
        assert "@import" not in text
        assert "http:" not in text
        assert "https:" not in text
        assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes

    def test_shows_hostile_names_as_text(self) -> None:
        prices = Prices(
            currency=HOSTILE,
            owners={HOSTILE: HOSTILE},
            groups={HOSTILE: HOSTILE},
            budgets={HOSTILE: Decimal(1)},
        )
        read = Usage(
            hour=HOUR, topic=HOSTILE, direction="out", group=HOSTILE, records=1, bytes=1, source="offsets"
        )
        lost = Usage(
            hour=HOUR, topic=HOSTILE, direction="out", group=HOSTILE, records=1, bytes=None, source="unknown"
        )
        found = page([came(HOSTILE), read, lost], prices, title=HOSTILE)
        assert not {"script", "img"} & set(found.tags)
        assert not [name for name, _ in found.attributes if name.startswith("on")]
        assert found.text.count(HOSTILE) > 10

    def test_escapes_whatever_is_put_in(self) -> None:
        title = "<&>'\""
        text = report_html(charge([came()], PRICES), title=title)
        assert "<title>&lt;&amp;&gt;&#39;&#34;</title>" in text
        assert title not in text

    def test_shows_what_does_not_print(self) -> None:
        group = "a\N{RIGHT-TO-LEFT OVERRIDE}b"
        read = Usage(hour=HOUR, topic="t", direction="out", group=group, records=1, bytes=1, source="offsets")
        lost = Usage(
            hour=HOUR, topic="t", direction="out", group=group, records=1, bytes=None, source="unknown"
        )
        text = page([read, lost]).text
        assert group not in text
        assert text.count(r"a\u202eb") == 2

    def test_shows_what_is_unattributed(self) -> None:
        found = page([came(owner=None), came("shop", size=3 * GIB)])
        assert "unattributed: no owner is named" in found.text
        assert re.search(r"Unattributed\s+25.0%", found.text)
        assert ("class", "nobody") in found.attributes

    def test_states_unknown_reads(self) -> None:
        rows = [
            came("alone"),
            came("orders"),
            Usage(
                hour=HOUR, topic="orders", direction="out", group="g", records=5, bytes=None, source="unknown"
            ),
        ]
        text = page(rows).text
        assert "Reads that are not known" in text
        assert re.search(r"alone\s+: neither audit counts nor committed offsets", text)
        assert re.search(r"orders\s+: group g passed over 5 offsets", text)
        assert re.search(r"Outgoing\s+unknown\s+reads are not known", text)

    def test_shows_unknown_reads_as_such_and_not_as_nothing(self) -> None:
        lost = Usage(
            hour=HOUR, topic="b", direction="out", group="g", records=5, bytes=None, source="unknown"
        )
        read = Usage(hour=HOUR, topic="b", direction="out", group="g", records=2, bytes=99, source="offsets")
        rows = page([came(each, owner="x", producer="x") for each in "ab"] + [lost, read]).cells
        outgoing = {row[0]: row[2] for row in rows if row[0] in ("a", "b") and len(row) == 4}
        assert outgoing == {"a": "unknown", "b": "99 B"}
        assert "at least 2 records" in page([came("b"), lost, read]).text

    def test_states_no_unknown_reads_where_there_are_none(self) -> None:
        read = Usage(hour=HOUR, topic="shop", direction="out", group="g", records=1, bytes=9, source="audit")
        text = page([came(), read]).text
        assert "not known" not in text
        assert "counted by the consumers themselves (audit)" in text

    @pytest.mark.parametrize(
        ("budget", "said"),
        [
            ("0.05", "over budget: 180.0% of"),
            ("0.10", "near its budget: 90.0% of"),
            ("9", "1.0% of 9.00 EUR"),
        ],
    )
    def test_compares_with_budgets(self, budget: str, said: str) -> None:
        prices = Prices(incoming=Rates(per_gib=Decimal("0.09")), budgets={"shop": Decimal(budget)})
        assert said in page([came()], prices).text

    def test_states_period_time_and_method(self) -> None:
        text = page([came()], at=HOUR + timedelta(minutes=90), title="January").text
        assert "January" in text
        assert "From 2026-01-31 09:00 UTC to 2026-01-31 10:00 UTC. Made 2026-01-31 10:30 UTC." in text
        assert "key + value + 10 bytes a record + (name + value + 2 bytes) for each header" in text
        assert "largest remainder" in text

    def test_names_every_chart(self) -> None:
        found = page([came()])
        assert found.tags.count("svg") == [name for name, _ in found.attributes].count("aria-label")
        assert found.tags.count("caption") == found.tags.count("table")


class TestWriteReport:
    def test_replaces_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "report.html"
        path.write_text("old")
        write_report(path, charge([came("Équipe")], PRICES), at=HOUR)
        assert path.read_text(encoding="utf-8") == report_html(charge([came("Équipe")], PRICES), at=HOUR)

    def test_refuses_a_time_without_a_zone(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"^at: expected a moment with a time zone"):
            write_report(tmp_path / "report.html", charge([], PRICES), at=HOUR.replace(tzinfo=None))

    def test_says_that_it_cannot(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"report\.html: cannot be written: No such file"):
            write_report(tmp_path / "missing" / "report.html", charge([], PRICES))

    def test_names_the_extra_that_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jinja2", None)
        report._template.cache_clear()
        with pytest.raises(MissingPartError, match=r"the report needs jinja2: .*\[report\]"):
            write_report(tmp_path / "report.html", charge([came()], PRICES))
        assert not (tmp_path / "report.html").exists()


class TestRanking:
    def rank(self, count: int, **more: Usage) -> Any:
        rows = [came(f"o{number:04}", size=GIB * (count - number)) for number in range(count)]
        return ranking(charge([*rows, *more.values()], PRICES).by_owner, 2)

    def test_puts_the_largest_first_and_the_rest_together(self) -> None:
        found = self.rank(SHOWN + 5)
        assert [row.name for row in found.shown[:2]] == ["o0000", "o0001"]
        assert (len(found.shown), found.shown[-1].count, len(found.others)) == (SHOWN + 1, 5, 5)
        assert sum(row.amount for row in found.others) == found.shown[-1].amount

    def test_shows_one_more_rather_than_one_other(self) -> None:
        found = self.rank(SHOWN + 1)
        assert (len(found.shown), found.others) == (SHOWN + 1, ())

    def test_shows_the_unattributed_however_small(self) -> None:
        found = self.rank(SHOWN + 5, nobody=came(owner=None, size=1))
        assert [row.name for row in found.shown if row.count == 1][-1] is None
        assert found.shown[-1].count == 5

    def test_lists_so_many_and_no_more(self) -> None:
        found = self.rank(SHOWN + LISTED + 50)
        assert (len(found.others), found.others[-1].count) == (LISTED + 1, 50)


class TestPeriods:
    def of(self, *hours: datetime | None) -> Any:
        return periods(charge([came(hour=hour) for hour in hours], PRICES).by_hour, 2)

    @pytest.mark.parametrize(
        ("length", "unit", "bars"),
        [
            (timedelta(0), "hour", 1),
            (timedelta(hours=5), "hour", 6),
            (timedelta(days=30), "day", 31),
            (timedelta(days=365), "month", 13),
            (timedelta(days=365 * 40), "year", 2),
        ],
    )
    def test_fit_the_page(self, length: timedelta, unit: str, bars: int) -> None:
        found = self.of(HOUR, HOUR + length)
        assert (found.unit, len(found.bars)) == (unit, bars)

    def test_of_all_years_are_the_latest(self) -> None:
        found = self.of(*(datetime(year, 6, 1, tzinfo=UTC) for year in range(1970, 9999)))
        assert len(found.bars) == MAX_BARS
        assert found.bars[-1].label == "9998"
        assert found.earlier.traffic.records_in == 7 * (9999 - 1970 - MAX_BARS)

    def test_keep_what_has_no_time_apart(self) -> None:
        found = self.of(HOUR, None)
        assert (len(found.bars), found.timeless.traffic.records_in) == (1, 7)


class TestAmounts:
    @pytest.mark.parametrize(
        ("size", "text"),
        [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 * 1024, "10.0 KiB"),
            (1000 * 1024, "0.98 MiB"),
            (3 * 2**30, "3.00 GiB"),
            (10**15, "909 TiB"),
            (10**21, "867 EiB"),
        ],
    )
    def test_sizes(self, size: int, text: str) -> None:
        assert bytes_text(size) == text

    def test_counts(self) -> None:
        assert [count_text(count, "record") for count in (0, 1, 1204)] == [
            "0 records",
            "1 record",
            "1,204 records",
        ]

    def test_money(self) -> None:
        assert money_text(Decimal("12345.60"), "EUR") == "12,345.60 EUR"

    def test_shares(self) -> None:
        assert [share_text(part, whole) for part, whole in ((0, 0), (1, 3), (1, 10**6))] == [
            "0%",
            "33.3%",
            "less than 0.1%",
        ]
