"""What is sent while a record is processed carries on from it: all ways to process, and all ways to send."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition

from headerware import Chain, Headers, Record, carrying
from headerware.cli import main
from headerware.clients import Consumer, Producer, SerializingProducer
from headerware.clients.aio import AsyncConsumer, AsyncProducer
from headerware.interceptors import Sign, Trail, read_trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.serdes import Text
from tests.unit.clients.conftest import MakeConsumer, take
from tests.unit.clients.test_aio import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    from headerware.testing import EmbeddedCluster

COUNT = 40
CHAIN = Chain([Trail(service="middle")], carry=["id"])


@pytest.fixture
def out(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("out")
    embedded_cluster.create_topic(name, partitions=1)
    return name


@pytest.fixture
def filled(connection: dict[str, Any], topic: str) -> str:
    """Return a topic with records whose header ``id`` is their value, and which have a trail."""
    with Producer(connection, chain=Chain([Trail(service="first")])) as producer:
        for number in range(COUNT):
            own = {"id": str(number), "tenant": "north"}
            producer.produce(topic, str(number), key=str(number), partition=0, headers=own)
    return topic


@pytest.fixture
def producer(connection: dict[str, Any]) -> Iterator[Producer]:
    with Producer(connection, chain=CHAIN) as producer:
        yield producer


@pytest.fixture
def consumer(make_consumer: MakeConsumer, filled: str) -> Consumer:
    return make_consumer(Trail(service="middle"), topic=filled)


@pytest.fixture
def implicit(make_consumer: MakeConsumer, filled: str) -> Consumer:
    return make_consumer(Trail(service="middle"), topic=filled, headerware_processing="implicit")


@pytest.fixture
def written(connection: dict[str, Any], out: str) -> Callable[..., list[tuple[bytes | None, Headers]]]:
    """Return a function that reads the values and headers of the topic, past any chain."""

    def read(count: int, topic: str = out) -> list[tuple[bytes | None, Headers]]:
        reader = confluent_kafka.Consumer({**connection, "group.id": topic, "auto.offset.reset": "earliest"})
        reader.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[bytes | None, Headers]] = []
        deadline = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} records"
            for message in reader.consume(count - len(found), 0.2):
                assert message.error() is None
                found.append((message.value(), Headers(message.headers())))
        reader.close()
        return found

    return read


def hops(headers: Headers) -> list[str | None]:
    return [entry.by_whom for entry in read_trail(headers)]


def check(found: list[tuple[bytes | None, Headers]], count: int = COUNT) -> None:
    """Each record was sent with the value of the one that it carries on from, and has that one's header."""
    assert sorted(int(value or b"") for value, _ in found) == list(range(count))
    for value, headers in found:
        assert headers.all("id") == (value,)
        assert hops(headers) == ["first", "middle"]
        assert "tenant" not in headers


class TestProcessing:
    def test_a_block(self, consumer: Consumer, producer: Producer, out: str, written: Any) -> None:
        for message in take(consumer, COUNT):
            with consumer.processing(message):
                producer.produce(out, message.value())
        producer.produce(out, b"behind")
        producer.flush()
        *found, (_, headers) = written(COUNT + 1)
        check(found)
        assert headers.names() == ("hw.trail",)
        assert hops(headers) == ["middle"]

    def test_a_loop(self, consumer: Consumer, producer: Producer, out: str, written: Any) -> None:
        for number, message in enumerate(consumer.messages(30), 1):
            producer.produce(out, message.value())
            if number == COUNT:
                break
        producer.flush()
        check(written(COUNT))

    def test_workers(self, consumer: Consumer, producer: Producer, out: str, written: Any) -> None:
        together = threading.Barrier(8)
        ended: list[bytes | None] = []

        def handle(message: Message) -> None:
            together.wait(60)  # eight records are at work at once
            producer.produce(out, message.value())
            ended.append(message.value())
            if len(ended) == COUNT:
                consumer.stop()

        consumer.run(handle, workers=8, order="none")
        producer.flush()
        check(written(COUNT))

    def test_implicitly(self, implicit: Consumer, producer: Producer, out: str, written: Any) -> None:
        for _ in range(COUNT):
            (message,) = take(implicit, 1)
            producer.produce(out, message.value())
        implicit.poll(0)
        producer.produce(out, b"behind")
        producer.flush()
        *found, (_, headers) = written(COUNT + 1)
        check(found)
        assert headers.names() == ("hw.trail",)

    def test_implicitly_beside_an_interceptor_that_hears_of_it(
        self, make_consumer: Any, filled: str, producer: Producer, out: str, written: Any
    ) -> None:
        class Hears:
            def on_processed(self, record: Record, error: BaseException | None) -> None: ...

        consumer = make_consumer(
            Trail(service="middle"), Hears(), topic=filled, headerware_processing="implicit"
        )
        for _ in range(COUNT):
            (message,) = take(consumer, 1)
            producer.produce(out, message.value())
        producer.flush()
        check(written(COUNT))

    def test_a_batch_carries_on_what_all_records_share(
        self, implicit: Consumer, connection: dict[str, Any], out: str, written: Any
    ) -> None:
        found: list[Message] = []
        while len(found) < 2:
            found = implicit.consume(COUNT, 10)
        with Producer(connection, chain=Chain([Trail(service="middle")], carry=["id", "tenant"])) as producer:
            producer.produce(out, b"all")
        ((_, headers),) = written(1)
        assert headers.all("tenant") == (b"north",)
        assert "id" not in headers
        assert hops(headers) == ["middle"]

    def test_a_fetch_that_brings_nothing_leaves_the_surrounding_record_at_work(
        self, implicit: Consumer, producer: Producer, out: str, written: Any
    ) -> None:
        messages = take(implicit, COUNT)
        for message in messages:
            with carrying(message):
                assert implicit.consume(1, 0) == []
                producer.produce(out, message.value())
        producer.flush()
        check(written(COUNT))

    def test_without_a_chain_nothing_is_at_work(
        self, connection: dict[str, Any], filled: str, producer: Producer, out: str, written: Any
    ) -> None:
        with Consumer({**connection, "group.id": out, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(filled, 0)])
            (message,) = take(consumer, 1)
            with consumer.processing(message):
                producer.produce(out, b"1")
        producer.flush()
        assert hops(written(1)[0][1]) == ["middle"]

    def test_a_consumer_without_interceptors_leaves_no_entry(
        self, connection: dict[str, Any], filled: str, producer: Producer, out: str, written: Any
    ) -> None:
        conf = {**connection, "group.id": out, "auto.offset.reset": "earliest"}
        with Consumer({**conf, "headerware.processing": "explicit"}) as consumer:
            consumer.assign([TopicPartition(filled, 0)])
            (message,) = take(consumer, 1)
            with consumer.processing(message):
                producer.produce(out, b"1")
        producer.flush()
        ((_, headers),) = written(1)
        first, second = read_trail(headers)
        assert (first.produced_into_topic, second.produced_into_topic) == (filled, out)
        assert second.read_from_topic is None

    def test_a_block_for_frameworks(
        self, consumer: Consumer, producer: Producer, out: str, written: Any
    ) -> None:
        messages = take(consumer, COUNT)

        def handle(message: Message) -> None:
            with carrying(message):
                producer.produce(out, message.value())

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(handle, messages))
        producer.flush()
        check(written(COUNT))

    def test_another_thread_needs_a_copy_of_the_context(
        self, consumer: Consumer, producer: Producer, out: str, written: Any
    ) -> None:
        (message,) = take(consumer, 1)
        with consumer.processing(message), ThreadPoolExecutor(1) as threads:
            threads.submit(producer.produce, out, b"without").result()
            threads.submit(contextvars.copy_context().run, producer.produce, out, b"with").result()
        producer.flush()
        (_, without), (_, with_copy) = written(2)
        assert "id" not in without
        assert with_copy.last("id") == message.value()


class TestAsyncio:
    def test_tasks_of_run_side_by_side(
        self, connection: dict[str, Any], filled: str, out: str, written: Any
    ) -> None:
        async def main() -> None:
            conf = {**connection, "group.id": out, "auto.offset.reset": "earliest"}
            consumer = AsyncConsumer(conf, chain=CHAIN)
            await consumer.assign([TopicPartition(filled, 0)])
            at_work: list[bytes | None] = []
            all_at_work = asyncio.Event()
            async with AsyncProducer(connection, chain=CHAIN) as producer:

                async def handle(message: Message) -> None:
                    at_work.append(message.value())
                    if len(at_work) == COUNT:
                        all_at_work.set()
                        consumer.stop()
                    await all_at_work.wait()
                    await (await producer.produce(out, message.value()))

                await consumer.run(handle, workers=COUNT, order="none")
            await consumer.close()

        run(main())
        check(written(COUNT))

    def test_implicitly_in_tasks_side_by_side(
        self, connection: dict[str, Any], topic: str, filled: str, out: str, written: Any, unique_topic: Any
    ) -> None:
        async def read(consumer: AsyncConsumer, producer: AsyncProducer, lock: asyncio.Lock) -> None:
            while True:
                async with lock:
                    message = await consumer.poll(5)
                if message is None or message.value() == b"end":
                    return
                await asyncio.sleep(0)  # the other task polls meanwhile
                await producer.produce(out, message.value())

        async def main() -> None:
            settings = {"group.id": out, "auto.offset.reset": "earliest", "headerware.processing": "implicit"}
            consumer = AsyncConsumer({**connection, **settings}, chain=CHAIN)
            await consumer.assign([TopicPartition(filled, 0)])
            async with AsyncProducer(connection, chain=CHAIN) as producer:
                lock = asyncio.Lock()
                await asyncio.gather(*(read(consumer, producer, lock) for _ in range(2)))
                await producer.produce(out, b"behind")
                await producer.flush()
            await consumer.close()

        with Producer(connection, chain=Chain()) as plain:
            plain.produce(topic, b"end", partition=0)
            plain.produce(topic, b"end", partition=0)
        run(main())
        *found, (_, headers) = written(COUNT + 1)
        check(found)
        assert headers.names() == ("hw.trail",)

    def test_a_record_that_goes_by_a_thread(
        self, connection: dict[str, Any], consumer: Consumer, out: str, written: Any
    ) -> None:
        (message,) = take(consumer, 1)

        async def main() -> None:
            async with AsyncProducer({**connection, "message.max.bytes": 2_000_000}, chain=CHAIN) as producer:
                with consumer.processing(message):
                    await producer.produce(out, b"x" * 500_000)

        run(main())
        assert written(1)[0][1].last("id") == message.value()


class TestWaysToSend:
    @pytest.fixture
    def message(self, consumer: Consumer) -> Message:
        return take(consumer, 1)[0]

    def test_many(
        self, consumer: Consumer, message: Message, producer: Producer, out: str, written: Any
    ) -> None:
        with consumer.processing(message):
            assert producer.produce_many(out, [Record(out, b"0"), {"value": b"1"}]) == [None, None]
            assert producer.produce_batch(out, [{"value": b"2"}, {"value": b"3", "headers": {"a": "1"}}]) == 2
        producer.flush()
        for _, headers in written(4):
            assert headers.last("id") == message.value()
            assert hops(headers) == ["first", "middle"]

    def test_serializing(
        self, connection: dict[str, Any], consumer: Consumer, message: Message, out: str, written: Any
    ) -> None:
        conf = {**connection, "value.serializer": Text()}
        with SerializingProducer(conf, chain=CHAIN) as producer, consumer.processing(message):
            producer.produce(out, value="text")
        ((value, headers),) = written(1)
        assert (value, headers.last("id"), hops(headers)) == (b"text", message.value(), ["first", "middle"])

    def test_in_a_transaction(
        self, connection: dict[str, Any], consumer: Consumer, message: Message, out: str, written: Any
    ) -> None:
        with Producer({**connection, "transactional.id": out}, chain=CHAIN) as producer:
            producer.init_transactions(30)
            producer.begin_transaction()
            with consumer.processing(message):
                producer.produce(out, b"1")
            producer.commit_transaction(30)
        ((_, headers),) = written(1)
        assert (headers.last("id"), hops(headers)) == (message.value(), ["first", "middle"])

    def test_only_what_the_chain_carries_without_interceptors(
        self, connection: dict[str, Any], consumer: Consumer, message: Message, out: str, written: Any
    ) -> None:
        with (
            Producer(connection, chain=Chain(carry=["id"])) as carries,
            Producer(connection, chain=Chain()) as plain,
            consumer.processing(message),
        ):
            carries.produce(out, b"1", partition=0)
            carries.flush()
            plain.produce(out, b"2", partition=0)
        (_, carried), (_, not_carried) = written(2)
        assert list(carried) == [("id", message.value())]
        assert not not_carried

    def test_a_report_shows_what_the_application_sent(
        self, consumer: Consumer, message: Message, producer: Producer, out: str
    ) -> None:
        shown: list[Any] = []
        with consumer.processing(message):
            producer.produce(out, b"1", headers={"a": "1"}, callback=lambda _, sent: shown.append(sent))
        producer.flush()
        assert shown[0].headers() == [("a", b"1")]


class TestVerified:
    def test_what_no_signature_covers_is_not_carried_on(
        self, connection: dict[str, Any], topic: str, out: str, tmp_path: Path, written: Any
    ) -> None:
        edit_keyring(tmp_path / "keys.json", lambda ring: with_new_key(ring, "k", "ed25519"), create=True)
        sign = Sign(keyring=str(tmp_path / "keys.json"), key_id="k", require="enforce", uncovered="pass")
        with Producer(connection, chain=Chain([Trail(service="first"), sign])) as producer:
            producer.produce(topic, b"1", partition=0, headers={"tenant": "north"})
        ((value, signed),) = written(1, topic)
        with Producer(connection, chain=Chain()) as forger:
            # Behind the signature, where adding a header takes no key.
            plain: Any = confluent_kafka.Producer(connection)
            plain.produce(topic, value, partition=0, headers=[*signed, ("id", b"forged")])
            plain.flush()
            forger.flush()
        conf = {**connection, "group.id": out, "auto.offset.reset": "earliest"}
        chain = Chain([Trail(service="middle"), sign], carry=["*"])
        with Consumer(conf, chain=chain) as consumer, Producer(connection, chain=chain) as producer:
            consumer.assign([TopicPartition(topic, 0, 1)])
            (message,) = take(consumer, 1)
            assert ("id", b"forged") in (message.headers() or [])
            with consumer.processing(message):
                producer.produce(out, b"1")
        ((_, headers),) = written(1)
        assert (headers.last("tenant"), hops(headers)) == (b"north", ["first", "middle"])
        assert "id" not in headers


UNTOUCHED = """
import sys
from confluent_kafka import Consumer, Producer

servers, source, target, count = sys.argv[1:]
conf = {"bootstrap.servers": servers, "log_level": 0}
consumer = Consumer({**conf, "group.id": target, "auto.offset.reset": "earliest"})
producer = Producer(conf)
consumer.subscribe([source])
for _ in range(int(count)):
    message = consumer.poll(60)
    producer.produce(target, message.value())
producer.flush()
consumer.close()
"""


class TestUntouchedApplication:
    def test_carries_on_under_run(
        self, connection: dict[str, Any], filled: str, out: str, tmp_path: Path, written: Any
    ) -> None:
        chain = 'carry = "id"\n[[interceptors]]\ntype = "trail"\nservice = "middle"\n'
        (tmp_path / "chain.toml").write_text(chain)
        (tmp_path / "app.py").write_text(UNTOUCHED)
        run_command = Path(sys.executable).parent / "headerware"
        command: list[Any] = [run_command, "run", "--config", tmp_path / "chain.toml"]
        arguments = [connection["bootstrap.servers"], filled, out, str(COUNT)]
        done = subprocess.run(
            [*command, sys.executable, tmp_path / "app.py", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        check(written(COUNT))


class TestTail:
    def test_shows_the_hops_in_their_order(
        self, connection: dict[str, Any], consumer: Consumer, producer: Producer, out: str
    ) -> None:
        (message,) = take(consumer, 1)
        with consumer.processing(message):
            producer.produce(out, b"1", timestamp=1)
        producer.flush()
        servers = [
            "--bootstrap-servers",
            connection["bootstrap.servers"],
            "--from",
            "beginning",
            "--until-end",
        ]
        shown = CliRunner().invoke(main, ["tail", out, *servers, "--plain"], env={"HEADERWARE_CONFIG": ""})
        assert shown.exit_code == 0, shown.output
        first, second = (line for line in shown.stdout.splitlines() if "produced into" in line)
        assert re.search(r" first +produced into ", first)
        assert re.search(rf" middle +read from .*, produced into .*/{out}$", second)
        as_json = CliRunner().invoke(main, ["tail", out, *servers, "--json"], env={"HEADERWARE_CONFIG": ""})
        entries = json.loads(as_json.stdout)["result"]["trail"]["entries"]
        assert [entry["by_whom"] for entry in entries] == ["first", "middle"]
