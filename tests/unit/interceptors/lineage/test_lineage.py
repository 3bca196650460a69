"""The interceptor in clients' chains: the events that a receiver gets, by the library's own schema."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError, Consumer, Context, Producer, Record, RecordMetadata
from headerware.interceptors import Lineage, Trail
from tests.openlineage_events import Told, read_event, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.testing import EmbeddedCluster
    from tests.openlineage_events import Events

CONTEXT = Context(client_id="shop", bootstrap_servers="broker:9093")


class TestLineage:
    def test_counts_what_was_stored_and_read(self, events: Events) -> None:
        with Chain([Lineage(job_namespace="sales")]).open(CONTEXT) as session:
            session.consume([Record("orders", b"v", offset=offset) for offset in range(3)])
            (sent,) = session.send([Record("bills", b"v")])
            session.acknowledge(sent, RecordMetadata("bills", 0, 0), None)
            session.acknowledge(sent, RecordMetadata("bills", 0), OSError())
        start, complete = map(told, events.wait(2))
        assert start._replace(kind="COMPLETE") == complete
        assert complete == Told(
            "COMPLETE", "sales/shop", {"kafka://broker:9093/orders": 3}, {"kafka://broker:9093/bills": 1}
        )

    def test_takes_names_from_its_options_first(self, events: Events, monkeypatch: Any) -> None:
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "fleet")
        lineage = Lineage(service="ship", dataset_namespace="kafka://public:9092")
        with Chain([lineage]).open(CONTEXT) as session:
            session.consume([Record("orders", b"v", offset=0)])
        found = told(events.wait(2)[-1])
        assert (found.job, set(found.inputs)) == ("fleet/ship", {"kafka://public:9092/orders"})

    def test_does_not_count_what_another_step_refuses(self, events: Events) -> None:
        class Refusing:
            def on_consume(self, record: Record) -> Record:
                if record.topic == "bad":
                    raise ValueError
                return record

        with Chain([Refusing(), Lineage(service="ship")]).open(CONTEXT) as session:
            session.consume_outcomes([Record("bad", b"v", offset=0), Record("good", b"v", offset=0)])
        assert set(told(events.wait(2)[-1]).inputs) == {"kafka://broker:9093/good"}

    def test_reports_nothing_without_a_client(self, events: Events) -> None:
        with Chain([Lineage()]).open(Context()) as session:
            session.consume([Record("orders", b"v", offset=0)])
            assert "events" not in session.stats()["lineage"]
        assert not events.path.exists()

    def test_counts_its_events(self, events: Events) -> None:
        with Chain([Lineage()]).open(CONTEXT) as session:
            session.consume([Record("orders", b"v", offset=0)])
            events.wait(1)
            assert session.stats()["lineage"].items() >= {"events_failed": 0, "events_dropped": 0}.items()
        events.wait(2)

    def test_refuses_a_configuration_that_openlineage_refuses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")  # and no path of a file
        with pytest.raises(ConfigError, match=r"OpenLineage's client refuses its configuration \(Runt"):
            Chain([Lineage()]).open(CONTEXT)

    def test_is_not_loaded_with_its_package(self) -> None:
        code = "import sys, headerware.interceptors.lineage; print('openlineage' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"

    def test_says_what_to_install_without_openlineage(self) -> None:
        code = (
            "import sys; sys.modules['openlineage'] = None\n"
            "from headerware import Chain, Context\n"
            "from headerware.core.errors import MissingPartError\n"
            "from headerware.interceptors import Lineage\n"
            "try: Chain([Lineage()]).open(Context(bootstrap_servers='broker'))\n"
            "except MissingPartError as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("lineage needs openlineage-python: ")
        assert "[lineage]" in done.stdout


class TestClients:
    def test_of_one_service_are_one_run(
        self, events: Events, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        orders, bills = unique_topic("orders"), unique_topic("bills")
        servers = embedded_cluster.bootstrap_servers
        for topic in (orders, bills):
            embedded_cluster.create_topic(topic)
        chain = Chain([Lineage(service="billing", job_namespace="sales"), Trail(service="billing")])
        reading = {"bootstrap.servers": servers, "group.id": orders, "auto.offset.reset": "earliest"}
        with Producer({"bootstrap.servers": servers}) as shop:
            shop.produce(orders, b"v")
        with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
            consumer = Consumer(reading, chain=chain)
            consumer.subscribe([orders])
            while (message := consumer.poll(60)) is None or message.error():
                pass
            producer.produce(bills, message.value(), headers=message.headers())
            producer.flush(60)
            consumer.close()
        found = events.wait(2)
        namespace = f"kafka://{servers.split(',')[0]}"
        assert told(found[-1]) == Told(
            "COMPLETE", "sales/billing", {f"{namespace}/{orders}": 1}, {f"{namespace}/{bills}": 1}
        )
        assert len({event.run.runId for event in found}) == 1

    def test_send_the_rest_when_the_process_ends(
        self, events: Events, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        embedded_cluster.create_topic(topic)
        program = (
            "import sys\n"
            "from headerware import Producer\n"
            "producer = Producer({'bootstrap.servers': sys.argv[1], 'interceptors': 'lineage',\n"
            "    'interceptors.lineage.service': 'shop'})\n"
            "producer.produce(sys.argv[2], b'v')\n"
            "assert producer.flush(60) == 0\n"
        )
        subprocess.run(
            [sys.executable, "-c", program, embedded_cluster.bootstrap_servers, topic], check=True, timeout=60
        )
        assert [told(event).kind for event in events.read()] == ["START", "COMPLETE"]


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        taken: list[Any] = self.server.taken  # type: ignore[attr-defined]  # set by the fixture
        taken.append((self.path, json.loads(self.rfile.read(length))))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


@pytest.fixture
def receiver() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), _Receiver)
    server.taken = []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class TestReceivers:
    def test_get_the_events_over_http(self, receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from headerware.interceptors.lineage import reporter  # noqa: PLC0415 - the one of this process

        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{receiver.server_port}")
        with Chain([Lineage(service="ship")]).open(CONTEXT) as session:
            session.consume([Record("orders", b"v", offset=0)])
            current = reporter._current
            assert current is not None
        assert current.close(30)
        assert [path for path, _ in receiver.taken] == ["/api/v1/lineage"] * 2
        assert [told(read_event(document)).kind for _, document in receiver.taken] == ["START", "COMPLETE"]
