"""A chain whose file changes while clients run: nothing is lost, doubled or half done; mistakes stay out."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import TopicPartition

from headerware import (
    AsyncConsumer,
    AsyncProducer,
    Chain,
    ConfigError,
    Context,
    Interceptor,
    KeyringError,
    Record,
)
from headerware.clients import Consumer, DeserializingConsumer, Producer, SerializingProducer, live_chain
from headerware.clients.sessions import Sessions
from headerware.core.errors import MissingPartError
from headerware.core.plugins import interceptor_type
from headerware.interceptors import Dedup, Slice
from headerware.keyring import Keyring, encode_keyring, with_new_key
from headerware.keyring.writing import edit_keyring
from tests.committing import commit_stored
from tests.unit.clients.conftest import take, values
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

SLICE = '[[interceptors]]\ntype = "slice"\nmax_bytes = 2000\n'
NOTHING = "interceptors = []\n"
OF_SUBJECTS = 'key_of = "header:a"\nsubject_keys = { type = "topic", topic = "subjects" }\n'
DEDUP = '[[interceptors]]\ntype = "dedup"\n'


class Stamp(Interceptor, frozen=True, kw_only=True):
    """Writes its generation into each record, and keeps what its opened objects were told."""

    type: ClassVar[str] = "stamp"
    opened: ClassVar[list[OpenStamp]] = []

    generation: int = 0
    fails: bool = False

    def open(self, context: Context) -> Any:
        if self.fails:
            raise KeyringError("the key is not there")
        step = OpenStamp(self.name or self.type, self.generation)
        self.opened.append(step)
        return step


class OpenStamp:
    def __init__(self, name: str, generation: int) -> None:
        self.name, self.generation = name, generation
        self.acknowledged: list[Record] = []
        self.committed: list[Any] = []
        self.closed = 0

    def on_send(self, record: Record) -> Record:
        assert not self.closed
        return record.with_headers(record.headers.add(self.name, str(self.generation))).with_local(
            self.name, self.generation
        )

    def on_consume(self, record: Record) -> Record:
        assert not self.closed
        return record.with_headers(record.headers.add(f"read-{self.name}", str(self.generation)))

    def on_acknowledgement(self, record: Record, metadata: Any, error: Any) -> None:
        assert not self.closed
        self.acknowledged.append(record)

    def on_commit(self, offsets: Any) -> None:
        assert not self.closed
        self.committed.extend(offsets)

    def close(self) -> None:
        self.closed += 1


def stamps(generation: int, *names: str) -> str:
    return "".join(
        f'[[interceptors]]\ntype = "stamp"\nname = "{name}"\ngeneration = {generation}\n'
        for name in names or ("stamp",)
    )


def write(path: Path, text: str) -> None:
    """Replace a file at once, as editors and deployments do."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def of_records(message: Message, *names: str) -> list[Any]:
    headers = dict(message.headers() or [])
    return [headers.get(name) for name in names]


def gather(consumer: Consumer, found: list[Message], count: int, batch: int) -> None:
    """Consume in batches until so many messages are there, refused ones too."""
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} messages came"
        found += consumer.consume(batch, 0.2)


def has_reloaded(client: Any, times: int = 1) -> Callable[[], bool]:
    return lambda: client.stats()["client"]["reloads"] == times


@pytest.fixture(autouse=True)
def stamping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(interceptor_type._built_in, "stamp", f"{__name__}:Stamp")
    for name in ("HEADERWARE_CONFIG", "HEADERWARE_RELOAD", "HEADERWARE_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    Stamp.opened.clear()
    yield
    until(lambda: not live_chain._followers)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chain.toml"
    path.write_text(stamps(1))
    return path


@pytest.fixture
def clients(connection: dict[str, Any], file: Path, unique_topic: Callable[[str], str]) -> Iterator[Any]:
    """Return a function that makes a client of a class, with the file for its chain."""
    made: list[Any] = []
    group = unique_topic("group")

    def make(kind: Any, reload: str = "off", *, topic: str | None = None, **conf: Any) -> Any:
        settings = {**connection, "headerware.config": str(file), "headerware.reload": reload, **conf}
        if issubclass(kind, Consumer):
            settings |= {"group.id": group, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        client = kind(settings)
        made.append(client)
        if topic is not None:
            client.assign([TopicPartition(topic, 0)])
        return client

    yield make
    for client in made:
        client.close()


class TestReload:
    def test_the_next_record_goes_through_the_new_chain(
        self, clients: Any, file: Path, topic: str, make_consumer: Any
    ) -> None:
        producer = clients(Producer)
        producer.produce(topic, b"1", partition=0)
        write(file, stamps(2))
        assert producer.reload() is True
        producer.produce(topic, b"2", partition=0)
        producer.flush()
        found = take(make_consumer(topic=topic), 2)
        assert [of_records(message, "stamp") for message in found] == [[b"1"], [b"2"]]

    def test_an_equal_chain_changes_nothing(self, clients: Any, file: Path) -> None:
        producer = clients(Producer)
        write(file, f"# a remark\n{stamps(1)}")
        before = producer.chain_in_force()
        assert producer.reload() is False
        assert len(Stamp.opened) == 1
        assert producer.chain_in_force().digest != before.digest

    def test_a_consumer_reads_on_with_the_new_chain(
        self, clients: Any, file: Path, topic: str, fill: Any
    ) -> None:
        fill(b"1", b"2")
        consumer = clients(Consumer, topic=topic)
        first = take(consumer, 1)
        write(file, stamps(2))
        assert consumer.reload() is True
        second = take(consumer, 1)
        assert [of_records(found[0], "read-stamp") for found in (first, second)] == [[b"1"], [b"2"]]

    def test_a_bad_file_raises_and_the_present_chain_goes_on(
        self, clients: Any, file: Path, topic: str
    ) -> None:
        producer = clients(Producer)
        write(file, '[[interceptors]]\ntype = "stmp"\n')
        with pytest.raises(ConfigError, match="did you mean 'stamp'"):
            producer.reload()
        producer.produce(topic, b"1")
        producer.flush()
        (step,) = Stamp.opened
        assert len(step.acknowledged) == 1
        stats = producer.stats()["client"]
        assert (stats["reloads"], stats["reload_failures"]) == (0, 1)
        assert "stmp" in producer.chain_in_force().failure

    def test_an_interceptor_that_cannot_be_opened_leaves_the_others_as_they_were(
        self, clients: Any, file: Path, topic: str
    ) -> None:
        producer = clients(Producer)
        write(file, stamps(1) + '[[interceptors]]\ntype = "stamp"\nname = "bad"\nfails = true\n')
        with pytest.raises(KeyringError):
            producer.reload()
        producer.produce(topic, b"1")
        producer.flush()
        (step,) = Stamp.opened
        assert (len(step.acknowledged), step.closed) == (1, 0)

    def test_an_empty_file_is_one_that_is_being_written(self, clients: Any, file: Path) -> None:
        producer = clients(Producer)
        write(file, "\n")
        with pytest.raises(ConfigError, match="is empty"):
            producer.reload()
        write(file, NOTHING)
        assert producer.reload() is True
        assert len(producer.chain) == 0

    def test_says_what_is_in_force(self, clients: Any, file: Path) -> None:
        producer = clients(Producer)
        found = producer.chain_in_force()
        assert found.path == str(file)
        assert hashlib.sha256(file.read_bytes()).hexdigest().startswith(found.digest)
        assert (found.names, found.reloads, found.failures, found.failure) == (("stamp",), 0, 0, None)
        assert abs(found.loaded_at_ms - time.time() * 1000) < 60_000

    def test_the_clients_own_keys_stay_over_the_file(self, clients: Any, file: Path) -> None:
        producer = clients(Producer, **{"interceptors.stamp.on_error": "drop"})
        write(file, stamps(2))
        producer.reload()
        (interceptor,) = producer.chain.interceptors
        assert (interceptor.generation, interceptor.on_error) == (2, "drop")

    def test_the_serdes_of_a_client_stay(self, clients: Any, file: Path, topic: str) -> None:
        producer = clients(SerializingProducer, **{"value.serializer": "json"})
        consumer = clients(DeserializingConsumer, topic=topic, **{"value.deserializer": "json"})
        write(file, stamps(2))
        assert producer.reload() and consumer.reload()  # noqa: PT018 - both
        producer.produce(topic, value={"a": 1}, partition=0)
        producer.flush()
        (message,) = take(consumer, 1)
        value: Any = message.value()
        assert (value, of_records(message, "stamp", "read-stamp")) == ({"a": 1}, [b"2", b"2"])

    def test_needs_a_file(self, make_producer: Any) -> None:
        with pytest.raises(ConfigError, match="does not come from a file"):
            make_producer().reload()
        assert make_producer().chain_in_force() is None

    def test_a_raw_client_stays_raw(self, clients: Any, file: Path) -> None:
        file.write_text(NOTHING)
        with pytest.raises(ConfigError, match=r"headerware\.reload = watch or signal"):
            clients(Producer).reload()

    def test_a_closed_client_does_not_reload(self, clients: Any) -> None:
        producer = clients(Producer)
        producer.close()
        with pytest.raises(RuntimeError, match="closed"):
            producer.reload()


class TestRecordsInFlight:
    def test_are_acknowledged_to_the_chain_that_sent_them(self, clients: Any, file: Path, topic: str) -> None:
        producer = clients(Producer, **{"linger.ms": 200})
        producer.produce(topic, b"1")
        write(file, stamps(2))
        producer.reload()
        producer.produce(topic, b"2")
        old, new = Stamp.opened
        assert (old.closed, new.closed) == (0, 0)
        producer.flush()
        assert [[record.value for record in each.acknowledged] for each in (old, new)] == [[b"1"], [b"2"]]
        assert old.acknowledged[0].local == {"stamp": 1}
        assert (old.closed, new.closed) == (1, 0)

    def test_nobody_in_flight_closes_at_once(self, clients: Any, file: Path) -> None:
        producer = clients(Producer)
        write(file, stamps(2))
        producer.reload()
        assert [each.closed for each in Stamp.opened] == [1, 0]

    def test_the_end_of_the_client_closes_every_chain_once(
        self, clients: Any, file: Path, topic: str
    ) -> None:
        producer = clients(Producer, **{"linger.ms": 200})
        for generation in (2, 3):
            producer.produce(topic, b"x")
            write(file, stamps(generation))
            producer.reload()
        producer.close()
        assert [each.closed for each in Stamp.opened] == [1, 1, 1]
        assert [len(each.acknowledged) for each in Stamp.opened] == [1, 1, 0]

    def test_a_message_in_slices_stays_with_its_chain(
        self, clients: Any, file: Path, topic: str, make_consumer: Any
    ) -> None:
        """The change comes between two slices: the queue is full, and the callback of a report reloads."""
        file.write_text(stamps(1) + SLICE)
        producer = clients(Producer, **{"queue.buffering.max.messages": 10, "linger.ms": 5})
        reloaded: list[bool] = []

        def reload(error: Any, message: Any) -> None:
            if not reloaded:
                write(file, SLICE + stamps(2))
                reloaded.append(producer.reload())

        for _ in range(8):
            producer.produce(topic, b"small", partition=0, on_delivery=reload)
        producer.produce(topic, b"x" * 9_000, partition=0)
        producer.produce(topic, b"after", partition=0)
        producer.flush()
        assert reloaded == [True]
        slices = [m for m in take(make_consumer(topic=topic), 8 + 5 + 1) if m.value() != b"small"]
        generations = [of_records(message, "stamp")[0] for message in slices]
        assert generations[-1] == b"2"
        assert b"2" not in generations[:-1]

    def test_are_processed_in_the_chain_that_read_them(
        self, clients: Any, file: Path, topic: str, fill: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def on_processed(step: OpenStamp, record: Record, error: BaseException | None) -> None:
            told.append((record.value, step.generation, step.closed))

        def on_stopped(step: OpenStamp, _: str, record: Record, *__: object) -> None:
            told.append((record.value, step.generation, step.closed))

        def handle(message: Message) -> None:
            if message.value() == b"1":
                until(lambda: consumer._hw_executor._progress.pending == 3)
                write(file, stamps(2))
                until(has_reloaded(consumer))
                fill(b"4")
            elif message.value() == b"3":
                raise ValueError
            elif message.value() == b"4":
                consumer.stop()

        told: list[tuple[bytes, int, int]] = []
        monkeypatch.setattr(OpenStamp, "on_processed", on_processed, raising=False)
        monkeypatch.setattr(OpenStamp, "on_stopped", on_stopped, raising=False)
        fill(b"1", b"2", b"3")
        consumer = clients(Consumer, "watch", topic=topic)
        consumer.run(handle, workers=1, on_failure="skip")
        assert told == [(b"1", 1, 0), (b"2", 1, 0), (b"3", 1, 0), (b"3", 1, 0), (b"4", 2, 0)]

    def test_interceptors_are_open_as_long_as_a_message_is_processed(
        self, clients: Any, file: Path, topic: str, fill: Any
    ) -> None:
        fill(b"1")
        consumer = clients(Consumer, topic=topic)
        (message,) = take(consumer, 1)
        with consumer.processing(message):
            write(file, stamps(2))
            consumer.reload()
            assert Stamp.opened[0].closed == 0
        assert [each.closed for each in Stamp.opened] == [1, 0]


class TestUnderLoad:
    def test_no_record_is_lost_doubled_or_under_two_chains(
        self, clients: Any, file: Path, topic: str
    ) -> None:
        """Two threads produce and one consumes, while the chain changes again and again."""
        names = ("left", "right")
        file.write_text(stamps(0, *names))
        producer = clients(Producer, "watch")
        consumer = clients(Consumer, "watch", topic=topic)
        done = threading.Event()
        sent: list[list[bytes]] = [[], []]
        errors: list[BaseException] = []
        reported: Counter[Any] = Counter()

        def produce(thread: int) -> None:
            try:
                while not done.is_set():
                    value = b"%d-%d" % (thread, len(sent[thread]))
                    producer.produce(
                        topic, value, partition=0, on_delivery=lambda e, m: reported.update([m.value()])
                    )
                    sent[thread].append(value)
                    if len(sent[thread]) % 20 == 0:
                        producer.poll(0.005)
            except BaseException as error:  # noqa: BLE001 - it fails the test below
                errors.append(error)

        threads = [threading.Thread(target=produce, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        found: list[Message] = []
        for generation in range(1, 5):
            write(file, stamps(generation, *names))
            deadline = time.monotonic() + 60
            while any(c.stats()["client"]["reloads"] < generation for c in (producer, consumer)):
                assert time.monotonic() < deadline
                found += consumer.consume(100, 0.05)
        done.set()
        for thread in threads:
            thread.join()
        producer.flush()
        everything = Counter(sent[0] + sent[1])
        deadline = time.monotonic() + 60
        while len(found) < len(everything) and time.monotonic() < deadline:
            found += consumer.consume(500, 0.2)
        assert errors == []
        assert Counter(values(found)) == everything == reported
        for prefix in ("", "read-"):
            pairs = {tuple(of_records(m, f"{prefix}left", f"{prefix}right")) for m in found}
            assert {pair[0] for pair in pairs} == {pair[1] for pair in pairs}
            assert all(left == right for left, right in pairs)
            assert len(pairs) > 1
        told = [(step, record) for step in Stamp.opened for record in step.acknowledged]
        assert Counter(record.value for step, record in told if step.name == "left") == everything
        assert all(record.local == dict.fromkeys(names, step.generation) for step, record in told)


class TestReassembly:
    """Of a message only some slices have come when the chain changes."""

    @pytest.fixture
    def interleaved(self, connection: dict[str, Any], topic: str) -> bytes:
        """Put 4 slices of a message into the topic, with whole records between them."""
        large = os.urandom(6_000)
        pieces = Chain([Slice(max_bytes=2_000)]).open(Context()).send([Record(topic, large)])
        with Producer(connection, chain=Chain()) as producer:
            for number, piece in enumerate(pieces):
                producer.produce(topic, piece.value, partition=0, headers=list(piece.headers))
                producer.produce(topic, b"small %d" % number, partition=0)
        return large

    @pytest.mark.parametrize(
        ("after", "reads_again"),
        [
            (stamps(2) + SLICE, False),
            (stamps(1) + SLICE.replace("2000", "3000"), True),
            (stamps(1) + SLICE + stamps(1, "right"), True),
        ],
        ids=["same slice", "other options", "another step on its right"],
    )
    @pytest.mark.parametrize("batch", [1, 3])
    def test_comes_whole_and_once(
        self,
        clients: Any,
        file: Path,
        topic: str,
        interleaved: bytes,
        *,
        after: str,
        reads_again: bool,
        batch: int,
    ) -> None:
        file.write_text(stamps(1) + SLICE)
        consumer = clients(Consumer, topic=topic)
        found: list[Message] = []
        gather(consumer, found, 1, batch)
        assert values(found)[0] == b"small 0"
        write(file, after)
        assert consumer.reload() is True
        gather(consumer, found, 5, batch)
        assert consumer.poll(0.3) is None
        assert sorted(values(found), key=lambda v: len(v or b"")) == [
            *(b"small %d" % number for number in range(4)),
            interleaved,
        ]
        assert (consumer.stats()["client"]["repeated"] > 0) is reads_again
        commit_stored(consumer)
        assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 8

    def test_a_commit_before_they_are_read_again_is_held_back(
        self, clients: Any, file: Path, topic: str, interleaved: bytes
    ) -> None:
        file.write_text(stamps(1) + SLICE)
        consumer = clients(Consumer, topic=topic, **{"enable.auto.commit": False})
        *_, last = take(consumer, 3)
        assert last.value() == b"small 2"
        assert consumer.commit(message=last, asynchronous=False)[0].offset == 0
        for expire_ms in (200_000, 300_000):  # the second time they have not even been read again
            write(file, stamps(1) + f"{SLICE}expire_ms = {expire_ms}\n")
            assert consumer.reload() is True
            assert consumer.commit(message=last, asynchronous=False)[0].offset == 0
        assert values(take(consumer, 2)) == [interleaved, b"small 3"]
        assert consumer.poll(0.3) is None
        assert consumer.commit(asynchronous=False)[0].offset == 8

    def test_without_slice_its_slices_are_refused_not_forgotten(
        self, clients: Any, file: Path, topic: str, interleaved: bytes
    ) -> None:
        file.write_text(stamps(1) + SLICE)
        consumer = clients(Consumer, topic=topic)
        assert values(take(consumer, 1)) == [b"small 0"]
        write(file, stamps(1))
        consumer.reload()
        found: list[Message] = []

        def poll() -> bool:
            message = consumer.poll(0.2)
            if message is not None:
                found.append(message)
            return len(found) >= 7

        until(poll)
        good = [message.value() for message in found if message.error() is None]
        assert good == [b"small 1", b"small 2", b"small 3"]
        refused = [message.offset() for message in found if message.error() is not None]
        assert refused == [0, 2, 4, 6]
        assert interleaved not in good

    def test_what_was_not_given_yet_comes_once(
        self, clients: Any, file: Path, topic: str, connection: dict[str, Any]
    ) -> None:
        """A batch stops at a refused record, and what lies behind it waits when the chain changes."""
        large = os.urandom(3_000)
        pieces = Chain([Slice(max_bytes=2_000)]).open(Context()).send([Record(topic, large)])
        wire = [(piece.value, list(piece.headers)) for piece in pieces]
        records = [wire[0], (b"a", []), (b"bad", [("hw.slice", b"?")]), (b"b", []), *wire[1:], (b"c", [])]
        with Producer(connection, chain=Chain()) as producer:
            for value, headers in records:
                producer.produce(topic, value, partition=0, headers=headers)
        file.write_text(stamps(1) + SLICE)
        consumer = clients(Consumer, topic=topic)
        found: list[Message] = []
        gather(consumer, found, 1, 10)
        assert values(found) == [b"a"]
        write(file, stamps(2) + SLICE.replace("2000", "2500"))
        consumer.reload()
        gather(consumer, found, 5, 10)
        assert consumer.poll(0.3) is None
        assert [message.value() for message in found if message.error() is None] == [b"a", b"b", large, b"c"]
        assert [message.offset() for message in found if message.error() is not None] == [2]

    def test_a_window_of_identities_goes_on(
        self, clients: Any, file: Path, topic: str, connection: dict[str, Any]
    ) -> None:
        (piece,) = Chain([Dedup()]).open(Context()).send([Record(topic, b"once")])
        file.write_text(DEDUP)
        consumer = clients(Consumer, topic=topic)
        with Producer(connection, chain=Chain()) as producer:
            producer.produce(topic, piece.value, partition=0, headers=list(piece.headers))
            producer.flush()
            assert values(take(consumer, 1)) == [b"once"]
            write(file, stamps(2) + DEDUP)
            consumer.reload()
            producer.produce(topic, piece.value, partition=0, headers=list(piece.headers))
            producer.produce(topic, b"twice?", partition=0, headers=list(piece.headers)[:0])
        (message,) = take(consumer, 1)
        assert message.value() == b"twice?"
        assert consumer.stats()["dedup"]["duplicates"] == 1


class TestCommits:
    def test_an_interceptor_that_came_later_hears_of_them(
        self, clients: Any, file: Path, topic: str, fill: Any
    ) -> None:
        file.write_text(SLICE)
        fill(b"1")
        consumer = clients(Consumer, topic=topic, **{"auto.commit.interval.ms": 50})
        write(file, SLICE + stamps(1))
        consumer.reload()
        take(consumer, 1)
        (step,) = Stamp.opened
        until(lambda: consumer.poll(0.05) or step.committed)
        assert [(each.topic, each.offset) for each in step.committed] == [(topic, 1)]


class TestWatching:
    def test_a_producer_takes_up_a_change_by_itself(self, clients: Any, file: Path) -> None:
        producer = clients(Producer, "watch")
        write(file, stamps(2))
        until(has_reloaded(producer))
        assert producer.chain.interceptors[0].generation == 2

    def test_watchfiles_is_quiet_for_us_alone(
        self, clients: Any, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO):
            producer = clients(Producer, "watch")
            write(file, stamps(2))
            until(has_reloaded(producer))
            logging.getLogger("watchfiles.main").info("1 change detected")
        assert [record.threadName for record in caplog.records if record.name.startswith("watchfiles")] == [
            threading.current_thread().name
        ]

    def test_an_empty_chain_may_become_one_and_back(
        self, clients: Any, file: Path, topic: str, make_consumer: Any
    ) -> None:
        file.write_text(NOTHING)
        producer = clients(Producer, "watch")
        consumer = clients(Consumer, "watch", topic=topic)
        for number, text in enumerate([NOTHING, stamps(2), NOTHING]):
            write(file, text)
            until(has_reloaded(producer, number))
            until(partial(lambda reloaded: consumer.poll(0.02) or reloaded(), has_reloaded(consumer, number)))
            producer.produce(topic, b"%d" % number, partition=0)
            producer.flush()
            (message,) = take(consumer, 1)
            expected = b"2" if number == 1 else None
            assert of_records(message, "stamp", "read-stamp") == [expected, expected]

    def test_a_file_that_is_included_counts(self, clients: Any, file: Path) -> None:
        platform = file.with_name("platform.toml")
        platform.write_text(stamps(1))
        file.write_text('include = ["platform.toml"]\n')
        producer = clients(Producer, "watch")
        write(platform, stamps(2))
        until(has_reloaded(producer))
        text = file.read_bytes() + platform.read_bytes()
        assert hashlib.sha256(text).hexdigest().startswith(producer.chain_in_force().digest)

    def test_a_mounted_folder_whose_link_is_replaced(self, clients: Any, file: Path) -> None:
        """As Kubernetes does with a ConfigMap: the file is a link through a link, which is replaced."""
        mount = file.parent / "mount"
        for version in (1, 2):
            (mount / f"..{version}").mkdir(parents=True)
            (mount / f"..{version}" / "chain.toml").write_text(stamps(version))
        (mount / "..data").symlink_to("..1")
        (mount / "chain.toml").symlink_to("..data/chain.toml")
        producer = clients(Producer, "watch", **{"headerware.config": str(mount / "chain.toml")})
        (mount / "..data_tmp").symlink_to("..2")
        (mount / "..data_tmp").replace(mount / "..data")
        until(has_reloaded(producer))
        assert producer.chain.interceptors[0].generation == 2

    def test_a_mistake_is_told_once_and_mended_without_a_restart(
        self, clients: Any, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        producers = [clients(Producer, "watch") for _ in range(2)]
        with caplog.at_level(logging.ERROR, logger="headerware"):
            write(file, "[[interceptors]\n")
            until(lambda: all(p.stats()["client"]["reload_failures"] for p in producers))
            (said,) = [record.getMessage() for record in caplog.records]
        assert "is not TOML" in said
        assert "the chain in force goes on" in said
        assert all(p.chain.interceptors[0].generation == 1 for p in producers)
        write(file, stamps(3))
        until(lambda: all(p.stats()["client"]["reloads"] for p in producers))
        assert producers[0].chain_in_force().failure is None

    def test_a_consumer_that_cannot_open_the_chain_goes_on(
        self, clients: Any, file: Path, topic: str, fill: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer = clients(Consumer, "watch", topic=topic)
        with caplog.at_level(logging.ERROR, logger="headerware"):
            write(file, '[[interceptors]]\ntype = "stamp"\nfails = true\n')
            until(lambda: consumer.poll(0.02) or consumer.stats()["client"]["reload_failures"])
        assert "the key is not there" in caplog.text
        fill(b"1")
        (message,) = take(consumer, 1)
        assert of_records(message, "read-stamp") == [b"1"]

    def test_one_thread_for_all_clients_of_a_file_until_the_last_is_gone(self, clients: Any) -> None:
        made = [clients(Producer, "watch"), clients(Consumer, "watch"), clients(Producer, "watch")]
        (follower,) = live_chain._followers.values()
        running = [thread for thread in threading.enumerate() if thread.name == "headerware-reload"]
        assert running == [follower.thread]
        for client in made:
            client.close()
        follower.thread.join(60)
        assert not follower.thread.is_alive()

    def test_the_thread_does_not_keep_a_client_alive(self, connection: Any, file: Path) -> None:
        producer = Producer({**connection, "headerware.config": str(file), "headerware.reload": "watch"})
        (follower,) = live_chain._followers.values()
        del producer
        follower.thread.join(60)
        assert not follower.thread.is_alive()

    def test_no_thread_unless_asked_for(self, clients: Any) -> None:
        clients(Producer)
        assert not live_chain._followers

    def test_the_environment_may_ask_for_it(
        self, connection: Any, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", str(file))
        monkeypatch.setenv("HEADERWARE_RELOAD", "watch")
        with Producer(connection) as producer:
            write(file, stamps(2))
            until(has_reloaded(producer))


class TestWhatIsLogged:
    @pytest.fixture
    def keyring(self, tmp_path: Path) -> str:
        path = tmp_path / "keys.json"
        path.touch(mode=0o600)
        path.write_bytes(encode_keyring(with_new_key(Keyring(), "k", "hmac-sha256")))
        return str(path)

    def test_a_change_by_names_alone(
        self, clients: Any, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file.write_text(stamps(1, "a", "b", "c"))
        producer = clients(Producer)
        write(file, stamps(1, "b") + stamps(2, "a") + stamps(77, "d"))
        with caplog.at_level(logging.INFO, logger="headerware"):
            producer.reload()
        (said,) = [record.getMessage() for record in caplog.records]
        assert "added d; removed c; changed a; order is b, a, d" in said
        assert producer.chain_in_force().digest in said

    @pytest.mark.parametrize(
        ("line", "said"), [('carry = ["tenant"]', "carry is ['tenant']"), ("carry = false", "carry is off")]
    )
    def test_that_other_headers_are_carried_on(
        self, clients: Any, file: Path, caplog: pytest.LogCaptureFixture, line: str, said: str
    ) -> None:
        producer = clients(Producer)
        write(file, f"{line}\n{file.read_text()}")
        with caplog.at_level(logging.INFO, logger="headerware"):
            assert producer.reload()
        assert f"is in force: {said}" in caplog.text
        assert not producer.reload()
        assert "77" not in said.replace(str(file), "").replace(producer.chain_in_force().digest, "")

    @pytest.mark.parametrize(
        ("after", "expected"),
        [
            (NOTHING, "sign was removed"),
            ('require = "warn"', "sign has require = 'warn', which was 'enforce'"),
            ('topics = ["a"]', "sign works on other topics than before"),
            ("max_age_ms = 10", None),
        ],
    )
    def test_protection_that_is_taken_away(
        self,
        clients: Any,
        file: Path,
        keyring: str,
        after: str,
        expected: str | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        signing = f'[[interceptors]]\ntype = "sign"\nkeyring = "{keyring}"\nkey_id = "k"\n'
        file.write_text(signing)
        producer = clients(Producer)
        write(file, after if after == NOTHING else signing + after)
        with caplog.at_level(logging.WARNING, logger="headerware"):
            assert producer.reload() is True
        warned = [record.getMessage() for record in caplog.records if "protection" in record.getMessage()]
        assert [expected in said for said in warned if expected] == ([True] if expected else [])

    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ('headers = ["a", "b"]', 'headers = ["a"]', "encrypt has fewer names in headers"),
            ('headers = ["a"]', 'headers = ["a", "b"]', None),
            ('bind_headers = ["a"]', "", "encrypt has fewer names in bind_headers"),
            (
                'nulls = "authenticate"',
                'nulls = "pass"',
                "encrypt has nulls = 'pass', which was 'authenticate'",
            ),
            (OF_SUBJECTS, "", "encrypt has no key_of any more"),
        ],
    )
    def test_encryption_that_protects_less(
        self,
        clients: Any,
        file: Path,
        before: str,
        after: str,
        expected: str | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        keys = file.with_name("cards.json")
        edit_keyring(keys, lambda ring: with_new_key(ring, "cards", "aes-256"), create=True)
        encrypting = (
            '[[interceptors]]\ntype = "encrypt"\nkey_id = "cards"\n'
            'key_service = { type = "file", keyring = "cards.json" }\n'
        )
        file.write_text(encrypting + before)
        producer = clients(Producer)
        write(file, encrypting + after)
        with caplog.at_level(logging.WARNING, logger="headerware"):
            assert producer.reload() is True
        warned = [record.getMessage() for record in caplog.records if "protection" in record.getMessage()]
        assert [said.rpartition("protection away: ")[2] for said in warned] == (
            [expected] if expected else []
        )

    def test_a_trail_that_is_no_longer_signed(
        self, clients: Any, file: Path, keyring: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        trail = '[[interceptors]]\ntype = "trail"\nservice = "k"\n'
        file.write_text(f'{trail}signed = true\nkeyring = "{keyring}"\n')
        producer = clients(Producer)
        write(file, trail)
        with caplog.at_level(logging.WARNING, logger="headerware"):
            assert producer.reload() is True
        assert "trail has signed = False, which was True" in caplog.text

    def test_a_file_that_others_can_write(
        self, clients: Any, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file.chmod(0o666)
        with caplog.at_level(logging.WARNING, logger="headerware"):
            clients(Producer, "watch")
            clients(Producer, "watch")
        (said,) = [record.getMessage() for record in caplog.records]
        assert "can be written by others (mode 0666)" in said

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_a_file_that_belongs_to_another(
        self, clients: Any, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        os.chown(file, 12345, -1)
        with caplog.at_level(logging.WARNING, logger="headerware"):
            clients(Producer, "watch")
        (said,) = [record.getMessage() for record in caplog.records]
        assert "belongs to user 12345" in said


class TestAsyncio:
    """The clients of asyncio, which take the new chain on their own thread."""

    @pytest.fixture
    def settings(self, connection: dict[str, Any], file: Path) -> dict[str, Any]:
        return {**connection, "headerware.config": str(file), "client.id": "shop-1"}

    def test_a_producer_reloads(
        self,
        settings: dict[str, Any],
        file: Path,
        topic: str,
        make_consumer: Any,
        caplog: pytest.LogCaptureFixture,
    ) -> None:

        async def main() -> None:
            async with AsyncProducer(settings) as producer:
                await producer.produce(topic, b"1", partition=0)
                write(file, stamps(2))
                with caplog.at_level(logging.INFO, logger="headerware"):
                    assert await producer.reload() is True
                assert await producer.reload() is False
                await producer.produce(topic, b"2", partition=0)
                await producer.flush()
                found = producer.chain_in_force()
                assert found is not None
                assert (found.names, found.reloads) == (("stamp",), 1)
                write(file, '[[interceptors]]\ntype = "stmp"\n')
                with pytest.raises(ConfigError, match="did you mean 'stamp'"):
                    await producer.reload()
            with pytest.raises(RuntimeError, match="closed"):
                await producer.reload()
            messages = take(make_consumer(topic=topic), 2)
            assert [of_records(message, "stamp") for message in messages] == [[b"1"], [b"2"]]
            (said,) = [
                record.getMessage() for record in caplog.records if "is in force" in record.getMessage()
            ]
            assert said.startswith("AsyncProducer shop-1: ")

        asyncio.run(asyncio.wait_for(main(), 60))

    @pytest.mark.parametrize("how", ["poll", "run"])
    def test_a_consumer_reloads_while_it_fetches(
        self,
        settings: dict[str, Any],
        file: Path,
        topic: str,
        fill: Any,
        how: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:

        async def main() -> None:
            found: asyncio.Queue[Message] = asyncio.Queue()
            fill(b"1")
            conf = {**settings, "group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
            async with AsyncConsumer(conf) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])

                async def fetch() -> None:
                    if how == "run":
                        await consumer.run(found.put)
                    while True:
                        await found.put(await consumer.poll())  # type: ignore[arg-type]  # it waits for ever

                fetching = asyncio.create_task(fetch())
                first = await found.get()
                write(file, stamps(2))
                with caplog.at_level(logging.INFO, logger="headerware"):
                    assert await consumer.reload() is True  # while the next fetch waits for a record
                in_force = consumer.chain_in_force()
                assert in_force is not None
                assert in_force.reloads == 1
                fill(b"2")
                second = await found.get()
                fetching.cancel()
                await asyncio.wait([fetching])
            assert [of_records(each, "read-stamp") for each in (first, second)] == [[b"1"], [b"2"]]
            (said,) = [
                record.getMessage() for record in caplog.records if "is in force" in record.getMessage()
            ]
            assert said.startswith("AsyncConsumer shop-1: ")

        asyncio.run(asyncio.wait_for(main(), 60))

    def test_needs_a_file(self, connection: dict[str, Any]) -> None:

        async def main() -> None:
            async with AsyncProducer(connection) as producer:
                assert producer.chain_in_force() is None
                with pytest.raises(ConfigError, match="does not come from a file"):
                    await producer.reload()

        asyncio.run(asyncio.wait_for(main(), 60))


class TestSettings:
    @pytest.mark.parametrize("value", ["yes", "", True, 3])
    def test_another_word_is_refused(self, connection: Any, file: Path, value: object) -> None:
        with pytest.raises(ConfigError, match="expected off, watch, signal"):
            Producer({**connection, "headerware.config": str(file), "headerware.reload": value})

    def test_there_must_be_a_file(self, connection: Any) -> None:
        with pytest.raises(ConfigError, match="there is no file to read again"):
            Producer({**connection, "headerware.reload": "watch"})
        with pytest.raises(ConfigError, match="there is no file to read again"):
            Producer({**connection, "interceptors": "trail", "headerware.reload": "watch"})

    def test_without_watchfiles_the_error_names_the_extra(
        self, connection: Any, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "watchfiles", None)
        with pytest.raises(MissingPartError, match=r"\[live\]"):
            Producer({**connection, "headerware.config": str(file), "headerware.reload": "watch"})

    def test_disabled_clients_follow_nothing(
        self, connection: Any, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        with Producer(
            {**connection, "headerware.config": str(file), "headerware.reload": "watch"}
        ) as producer:
            assert producer.chain_in_force() is None


PROCESS = """
    import os, signal, sys, time
    from headerware import Producer

    path, case = sys.argv[1:]
    earlier = []
    if case == "earlier":
        signal.signal(signal.SIGHUP, lambda *_: earlier.append(1))
    conf = {"bootstrap.servers": "localhost:1", "log_level": 0, "headerware.config": path}
    conf["headerware.reload"] = "watch" if case == "fork-watch" else "signal"
    producer = Producer(conf)
    if case.startswith("fork"):
        if os.fork():
            _, status = os.wait()
            producer.close()
            sys.exit(os.waitstatus_to_exitcode(status))
        mine = Producer(conf)
    else:
        mine = producer
    with open(path + ".next", "w") as file:
        file.write('[[interceptors]]\\ntype = "trail"\\nservice = "two"\\n')
    os.replace(path + ".next", path)  # whole at once, for it is watched
    if case != "fork-watch":
        os.kill(os.getpid(), signal.SIGHUP)
    deadline = time.monotonic() + 60
    while not mine.stats()["client"]["reloads"] and time.monotonic() < deadline:
        time.sleep(0.02)
    found = mine.chain_in_force()
    print(mine.chain.interceptors[0].service, found.reloads, len(earlier), flush=True)
    if mine is not producer:
        os._exit(0)  # librdkafka would wait for threads that only the parent has
"""


class TestProcesses:
    @pytest.mark.parametrize(
        ("case", "expected"),
        [("plain", "two 1 0"), ("earlier", "two 1 1"), ("fork", "two 1 0"), ("fork-watch", "two 1 0")],
    )
    def test_a_process_of_its_own(self, tmp_path: Path, case: str, expected: str) -> None:
        """With SIGHUP, with a handler before ours, and in a child whose parent follows the file, too.

        The process ends while its thread still watches.
        """
        path = tmp_path / "chain.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\nservice = "one"\n')
        done = subprocess.run(
            # Since Python 3.12 a fork beside threads, which is what is tried, is a warning.
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", dedent(PROCESS), str(path), case],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, expected, "")

    def test_off_the_main_thread_sighup_is_left_alone(
        self, clients: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = signal.getsignal(signal.SIGHUP)
        with caplog.at_level(logging.WARNING, logger="headerware"):
            thread = threading.Thread(target=clients, args=(Producer, "signal"))
            thread.start()
            thread.join()
        assert "this is not the main thread" in caplog.text
        assert signal.getsignal(signal.SIGHUP) is before


def test_a_session_is_closed_with_its_last_holder() -> None:
    closed: list[str] = []

    class Held:
        def __init__(self, name: str) -> None:
            self.close = lambda: closed.append(name)

    class Holder:
        pass

    first, second = Holder(), Holder()
    sessions = Sessions(first, Held("first"))  # type: ignore[arg-type]  # all that it needs
    sessions.add(second, Held("second"))  # type: ignore[arg-type]  # as above
    del first
    assert closed == ["first"]
    sessions.close()
    assert closed == ["first", "second"]
