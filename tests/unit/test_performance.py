"""The page of figures has what the bench measured: each row, each miss, and each bar where it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.performance import (
    GROUPS,
    LEFT,
    PAGE,
    SPAN,
    Comparison,
    Group,
    bar_ratio,
    lacking,
    measured,
    performance,
    plot,
)

RESULTS = measured()
HEADING = re.compile(r"\n##+ ")
TEXT = re.compile(r'<text class="(\w+)" x="\d+" y="(\d+)"[^>]*>([^<]*)<')
GROUP = Group("one", "One", "A send takes {us: a send} us.", (Comparison("a send", "send", "the client"),))


def section_of(page: str, title: str) -> str:
    """Return the text from a heading to the next one."""
    return HEADING.split(page.partition(f"\n## {title}\n")[2])[0]


def row(**changed: Any) -> dict[str, Any]:
    found = {"ours": 50_000.0, "reference": 100_000.0, "unit": "records/s", "ratio": 0.5}
    return {**found, "bar": "at least 0.4", "holds": True, **changed}


class TestRows:
    def test_of_the_page_are_in_the_bench(self) -> None:
        found = lacking(RESULTS)
        assert not found, f"bench/results.json has no row {found}; change GROUPS of tests/performance.py"

    @pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.word)
    def test_that_the_bench_lacks_are_left_out_and_named(self, group: Group) -> None:
        gone = group.comparisons[0]
        results = {name: found for name, found in RESULTS.items() if name != gone.name}
        assert gone.name in lacking(results)
        section = section_of(performance(results)[PAGE], group.title)
        assert f"| {gone.what} |" not in section

    def test_need_not_be_there_at_all(self) -> None:
        files = performance({})
        assert all(f"\n## {group.title}\n" in files[PAGE] for group in GROUPS)
        assert len(lacking({})) == sum(len(group.comparisons) for group in GROUPS)

    def test_have_names_of_their_own_in_a_group(self) -> None:
        for group in GROUPS:
            names = [each.what for each in group.comparisons]
            assert len(set(names)) == len(names), group.title


class TestPage:
    page = performance(RESULTS)[PAGE]

    @pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.word)
    def test_has_a_sentence_a_plot_and_a_table_for_each_group(self, group: Group) -> None:
        section = section_of(self.page, group.title)
        sentence, picture, table = section.strip().split("\n\n")
        assert sentence.endswith(".")
        assert "{" not in sentence
        assert f"(diagrams/performance-{group.word}.svg)" in picture
        found = [each for each in group.comparisons if each.name in RESULTS]
        assert len(table.splitlines()) == 2 + len(found)

    def test_shows_each_miss_in_its_table_and_in_the_summary(self) -> None:
        shown = [each for group in GROUPS for each in group.comparisons if each.name in RESULTS]
        missed = [each for each in shown if RESULTS[each.name]["holds"] is False]
        assert self.page.count("| **no** |") == len(missed)
        summary = section_of(self.page, "Summary")
        lines = re.findall(r"^- .*?: (.*)$", summary, re.MULTILINE)
        assert lines == [each.what for each in missed], "the summary has other misses than the tables"

    def test_names_the_machine(self) -> None:
        assert re.search(r"^Measured on \d+ cores, .*Python .*confluent-kafka .*\.$", self.page, re.MULTILINE)


class TestPlot:
    @pytest.mark.parametrize(
        ("bar", "ratio"),
        [
            ("at least 0.4", 0.4),
            ("at most 2.5", 2.5),
            ("ours at least 20000", 0.2),
            ("adds at most 3000", 1.03),
            ("", None),
        ],
    )
    def test_has_the_bar_as_a_ratio(self, bar: str, ratio: float | None) -> None:
        assert bar_ratio(row(bar=bar)) == ratio

    def test_has_ours_the_reference_and_the_bar_on_one_scale(self) -> None:
        svg = plot(GROUP, {"a send": row()}).svg()
        assert f'<rect class="ours" x="{LEFT}" y="30" width="{SPAN // 2}"' in svg
        assert f'<rect class="box" x="{LEFT}" y="44" width="{SPAN}"' in svg
        assert f'd="M{LEFT + round(0.4 * SPAN)} 27V54"' in svg

    def test_shows_a_miss(self) -> None:
        svg = plot(GROUP, {"a send": row(bar="at least 0.7", holds=False)}).svg()
        assert '<rect class="bad"' in svg
        assert '<rect class="ours"' not in svg

    @pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.word)
    def test_has_room_for_its_texts(self, group: Group) -> None:
        widths = {"title": 8, "note": 7}
        lines: dict[str, int] = {}
        for kind, y, text in TEXT.findall(plot(group, RESULTS).svg()):
            lines[y] = lines.get(y, 0) + widths[kind] * len(text)
        assert max(lines.values()) <= SPAN

    def test_is_plain(self) -> None:
        for path, text in performance(RESULTS).items():
            if path.endswith(".svg"):
                assert "prefers-color-scheme: dark" in text
                assert not re.search(r"<script|href|url\((?!#)|@import", text), path
