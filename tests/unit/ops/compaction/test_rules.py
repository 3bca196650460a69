from __future__ import annotations

import struct
from typing import Any

import pytest

from headerware.core.errors import ConfigError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SliceHeader
from headerware.ops.compaction.rules import (
    OLDEST,
    Judged,
    Rule,
    Verdict,
    Why,
    judge,
    judged_message,
    lost_because,
    verdict_alone,
)


def record(*versions: bytes | None, key: bytes | None = b"key", **parts: Any) -> Record:
    return Record("orders", b"v", key, Headers([("v", version) for version in versions]), 0, **parts)


class TestVersions:
    @pytest.mark.parametrize(
        ("form", "value", "version"),
        [
            ("number", b"0", 0),
            ("number", b"-7", -7),
            ("number", b"007", 7),
            ("number", b"9223372036854775807", 2**63 - 1),
            ("number", b"-9223372036854775808", -(2**63)),
            ("long", struct.pack(">q", -5), -5),
            ("time", b"1970-01-01T00:00:01Z", 1_000_000),
            ("time", b"1970-01-01T02:00:00.000001+02:00", 1),
            ("time", b"1970-01-01", 0),
            ("time", b"1969-12-31T23:59:59", -1_000_000),
        ],
    )
    def test_are_read(self, form: Any, value: bytes, version: int) -> None:
        assert Rule(header="v", form=form).version_of(record(value)) == version

    @pytest.mark.parametrize(
        ("form", "value"),
        [
            ("number", b""),
            ("number", b"+1"),
            ("number", b" 1"),
            ("number", b"1\n"),
            ("number", b"1.0"),
            ("number", b"\xd9\xa1"),
            ("number", b"9223372036854775808"),
            ("number", b"9" * 5_000),
            ("long", b"1234567"),
            ("time", b"yesterday"),
            ("time", b"\xff"),
            ("time", b"2026-01-01" + b" " * 40),
            ("number", None),
        ],
    )
    def test_that_are_malformed_are_not_judged(self, form: Any, value: bytes | None) -> None:
        assert Rule(header="v", form=form).version_of(record(value)) == "malformed"

    def test_that_stand_twice_are_not_judged(self) -> None:
        assert Rule(header="v").version_of(record(b"1", b"1")) == "malformed"

    def test_of_records_without_a_key_do_not_count(self) -> None:
        assert Rule(header="v").version_of(record(b"1", key=None)) == "no_key"
        assert Rule(header="v").version_of(record(b"1", key=b"")) == 1

    @pytest.mark.parametrize(
        ("missing", "form", "found"),
        [
            ("unresolved", "number", "no_version"),
            ("oldest", "number", OLDEST),
            ("timestamp", "number", 5),
            ("timestamp", "long", 5),
            ("timestamp", "time", 5_000),
        ],
    )
    def test_that_are_missing(self, missing: Any, form: Any, found: object) -> None:
        rule = Rule(header="v", form=form, missing=missing)
        assert rule.version_of(record(timestamp_ms=5)) == found
        if missing == "timestamp":
            assert rule.version_of(record()) == "no_version"


class TestRule:
    @pytest.mark.parametrize("options", [{"header": ""}, {"form": "text"}, {"missing": "newest"}])
    def test_refuses_what_is_none(self, options: Any) -> None:
        with pytest.raises(ConfigError, match="expected"):
            Rule(**{"header": "v", **options})

    def test_says_why_a_record_is_left_out(self) -> None:
        assert [lost_because(own, 2) for own in (1, 2, OLDEST)] == ["older", "tie", "no_version"]
        assert lost_because(OLDEST, OLDEST) == "tie"


class TestJudging:
    def test_counts_headers_that_are_verified_alone(self) -> None:
        seen = record(b"9")
        found = judge(seen, Rule(header="v"), verified=lambda each: each.with_headers(Headers([("v", b"1")])))
        assert (found.version, found.why) == (1, None)
        assert judge(seen, Rule(header="v"), verified=lambda _: None).why == "unverified"

    def test_does_not_join_slices_that_lie(self) -> None:
        lying = Record("orders", b"v", b"key", Headers([("v", b"1"), ("hw.slice", b"x")]), 0, offset=3)
        found = judge(lying, Rule(header="v"))
        assert (found.why, found.part, found.offset) == ("malformed", None, 3)

    def test_tells_keys_of_partitions_apart(self) -> None:
        digests = {
            judge(record(b"1").replace(partition=number), Rule(header="v")).digest for number in (0, 1, 300)
        }
        assert len(digests) == 3


class TestRecordsThatAreJudgedAlone:
    def test_are_kept_for_a_reason_and_lost_without_one(self) -> None:
        whys: list[Why | None] = ["kept", None, "unreadable"]
        assert [verdict_alone(why, "expired") for why in whys] == [
            Verdict("wins"),
            Verdict("loses", "expired"),
            Verdict("unresolved", "unreadable"),
        ]


class TestMessages:
    def slices(self, *offsets: int, why: Why | None = None) -> list[Judged]:
        """Return the slices of a message, of which the first one has a key, and the last one a problem."""
        count = len(offsets)
        return [
            Judged(
                *(0, offset, 10, None if index else b"a" * 16, 0 if index else 7),
                why if index == count - 1 else None,
                SliceHeader(bytes(16), index, count, count, 1),
            )
            for index, offset in enumerate(offsets)
        ]

    def test_have_the_key_and_version_of_the_first_slice_and_the_offset_of_the_last_that_came(self) -> None:
        assert judged_message(self.slices(5, 2, 4)) == Judged(0, 5, 30, b"a" * 16, 7, None)

    def test_are_unresolved_if_a_slice_is(self) -> None:
        found = judged_message(self.slices(2, 4, why="exposed_slices"))
        assert (found.digest, found.why) == (None, "exposed_slices")
