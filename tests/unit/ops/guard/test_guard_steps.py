"""What the steps of a guard's chains hear of, on an embedded cluster, and what a flood of headers costs."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import confluent_kafka
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headerware import DROP, Chain, ConfigError, Context, Interceptor, InterceptorError, Record, load_chain
from headerware.core.dead_letter import read_reason
from headerware.core.hooks import OnError
from headerware.interceptors import Audit, Contract, Metrics, Serialize, Slice, Trace
from headerware.interceptors.audit import decode_report
from headerware.ops.guard import Guard, Status
from headerware.testing import EmbeddedCluster
from tests.ingress import POLICY, Ingress
from tests.waiting import DEADLINE_S


@pytest.fixture
def ingress(tmp_path: Path) -> Ingress:
    return Ingress(tmp_path)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


class Topics:
    """Topics of one test, in a cluster of all."""

    def __init__(self, embedded: EmbeddedCluster, name: str) -> None:
        self.servers = embedded.bootstrap_servers
        self.egress, self.ingress, self.reports = name, f"ingress.{name}", f"{name}-reports"
        self.letters = f"{self.ingress}.dead-letter"
        for topic in (self.egress, self.ingress, self.reports, self.letters):
            embedded.create_topic(topic)


@pytest.fixture
def topics(embedded: EmbeddedCluster) -> Topics:
    return Topics(embedded, f"orders-{uuid.uuid4().hex[:8]}")


def put(topics: Topics, *records: Record) -> int:
    """Write records as they are, and return how many there are."""
    with confluent_kafka.Producer(
        {"bootstrap.servers": topics.servers, "compression.type": "zstd"}
    ) as producer:
        for each in records:
            producer.produce(topics.ingress, each.value, each.key, 0, headers=list(each.headers))
            producer.flush()
    return len(records)


def judged(status: Status) -> int:
    refused = sum(sum(reasons.values()) for reasons in status.refused.values())
    return sum(status.admitted.values()) + sum(status.dropped.values()) + refused


def guarded(topics: Topics, ingress: Ingress, count: int, **options: Any) -> Status:
    """Let a guard work until it has judged so many records."""
    chain = options.pop("chain", None) or ingress.guard_chain()
    conf = {"bootstrap.servers": topics.servers, "client.id": "guard"}
    guard = Guard(conf, {topics.ingress: topics.egress}, chain=chain, group_id=topics.egress, **options)
    stopping = threading.Timer(DEADLINE_S, guard.stop)
    stopping.start()
    guard.run(lambda status: guard.stop() if judged(status) >= count else None)
    stopping.cancel()
    assert judged(guard.status()) == count
    return guard.status()


def read(topics: Topics, topic: str) -> list[Any]:
    """Return what stands in a partition."""
    conf = {"bootstrap.servers": topics.servers, "group.id": "r", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(conf)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


class Hears(Interceptor, frozen=True, kw_only=True):
    """Note what it hears; refuse numbers, drop what is empty."""

    type: ClassVar[str] = "hears"

    def open(self, context: Context) -> Any:
        """Return hooks that note what they hear."""

        def on_send(record: Record) -> Any:
            if not record.value:
                return DROP
            if record.value.isdigit():
                raise InterceptorError("a number")
            return record.with_local("seen", record.value)

        def on_acknowledgement(record: Record, metadata: Any, error: Any) -> None:
            place = None if error else (metadata.topic, metadata.partition, metadata.offset)
            HEARD.append((context.side, (record.local or {}).get("seen"), place, type(error).__name__))

        @contextmanager
        def processing(records: Any) -> Iterator[None]:
            HEARD.append((context.side, "processing", [each.value for each in records]))
            yield

        return SimpleNamespace(
            **({"on_send": on_send} if context.side == "producer" else {}),
            on_acknowledgement=on_acknowledgement,
            processing=processing,
            on_operation=lambda operation: HEARD.append(
                (context.side, operation.name, [each.value for each in operation.records])
            ),
            on_processed=lambda record, error: HEARD.append((context.side, "processed", record.value)),
            on_commit=lambda offsets: HEARD.append((context.side, "commit", [at.offset for at in offsets])),
        )


ROOT: Final = Path(__file__).parents[4]
HEARD: Final[list[Any]] = []


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    HEARD.clear()


def with_first(ingress: Ingress, *steps: Interceptor) -> Chain:
    return Chain([*steps, *ingress.guard_chain()])


class TestAContract:
    def test_refuses_what_the_contract_of_the_ingress_topic_forbids(
        self, topics: Topics, ingress: Ingress, tmp_path: Path
    ) -> None:
        path = tmp_path / "orders.json"
        message = {"payload": {"type": "object", "required": ["id"]}}
        channels = {"orders": {"address": "ingress.{topic}", "messages": {"Order": message}}}
        path.write_text(json.dumps({"asyncapi": "3.0.0", "channels": channels}))
        count = put(topics, *ingress.sent(b'{"id": 1}', b"{}", topic=topics.ingress))
        status = guarded(topics, ingress, count, chain=with_first(ingress, Contract(file=str(path))))
        assert status.refused == {topics.ingress: {"contract: ContractError": 1}}
        assert [message.value() for message in read(topics, topics.egress)] == [b'{"id": 1}']
        (letter,) = read(topics, topics.letters)
        reason = read_reason(letter.headers())
        assert reason is not None
        assert "#/channels/orders/messages/Order/payload/required" in str(reason)


class TestTheSecondChain:
    def test_hears_once_where_each_record_stands(self, topics: Topics, ingress: Ingress) -> None:
        count = put(topics, *ingress.sent(b"a", b"1", b"", b"b", topic=topics.ingress))
        guarded(topics, ingress, count, second=Chain([Hears()]))
        own = [each for each in HEARD if each[0] == "producer"]
        assert own[:2] == [
            ("producer", None, None, "InterceptorError"),
            ("producer", None, None, "KafkaException"),  # dropped, as a producer reports it
        ]
        assert own[2:] == [
            ("producer", b"a", (topics.egress, 0, 0), "NoneType"),
            ("producer", b"b", (topics.egress, 0, 1), "NoneType"),
            ("producer", "commit_transaction", []),
        ]

    def test_hears_once_of_a_message_in_slices(self, topics: Topics, ingress: Ingress) -> None:
        count = put(topics, *ingress.sent(b"m" * 2_000, topic=topics.ingress))
        guarded(topics, ingress, count, second=Chain([Hears(), Slice(max_bytes=1_000)]))
        told = [each for each in HEARD if each[0] == "producer" and each[1] == b"m" * 2_000]
        ((_, _, place, error),) = told
        assert len(read(topics, topics.egress)) > 1
        assert (place[:2], error) == ((topics.egress, 0), "NoneType")

    def test_hears_of_what_is_refused_behind_it(self, topics: Topics, ingress: Ingress) -> None:
        ingress.policy(f'{POLICY}\n[[quotas]]\nrecords_per_s = 0.001\nburst_s = 1000\nover = "refuse"\n')
        count = put(topics, *ingress.sent(b"a", b"b", topic=topics.ingress))
        status = guarded(topics, ingress, count, second=Chain([Hears()]))
        assert status.admitted == {topics.ingress: 1}
        told = sorted(each[1:] for each in HEARD if each[0] == "producer" and len(each) == 4)
        assert told == [(b"a", (topics.egress, 0, 0), "NoneType"), (b"b", None, "QuotaError")]

    @pytest.mark.parametrize("on_error", ["drop", "dead_letter"])
    def test_leaves_what_it_refuses_to_the_guard(
        self, topics: Topics, ingress: Ingress, on_error: OnError
    ) -> None:
        count = put(topics, *ingress.sent(b"1", topic=topics.ingress))
        status = guarded(topics, ingress, count, second=Chain([Hears(on_error=on_error)]))
        assert status.refused == {topics.ingress: {"hears: InterceptorError": 1}}
        (letter,) = read(topics, topics.letters)
        assert "hw.sig" in dict(letter.headers())  # as it came, and not as the second chain had it

    def test_may_keep_nothing_back(self, topics: Topics, ingress: Ingress) -> None:
        class Keeps(Interceptor, frozen=True, kw_only=True):
            type: ClassVar[str] = "keeps"

            def open(self, _: Context) -> Any:
                return SimpleNamespace(on_send=lambda _: [], flush=list)

        with pytest.raises(ConfigError, match="keeps of the guard's second chain keeps records back"):
            guarded(topics, ingress, 1, second=Chain([Keeps()]))


class TestTheFirstChain:
    @pytest.mark.parametrize("second", [None, Chain([Hears()])])
    def test_hears_of_records_as_a_consumer_s_does(
        self, topics: Topics, ingress: Ingress, second: Chain | None
    ) -> None:
        put(
            topics,
            *ingress.sent(b"a", topic=topics.ingress),
            *ingress.sent(b"t", who="thief", topic=topics.ingress),
        )
        guarded(topics, ingress, 2, chain=with_first(ingress, Hears()), second=second)
        assert [each for each in HEARD if each[0] == "consumer"] == [
            ("consumer", "receive", [b"a"]),
            ("consumer", "processing", [b"a"]),
            ("consumer", "processed", b"a"),  # once it is committed
            ("consumer", "commit", [2]),
            ("consumer", "commit", []),
        ]


class TestBuiltInSteps:
    def test_count_and_report_on_both_sides(
        self, topics: Topics, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
        meters, tracers = MeterProvider([reader]), TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", meters)
        monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", tracers)
        count = put(
            topics,
            *ingress.sent(b"a", b"b", topic=topics.ingress),
            *ingress.sent(b"t", who="thief", topic=topics.ingress),
        )
        steps = [Metrics(), Audit(audit_topic=topics.reports), Trace()]
        guarded(topics, ingress, count, chain=with_first(ingress, *steps), second=Chain(steps))
        measured: Any = reader.get_metrics_data()
        points = {
            (metric.name, point.attributes["messaging.destination.name"]): point.value
            for resource in measured.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
            if metric.name.endswith(".messages")
        }
        meters.shutdown()
        assert points == {
            ("messaging.client.consumed.messages", topics.ingress): 2,
            ("messaging.client.sent.messages", topics.egress): 2,
        }
        reports = [decode_report(each.value()) for each in read(topics, topics.reports)]
        counted = {
            (report.side, row.topic, row.outcome): row.records for report in reports for row in report.counts
        }
        assert counted == {
            ("consumer", topics.ingress, "consumed"): 2,
            ("consumer", topics.ingress, "refused"): 1,
            ("producer", topics.egress, "delivered"): 2,
        }
        found = spans.get_finished_spans()
        processed = {each.context.span_id for each in found if each.name == f"process {topics.ingress}"}
        sent = [each for each in found if each.name == f"send {topics.egress}"]
        assert len(sent) == len(processed) == 2
        assert {each.parent.span_id for each in sent if each.parent is not None} == processed


class TestThePage:
    def test_s_second_chain_transforms_validates_and_routes(
        self, embedded: EmbeddedCluster, topics: Topics, ingress: Ingress, tmp_path: Path
    ) -> None:
        section = (ROOT / "docs/guard.md").read_text().partition("### Transform, validate and route")[2]
        (tmp_path / "second.toml").write_text(section.partition("```\n")[2].partition("```")[0])
        for size in ("small", "large"):
            embedded.create_topic(f"{topics.egress}-{size}")
        order = b'{"customer": "Ann", "price": %d, "count": 2}'
        count = 0
        for value, options in (
            (order % 5, {}),
            (order % 90_000, {}),
            (b'{"customer": "Bob", "count": 2}', {}),
            (b"no JSON", {}),
            (order % 7, {"headers": [("origin", b"load test")]}),
            (order % 9, {"who": "thief"}),
        ):
            count += put(topics, *ingress.sent(value, topic=topics.ingress, **options))
        first = with_first(ingress, Serialize(key="string", value="json"))
        status = guarded(topics, ingress, count, chain=first, second=load_chain(tmp_path / "second.toml"))
        assert (status.admitted, status.dropped) == ({topics.ingress: 2}, {topics.ingress: 1})
        for size, total in (("small", 10), ("large", 180_000)):
            (message,) = read(topics, f"{topics.egress}-{size}")
            sent = json.loads(message.value() or b"")
            assert (sent["customer"], sent["total"], message.key()) == ("", total, b"k")
        letters = [each.value() for each in read(topics, topics.letters)]
        assert letters == [b'{"customer": "Bob", "count": 2}', b"no JSON", order % 9]
        assert read(topics, topics.egress) == []


class TestAFlood:
    @pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is Linux's")
    def test_of_headers_takes_the_memory_of_one_record(self, topics: Topics, ingress: Ingress) -> None:
        """Each takes 14 MB in librdkafka alone, and a batch has up to 500."""
        flood = Record("flood", b"v", b"k").replace(headers=[("a", b"")] * 100_000)
        count = put(topics, *[flood] * 20, *ingress.sent(b"a", topic=topics.ingress))
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        status = guarded(topics, ingress, count)
        assert resident("VmHWM") - before < 120
        assert status.refused == {topics.ingress: {"guard: InterceptorError": 20}}
        assert [each.value() for each in read(topics, topics.egress)] == [b"a"]
        letter = read(topics, topics.letters)[0]
        reason = read_reason(letter.headers())
        assert reason is not None
        assert "the record has 100,000 headers, and max_headers is 1,000" in (reason.reason or "")
        assert not any(name == "a" for name, _ in letter.headers())


def resident(name: str) -> float:
    """Return a size of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1_000 for line in lines if line.startswith(f"{name}:"))
