"""``foreach_batch`` over a folder of files, which needs no Kafka: what it asks of Spark's own queries."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pyspark.errors import StreamingQueryException

from headerware import Chain, ConfigError, Headers, Record
from headerware.core.context import Context
from headerware.core.requirement import writer_advice
from headerware.interceptors import Audit, Compress, Dedup, Lineage, Metrics, Sign, Slice, Trace, Trail
from headerware.interceptors.audit import decode_report
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import foreach_batch
from tests.openlineage_events import Events, told

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from headerware.spark_bridge import BatchProgress

pytestmark = pytest.mark.usefixtures("interpreted")

TOPIC = "orders"
READ = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key string, value binary>>"
)
QUERY_ENDS_S = 240
LARGE = random.Random(3).randbytes(6_000)
CHAIN = Chain([Trail(service="files"), Dedup(), Compress(), Slice(max_bytes=2_000)])


class Folder:
    """A folder that a query reads, and the values of each of its batches."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._files = folder / "files"
        self.checkpoint = folder / "checkpoint"
        self.batches: list[tuple[int, list[bytes]]] = []
        self.progress: list[BatchProgress] = []

    def add(self, records: list[Record], first: int = 0) -> None:
        """Add a file of records, at offsets from ``first`` on."""
        rows = [
            (record.key, record.value, record.topic, 0, first + number, None, list(record.headers))
            for number, record in enumerate(records)
        ]
        self._spark.createDataFrame(rows, READ).coalesce(1).write.mode("append").parquet(str(self._files))

    def run(self, chain: Chain = CHAIN, location: Path | None = None, **options: Any) -> None:
        """Run the query over all that is new, with a ``checkpointLocation`` of its own if it is given."""

        def sink(frame: DataFrame, batch: int) -> None:
            frame.count()  # it is not kept, so this computes it once more
            rows = sorted(frame.collect(), key=lambda row: row.offset)
            self.batches.append((batch, [bytes(row.value) for row in rows]))

        checkpoint = str(self.checkpoint)
        function: Any = foreach_batch(
            chain, sink, checkpoint=checkpoint, job="files", on_progress=self.progress.append, **options
        )
        writer = self._spark.readStream.schema(READ).parquet(str(self._files)).writeStream
        writer = writer.foreachBatch(function).option("checkpointLocation", str(location or checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_ENDS_S)
        finally:
            query.stop()

    def forget_commit(self, batch: int) -> None:
        """Remove Spark's commit of a batch, as after a kill behind the sink."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def forget_ledger(self, batch: int) -> None:
        """Remove the ledger's commit of a batch and Spark's, as after a kill in the sink."""
        self.forget_commit(batch)
        (ledger,) = (self.checkpoint / "headerware").iterdir()
        (ledger / "committed" / f"{batch:012d}.json").unlink()

    def committed(self, batch: int) -> dict[str, Any]:
        """Return what the ledger keeps of a batch."""
        (ledger,) = (self.checkpoint / "headerware").iterdir()
        found: dict[str, Any] = msgspec.json.decode(
            (ledger / "committed" / f"{batch:012d}.json").read_bytes()
        )
        return found


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(spark, tmp_path)


def sent(*values: bytes) -> list[Record]:
    """Return the records that a service writes."""
    with CHAIN.open(Context(side="producer")) as session:
        return session.send([Record(TOPIC, value, b"k", timestamp_ms=0) for value in values])


class TestSigners:
    def test_are_in_the_column_verified(self, folder: Folder, tmp_path: Path) -> None:
        keyring = str(tmp_path / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "shop", "ed25519"), create=True)
        chain = Chain([Dedup(), Slice(max_bytes=2_000), Sign(keyring=keyring, key_id="shop", cluster="eu")])
        with chain.open(Context(side="producer")) as session:
            folder.add(session.send([Record(TOPIC, b"small"), Record(TOPIC, LARGE, b"k")]))
        signers: list[tuple[int, str]] = []

        def noted(frame: DataFrame, batch: int) -> DataFrame:
            del batch
            signers.extend((len(row.value), row.verified.key_id) for row in frame.collect())
            return frame

        folder.run(chain, verified=True, transform=noted, cluster_id="eu")
        assert sorted(signers) == [(5, "shop"), (6_000, "shop")]


class TestBatches:
    def test_come_whole_over_files_and_once(self, folder: Folder) -> None:
        records = sent(b"small", LARGE)
        folder.add(records[:3])
        folder.run()
        folder.add([*records[3:], records[0]], first=3)
        folder.run()
        assert folder.batches == [(0, [b"small"]), (1, [LARGE])]
        assert [progress.waiting for progress in folder.progress] == [2, 0]

    def test_that_were_written_are_known_by_their_end_offsets(self, folder: Folder) -> None:
        folder.add(sent(b"v"))
        folder.run()
        assert len(folder.committed(0)["offsets"]) == 16
        folder.forget_commit(0)
        folder.run()
        assert folder.batches == [(0, [b"v"])]
        assert [progress.skipped for progress in folder.progress] == [False, True]


class TestDescriptions:
    def test_say_what_each_job_of_a_batch_does(self, spark: SparkSession, folder: Folder) -> None:
        before = len(described(spark))
        forged = Record(TOPIC, b"v", headers=Headers([("hw.compress", b"zstd")]))
        folder.add([*sent(b"small", LARGE)[:3], forged])
        letters: list[bytes] = []
        folder.run(
            dead_letters=lambda frame, batch: letters.extend(bytes(row.value) for row in frame.collect())
        )
        found = described(spark)[before:]
        assert letters == [b"v"]
        works = {text.removeprefix("files, batch 0: ") for text in found if "batch 0" in text}
        assert works == {
            "decode",
            "reassemble",
            "dead letters",
            "find repeats",
            "write",
        }
        assert spark.sparkContext.getLocalProperty("spark.job.description") is None

    @pytest.mark.one_spark  # later releases count each stage of an adaptive query as a job
    def test_a_batch_takes_few_jobs(self, spark: SparkSession, folder: Folder) -> None:
        before = len(described(spark))
        forged = Record(TOPIC, b"v", headers=Headers([("hw.compress", b"zstd")]))
        folder.add([*sent(b"small", LARGE)[:3], forged])
        folder.run(dead_letters=lambda frame, batch: frame.collect())
        found = [text for text in described(spark)[before:] if text.startswith("files, batch 0")]
        assert Counter(text.removeprefix("files, batch 0: ") for text in found) == {
            "decode": 1,
            "reassemble": 1,
            "dead letters": 1,
            "find repeats": 1,
            "write": 2,  # the sink of these tests computes its frame twice
        }

    def test_of_progress_is_one_line(self, folder: Folder) -> None:
        folder.add(sent(b"small", LARGE)[:3])
        folder.run()
        folder.forget_commit(0)
        folder.run()
        assert [str(progress) for progress in folder.progress] == [
            "batch 0: 3 in, 1 out, 2 slices wait",
            "batch 0: committed before, skipped",
        ]


def described(spark: SparkSession) -> list[str]:
    """Return the descriptions of all jobs so far."""
    jobs = spark._jsc.sc().statusStore().jobsList(None)
    found = sorted((jobs.apply(at).jobId(), jobs.apply(at).description()) for at in range(jobs.size()))
    return [text.get() if text.isDefined() else "" for _, text in found]


class TestTaskError:
    def test_says_in_a_line_why_the_chain_refused_a_row(self, folder: Folder, tmp_path: Path) -> None:
        keyring = str(tmp_path / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "shop", "hmac-sha256"), create=True)
        folder.add([Record(TOPIC, b"unsigned")], first=7)
        with pytest.raises(StreamingQueryException) as caught:
            folder.run(Chain([Sign(keyring=keyring)]), cluster_id="")
        lines = str(caught.value).splitlines()
        (line,) = (line for line in lines if "SignatureError" in line)
        assert line == (
            f"headerware.spark_bridge.failures.TaskError: batch 0: SignatureError: sign at {TOPIC}[0]@7: "
            f"expected a signature, found no hw.sig header{writer_advice('sign')}; to keep such rows "
            'apart and go on, give failures="route", or dead_letters= in foreach_batch()'
        )
        assert not [line for line in lines if "sinks.py" in line or "dataframe.py" in line], lines

    def test_leaves_the_errors_of_the_users_own_functions(self, folder: Folder) -> None:
        def wrong(frame: DataFrame, batch: int) -> DataFrame:
            del batch
            return frame.select("absent")

        folder.add([Record(TOPIC, b"v")])
        with pytest.raises(StreamingQueryException, match="absent") as caught:
            folder.run(Chain([]), transform=wrong)
        assert "in wrong" in str(caught.value)
        assert "TaskError" not in str(caught.value)


class TestCheckpoint:
    def test_that_is_not_the_querys_is_refused_before_anything_is_written(
        self, folder: Folder, tmp_path: Path
    ) -> None:
        folder.add([Record(TOPIC, b"v")])
        with pytest.raises(StreamingQueryException, match=r"checkpoint: .*no query has its checkpoint there"):
            folder.run(location=tmp_path / "another")
        assert not folder.batches
        assert not folder.checkpoint.exists()

    def test_of_another_query_is_refused(self, folder: Folder, tmp_path: Path) -> None:
        folder.add([Record(TOPIC, b"v")])
        folder.run()
        with pytest.raises(StreamingQueryException, match=r"checkpoint: .*is not this query's"):
            folder.run(location=tmp_path / "another")
        assert [batch for batch, _ in folder.batches] == [0]

    def test_with_a_file_of_somebody_elses_is_refused(self, folder: Folder, tmp_path: Path) -> None:
        folder.add([Record(TOPIC, b"v")])
        folder.checkpoint.mkdir()
        (folder.checkpoint / "metadata").write_text("[1]")
        with pytest.raises(StreamingQueryException, match=r"checkpoint: .*is not this query's"):
            folder.run(location=tmp_path / "another")
        assert not folder.batches


class TestLineage:
    def test_of_a_query_ends_with_it(
        self, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events = Events.to_file(tmp_path / "events.json", monkeypatch)
        namespace = "kafka://source:9092"
        folder.add([Record(TOPIC, b"v")])
        folder.run(Chain([Lineage(service="billing", dataset_namespace=namespace)]))
        found = told(events.wait(2)[-1])
        assert (found.kind, found.inputs) == ("COMPLETE", {f"{namespace}/{TOPIC}": 1})


@pytest.fixture
def reports() -> list[Row]:
    return []


class TestAudit:
    CHAIN = Chain([Audit(), Compress(), Slice()])

    def test_counts_each_record_once_by_its_outcome(self, folder: Folder, reports: list[Row]) -> None:
        folder.add([Record(TOPIC, b"four") for _ in range(3)])
        folder.add([Record(TOPIC, b"no zstd", headers=Headers([("hw.compress", b"zstd")]))], first=3)
        folder.run(
            self.CHAIN,
            audit_reports=lambda frame, batch: reports.extend(frame.collect()),
            dead_letters=lambda frame, batch: None,
        )
        (report,) = reports
        assert report.topic == "headerware-audit"
        told = decode_report(bytes(report.value))
        assert (told.service, told.group, told.last) == ("files", "spark/files", True)
        found = {(count.outcome, count.records, count.bytes, count.offsets) for count in told.counts}
        assert found == {("consumed", 3, 12, ((0, 2),)), ("dead_lettered", 1, 7, ((3, 3),))}

    def test_of_a_frame_that_is_computed_twice_and_of_a_replay_counts_once(
        self, folder: Folder, reports: list[Row]
    ) -> None:
        def keep(frame: DataFrame, batch: int) -> None:
            reports.extend(frame.collect())

        chain = Chain([Audit()])
        folder.add([Record(TOPIC, b"four") for _ in range(3)])
        folder.run(chain, audit_reports=keep)
        folder.forget_ledger(0)
        folder.run(chain, audit_reports=keep)
        assert [batch for batch, _ in folder.batches] == [0, 0]
        assert [progress.decoded["records_in"] for progress in folder.progress] == [3, 3]
        told = [decode_report(bytes(report.value)) for report in reports]
        assert [count.records for report in told for count in report.counts] == [3, 3]
        assert len({(report.session, report.sequence) for report in told}) == 1
        assert reports[0].key == reports[1].key

    def test_without_a_sink_for_its_reports_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"audit_reports: .* go to topic headerware-audit; give a sink"):
            foreach_batch(self.CHAIN, lambda frame, batch: None, checkpoint="here")

    def test_with_a_sink_for_reports_that_nobody_makes_says_so(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        foreach_batch(
            Chain([]),
            lambda frame, batch: None,
            checkpoint="here",
            audit_reports=lambda frame, batch: None,
        )
        assert caplog.messages == [
            "audit_reports: the chain that reads has no 'audit', so there are no reports"
        ]


class TestMetrics:
    def test_tell_the_sums_of_batches_that_are_done(
        self, folder: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = InMemoryMetricReader()
        monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", MeterProvider([reader]))
        folder.add([Record(TOPIC, b"v") for _ in range(3)])
        folder.add([Record("payments", b"v")], first=3)
        folder.run(Chain([Metrics(), Trail()]))
        found = reader.get_metrics_data()
        assert found is not None
        data = json.loads(found.to_json())
        metrics = {
            metric["name"]: metric["data"]["data_points"]
            for resource in data["resource_metrics"]
            for scope in resource["scope_metrics"]
            for metric in scope["metrics"]
        }
        consumed = {
            point["attributes"]["messaging.destination.name"]: point["value"]
            for point in metrics["messaging.client.consumed.messages"]
        }
        assert consumed == {TOPIC: 3, "payments": 1}
        records = {
            (
                point["attributes"]["headerware.interceptor.name"],
                point["attributes"]["headerware.direction"],
            ): (point["value"])
            for point in metrics["headerware.interceptor.records"]
        }
        assert records == {("trail", "consume"): 4, ("trail", "send"): 0}


class TestSilence:
    def test_of_trace_and_metrics_without_an_sdk_is_told_once_on_the_driver(
        self, folder: Folder, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(2):
            folder.add([Record(TOPIC, b"v")], first=number)
            folder.run(Chain([Metrics(), Trace()]))
        told = [message for message in caplog.messages if "sets up an SDK of OpenTelemetry" in message]
        assert [message.partition(" until")[0] for message in told] == [
            "metrics makes no metrics",
            "trace makes no spans",
        ] * 2
