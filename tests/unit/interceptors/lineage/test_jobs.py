"""Jobs, datasets and runs as trails tell them."""

from __future__ import annotations

import pytest

from headerware.interceptors.lineage.jobs import Dataset, Job, TrailRuns, kafka_namespace
from headerware.interceptors.trail import TrailEntry, TrailReading

EU, US = "kafka://broker.eu:9092", "kafka://us"
PRODUCED = TrailEntry(by_whom="shop", when_ms=1000, produced_into_cluster="eu", produced_into_topic="orders")
MIRRORED = TrailEntry(
    by_whom="mirror",
    when_ms=2000,
    read_from_cluster="eu",
    read_from_topic="orders",
    produced_into_cluster="us",
    produced_into_topic="orders",
)
READ = TrailEntry(by_whom="billing", when_ms=3000, read_from_cluster="us", read_from_topic="orders")


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("broker:9093,other:9094", "kafka://broker:9093"),
        (" broker , other", "kafka://broker:9092"),
        ("SASL_SSL://broker:9093", "kafka://broker:9093"),
        ("[::1]:9093", "kafka://[::1]:9093"),
        ("[::1]", "kafka://[::1]:9092"),
    ],
)
def test_the_namespace_is_the_first_of_the_bootstrap_servers(servers: str, namespace: str) -> None:
    assert kafka_namespace(servers) == namespace


class TestTrailRuns:
    @pytest.fixture
    def found(self) -> TrailRuns:
        return TrailRuns("sales", {"eu": EU})

    def test_make_each_service_a_job_with_its_datasets(self, found: TrailRuns) -> None:
        found.add(TrailReading((PRODUCED, MIRRORED, READ)))
        shop, mirror, billing = found.runs()
        assert [run.job for run in (shop, mirror, billing)] == [
            Job("sales", "shop"),
            Job("sales", "mirror"),
            Job("sales", "billing"),
        ]
        assert (shop.inputs, shop.outputs) == ({}, {Dataset(EU, "orders"): 1})
        assert (mirror.inputs, mirror.outputs) == ({Dataset(EU, "orders"): 1}, {Dataset(US, "orders"): 1})
        assert (billing.inputs, billing.outputs) == ({Dataset(US, "orders"): 1}, {})

    def test_have_one_run_of_a_job_from_its_first_entry_to_its_last(self, found: TrailRuns) -> None:
        for when_ms in (5000, 1000, 9000):
            found.add(TrailReading((TrailEntry(by_whom="shop", when_ms=when_ms, produced_into_topic="t"),)))
        (run,) = found.runs()
        assert (run.began_ms, run.latest_ms) == (1000, 9000)
        assert run.outputs == {Dataset("kafka://unknown", "t"): 3}

    def test_take_the_place_of_the_record_for_that_of_an_entry_that_names_the_topic_alone(
        self, found: TrailRuns
    ) -> None:
        unknown = TrailEntry(by_whom="shop", when_ms=1000, produced_into_topic="orders")
        found.add(TrailReading((unknown,)), Dataset(US, "orders"))
        found.add(TrailReading((unknown,)), Dataset(US, "copies"))
        found.add(TrailReading((unknown, READ)), Dataset(US, "orders"))
        shop, _ = found.runs()
        assert shop.outputs == {Dataset(US, "orders"): 1, Dataset("kafka://unknown", "orders"): 2}

    def test_have_the_same_ids_whoever_reads_the_same_records(self) -> None:
        ids = []
        for _ in range(2):
            found = TrailRuns("sales", {})
            found.add(TrailReading((PRODUCED, READ)))
            ids.append([run.run_id for run in found.runs()])
        assert ids[0] == ids[1]
        assert len(set(ids[0])) == 2

    def test_take_the_batches_of_a_job_as_one_job(self, found: TrailRuns) -> None:
        for batch in (1, 2):
            name = f"spark/enrich#{batch}"
            found.add(TrailReading((TrailEntry(by_whom=name, when_ms=batch, read_from_topic="t"),)))
        assert [run.job.name for run in found.runs()] == ["spark/enrich"]

    def test_call_a_service_without_a_name_unknown(self, found: TrailRuns) -> None:
        found.add(TrailReading((TrailEntry(when_ms=1, read_from_topic="t"),)))
        assert [run.job.name for run in found.runs()] == ["unknown"]
