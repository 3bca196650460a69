"""What comparing the reports of both ends tells, and what it does not claim."""

from __future__ import annotations

import random
from typing import Any

from headerware.interceptors.audit import AuditCount, AuditReport, united
from headerware.ops.audit import Comparison, Reconciled, audit_usage, compare

BUCKET = 1_767_225_600_000
SECOND = 1_000
LATER = BUCKET + 600 * SECOND


def count(outcome: Any, *offsets: int, bucket: int = BUCKET, partition: int = 0, **facts: Any) -> AuditCount:
    ranges = united([(each, each) for each in offsets])
    found = {
        "topic": "orders",
        "records": len(offsets),
        "bytes": 10 * len(offsets),
        "offsets": ranges,
        **facts,
    }
    return AuditCount(outcome=outcome, bucket=bucket, partition=partition, **found)


def report(session: int, sequence: int, *counts: AuditCount, at: int = 0, **facts: Any) -> AuditReport:
    """Make a report of session 1, a producer, or of 2 and more, consumers; ``at`` is in seconds."""
    side: Any = "producer" if session < 2 else "consumer"
    found = {"side": side, "group": None if session < 2 else "billing", "last": True, **facts}
    return AuditReport(
        v=1,
        session=f"{session:016x}",
        sequence=sequence,
        service="shop",
        at=BUCKET + at * SECOND,
        interval_ms=30 * SECOND,
        bucket_ms=60 * SECOND,
        counts=counts,
        **found,
    )


def compared(*reports: AuditReport, now_ms: int = LATER, **options: Any) -> Comparison:
    return compare(reports, now_ms=now_ms, **options)


def only(*reports: AuditReport, **options: Any) -> Reconciled:
    (row,) = compared(*reports, **options).rows
    return row


def found(row: Reconciled) -> dict[str, int]:
    """Return what is not in order."""
    names = (
        *("lost", "pending", "unknown", "duplicated", "unreported", "late", "failed", "stopped"),
        *("aborted", "undecided", "uncommitted", "given_up"),
    )
    return {name: value for name in names if (value := getattr(row, name))}


SENT = report(1, 0, count("delivered", *range(10)))


class TestExactly:
    def test_all_is_well(self) -> None:
        row = only(SENT, report(2, 0, count("consumed", *range(10))))
        assert found(row) == {}
        assert (row.produced, row.consumed, row.exact, row.open) == (10, 10, True, False)
        assert (row.topic, row.group, row.bucket, row.bucket_ms) == ("orders", "billing", BUCKET, 60_000)

    def test_a_loss_and_a_duplicate_in_one_bucket_do_not_hide_each_other(self) -> None:
        read = [0, 1, 2, 3, 5, 6, 7, 8, 9]
        twice = count("consumed", *read, records=10)
        row = only(SENT, report(2, 0, twice))
        assert (row.produced, row.consumed) == (10, 10)
        assert found(row) == {"lost": 1, "duplicated": 1}

    def test_a_record_that_two_consumers_read_is_a_duplicate(self) -> None:
        one, other = (
            report(2, 0, count("consumed", *range(6))),
            report(3, 0, count("consumed", *range(5, 10))),
        )
        assert found(only(SENT, one, other)) == {"duplicated": 1}

    def test_what_the_group_has_not_reached_is_pending(self) -> None:
        assert found(only(SENT, report(2, 0, count("consumed", 0, 1, 3)))) == {"lost": 1, "pending": 6}

    def test_without_any_reader_everything_is_pending(self) -> None:
        row = only(SENT)
        assert (row.group, found(row)) == (None, {"pending": 10})

    def test_partitions_are_told_apart(self) -> None:
        other = report(1, 1, count("delivered", 0, 1, partition=1))
        row = only(
            SENT, other, report(2, 0, count("consumed", *range(10)), count("consumed", 1, partition=1))
        )
        assert found(row) == {"lost": 1}

    def test_groups_are_told_apart(self) -> None:
        whole = report(2, 0, count("consumed", *range(10)))
        part = report(3, 0, count("consumed", 0, 9), group="search")
        rows = {row.group: found(row) for row in compared(SENT, whole, part).rows}
        assert rows == {"billing": {}, "search": {"lost": 8}}

    def test_what_a_chain_stopped_is_not_lost(self) -> None:
        counts = [count("consumed", *range(8)), count("refused", 8), count("dropped", 9)]
        assert found(only(SENT, report(2, 0, *counts))) == {"stopped": 2}

    def test_what_run_gave_up_was_consumed_and_is_neither_stopped_nor_repeated(self) -> None:
        counts = [count("consumed", *range(10)), count("skipped", 8, given=True)]
        counts.append(count("dead_lettered", 9, given=True, cause="KeyError"))
        row = only(SENT, report(2, 0, *counts))
        assert (row.consumed, found(row)) == (10, {"given_up": 2})

    def test_what_no_producer_reported_is_told(self) -> None:
        assert found(only(SENT, report(2, 0, count("consumed", *range(11))))) == {"unreported": 1}

    def test_what_failed_is_no_loss_on_the_way(self) -> None:
        failed = count("failed", records=2, offsets=None, cause="_MSG_TIMED_OUT")
        row = only(report(1, 0, *SENT.counts, failed), report(2, 0, count("consumed", *range(10))))
        assert found(row) == {"failed": 2}

    def test_buckets_of_different_lengths_lose_nothing(self) -> None:
        later = BUCKET + 60 * SECOND
        sent = report(1, 0, count("delivered", *range(5)), count("delivered", *range(5, 10), bucket=later))
        read = report(2, 0, count("consumed", *range(10)))
        assert [found(row) for row in compared(sent, read).rows] == [{}, {}]

    def test_what_came_late_is_told(self) -> None:
        assert found(only(SENT, report(2, 0, count("consumed", *range(10), late=3)))) == {"late": 3}

    def test_a_report_that_is_there_twice_counts_once(self) -> None:
        read = report(2, 0, count("consumed", *range(10)))
        assert found(only(SENT, SENT, read, read)) == {}

    def test_random_deliveries_are_told_as_they_were(self) -> None:
        randomly = random.Random(7)
        for _ in range(200):
            end = randomly.randrange(1, 60)
            sent = [offset for offset in range(end) if randomly.random() < 0.9]
            read = [offset for offset in range(end) for _ in range(randomly.choice([0, 1, 1, 1, 2]))]
            if not sent or not read:
                continue
            parts = [
                count("consumed", *read[at : at + 7], records=len(read[at : at + 7]))
                for at in range(0, end, 7)
            ]
            parts = [part for part in parts if part.records] or [count("consumed", *read)]
            told = sum(part.records for part in parts)
            given = read[:told] if told < len(read) else read
            missing = set(sent) - set(given)
            row = only(report(1, 0, count("delivered", *sent)), report(2, 0, *parts))
            assert row.lost == len([offset for offset in missing if offset < max(given)])
            assert row.pending == len([offset for offset in missing if offset > max(given)])
            assert row.duplicated == len(given) - len(set(given))
            assert row.unreported == len(set(given) - set(sent))


class TestTransactions:
    """Offsets 0 to 3 were committed, and 5 to 7 aborted; at 4 and 8 are the marks of the transactions."""

    SENT = report(1, 0, count("delivered", 0, 1, 2, 3), count("aborted", 5, 6, 7))

    def test_a_group_that_reads_committed_records_has_lost_nothing(self) -> None:
        row = only(self.SENT, report(2, 0, count("consumed", 0, 1, 2, 3)))
        assert (row.produced, row.consumed, found(row)) == (4, 4, {"aborted": 3})

    def test_what_a_group_gets_of_an_aborted_one_is_uncommitted(self) -> None:
        row = only(self.SENT, report(2, 0, count("consumed", 0, 1, 2, 3, 5, 6)))
        assert found(row) == {"aborted": 3, "uncommitted": 2}

    def test_a_loss_beside_an_aborted_one_is_told(self) -> None:
        sent = report(1, 1, count("delivered", 9))
        row = only(self.SENT, sent, report(2, 0, count("consumed", 0, 1, 3, 9)))
        assert found(row) == {"aborted": 3, "lost": 1}

    def test_without_any_reader_what_was_aborted_is_not_pending(self) -> None:
        assert found(only(self.SENT)) == {"pending": 4, "aborted": 3}

    def test_an_open_one_is_undecided_and_expected_of_nobody(self) -> None:
        sent = report(1, 0, count("delivered", 0), count("undecided", 2, 3), last=False, at=590)
        row = only(sent, report(2, 0, count("consumed", 0, 2)))
        assert (found(row), row.open) == ({"undecided": 2}, True)

    def test_what_is_told_of_it_later_counts_instead(self) -> None:
        sent = [
            report(1, 0, count("undecided", 0, 1, 3, 4), last=False),
            report(1, 1, count("delivered", 0, 1), count("undecided", 3, 4), last=False),
            report(1, 2, count("aborted", 3)),
        ]
        row = only(*sent, report(2, 0, count("consumed", 0, 1)))
        assert (found(row), row.open) == ({"aborted": 1, "undecided": 1}, False)

    def test_that_a_crash_left_open_is_undecided(self) -> None:
        sent = report(1, 0, count("delivered", 0), count("undecided", 2, 3), last=False, at=20)
        result = compared(sent, report(2, 0, count("consumed", 0)))
        assert [found(row) for row in result.rows] == [{"undecided": 2}]
        assert result.incomplete == {f"{1:016x}": "no report since 0, and no end"}

    def test_by_numbers_are_expected_of_nobody_either(self) -> None:
        sent = report(1, 0, count("delivered", 0, 1), count("aborted", offsets=None, records=5))
        row = only(sent, report(2, 0, count("consumed", 0, 1), at=200))
        assert (found(row), row.exact) == ({"aborted": 5}, False)


class TestUnknown:
    def test_what_a_consumer_that_crashed_may_have_read_is_not_lost(self) -> None:
        crashed = report(2, 0, count("consumed", 0, 1, 2), at=20, last=False)
        next_one = report(3, 0, count("consumed", 6, 7, 8, 9), at=90)
        result = compared(SENT, crashed, next_one)
        assert [found(row) for row in result.rows] == [{"unknown": 3}]
        assert result.incomplete == {f"{2:016x}": "no report since 0, and no end"}

    def test_what_it_had_passed_before_is_lost(self) -> None:
        crashed = report(2, 0, count("consumed", 0, 1, 3), at=20, last=False)
        next_one = report(3, 0, count("consumed", 6, 7, 8, 9), at=90)
        assert found(only(SENT, crashed, next_one)) == {"lost": 1, "unknown": 2}

    def test_what_was_sent_after_the_crash_is_lost(self) -> None:
        sent = report(1, 0, count("delivered", *range(10), bucket=BUCKET + 120 * SECOND))
        crashed = report(2, 0, count("consumed", 0), at=20, last=False)
        next_one = report(3, 0, count("consumed", 9, bucket=BUCKET + 120 * SECOND), at=300)
        rows = {row.bucket: found(row) for row in compared(sent, crashed, next_one).rows}
        assert rows[BUCKET + 120 * SECOND] == {"lost": 8}

    def test_a_session_that_is_only_quiet_has_not_crashed(self) -> None:
        live = report(2, 0, count("consumed", 0, 1, 3), at=20, last=False)
        row = only(SENT, live, now_ms=BUCKET + 60 * SECOND)
        assert found(row) == {"lost": 1, "pending": 6}

    def test_what_a_missing_report_may_have_told_is_not_lost(self) -> None:
        before = report(2, 0, count("consumed", 0, 1), at=10, last=False)
        after = report(2, 2, count("consumed", 6, 8, 9), at=70)
        result = compared(SENT, before, after)
        assert [found(row) for row in result.rows] == [{"lost": 1, "unknown": 4}]
        assert result.incomplete == {f"{2:016x}": "no report between 0 and 2"}

    def test_what_reports_before_the_first_may_have_told_is_not_lost(self) -> None:
        assert found(only(SENT, report(2, 5, count("consumed", 4, 6, 7, 8, 9)))) == {"lost": 1, "unknown": 4}

    def test_what_a_session_left_out_is_not_lost(self) -> None:
        assert found(only(SENT, report(2, 0, count("consumed", 0, 9), left_out=3))) == {"unknown": 8}

    def test_one_that_crashed_before_its_first_count_may_have_read_anything(self) -> None:
        silent = report(3, 0, at=5, last=False)
        read = report(2, 0, count("consumed", *range(5, 10)))
        assert found(only(SENT, read, silent)) == {"unknown": 5}

    def test_a_bucket_is_open_until_the_producers_reports_are_due(self) -> None:
        sent = report(1, 0, count("delivered", 0), at=1, last=False)
        assert only(sent, now_ms=BUCKET + 89 * SECOND).open
        assert not only(sent, now_ms=BUCKET + 90 * SECOND).open


class TestByNumbers:
    def test_are_compared_where_offsets_are_not_known(self) -> None:
        sent = report(1, 0, count("delivered", offsets=None, records=10))
        row = only(sent, report(2, 0, count("consumed", *range(8)), at=200))
        assert (found(row), row.exact) == ({"lost": 2}, False)
        more = only(sent, report(2, 0, count("consumed", *range(12)), at=200))
        assert found(more) == {"duplicated": 2}

    def test_are_pending_before_the_group_has_reported_so_late(self) -> None:
        sent = report(1, 0, count("delivered", offsets=None, records=10))
        assert found(only(sent, report(2, 0, count("consumed", *range(8)), at=30))) == {"pending": 2}

    def test_are_unknown_after_a_crash(self) -> None:
        sent = report(1, 0, count("delivered", offsets=None, records=10))
        crashed = report(2, 0, count("consumed", *range(8)), at=100, last=False)
        assert found(only(sent, crashed)) == {"unknown": 2}


class TestChoices:
    def test_are_topics_and_times(self) -> None:
        later = BUCKET + 60 * SECOND
        sent = report(
            1,
            0,
            count("delivered", 0),
            count("delivered", 1, bucket=later),
            count("delivered", 0, topic="other"),
        )
        assert {row.topic for row in compared(sent).rows} == {"orders", "other"}
        assert [row.bucket for row in compared(sent, topics=["orders"]).rows] == [BUCKET, later]
        assert [row.bucket for row in compared(sent, topics=["orders"], from_ms=later).rows] == [later]
        assert [row.bucket for row in compared(sent, topics=["orders"], to_ms=later).rows] == [BUCKET]


class TestUsage:
    def test_has_what_groups_read_by_hour(self) -> None:
        hour = 3_600 * SECOND
        read = report(
            2,
            0,
            count("consumed", 0, 1),
            count("skipped", 1, given=True),
            count("dropped", 2),
            count("consumed", 3, bucket=BUCKET + hour),
        )
        rows = list(audit_usage([SENT, read, read]))
        assert [(row.topic, row.group, row.records, row.bytes, row.source) for row in rows] == [
            ("orders", "billing", 3, 30, "audit"),
            ("orders", "billing", 1, 10, "audit"),
        ]
        assert [row.hour.isoformat() for row in rows if row.hour] == [
            "2026-01-01T00:00:00+00:00",
            "2026-01-01T01:00:00+00:00",
        ]

    def test_a_timestamp_that_no_calendar_has_stops_nothing(self) -> None:
        read = report(2, 0, count("consumed", 0, bucket=-(2**62)), count("consumed", 1, bucket=2**62))
        hours = [row.hour.isoformat() for row in audit_usage([read]) if row.hour]
        assert sorted(hours) == ["1970-01-01T00:00:00+00:00", "9999-12-31T23:00:00+00:00"]
