"""Usage counted from frames, against usage counted in Python record by record."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headerware import Chain, ConfigError, Headers, Record
from headerware.interceptors import HeaderIds, Slice, Trail
from headerware.interceptors.audit import AuditCount, AuditReport
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.trail import TrailEntry, TrailReading, encode_trail
from headerware.ops.audit.accounts import Account, Verdicts
from headerware.ops.chargeback import Covered, GroupOffset, Usage, charge, load_prices, record_bytes
from headerware.registry.names import default_names
from headerware.registry.wire.codec import HeaderIdCodec
from headerware.spark_bridge.chargeback import audit_counts, snapshot, stored_offsets, usage, usage_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

RECORDS = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, "
    "partition int, offset bigint, timestamp timestamp, timestampType int"
)
NINE = datetime(2026, 1, 31, 9, tzinfo=UTC)
HALF_PAST = NINE + timedelta(minutes=30)
TEN = NINE + timedelta(hours=1)

Pairs = list[tuple[str, bytes | None]]


def trail(*services: str | None) -> bytes:
    entries = [
        TrailEntry(by_whom=service, produced_into_cluster="east", when_ms=1_767_225_600_000 + number)
        for number, service in enumerate(services)
    ]
    return encode_trail(TrailReading(tuple(entries)))


def row(headers: Pairs | None, *, offset: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "key": b"k",
        "value": b"v" * (offset + 1),
        "headers": headers,
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "timestamp": HALF_PAST,
        "timestampType": 0,
        **fields,
    }


def size(record: dict[str, Any]) -> int:
    return record_bytes(record["key"], record["value"], record["headers"] or [])


@pytest.fixture
def frame(spark: SparkSession) -> Callable[[Sequence[dict[str, Any]]], DataFrame]:
    def make(rows: Sequence[dict[str, Any]]) -> DataFrame:
        return spark.createDataFrame([tuple(each.values()) for each in rows], RECORDS).repartition(2)

    return make


@pytest.fixture
def count(frame: Callable[..., DataFrame]) -> Callable[..., list[Usage]]:
    def counted(*rows: dict[str, Any], **more: Any) -> list[Usage]:
        return list(usage_rows(usage(frame(rows), **more)))

    return counted


class TestUsage:
    def test_names_what_each_record_says(self, count: Callable[..., list[Usage]]) -> None:
        long = b"o" * 5_000
        told: list[tuple[Pairs | None, str | None, str | None, int]] = [
            (None, None, None, 0),
            ([], None, None, 0),
            ([("hw.owner", None), ("hw.trail", None), ("x", None)], None, None, 0),
            ([("hw.owner", b"")], None, None, 0),
            ([("hw.owner", b"old"), ("hw.owner", b"shop")], "shop", None, 0),
            ([("hw.owner", b"shop"), ("hw.trail", trail("checkout"))], "shop", "checkout", 0),
            ([("hw.trail", trail("job/nightly#7", "mirror"))], None, "job", 0),
            ([("hw.trail", trail(None, "mirror"))], None, None, 0),
            ([("hw.trail", trail("first")), ("hw.trail", trail("last"))], None, "last", 0),
            ([("hw.trail", b"1")], None, None, 0),
            ([("hw.trail", b"1;left=3")], None, None, 0),
            ([("hw.trail", trail("bestellungen-\u00fc"))], None, "bestellungen-\u00fc", 0),
            ([("hw.trail", b"")], None, None, 1),
            ([("hw.trail", b"\x07garbage that is no trail")], None, None, 1),
            ([("hw.trail", trail("checkout")[:4])], None, None, 1),
            ([("hw.trail", b"1,at=5;by=\xff")], None, None, 1),
            ([("hw.trail", b"1,at=5;by=" + b"s" * 256)], None, None, 1),
            ([("hw.trail", b"1\n")], None, None, 1),
            ([("hw.owner", b"<b>\x1b\xff")], "<b>\\x1b\N{REPLACEMENT CHARACTER}", None, 0),
            ([("hw.owner", long)], "o" * 119 + "…", None, 0),
            ([("~K", b"compact"), ("~B", trail("ids"))], "compact", "ids", 0),
            ([("hw.ids", b"1~~")], None, None, 1),
            ([("hw.ids", None), ("hw.owner", b"shop")], None, None, 1),
        ]
        rows = [row(headers, topic=f"t{n:02}", offset=n) for n, (headers, *_) in enumerate(told)]
        found = sorted(count(*rows), key=lambda each: each.topic)
        assert [(each.owner, each.producer, each.malformed) for each in found] == [
            tuple(names) for _, *names in told
        ]
        assert [each.bytes for each in found] == [size(each) for each in rows]

    @pytest.mark.parametrize("form", ["keys", "packed"])
    def test_reads_ids_of_headers(self, form: Any, count: Callable[..., list[Usage]]) -> None:
        names = default_names()
        codec = HeaderIdCodec(names.id_of, names.name_of, form=form)
        sent = Headers([("hw.owner", b"shop"), ("plain", b"p"), ("hw.trail", trail("checkout")), ("q", None)])
        rows = [row(list(codec.encode(sent)), offset=1), row(list(sent), topic="plain")]
        found = sorted(count(*rows), key=lambda each: each.topic)
        assert [(each.owner, each.producer, each.bytes) for each in found] == [
            ("shop", "checkout", size(each)) for each in rows
        ]

    def test_counts_as_python_does(self, count: Callable[..., list[Usage]]) -> None:
        rows = [
            row(
                [("hw.owner", b"team-%d" % (n % 3)), ("hw.trail", trail(f"svc-{n % 4}", *["m"] * (n % 2)))],
                offset=n,
                topic=f"t{n % 2}",
                timestamp=NINE + timedelta(minutes=n),
            )
            for n in range(240)
        ]
        records: Counter[tuple[Any, ...]] = Counter()
        sizes: Counter[tuple[Any, ...]] = Counter()
        for n, each in enumerate(rows):
            key = (NINE + timedelta(hours=n // 60), f"t{n % 2}", f"team-{n % 3}", f"svc-{n % 4}")
            records[key] += 1
            sizes[key] += size(each)
        found = count(*rows)
        assert {(u.hour, u.topic, u.owner, u.producer): u.records for u in found} == records
        assert {(u.hour, u.topic, u.owner, u.producer): u.bytes for u in found} == sizes
        assert {(u.direction, u.group, u.source) for u in found} == {("in", None, "records")}

    def test_hours_are_utc_wherever_the_session_is(
        self, spark: SparkSession, count: Callable[..., list[Usage]]
    ) -> None:
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        try:
            (found,) = count(row([]))
        finally:
            spark.conf.set("spark.sql.session.timeZone", before or "UTC")
        assert found.hour == NINE

    @pytest.mark.parametrize("seconds", ["-0.001", "400000000000", "null"])
    def test_a_time_that_no_calendar_reaches_is_none(self, seconds: str, spark: SparkSession) -> None:
        from pyspark.sql import functions as sql  # noqa: PLC0415

        rows = spark.createDataFrame([tuple(row([]).values())], RECORDS)
        odd = rows.withColumn("timestamp", sql.expr(f"cast(cast({seconds} AS double) AS timestamp)"))
        (found,) = usage_rows(usage(odd))
        assert (found.hour, found.records) == (None, 1)

    def test_of_nothing_is_nothing(self, count: Callable[..., list[Usage]]) -> None:
        assert count() == []

    def test_comes_back_from_parquet(self, frame: Callable[..., DataFrame], tmp_path: Path) -> None:
        counted = usage(frame([row([("hw.owner", b"shop")]), row(None)]))
        counted.write.parquet(str(tmp_path / "usage"))
        again = frame([]).sparkSession.read.parquet(str(tmp_path / "usage"))
        assert sorted(map(repr, usage_rows(again))) == sorted(map(repr, usage_rows(counted)))

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ("headers", r"^frame\.headers: expected array<.*found no such column; .*'includeHeaders'"),
            ("value", r"^frame\.value: expected binary, found no such column"),
            ("offset", r"^frame\.offset: expected bigint, found no such column"),
        ],
    )
    def test_refuses_a_frame_without_what_it_needs(
        self, column: str, message: str, frame: Callable[..., DataFrame]
    ) -> None:
        with pytest.raises(ConfigError, match=message):
            usage(frame([]).drop(column), offsets=[GroupOffset("g", "orders", 0, 0, NINE)])

    def test_refuses_a_column_of_another_type(self, frame: Callable[..., DataFrame]) -> None:
        decoded = frame([]).selectExpr("* EXCEPT (value)", "cast(value AS string) AS value")
        with pytest.raises(ConfigError, match=r"^frame\.value: expected binary, found string"):
            usage(decoded)


def slices(
    owner: bytes, *steps: Any, service: str = "checkout", topic: str = "orders"
) -> list[dict[str, Any]]:
    """Return the slices of a message, as they are on the wire."""
    chain = Chain([Trail(service=service), Slice(max_bytes=1_000), *steps])
    with chain.open() as session:
        records = session.send([Record(topic, b"v" * 2_500, b"k", Headers([("hw.owner", owner)]))])
    rows = [
        row(list(each.headers), key=each.key, value=each.value, topic=topic, offset=offset)
        for offset, each in enumerate(records)
    ]
    assert len(rows) >= 3
    return rows


def by_names(found: list[Usage]) -> dict[tuple[str | None, str | None], tuple[int | None, int | None]]:
    assert len({(each.owner, each.producer) for each in found}) == len(found)
    return {(each.owner, each.producer): (each.records, each.bytes) for each in found}


def total(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    return len(rows), sum(map(size, rows))


@pytest.mark.one_spark
class TestSlices:
    @pytest.mark.parametrize(
        "steps", [(), (HeaderIds(form="keys"),), (HeaderIds(form="packed"),)], ids=["names", "keys", "packed"]
    )
    def test_are_all_their_senders(self, steps: tuple[Any, ...], count: Callable[..., list[Usage]]) -> None:
        rows = slices(b"shop", *steps)
        assert by_names(count(*rows)) == {("shop", "checkout"): total(rows)}

    def test_of_an_hour_that_their_first_is_not_in_are_counted_in_theirs(
        self, count: Callable[..., list[Usage]]
    ) -> None:
        first, *others = slices(b"shop")
        found = count(first, *({**each, "timestamp": TEN} for each in others))
        assert {(each.hour, each.owner, each.producer): (each.records, each.bytes) for each in found} == {
            (NINE, "shop", "checkout"): total([first]),
            (TEN, "shop", "checkout"): total(others),
        }

    def test_without_their_first_are_nobodys(self, count: Callable[..., list[Usage]]) -> None:
        _, *others = slices(b"shop")
        assert by_names(count(*others)) == {(None, None): total(others)}

    @pytest.mark.parametrize("place", [{"partition": 1}, {"topic": "other"}], ids=["partition", "topic"])
    def test_in_another_place_are_another_message(
        self, place: dict[str, Any], count: Callable[..., list[Usage]]
    ) -> None:
        first, *others = slices(b"shop")
        found = count(first, *({**each, **place} for each in others))
        assert by_names(found) == {("shop", "checkout"): total([first]), (None, None): total(others)}

    def test_of_two_messages_may_interleave(self, count: Callable[..., list[Usage]]) -> None:
        one, other = slices(b"shop"), slices(b"bank", service="ledger")
        plain = [row([("hw.owner", b"shop")]), row(None)]
        mixed = [each for pair in zip(other, one, strict=True) for each in reversed(pair)]
        assert by_names(count(*mixed, *plain)) == {
            ("shop", "checkout"): total(one),
            ("bank", "ledger"): total(other),
            ("shop", None): total(plain[:1]),
            (None, None): total(plain[1:]),
        }

    def test_are_told_by_topic_and_message_in_a_frame_without_partitions(
        self, frame: Callable[..., DataFrame]
    ) -> None:
        rows = slices(b"shop")
        found = usage_rows(usage(frame(rows).drop("partition", "offset")))
        assert by_names(list(found)) == {("shop", "checkout"): total(rows)}

    def test_have_the_names_of_the_first_before_those_that_a_relay_gave_them(
        self, count: Callable[..., list[Usage]]
    ) -> None:
        first, *others = slices(b"shop")
        relayed = [{**each, "headers": [*each["headers"], ("hw.trail", trail("relay"))]} for each in others]
        assert by_names(count(first, *relayed)) == {("shop", "checkout"): total([first, *relayed])}

    def test_that_were_read_are_their_senders_too(self, count: Callable[..., list[Usage]]) -> None:
        rows = slices(b"shop")
        found = count(*rows, offsets=[at(NINE, 1), at(TEN, 3)])
        assert {(each.direction, each.owner, each.records, each.bytes) for each in found} == {
            ("in", "shop", *total(rows)),
            ("out", "shop", *total(rows[1:3])),
        }

    def test_with_a_header_that_cannot_be_read_are_records_like_others(
        self, count: Callable[..., list[Usage]]
    ) -> None:
        whole = SliceHeader(bytes(16), 0, 2, 2_000, 1_000).encode()
        odd: list[bytes | None] = [None, b"", whole[:-1], whole + b"x", b"\x02" + whole[1:]]
        named = [row([(SLICE_HEADER, value), ("hw.owner", b"shop")]) for value in odd]
        others = [row([(SLICE_HEADER, value)]) for value in odd]
        assert by_names(count(*named, *others)) == {("shop", None): total(named), (None, None): total(others)}


def at(moment: datetime, offset: int, group: str = "billing", partition: int = 0) -> GroupOffset:
    return GroupOffset(group, "orders", partition, offset, moment)


@pytest.mark.one_spark
class TestReads:
    ROWS = tuple(
        row([("hw.owner", b"a" if n < 5 else b"b")], offset=n, partition=p) for p in (0, 1) for n in range(10)
    )

    def out(self, found: list[Usage]) -> list[Usage]:
        assert sum(each.records or 0 for each in found if each.direction == "in") == len(self.ROWS)
        return sorted((u for u in found if u.direction == "out"), key=lambda u: (u.group, u.owner or ""))

    def test_by_offsets_are_the_records_between(self, count: Callable[..., list[Usage]]) -> None:
        offsets = [at(NINE, 2), at(TEN, 8), at(NINE, 0, partition=1), at(TEN, 4, partition=1)]
        offsets += [at(NINE, 9, "fraud"), at(TEN, 10, "fraud")]
        found = self.out(count(*self.ROWS, offsets=offsets))
        assert [(each.group, each.owner, each.records, each.hour) for each in found] == [
            ("billing", "a", 7, NINE),
            ("billing", "b", 3, NINE),
            ("fraud", "b", 1, NINE),
        ]
        assert {each.source for each in found} == {"offsets"}
        read = [*self.ROWS[2:5], *self.ROWS[10:14]]
        assert found[0].bytes == sum(map(size, read))

    def test_beyond_the_records_are_unknown(self, count: Callable[..., list[Usage]]) -> None:
        found = self.out(count(*self.ROWS, offsets=[at(NINE, 8), at(TEN, 15)]))
        assert [(each.source, each.owner, each.records, each.bytes is None) for each in found] == [
            ("unknown", None, 5, True),
            ("offsets", "b", 2, False),
        ]

    def test_may_be_told_what_is_covered(self, count: Callable[..., list[Usage]]) -> None:
        covered = [Covered("orders", 0, 0, 15)]  # the last offsets are a transaction's markers
        found = self.out(count(*self.ROWS, offsets=[at(NINE, 8), at(TEN, 15)], covered=covered))
        assert [(each.source, each.records) for each in found] == [("offsets", 2)]

    def test_by_audit_come_before_offsets(
        self, spark: SparkSession, count: Callable[..., list[Usage]]
    ) -> None:
        schema = "group string, topic string, hour timestamp, records bigint, bytes bigint"
        told = [("billing", "orders", HALF_PAST, 3, 300), ("billing", "orders", NINE, 1, 100)]
        offsets = [at(NINE, 0), at(TEN, 8), at(NINE, 9, "fraud"), at(TEN, 12, "fraud")]
        found = self.out(count(*self.ROWS, audit=spark.createDataFrame(told, schema), offsets=offsets))
        assert [(each.group, each.source, each.records, each.bytes) for each in found] == [
            ("billing", "audit", 4, 400),
            ("fraud", "unknown", 2, None),
            ("fraud", "offsets", 1, size(self.ROWS[9])),
        ]
        assert found[0].hour == NINE

    def test_by_audit_come_from_its_topic(
        self, spark: SparkSession, count: Callable[..., list[Usage]]
    ) -> None:
        bucket = int(HALF_PAST.timestamp() * 1000)
        consumed = AuditCount(topic="orders", bucket=bucket, outcome="consumed", records=3, bytes=300)
        later = AuditCount(topic="orders", bucket=bucket + 60_000, outcome="dropped", records=1, bytes=100)
        again = AuditCount(topic="orders", bucket=bucket, outcome="skipped", given=True, records=1, bytes=100)
        common: dict[str, Any] = {
            "v": 2,
            "session": "9f2c41d07ab35e66",
            "service": "b",
            "at": 1,
            "interval_ms": 1,
        }
        read = {**common, "side": "consumer", "group": "billing", "bucket_ms": 60_000}
        reports = [
            msgspec.json.encode(AuditReport(**read, sequence=sequence, counts=counts))
            for sequence, counts in ((0, (consumed, again)), (1, (later,)), (1, (later,)), (2, ()))
        ]
        sent = AuditReport(**common, sequence=9, side="producer", bucket_ms=1, counts=(consumed,))
        verdicts = [
            Verdicts(topic="orders", verdict="admitted", reason=None, count=5, bytes=500),
            Verdicts(topic="orders", verdict="refused", reason="sign: SignatureError", count=1, bytes=60),
        ]
        account = Account(group="guard", instance="a", at_ms=bucket, records=tuple(verdicts), done=())
        other = msgspec.structs.replace(account, version=2)
        forged = msgspec.structs.replace(verdicts[0], count=-100)
        negative = msgspec.structs.replace(account, records=(forged,)).encode()
        others = [
            account.encode(),
            negative,
            other.encode(),
            msgspec.json.encode(sent),
            b"nonsense",
            b"\xff",
            None,
        ]
        frame = spark.createDataFrame([(each,) for each in (*reports, *others)], "value binary")
        found = self.out(count(*self.ROWS, audit=audit_counts(frame)))
        assert [(each.group, each.hour, each.source, each.records, each.bytes) for each in found] == [
            ("billing", NINE, "audit", 4, 400),
            ("guard", NINE, "audit", 6, 560),
        ]

    def test_audit_may_name_owners(self, spark: SparkSession, count: Callable[..., list[Usage]]) -> None:
        schema = "group string, topic string, hour timestamp, records bigint, bytes bigint, owner string"
        audit = spark.createDataFrame([("billing", "orders", NINE, 3, 300, "a")], schema)
        assert [each.owner for each in self.out(count(*self.ROWS, audit=audit))] == ["a"]

    def test_audit_is_checked(self, spark: SparkSession, count: Callable[..., list[Usage]]) -> None:
        audit = spark.createDataFrame([("billing", 3)], "group string, records int")
        with pytest.raises(ConfigError, match=r"^audit\.topic: expected string, found no such column"):
            count(*self.ROWS, audit=audit)

    def test_without_either_the_bill_says_so(self, count: Callable[..., list[Usage]], tmp_path: Path) -> None:
        (tmp_path / "prices.toml").touch()
        bill = charge(count(*self.ROWS), load_prices(tmp_path / "prices.toml"))
        assert [each.topic for each in bill.unknown] == ["orders"]


@pytest.mark.one_spark
class TestSnapshot:
    def test_is_kept(self, spark: SparkSession, tmp_path: Path) -> None:
        path = str(tmp_path / "offsets")
        early = snapshot(spark, path, [("g", "orders", 0, 5)], at=NINE + timedelta(microseconds=7))
        late = snapshot(spark, path, [("g", "orders", 0, 9), ("g", "orders", 1, 2)], at=TEN)
        assert sorted(map(repr, stored_offsets(spark, path))) == sorted(map(repr, [*early, *late]))
        assert stored_offsets(spark, path, until=HALF_PAST) == early
        assert len(stored_offsets(spark, path, since=HALF_PAST)) == 2

    def test_refuses_a_moment_without_a_time_zone(self, spark: SparkSession, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="a moment with a time zone"):
            snapshot(spark, str(tmp_path), [], at=NINE.replace(tzinfo=None))

    @pytest.mark.parametrize("bound", ["since", "until"])
    def test_is_not_read_from_a_moment_without_a_time_zone(
        self, spark: SparkSession, tmp_path: Path, bound: str
    ) -> None:
        path = str(tmp_path / "offsets")
        snapshot(spark, path, [("g", "orders", 0, 5)], at=NINE)
        bounds = {bound: NINE.replace(tzinfo=None)}
        with pytest.raises(ConfigError, match=f"^{bound}: expected a moment with a time zone"):
            stored_offsets(spark, path, **bounds)
