"""Metrics, as an exporter of OpenTelemetry's SDK sees them."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import _internal as metrics_api
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.util._once import Once
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families

from headerware import (
    DROP,
    Chain,
    Consumer,
    Context,
    FanOut,
    InterceptorError,
    Producer,
    Record,
    RecordMetadata,
)
from headerware.core.batch import Batch, Repeated
from headerware.core.record import Operation
from headerware.interceptors import Compress, Dedup, Metrics, Slice
from headerware.interceptors import metrics as metrics_module
from headerware.interceptors.metrics import OBSERVED
from tests.waiting import until

if TYPE_CHECKING:
    from headerware.core.session import Session
    from headerware.testing import EmbeddedCluster

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "headerware.json"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Point(NamedTuple):
    attributes: Mapping[str, Any]
    value: Any


class Seen:
    """What an exporter gets."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()

    def points(self, name: str) -> list[Point]:
        data = self.reader.get_metrics_data()
        return [
            Point(dict(point.attributes or {}), point)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def values(self, name: str, *by: str) -> dict[Any, Any]:
        """Return the values of a metric by the short names of attributes."""
        found = {}
        for attributes, point in self.points(name):
            key = [
                next((attributes[name] for name in attributes if name.endswith(short)), None) for short in by
            ]
            found[tuple(key) if len(key) > 1 else key[0]] = point.value
        return found


def set_provider(monkeypatch: pytest.MonkeyPatch, provider: MeterProvider) -> None:
    """Set the process's provider, as an application does once; here every test does."""
    monkeypatch.setattr(metrics_api, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics_api, "_METER_PROVIDER_SET_ONCE", Once())
    set_meter_provider(provider)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    seen = Seen()
    provider = MeterProvider([seen.reader], shutdown_on_exit=False)
    set_provider(monkeypatch, provider)
    yield seen
    provider.shutdown()


class Picky:
    name = "picky"

    def on_send(self, record: Record) -> Any:
        if record.value == b"bad":
            raise ValueError(record.value)
        return DROP if record.value == b"drop" else record.with_value(record.value * 2)


def send(session: Any, *values: bytes) -> None:
    """Send records and acknowledge them, as a producer does."""
    for value in values:
        outcome = session.send_outcome(Record("orders", value))
        if isinstance(outcome, Record):
            session.acknowledge(outcome, RecordMetadata("orders", 0, 1), None)


class TestConventions:
    def test_sending_has_a_duration_and_a_count(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            send(session, b"1", b"2")
        ((attributes, point),) = seen.points("messaging.client.operation.duration")
        assert attributes == {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
        }
        assert point.count == 2
        assert 0 < point.sum < 10
        assert point.explicit_bounds == BUCKETS
        assert seen.values("messaging.client.sent.messages", "destination.name") == {"orders": 2}

    def test_a_failed_delivery_has_the_name_of_its_error(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            (record,) = session.send([Record("orders", b"1")])
            session.acknowledge(record, None, TimeoutError())
        assert seen.values("messaging.client.sent.messages", "error.type") == {"TimeoutError": 1}

    def test_a_record_that_never_went_out_is_not_sent(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            session.acknowledge(Record("orders", b"1"), None, TimeoutError())
        assert seen.points("messaging.client.sent.messages") == []

    def test_without_a_provider_no_record_needs_a_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metrics_api, "_METER_PROVIDER", None)
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            (record,) = session.send([Record("orders", b"1")])
            assert record.local is None
            assert not session.acknowledges_all

    def test_a_provider_that_comes_later_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metrics_api, "_METER_PROVIDER", None)
        later = Seen()
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            send(session, b"1")
            set_provider(monkeypatch, MeterProvider([later.reader], shutdown_on_exit=False))
            send(session, b"2")
            assert later.values("messaging.client.sent.messages", "destination.name") == {"orders": 1}

    def test_sent_records_of_several_sessions_are_one_sum(self, seen: Seen) -> None:
        chain = Chain([Metrics()])
        with chain.open(Context(side="producer")) as one:
            send(one, b"1")
            with chain.open(Context(side="producer")) as other:
                send(other, b"2", b"3")
            assert seen.values("messaging.client.sent.messages", "destination.name") == {"orders": 3}
        assert seen.values("messaging.client.sent.messages", "destination.name") == {"orders": 3}

    def test_a_receive_counts_its_messages_by_topic(self, seen: Seen) -> None:
        records = [Record("orders"), Record("orders"), Record("payments")]
        with Chain([Metrics()]).open(Context(side="consumer", group_id="billing")) as session:
            session.operation(Operation(name="receive", began_ns=0, ended_ns=20_000_000, records=records))
        assert seen.values("messaging.client.consumed.messages", "destination.name") == {
            "orders": 2,
            "payments": 1,
        }
        ((attributes, point),) = seen.points("messaging.client.operation.duration")
        assert attributes == {
            "messaging.system": "kafka",
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.consumer.group.name": "billing",
        }
        assert point.sum == pytest.approx(0.02)

    def test_a_commit_settles(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="consumer")) as session:
            session.operation(Operation(name="commit", began_ns=0, ended_ns=5_000_000))
            session.operation(Operation(name="commit", began_ns=7, ended_ns=7))
        ((attributes, point),) = seen.points("messaging.client.operation.duration")
        assert attributes["messaging.operation.type"] == "settle"
        assert point.count == 1

    def test_the_end_of_a_transaction_settles_and_its_begin_does_not_count(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            for name in ("begin_transaction", "commit_transaction", "abort_transaction"):
                session.operation(Operation(name=name, began_ns=0, ended_ns=5))
        found = {
            (attributes["messaging.operation.name"], attributes["messaging.operation.type"])
            for attributes, _ in seen.points("messaging.client.operation.duration")
        }
        assert found == {("commit_transaction", "settle"), ("abort_transaction", "settle")}
        assert seen.points("messaging.client.consumed.messages") == []

    @pytest.mark.parametrize("outcome", ["skipped", "dead_lettered"])
    def test_what_run_gives_up_is_stopped(self, seen: Seen, outcome: str) -> None:
        record = Record("orders", b"1", partition=0, offset=7)
        with Chain([Metrics()]).open(Context(side="consumer")) as session:
            session.stopped(record, outcome, KeyError())
        assert seen.values("headerware.records.stopped", "interceptor.name", "outcome", "error.type") == {
            ("processing", outcome, "KeyError"): 1
        }

    def test_processing_has_a_duration_and_its_error(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="consumer")) as session:
            with session.processing([Record("orders")]):
                pass
            with pytest.raises(KeyError), session.processing([Record("orders")]):
                raise KeyError
        found = {
            attributes.get("error.type"): point.count
            for attributes, point in seen.points("messaging.process.duration")
        }
        assert found == {None: 1, "KeyError": 1}
        assert session.stats()["metrics"]["failed"] == 0

    def test_topics_over_the_limit_share_one_name(self, seen: Seen) -> None:
        with Chain([Metrics(max_topics=2)]).open(Context(side="consumer")) as session:
            records = [Record(f"orders-{number}") for number in range(50)]
            session.operation(Operation(name="receive", began_ns=0, ended_ns=1, records=records))
        found = seen.values("messaging.client.consumed.messages", "destination.name")
        assert found == {"orders-0": 1, "orders-1": 1, "_OTHER": 48}


class TestFlood:
    def test_is_counted_in_full_and_sampled_in_the_histogram(self, seen: Seen) -> None:
        with Chain([Metrics(max_durations_per_s=10)]).open(Context(side="producer")) as session:
            send(session, *[b"1"] * 3_000)
        assert seen.values("messaging.client.sent.messages", "destination.name") == {"orders": 3_000}
        ((_, point),) = seen.points("messaging.client.operation.duration")
        assert 10 <= point.count < 3_000

    def test_is_recorded_in_full_if_asked_for(self, seen: Seen) -> None:
        with Chain([Metrics(max_durations_per_s=None)]).open(Context(side="producer")) as session:
            send(session, *[b"1"] * 3_000)
        ((_, point),) = seen.points("messaging.client.operation.duration")
        assert point.count == 3_000

    def test_of_failures_of_processing_is_recorded_in_full(self, seen: Seen) -> None:
        with Chain([Metrics(max_durations_per_s=1)]).open(Context(side="consumer")) as session:
            for _ in range(100):
                with contextlib.suppress(KeyError), session.processing([Record("orders")]):
                    raise KeyError
        ((attributes, point),) = seen.points("messaging.process.duration")
        assert (attributes["error.type"], point.count) == ("KeyError", 100)

    @pytest.mark.parametrize("rate", [50, 100, 1_000, 20_000])
    def test_has_about_as_many_durations_a_second_as_are_wanted(
        self, monkeypatch: pytest.MonkeyPatch, rate: int
    ) -> None:
        monkeypatch.setattr(metrics_module, "_chance", random.Random(7).random)
        sample = metrics_module._Sample(100)
        taken = [
            sum(sample.takes(second * 1_000_000_000 + step * 1_000_000_000 // rate) for step in range(rate))
            for second in range(1, 6)
        ]
        if rate <= 100:
            assert taken == [rate] * 5
        else:
            # The first second does not know yet what is coming.
            assert 100 <= taken[0] <= 100 + 60 * math.log2(rate / 100)
            assert all(60 <= count <= 140 for count in taken[1:])

    def test_that_is_over_leaves_no_trace(self) -> None:
        sample = metrics_module._Sample(10)
        for step in range(10_000):
            sample.takes(1_000_000_000 + step)
        assert all(sample.takes(5_000_000_000 + step) for step in range(10))


class TestInterceptors:
    def test_have_their_time_records_and_bytes(self, seen: Seen) -> None:
        with Chain([Metrics(), Picky()]).open(Context(side="producer")) as session:
            send(session, b"12", b"345")
            by = "interceptor.name", "direction"
            assert seen.values("headerware.interceptor.input", *by) == {("picky", "send"): 5}
            assert seen.values("headerware.interceptor.output", *by) == {("picky", "send"): 10}
            assert 0 < seen.values("headerware.interceptor.time", *by)["picky", "send"] < 1
            assert seen.values("headerware.interceptor.records", *by)["picky", "send"] == 2

    def test_in_batches_too(self, seen: Seen) -> None:
        class Batches:
            name = "batches"

            def on_consume(self, record: Record) -> Any:
                return DROP

            def on_consume_batch(self, batch: Batch) -> Batch:
                return batch.replace(values=Repeated(b"", 3), not_taken=[1], failures={2: ValueError()})

        with Chain([Metrics(), Batches()]).open(Context(side="consumer")) as session:
            session.consume_outcomes([Record("orders", value) for value in (b"123", b"4", b"56")])
        assert seen.values("headerware.interceptor.input", "name") == {"batches": 6}
        assert seen.values("headerware.interceptor.output", "name") == {"batches": 0}

    def test_failures_are_counted_by_cause(self, seen: Seen) -> None:
        with Chain([Metrics(), Picky()]).open(Context(side="producer")) as session:
            send(session, b"bad", b"drop", b"good")
        found = seen.values("headerware.records.stopped", "interceptor.name", "outcome", "error.type")
        assert found == {("picky", "refused", "ValueError"): 1, ("picky", "dropped", None): 1}

    def test_a_settled_copy_is_dropped_by_its_step(self, seen: Seen) -> None:
        producer = Chain([Metrics(), Dedup()]).open(Context(side="producer"))
        (record,) = producer.send([Record("orders", b"1", partition=0)])
        with Chain([Metrics(), Dedup()]).open(Context(side="consumer")) as session:
            for offset in (1, 2):
                session.consume([record.replace(offset=offset, local=None)])
            assert seen.values("headerware.interceptor.events", "event")["duplicates"] == 1
        found = seen.values("headerware.records.stopped", "interceptor.name", "direction", "outcome")
        assert found == {("dedup", "consume", "dropped"): 1}

    def test_what_is_pending_is_a_gauge_and_goes_with_the_session(self, seen: Seen) -> None:
        producer = Chain([Slice(max_bytes=1_000)]).open(Context(side="producer"))
        slices = producer.send([Record("orders", bytes(3_000), b"k", partition=0)])
        session = Chain([Metrics(), Slice()]).open(Context(side="consumer"))
        session.consume([slices[0].replace(offset=0)])
        assert seen.values("headerware.interceptor.pending", "event")["pending_messages"] == 1
        session.close()
        assert seen.points("headerware.interceptor.pending") == []

    def test_counters_do_not_fall_when_a_session_closes(self, seen: Seen) -> None:
        for _ in range(2):
            with Chain([Metrics(), Picky()]).open(Context(side="producer")) as session:
                send(session, b"1")
        assert seen.values("headerware.interceptor.records", "name", "direction")["picky", "send"] == 2

    def test_only_on_the_topics_of_metrics(self, seen: Seen) -> None:
        with Chain([Metrics(topics=("payments",)), Picky()]).open(Context(side="producer")) as session:
            send(session, b"1", b"bad")
        assert seen.points("headerware.interceptor.time") == []
        assert seen.points("headerware.records.stopped") == []

    def test_lazy_slices_have_their_bytes(self, seen: Seen) -> None:
        with Chain([Metrics(), Slice(max_bytes=1_000)]).open(Context(side="producer")) as session:
            outcome = session.send_outcome(Record("orders", bytes(3_000)))
            assert isinstance(outcome, FanOut)
        assert seen.values("headerware.interceptor.output", "name")["slice"] >= 3_000

    def test_errors_of_the_session_itself_are_the_chains(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="consumer")) as session:
            compressed = Chain([Compress(min_bytes=1)]).open().send([Record("orders", bytes(9_000))])
            with pytest.raises(InterceptorError):
                session.consume(compressed)
        assert seen.values("headerware.records.stopped", "interceptor.name", "error.type") == {
            ("chain", "TransportHeaderError"): 1
        }


class Adds:
    """An interceptor with options, which may change."""

    name = "adds"

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Adds) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def on_send(self, record: Record) -> Record:
        return record.with_value(record.value + self.text)


class TestItself:
    def test_has_no_rows_but_its_failures(self, seen: Seen) -> None:
        with Chain([Metrics(name="gauge"), Picky()]).open(Context(side="producer")) as session:
            send(session, b"1")
            session.statistics("{")
            assert "gauge" not in seen.values("headerware.interceptor.records", "name")
            assert "gauge" not in seen.values("headerware.interceptor.time", "name")
            assert "gauge" not in seen.values("headerware.interceptor.events", "name")
            outcomes = seen.values("headerware.interceptor.outcomes", "name", "outcome")
            assert {outcome: count for (name, outcome), count in outcomes.items() if name == "gauge"} == {
                "failed": 1
            }

    def test_twice_in_a_chain_counts_once(self, seen: Seen) -> None:
        chain = Chain([Metrics(topics=("orders",)), Metrics(name="other", topics=("payments",)), Picky()])
        with chain.open(Context(side="producer")) as session:
            send(session, b"1")
            session.send([Record("payments", b"1")])
            assert seen.values("headerware.interceptor.records", "name", "direction")["picky", "send"] == 2
        assert seen.values("headerware.interceptor.records", "name", "direction")["picky", "send"] == 2


class TestAfterAReload:
    """Each chain here takes the place of the one before, in the same client."""

    def reloaded(self, *chains: Chain, closes: bool = True) -> Iterator[Any]:
        """Yield a session of each chain; the one before is closed once the next is open."""
        previous: Session | None = None
        for chain in chains:
            session = chain.open(Context(side="producer"), previous=previous)
            if previous is not None and closes:
                previous.close()
            previous = session
            yield session

    @pytest.mark.parametrize("closes", [True, False], ids=["closed", "in flight"])
    @pytest.mark.parametrize("options", [{}, {"max_topics": 7}], ids=["goes on", "changed"])
    def test_nothing_counts_twice_and_nothing_falls(
        self,
        seen: Seen,
        options: dict[str, Any],
        closes: bool,  # noqa: FBT001 - pytest passes it by name
    ) -> None:
        chains = [
            Chain([Metrics(), Picky(), Adds(b"1")]),
            Chain([Metrics(**options), Picky(), Adds(b"2")]),
            Chain([Metrics(), Picky(), Adds(b"3")]),
        ]
        for number, session in enumerate(self.reloaded(*chains, closes=closes), start=1):
            send(session, b"1", b"2", b"bad")
            session.statistics(json.dumps({"tx": 10 * number}))
            records = seen.values("headerware.interceptor.records", "name", "direction")
            assert (records["picky", "send"], records["adds", "send"]) == (3 * number, 2 * number)
            outcomes = seen.values("headerware.interceptor.outcomes", "name", "outcome")
            assert outcomes["picky", "failed"] == number
            assert seen.values("headerware.interceptor.input", "name")["picky"] == 5 * number
            assert seen.values("messaging.client.sent.messages", "destination.name") == {"orders": 2 * number}
            assert seen.values("librdkafka.requests", "client.id") == {None: 10 * number}
        session.close()
        records = seen.values("headerware.interceptor.records", "name", "direction")
        assert (records["picky", "send"], records["adds", "send"]) == (9, 6)
        assert seen.values("librdkafka.requests", "client.id") == {None: 30}

    def test_what_is_taken_out_keeps_its_count(self, seen: Seen) -> None:
        for session in self.reloaded(Chain([Metrics(), Picky(), Adds(b"")]), Chain([Metrics(), Picky()])):
            send(session, b"1")
        records = seen.values("headerware.interceptor.records", "name", "direction")
        assert (records["picky", "send"], records["adds", "send"]) == (2, 1)

    def test_metrics_that_are_taken_out_and_put_back_count_on(self, seen: Seen) -> None:
        with_them, without = Chain([Metrics(), Picky()]), Chain([Picky()])
        for number, session in enumerate(self.reloaded(with_them, without, with_them), start=1):
            send(session, b"1")
            records = seen.values("headerware.interceptor.records", "name", "direction")
            assert records["picky", "send"] == (1, 1, 3)[number - 1]

    def test_what_is_pending_goes_with_the_step_that_held_it(self, seen: Seen) -> None:
        producer = Chain([Slice(max_bytes=1_000)]).open(Context(side="producer"))
        first, *_ = producer.send([Record("orders", bytes(3_000), b"k", partition=0)])
        old = Chain([Metrics(), Slice()]).open(Context(side="consumer"))
        old.consume([first.replace(offset=0)])
        new = Chain([Metrics(), Slice(expire_ms=7_000)]).open(Context(side="consumer"), previous=old)
        assert seen.values("headerware.interceptor.pending", "event")["pending_messages"] == 1
        old.close()
        assert seen.values("headerware.interceptor.pending", "event")["pending_messages"] == 0
        new.close()

    def test_a_scrape_has_one_line_for_each(
        self,
        monkeypatch: pytest.MonkeyPatch,
        embedded_cluster: EmbeddedCluster,
        unique_topic: Callable[[str], str],
        tmp_path: Path,
    ) -> None:
        topic, path = unique_topic("orders"), tmp_path / "chain.toml"
        embedded_cluster.create_topic(topic, partitions=1)
        reader = PrometheusMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        set_provider(monkeypatch, provider)
        server, thread = start_http_server(0, addr="127.0.0.1")
        conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers, "headerware.config": str(path)}
        scrapes: list[dict[tuple[str, frozenset[tuple[str, str]]], float]] = []
        metrics = '[[interceptors]]\ntype = "metrics"\nmax_topics = {}\n'
        trail = '[[interceptors]]\ntype = "trail"\nservice = "{}"\n'
        try:
            path.write_text(metrics.format(5) + trail.format("one"))
            with Producer(conf) as producer:
                for most, service in ((5, "one"), (5, "two"), (6, "two"), (7, "three")):
                    path.write_text(metrics.format(most) + trail.format(service))
                    producer.reload()
                    producer.produce(topic, b"1")
                    assert producer.flush(60) == 0
                    scrapes.append(self.scraped(server.server_port))
            scrapes.append(self.scraped(server.server_port))
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            provider.shutdown()
        by_name = [
            {
                name: value
                for (name, labels), value in scrape.items()
                if ("headerware_direction", "send") in labels
            }
            for scrape in scrapes
        ]
        assert [found["headerware_interceptor_records_total"] for found in by_name] == [1, 2, 3, 4, 4]
        sent = [
            [value for (name, _), value in scrape.items() if name == "messaging_client_sent_messages_total"]
            for scrape in scrapes
        ]
        assert sent == [[1], [2], [3], [4], [4]]
        for before, after in pairwise(scrapes):
            fallen = {key for key in before if key[0].endswith("_total") and after.get(key, 0) < before[key]}
            assert fallen == set()

    def scraped(self, port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Scrape, and refuse a line that is there twice."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
        assert len(found) == len(samples)
        return found


class TestWithoutAnSdk:
    def test_nothing_is_measured(self) -> None:
        chain = Chain([Metrics(), Picky()])
        record = Record("orders", b"1")
        with chain.open(Context(side="producer")) as session:
            outcome = session.send_outcome(record)
            assert isinstance(outcome, Record)
            assert outcome.local is None
            assert session._send.hooks_of("orders").calls[1].__name__ == "on_send"

    def test_the_conventions_metrics_begin_when_a_provider_is_set(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            send(session, b"1")
            seen = Seen()
            provider = MeterProvider([seen.reader], shutdown_on_exit=False)
            set_provider(monkeypatch, provider)
            send(session, b"2")
            assert seen.values("messaging.client.sent.messages", "destination.name") == {"orders": 1}
            provider.shutdown()


class TestStatistics:
    def test_of_librdkafka_are_metrics(self, seen: Seen) -> None:
        text = {
            "name": "rdkafka#consumer-1",
            "tx": 7,
            "msg_cnt": 3,
            "brokers": {
                "b:1/bootstrap": {"nodeid": -1, "state": "UP"},
                "b:1/1": {"nodeid": 1, "state": "UP", "rtt": {"avg": 1500, "p99": 4000, "cnt": 2}},
                "b:2/2": {"nodeid": 2, "state": "DOWN", "rtt": {"avg": 0, "p99": 0, "cnt": 0}},
            },
            "topics": {
                "orders": {
                    "topic": "orders",
                    "partitions": {"0": {"consumer_lag": 12}, "1": {"consumer_lag": -1}, "-1": {}},
                }
            },
            "cgrp": {"rebalance_cnt": 2, "assignment_size": 1},
            "eos": {"txn_state": "InTransaction"},
        }
        session = Chain([Metrics()]).open(Context(side="consumer", group_id="billing"))
        session.statistics(json.dumps(text))
        assert seen.values("librdkafka.requests", "group.name") == {"billing": 7}
        assert seen.values("librdkafka.queue.messages", "group.name") == {"billing": 3}
        assert seen.values("librdkafka.broker.up", "broker.id") == {"1": 1, "2": 0}
        assert seen.values("librdkafka.broker.rtt.mean", "broker.id") == {"1": pytest.approx(0.0015)}
        assert seen.values("librdkafka.consumer.lag", "destination.name", "partition.id") == {
            ("orders", "0"): 12
        }
        assert seen.values("librdkafka.consumer.rebalances", "group.name") == {"billing": 2}
        assert seen.values("librdkafka.transaction.state", "transaction.state") == {"InTransaction": 1}
        session.close()
        assert seen.values("librdkafka.requests", "group.name") == {"billing": 7}
        assert seen.points("librdkafka.queue.messages") == []

    def test_of_several_clients_are_added_up(self, seen: Seen) -> None:
        sessions = [Chain([Metrics()]).open(Context(side="producer")) for _ in range(2)]
        for number, session in enumerate(sessions):
            rtt = {"avg": 1000 * (number + 1), "p99": 1, "cnt": 1}
            broker = {"nodeid": 1, "state": "UP", "rtt": rtt}
            session.statistics(json.dumps({"msg_cnt": 4, "brokers": {"b": broker}}))
        assert seen.values("librdkafka.queue.messages", "client.id") == {None: 8}
        assert seen.values("librdkafka.broker.rtt.mean", "broker.id") == {"1": pytest.approx(0.002)}

    def test_that_are_no_json_are_counted_as_a_failure(self, seen: Seen) -> None:
        with Chain([Metrics()]).open(Context(side="producer")) as session:
            session.statistics("{")
            assert session.stats()["metrics"]["failed"] == 1

    def test_come_from_clients(
        self, seen: Seen, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        embedded_cluster.create_topic(topic, partitions=1)
        conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers, "log_level": 0}
        chain = Chain([Metrics(librdkafka_interval_s=1)])
        own: list[str] = []
        with Producer(
            {**conf, "statistics.interval.ms": 50, "stats_cb": own.append}, chain=chain
        ) as producer:
            producer.produce(topic, b"1")
            until(
                lambda: bool(own and seen.points("librdkafka.sent.messages")),
                meanwhile=lambda: producer.poll(0.1),
            )
            assert set(json.loads(own[-1])) >= {"name", "brokers", "topics"}
        group = {"group.id": topic, "auto.offset.reset": "earliest", "stats_cb": own.append}
        own.clear()
        with Consumer({**conf, **group}, chain=chain) as consumer:
            consumer.subscribe([topic])
            found: list[Any] = []
            until(lambda: any(found), meanwhile=lambda: found.append(consumer.poll(0.1)))
            until(
                lambda: bool(seen.points("librdkafka.consumer.partitions")),
                meanwhile=lambda: consumer.poll(0.1),
            )
        assert own == []  # the application has set no interval, so nobody would have called it
        assert seen.values("messaging.client.consumed.messages", "destination.name") == {topic: 1}


class TestDashboard:
    """A scrape by Prometheus, and the dashboard that shows it."""

    def test_asks_only_for_metrics_and_labels_that_a_scrape_has(
        self, monkeypatch: pytest.MonkeyPatch, unique_topic: Callable[[str], str]
    ) -> None:
        reader = PrometheusMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        set_provider(monkeypatch, provider)
        server, thread = start_http_server(0, addr="127.0.0.1")
        try:
            sessions = list(self.work())
            url = f"http://127.0.0.1:{server.server_port}/metrics"
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            provider.shutdown()
        for session in sessions:
            session.close()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        labels: dict[str, set[str]] = {}
        for sample in samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
        asked = self.asked()
        assert {name for name in asked if name not in labels} == set()
        assert {name: found for name, own in asked.items() if (found := own - labels[name])} == {}
        scraped = {re.sub(r"(_seconds|_bytes)?(_total)?$", "", name) for name in labels}
        assert {name for name in OBSERVED if name.replace(".", "_") not in scraped} == set()

    def work(self) -> Iterator[Any]:
        """Do whatever makes metrics; their sessions stay open, for gauges go with them."""
        sending = Chain([Metrics(), Slice(max_bytes=1_000), Picky()]).open(
            Context(side="producer", client_id="shop")
        )
        send(sending, b"1", b"bad")
        (failed,) = sending.send([Record("orders", b"1")])
        sending.acknowledge(failed, None, TimeoutError())
        reading = Chain([Metrics(), Slice()]).open(
            Context(side="consumer", group_id="billing", client_id="b")
        )
        first, *_ = Chain([Slice(max_bytes=1_000)]).open().send([Record("orders", bytes(3_000), partition=0)])
        reading.consume([first.replace(offset=0)])
        records = [Record("orders")]
        reading.operation(Operation(name="receive", began_ns=0, ended_ns=1, records=records))
        with pytest.raises(KeyError), reading.processing(records):
            raise KeyError
        broker = {"nodeid": 1, "state": "UP", "rtt": {"avg": 1, "p99": 1, "cnt": 1}}
        topics = {"orders": {"topic": "orders", "partitions": {"0": {"consumer_lag": 1}}}}
        reading.statistics(json.dumps({"brokers": {"b": broker}, "topics": topics, "cgrp": {}}))
        sending.statistics(json.dumps({"eos": {"txn_state": "Ready"}}))
        yield sending
        yield reading

    def asked(self) -> dict[str, set[str]]:
        """Return the labels that the dashboard's queries use, by metric."""
        found: dict[str, set[str]] = {}
        dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
        assert len(targets) > 20
        for target in targets:
            query = re.sub(r"\[\$__rate_interval\]", "", target["expr"])
            by = {
                label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")
            }
            names = re.findall(
                r"\b(?:messaging|headerware|librdkafka)_\w+\b", re.sub(r"by \([^)]*\)|\{[^}]*\}", "", query)
            )
            matched = {
                label
                for group in re.findall(r"\{([^}]*)\}", query)
                for label in re.findall(r"(\w+)[=!]", group)
            }
            assert names, target
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= by
            for name in names:
                found.setdefault(name, set()).update(by | matched)
        return found
