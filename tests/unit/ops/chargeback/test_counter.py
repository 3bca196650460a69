from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import confluent_kafka
import msgspec
import pytest

from headerware import Chain, ConfigError, Producer
from headerware.interceptors import HeaderIds, Slice, Trail
from headerware.interceptors.audit import AuditCount, AuditReport
from headerware.ops.chargeback import KeptUsage, count_usage, counter, record_bytes
from headerware.ops.chargeback.kept import CountedRange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.ops.chargeback import Counted, Usage
    from headerware.testing import EmbeddedCluster


class TestCountUsage:
    @pytest.fixture(autouse=True)
    def _setting(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], tmp_path: Path
    ) -> None:
        self.conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        self.topic = unique_topic("orders")
        embedded_cluster.create_topic(self.topic, partitions=2)
        self.path = tmp_path / "usage.db"

    def produce(self, count: int) -> None:
        chain = Chain([Trail(service="checkout"), Slice(max_bytes=1_500), HeaderIds()])
        with Producer(self.conf, chain=chain) as producer:
            for number in range(count):
                value = bytes(4_000) if number % 10 == 0 else b"v" * number
                headers = [("hw.owner", b"shop-%d" % (number % 2))]
                producer.produce(self.topic, value, partition=number % 2, headers=headers)

    def wire(self) -> tuple[int, int]:
        """Return how many records the topic has, and their size."""
        consumer = confluent_kafka.Consumer({**self.conf, "group.id": "wire", "enable.partition.eof": True})
        consumer.assign([confluent_kafka.TopicPartition(self.topic, number, 0) for number in (0, 1)])
        found: list[Any] = []
        ends = 0
        while ends < 2:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                ends += 1
                continue
            found.append(message)
        consumer.close()
        sizes = [record_bytes(each.key(), each.value(), each.headers() or []) for each in found]
        return len(found), sum(sizes)

    def count(self, path: Path | None = None, **more: Any) -> tuple[Counted, list[Usage]]:
        with KeptUsage(path or self.path) as kept:
            found = count_usage(self.conf, [self.topic], kept, groups=None, **more)
            return found, sorted(kept.usage(), key=repr)

    def test_a_clock_without_a_time_zone_is_refused(self) -> None:
        local = datetime(2026, 1, 31, 9, tzinfo=UTC).replace(tzinfo=None)
        with KeptUsage(self.path) as kept, pytest.raises(ConfigError, match=r"^clock: .* with a time zone"):
            count_usage(self.conf, [self.topic], kept, clock=lambda: local)

    def test_a_second_run_reads_only_what_is_new(self, tmp_path: Path) -> None:
        self.produce(40)
        first, _ = self.count()
        self.produce(20)
        before = self.wire()
        second, rows = self.count()
        third, again = self.count()
        assert first.records + second.records == before[0]
        assert first.bytes + second.bytes == before[1]
        assert 0 < second.records < first.records
        assert (third.records, again) == (0, rows)
        assert rows == self.count(tmp_path / "at once.db")[1]
        assert {row.owner for row in rows} == {"shop-0", "shop-1"}
        assert {row.producer for row in rows} == {"checkout"}

    def test_a_run_that_is_cut_off_goes_on_where_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class CutOffError(Exception):
            pass

        def cut_off(_topic: str, _progress: object) -> None:
            raise CutOffError

        self.produce(40)
        with monkeypatch.context() as patch:
            patch.setattr(counter, "_STORE_EVERY_RECORDS", 1)
            with pytest.raises(CutOffError):
                self.count(on_progress=cut_off)
        with KeptUsage(self.path) as kept:
            assert sum(row.records or 0 for row in kept.usage()) > 0
        self.produce(10)
        _, rows = self.count()
        assert rows == self.count(tmp_path / "at once.db")[1]

    def test_of_a_topic_without_records(self) -> None:
        counted, rows = self.count()
        assert (counted.records, counted.missed, rows) == (0, {}, [])
        self.produce(3)
        assert self.count()[0].records == self.wire()[0]

    @pytest.mark.parametrize("store_every", [1, 10_000])
    def test_the_topic_of_an_audit_is_traffic_and_says_what_was_read(
        self,
        embedded_cluster: EmbeddedCluster,
        unique_topic: Callable[[str], str],
        monkeypatch: pytest.MonkeyPatch,
        store_every: int,
    ) -> None:
        monkeypatch.setattr(counter, "_STORE_EVERY_REPORTS", store_every)
        audit = unique_topic("audit")
        embedded_cluster.create_topic(audit, partitions=2)
        self.produce(4)
        producer = confluent_kafka.Producer(self.conf)

        def count() -> tuple[Counted, dict[str, int | None]]:
            assert producer.flush(60) == 0
            with KeptUsage(self.path) as kept:
                found = count_usage(self.conf, [self.topic, audit], kept, groups=None, audit_topics=[audit])
                return found, {row.topic: row.records for row in kept.usage() if row.source == "audit"}

        def report(sequence: int, records: int) -> None:
            row = AuditCount(topic=self.topic, bucket=0, outcome="consumed", records=records, bytes=1)
            value = AuditReport(
                v=1, session="0" * 16, sequence=sequence, side="consumer", service="billing",
                group="billing", at=0, interval_ms=1, bucket_ms=1, counts=(row,),
            )  # fmt: skip
            producer.produce(audit, msgspec.json.encode(value), partition=sequence % 2)

        for sequence, records in enumerate((3, 4, 5)):
            report(sequence, records)
        report(1, 4)  # it was sent twice
        first, rows = count()
        assert (first.reports, rows) == (3, {self.topic: 12})
        assert first.records == self.wire()[0] + 4
        report(3, 1)
        second, rows = count()
        assert (second.reports, second.records, rows) == (1, 1, {self.topic: 13})

    def test_of_a_topic_that_is_shorter_than_it_was(self) -> None:
        self.produce(4)
        self.count()
        with KeptUsage(self.path) as kept:
            (end,) = (position.end for (_, number), position in kept.positions().items() if number == 0)
            kept.add(self.topic, {0: CountedRange(end, end + 1)}, {})
            with pytest.raises(
                ConfigError, match=rf"\[0\] ends at offset {end}, but was counted up to {end + 1}"
            ):
                count_usage(self.conf, [self.topic], kept, groups=None)

    @pytest.mark.parametrize("pattern", ["no-such-*", "!no-such-*"])
    def test_a_topic_that_is_not_there_is_told(self, pattern: str) -> None:
        with (
            KeptUsage(self.path) as kept,
            pytest.raises(ConfigError, match=rf"no topic with the name or pattern '{re.escape(pattern)}'"),
        ):
            count_usage(self.conf, [pattern], kept, groups=None)
