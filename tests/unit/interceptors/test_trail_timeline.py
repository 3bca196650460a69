from __future__ import annotations

import pytest

from headerware.interceptors.trail import TrailEntry, TrailReading
from headerware.interceptors.trail_timeline import duration_text, time_text, timeline

WHEN = 1_767_225_600_123


def produced(cluster: str | None, topic: str, when_ms: int = WHEN, by_whom: str = "shop") -> TrailEntry:
    return TrailEntry(
        by_whom=by_whom, when_ms=when_ms, produced_into_cluster=cluster, produced_into_topic=topic
    )


def read(cluster: str | None, topic: str, when_ms: int = WHEN, by_whom: str = "ship") -> TrailEntry:
    return TrailEntry(by_whom=by_whom, when_ms=when_ms, read_from_cluster=cluster, read_from_topic=topic)


def kinds(*entries: TrailEntry, left_out: int = 0) -> list[str]:
    return [step.kind for step in timeline(TrailReading(entries, left_out))]


class TestTimeline:
    def test_tells_who_did_what_where_and_how_long_after(self) -> None:
        trail = TrailReading((produced("eu", "orders"), read("eu", "orders", WHEN + 1500)))
        assert list(map(str, timeline(trail))) == [
            "2026-01-01 00:00:00.123Z  shop produced into eu/orders",
            "2026-01-01 00:00:01.623Z  +1.5 s  ship read from eu/orders",
        ]

    def test_tells_forwarding_as_one_step(self) -> None:
        forwarded = TrailEntry(
            when_ms=WHEN,
            by_whom="mirror",
            read_from_topic="a",
            produced_into_cluster="us",
            produced_into_topic="b",
        )
        (step,) = timeline(TrailReading((forwarded,)))
        assert (step.kind, step.text) == ("forwarded", "read from ?/a, produced into us/b")

    def test_tells_a_copy_that_left_no_entry(self) -> None:
        trail = TrailReading((produced("A", "orders"), read("B", "orders")))
        assert str(timeline(trail)[1]) == (
            "  (from A/orders to B/orders: copied by something that leaves no entry)"
        )

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (produced("A", "t"), produced("A", "u")),
            (produced("A", "t"), read("A", "u")),
            (read("A", "t"), read("B", "u")),
        ],
    )
    def test_tells_every_kind_of_gap(self, before: TrailEntry, after: TrailEntry) -> None:
        assert kinds(before, after)[1] == "gap"

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (produced("A", "t"), read("A", "t")),
            (produced(None, "t"), read("A", "t")),
            (produced("A", "t"), read(None, "t")),
            (read("A", "t"), read("A", "t")),
        ],
    )
    def test_what_is_unknown_is_no_gap(self, before: TrailEntry, after: TrailEntry) -> None:
        assert "gap" not in kinds(before, after)

    def test_tells_a_gap_at_the_end(self) -> None:
        trail = TrailReading((produced("A", "orders"),))
        assert [step.kind for step in timeline(trail, found_in=(None, "copy"))] == ["produced", "gap"]
        assert [step.kind for step in timeline(trail, found_in=(None, "orders"))] == ["produced"]

    def test_tells_what_was_left_out_and_suspects_no_gap_there(self) -> None:
        assert kinds(produced("A", "t"), read("Z", "z"), left_out=2) == ["produced", "left_out", "read"]

    @pytest.mark.parametrize("entries", [(), (produced("A", "t"),)])
    def test_tells_what_was_left_out_even_at_the_end(self, entries: tuple[TrailEntry, ...]) -> None:
        steps = timeline(TrailReading(entries, 1))
        assert steps[-1].text == "1 entry left out to keep the trail short"

    def test_escapes_what_a_terminal_would_act_on(self) -> None:
        (step,) = timeline(TrailReading((produced("\x1b[2J", "t\n", by_whom="x\x07"),)))
        assert str(step) == "2026-01-01 00:00:00.123Z  x\\x07 produced into \\x1b[2J/t\\n"

    def test_an_entry_without_anything_is_told(self) -> None:
        (step,) = timeline(TrailReading((TrailEntry(when_ms=WHEN),)))
        assert str(step) == "2026-01-01 00:00:00.123Z  someone left an entry without a topic"


class TestTexts:
    @pytest.mark.parametrize(
        ("after_ms", "text"),
        [
            (0, "+0 ms"),
            (999, "+999 ms"),
            (1000, "+1.0 s"),
            (90_000, "+1.5 min"),
            (5_400_000, "+1.5 h"),
            (129_600_000, "+1.5 d"),
            (-1500, "-1.5 s (the clocks disagree)"),
        ],
    )
    def test_durations(self, after_ms: int, text: str) -> None:
        assert duration_text(after_ms) == text

    @pytest.mark.parametrize(
        ("when_ms", "text"),
        [(0, "1970-01-01 00:00:00.000Z"), (-1, "1969-12-31 23:59:59.999Z"), (2**63 - 1, f"{2**63 - 1} ms")],
    )
    def test_times(self, when_ms: int, text: str) -> None:
        assert time_text(when_ms) == text
