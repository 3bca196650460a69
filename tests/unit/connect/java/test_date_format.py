"""Patterns of dates and times; what Java answers was asked of Java."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from headerware.connect.data.times import Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ArgumentError, ConnectDataError
from headerware.connect.java.date_format import DateFormat
from headerware.connect.java.date_patterns import Piece, parse_pattern

ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
MS = 1_483_425_001_864


def kafka(pattern: str) -> DateFormat:
    """Return a lenient format."""
    return DateFormat(pattern, "kafka_4_3")


class TestPattern:
    def test_takes_runs_of_letters_and_text_apart(self) -> None:
        assert parse_pattern("yy'T''x'-MM") == [Piece("y", 2), Piece("", text="T'x-"), Piece("M", 2)]

    @pytest.mark.parametrize("pattern", ["b", "I", "'", "'abc", "XXXX", "yyyy-MM-ddTHH"])
    def test_refuses_invalid_input(self, pattern: str) -> None:
        with pytest.raises(ArgumentError):
            kafka(pattern)

    @pytest.mark.parametrize(
        "pattern",
        [
            "YYYY-MM-dd",
            "YYYY",
            "yyyy-ww",
            "yyyy-mm-dd",
            "yyyy-MM-DD",
            "hh:mm",
            "K:mm",
            "HH:mm a",
            "ss.S",
            "HH:mm:ss.SSSSSS",
        ],
    )
    def test_strict_refuses_patterns_that_are_surely_mistakes(self, pattern: str) -> None:
        with pytest.raises(ArgumentError, match="ambiguous"):
            DateFormat(pattern)

    @pytest.mark.parametrize("pattern", ["YYYY-'W'ww", "EEE d", "hh:mm a", "yyyy-DDD", "yy", "HH:mm:ss.SSS"])
    def test_strict_accepts_unambiguous_patterns(self, pattern: str) -> None:
        assert DateFormat(pattern).format(from_epoch_ms(MS))


class TestWriting:
    @pytest.mark.parametrize(
        ("pattern", "epoch_ms", "text"),
        [
            (ISO, MS, "2017-01-03T06:30:01.864Z"),
            ("XX X Z z zzzz", MS, "Z Z +0000 UTC Coordinated Universal Time"),
            ("L LL LLL LLLL M MM MMM MMMM MMMMM", 0, "1 01 Jan January 1 01 Jan January January"),
            ("E EE EEE EEEE EEEEE u uu", 0, "Thu Thu Thu Thursday Thursday 4 04"),
            ("F w ww W D DDD a aa k K h H kk", 0, "1 1 01 1 1 001 AM AM 24 0 12 0 24"),
            ("YYYY-'W'ww", MS, "2017-W01"),
            ("YYYY-ww", 1_483_142_400_000, "2016-53"),
            ("YYYY-ww", 1_514_764_799_999, "2018-01"),
            ("SSSSSS", MS, "000864"),
            ("''''", 0, "''"),
            ("'a''b'", 0, "a'b"),
            ("100%", 0, "100%"),
        ],
    )
    def test_writes_as_java(self, pattern: str, epoch_ms: int, text: str) -> None:
        assert kafka(pattern).format(from_epoch_ms(epoch_ms)) == text

    @pytest.mark.parametrize(
        ("pattern", "epoch_ms", "text"),
        [
            ("yyyy-MM-dd", -62_135_596_800_000, "0001-01-03"),
            ("G yyyy y yy YYYY Y YY", -99_999_999_999_999, "BC 1200 1200 00 -1199 -1199 -99"),
            ("G yyyy y yy YYYY Y YY", -62_135_769_600_000, "AD 0001 1 01 0001 1 01"),
            ("YYYY YY Y YYYYY", -70_000_000_000_000, "-0249 -49 -249 -00249"),
            ("yyyy-MM-dd DDD", -12_219_292_800_001, "1582-10-04 277"),
            ("yyyy-MM-dd DDD", -12_219_292_800_000, "1582-10-15 278"),
            ("yyyy-MM-dd", 253_402_300_800_000, "10000-01-01"),
        ],
    )
    def test_writes_old_and_far_years_as_java(self, pattern: str, epoch_ms: int, text: str) -> None:
        assert kafka(pattern).format(from_epoch_ms(epoch_ms)) == text

    def test_strict_keeps_to_the_gregorian_calendar(self) -> None:
        assert DateFormat("yyyy-MM-dd").format(datetime(1, 1, 1, tzinfo=UTC)) == "0001-01-01"
        assert DateFormat("yyyy-DDD").format(datetime(1500, 3, 1, tzinfo=UTC)) == "1500-060"

    def test_strict_refuses_years_that_no_datetime_has(self) -> None:
        with pytest.raises(ConnectDataError, match="years 1 to 9999"):
            DateFormat("yyyy").format(Instant(253_402_300_800_000))

    def test_other_zones_are_written_in_utc(self) -> None:
        zoned = datetime(2017, 1, 3, 8, 30, tzinfo=timezone(timedelta(hours=2)))
        assert DateFormat("HH:mm").format(zoned) == "06:30"
        assert DateFormat("HH:mm").format(datetime(2017, 1, 3, 6, 30)) == "06:30"  # noqa: DTZ001 - taken for UTC


class TestLenientReading:
    @pytest.mark.parametrize(
        ("pattern", "text", "epoch_ms"),
        [
            ("yyyy-MM-dd", "2017-02-31", 1_488_499_200_000),
            ("yyyy-MM-dd", "2017-01-03 and more", 1_483_401_600_000),
            ("yyyy-MM-dd", "2E3-01-02", 946_771_200_000),
            ("yyyy-MM-dd", "1E-3-01-02", -62_167_305_600_000),
            ("yyyy-MM-dd", "NaN-01-02", -62_167_305_600_000),
            ("yyyy-MM-dd", "∞-01-02", -6_019_000_092_755_006_464),
            ("yyyy-MM-dd", "-∞-01-02", 6_017_484_157_407_806_464),
            ("yyyy-MM-dd", "99999999999-01-02", 1_471_883_220_788_896_768),
            ("yyyy-MM-dd", "99999999999999999999999-01-02", -6_019_000_092_755_006_464),
            ("yyyy-MM-dd", "2017--1-02", 1_478_044_800_000),
            ("yyyy-MM-dd", "1582-10-10", -12_218_860_800_000),
            ("yyyy-MM-dd", "1500-02-29", -14_825_894_400_000),
            ("yyyy-MM-dd", "0000-01-01", -62_167_392_000_000),
            ("yyyyMMdd", "2017010345", 1_512_950_400_000),
            ("yyyyMMdd", " 20170103", -55_634_083_200_000),
            ("yyyyMMMM", "12017January", 317_052_748_800_000),
            ("MMM", "Sept", 20_995_200_000),
            ("MMM", "jAnuary", 0),
            ("EEE yyyy", "Mon 2017", 1_483_315_200_000),
            ("u", "9", 345_600_000),
            ("YYYY-ww", "2017-05", 1_485_648_000_000),
            ("YYYY ww u", "2017 05 9", 1_486_425_600_000),
            ("YYYY ww u", "2017 05 -9", 1_484_870_400_000),
            ("yyyy-DDD", "2017-400", 1_517_702_400_000),
            ("G", "Before Christ", -124_304_284_800_000),
            ("k", "24", 0),
            ("k", "25", 90_000_000),
            ("h", "12", 0),
            ("K", "12", 43_200_000),
            ("h a", "12 am", 0),
            ("aaa", "PMx", 43_200_000),
            ("S", "5000", 5000),
            ("d", "٣", 172_800_000),
            ("z", "GMT+01:30", -5_400_000),
            ("z", " GMT+1", 0),
            ("z", "+0130", -5_400_000),
            ("z", "EST", 18_000_000),
            ("yyyy-MM-dd z", "2020-07-01 PST", 1_593_590_400_000),
            ("yyyy-MM-dd z", "2020-07-01 EDT", 1_593_576_000_000),
            ("yyyy-MM-dd z", "2020-07-01 JST", 1_593_529_200_000),
            ("X", "+0130", -3_600_000),
            ("XX", "+0130", -5_400_000),
            ("XXX", " Z", 0),
        ],
    )
    def test_reads_as_java(self, pattern: str, text: str, epoch_ms: int) -> None:
        assert to_epoch_ms(kafka(pattern).parse(text)) == epoch_ms

    @pytest.mark.parametrize(
        ("text", "same_as"),
        [
            ("2017-5-21 x", "2017-05-21"),
            ("2017- 5-\t21", "2017-05-21"),
            ("2E3-5-21", "2000-05-21"),
            ("2017--1-21", "2016-11-21"),
            ("2017-NaN-1", "2016-12-01"),
            ("٢٠١٧-05-21", "2017-05-21"),
            ("4294967297-1-1", "0001-01-01"),
        ],
    )
    def test_takes_any_integers(self, text: str, same_as: str) -> None:
        dates = kafka("yyyy-MM-dd")
        assert dates.parse(text) == dates.parse(same_as)

    @pytest.mark.parametrize(
        ("pattern", "text", "epoch_ms"),
        [
            ("HH:mm:ss.SSS'Z'", "16:31:05.387Z", 59_465_387),
            ("HH:mm:ss.SSS'Z'", "-1:0:0.0Z", -3_600_000),
            ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2017-05-21T16:31:05.387Z", 1_495_384_265_387),
        ],
    )
    def test_reads_the_forms_of_connect(self, pattern: str, text: str, epoch_ms: int) -> None:
        assert to_epoch_ms(kafka(pattern).parse(text)) == epoch_ms

    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("yyyy-MM-dd", ""),
            ("yyyy-MM-dd", "garbage"),
            ("yyyy-MM-dd", "2017/05/21"),
            ("yyyy-MM-dd", "+2017-05-21"),
            ("yyyy-MM-dd", "x2017-05-21"),
            ("yyyy-MM-dd", "2017-05-"),
            ("yyyy-MM-dd", "2017-05--"),
            ("yyyy-MM-dd", "\U0001d7da-1-1"),
            ("HH:mm:ss.SSS'Z'", "16:31:05.387z"),
            ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2017-05-21 16:31:05.387Z"),
            ("yyyy-MM-dd", "2017-01-"),
            ("yyyy-MM-dd", "2017- 1-\t"),
            ("yyyy-MM-dd", "+2017-01-02"),
            ("yyyy-MM-dd", "2,017-01-02"),
            ("MMM", " Jan"),
            ("z", "Z"),
            ("z", "UT"),
            ("z", "GMT+1"),
            ("z", "GMT+25:00"),
            ("z", "+01:30"),
            ("z", "-2360"),
            ("X", "+1"),
            ("X", "z"),
            ("XX", "+01"),
            ("XXX", "+0130"),
            ("XXX", "-24:00"),
            ("d", "\N{MATHEMATICAL BOLD DIGIT ZERO}"),
        ],
    )
    def test_refuses_as_java(self, pattern: str, text: str) -> None:
        with pytest.raises(ConnectDataError):
            kafka(pattern).parse(text)

    def test_two_digits_are_a_year_near_now(self) -> None:
        now = datetime.now(UTC).year
        for year in (now - 79, now, now + 19):
            read = kafka("yy-MM-dd").parse(f"{year % 100:02d}-12-31")
            assert isinstance(read, datetime)
            assert read.year == year

    def test_other_counts_of_digits_are_the_year_itself(self) -> None:
        assert to_epoch_ms(kafka("yy-MM-dd").parse("005-01-01")) == -62_009_539_200_000
        assert to_epoch_ms(kafka("yy-MM-dd").parse("-5-01-01")) == -62_325_158_400_000

    def test_hostile_numbers_take_no_time_and_no_memory(self) -> None:
        for text in (
            "9" * 100_000,
            "1E" + "9" * 100_000,
            "1E999999999",
            "9" * 5000 + "E-5000",
            "0" * 100_000,
        ):
            assert to_epoch_ms(kafka("S").parse(text)) in {2_147_483_647, 1, 0}

    def test_writes_on_in_the_zone_of_a_name(self) -> None:
        zoned = kafka("yyyy-MM-dd HH:mm z Z XXX zzzz")
        moment, zone = kafka("yyyy-MM-dd HH:mm z").parse_zoned("2020-07-01 12:00 EST")
        assert zoned.format(moment, zone) == "2020-07-01 13:00 EDT -0400 -04:00 Eastern Daylight Time"


class TestStrictReading:
    @pytest.mark.parametrize(
        ("pattern", "text", "expected"),
        [
            (ISO, "2017-01-03T06:30:01.864Z", datetime(2017, 1, 3, 6, 30, 1, 864_000, tzinfo=UTC)),
            (ISO, "2017-01-03T08:30:01.864+02:00", datetime(2017, 1, 3, 6, 30, 1, 864_000, tzinfo=UTC)),
            ("yyyyMMdd", "20170103", datetime(2017, 1, 3, tzinfo=UTC)),
            ("yyyy-DDD", "2016-366", datetime(2016, 12, 31, tzinfo=UTC)),
            ("yyyy-MM", "2017-02", datetime(2017, 2, 1, tzinfo=UTC)),
            ("HH:mm", "06:30", datetime(1970, 1, 1, 6, 30, tzinfo=UTC)),
            ("h:mm a", "12:05 PM", datetime(1970, 1, 1, 12, 5, tzinfo=UTC)),
            ("kk:mm", "24:05", datetime(1970, 1, 1, 0, 5, tzinfo=UTC)),
            ("d/M/yyyy", "3/11/2017", datetime(2017, 11, 3, tzinfo=UTC)),
            (
                "EEE, d MMM yyyy HH:mm:ss Z",
                "Tue, 3 Jan 2017 06:30:01 +0100",
                datetime(2017, 1, 3, 5, 30, 1, tzinfo=UTC),
            ),
            ("EEEE d MMMM yyyy", "Tuesday 3 January 2017", datetime(2017, 1, 3, tzinfo=UTC)),
            ("yyyy-MM-dd z", "2017-01-03 GMT-01:00", datetime(2017, 1, 3, 1, tzinfo=UTC)),
            ("yyyy-MM-dd", "1500-02-28", datetime(1500, 2, 28, tzinfo=UTC)),
        ],
    )
    def test_reads_what_the_pattern_writes(self, pattern: str, text: str, expected: datetime) -> None:
        assert DateFormat(pattern).parse(text) == expected

    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("yyyy-MM-dd", "2017-02-31"),
            ("yyyy-MM-dd", "2017-01-03x"),
            ("yyyy-MM-dd", " 2017-01-03"),
            ("yyyy-MM-dd", "2017-1-3"),
            ("yyyy-MM-dd", "٢٠١٧-01-03"),
            ("yyyy-MM-dd", "0000-01-01"),
            ("yyyy-MM-dd", "1500-02-29"),
            ("d/M/yyyy", "03/11/2017"),
            ("yyyy-DDD", "2017-366"),
            ("HH:mm", "24:00"),
            ("h:mm a", "13:00 PM"),
            ("h:mm a", "01:00 pm"),
            ("kk:mm", "00:00"),
            ("EEE d MMM yyyy", "Mon 3 Jan 2017"),
            ("yyyy-MM-dd z", "2017-01-03 EST"),
            ("yyyy-MM-dd XXX", "2017-01-03 +24:00"),
            ("yyyy-MM-dd XXX", "0001-01-01 +01:00"),
        ],
    )
    def test_refuses_anything_else(self, pattern: str, text: str) -> None:
        with pytest.raises(ConnectDataError, match="fits the pattern") as caught:
            DateFormat(pattern).parse(text)
        assert text not in str(caught.value)

    @pytest.mark.parametrize(
        ("pattern", "reason"),
        [
            ("yy-MM-dd", "century"),
            ("MM-dd", "without a year"),
            ("mm:ss", "without an hour"),
            ("YYYY-'W'ww", "weeks"),
            ("yyyyMd", "nothing shows where M ends"),
            ("HH H", "twice"),
            ("EEE", "no date"),
            ("'x'", "no date and no time"),
        ],
    )
    def test_some_patterns_only_write(self, pattern: str, reason: str) -> None:
        with pytest.raises(ConnectDataError, match=reason):
            DateFormat(pattern).parse("2017")


class TestDateFormat:
    def test_is_pickled_and_shown(self) -> None:
        made = pickle.loads(pickle.dumps(DateFormat("yyyy")))  # noqa: S301 - our own bytes
        assert repr(made) == "DateFormat('yyyy', 'strict')"

    def test_is_safe_for_several_threads(self) -> None:
        dates = kafka("yyyy-MM-dd HH:mm z")
        texts = [
            f"2020-07-{day:02d} 12:00 {zone}" for day in range(1, 29) for zone in ("EST", "UTC", "CET")
        ] * 20
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(dates.parse, texts)) == [dates.parse(text) for text in texts]
