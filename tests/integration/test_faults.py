"""What records are protected by, when parts fail: brokers, key services, keyrings, disks and processes.

In each case nothing is lost that was confirmed, nothing is sent in plaintext, the error says what is wrong,
and everything goes on when the part is back. See also `test_killed_consumers.py`, `test_broker_restart.py`
and `TestUnavailableTopic` of `test_dead_letters.py`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, TopicPartition

from headerware import (
    ConfigError,
    DeadLetterError,
    Headers,
    HeldBackError,
    Interceptor,
    InterceptorError,
    ReassemblyError,
    Record,
    RegistryError,
)
from headerware.cli import main
from headerware.interceptors import Dedup, Encrypt, Sign, Slice
from headerware.keyring import read_keyring, with_new_key
from headerware.keyring.services import FileKeys, Vault
from headerware.keyring.writing import edit_keyring
from headerware.registry import Allocate, with_built_in
from headerware.registry.stores.toml import TomlStore
from tests.integration.conftest import DEADLINE_S, is_record
from tests.unit.registry.conftest import block
from tests.vault_server import TOKEN, VaultServer
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    from headerware import Consumer, HeaderwareError, Producer
    from tests.integration.conftest import Cluster, Reports
    from tests.integration.gate import GatedBroker

pytestmark = pytest.mark.broker

SECRET: Final = b"4111-1111"
SEND_PROTECTED: Final = Path(__file__).parent / "programs" / "send_protected.py"


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """Make a keyring with a key to encrypt with, ``cards``, and one to sign with, ``shop``."""
    path = tmp_path / "protected.json"
    edit_keyring(path, lambda keyring: with_new_key(keyring, "cards", "aes-256"), create=True)
    edit_keyring(path, lambda keyring: with_new_key(keyring, "shop", "ed25519"))
    return str(path)


def values(count: int, *, start: int = 0) -> list[bytes]:
    return [b"%05d " % number + SECRET for number in range(start, start + count)]


def sent(producer: Producer, topic: str, wanted: list[bytes]) -> list[bytes]:
    """Send values to partition 0 and wait until they are stored."""
    for value in wanted:
        producer.produce(topic, value, b"key", 0)
    assert producer.flush(DEADLINE_S) == 0
    return wanted


def read(cluster: Cluster, consumer: Consumer, count: int) -> list[bytes | None]:
    return [message.value() for message in cluster.take(consumer, count)]


def assert_hidden(cluster: Cluster, topic: str) -> list[Message]:
    """Return what a topic holds, and fail if any of it shows the secret."""
    found = cluster.on_the_wire(topic)
    for message in found:
        parts = [message.key(), message.value(), *dict(message.headers() or []).values()]
        assert not any(SECRET in part for part in parts if part is not None), message.offset()
    return found


def held_back(consumer: Consumer) -> HeldBackError:
    """Poll until a record is held back; none may come before."""
    with pytest.raises(HeldBackError) as caught:
        until(lambda: pytest.fail("a record came") if consumer.poll(0.2) else False)
    return caught.value


def polled(consumer: Consumer) -> bytes | None:
    """Return the next message's value, or None if there is none or it is held back."""
    with contextlib.suppress(HeldBackError):
        message = consumer.poll(0.1)
        if message is not None and is_record(message):
            return message.value()
    return None


def read_on(consumer: Consumer, count: int) -> list[bytes]:
    """Read so many messages; until the part that failed is back, the stream may still wait."""
    found: list[bytes] = []

    def poll() -> None:
        value = polled(consumer)
        if value is not None:
            found.append(value)

    until(lambda: len(found) >= count, f"{count} messages", meanwhile=poll)
    return found


def refusal(producer: Producer, topic: str, value: bytes) -> InterceptorError | None:
    """Send a value; return the error if it was refused, or else None."""
    try:
        producer.produce(topic, value, b"key", 0)
    except InterceptorError as error:
        return error
    return None


def sent_until_refused(producer: Producer, topic: str, wanted: list[bytes]) -> InterceptorError:
    """Send values, and add each to those that are stored, until one is refused; return the error."""
    errors: list[InterceptorError] = []

    def is_refused() -> bool:
        [value] = values(1, start=len(wanted))
        if error := refusal(producer, topic, value):
            errors.append(error)
        else:
            wanted.append(value)
        return bool(errors)

    until(is_refused, "a record is refused")
    assert producer.flush(DEADLINE_S) == 0
    return errors[0]


def code_of(error: KafkaError | None) -> int | None:
    return None if error is None else error.code()


class TestBrokerDown:
    def protected(self, keys: str) -> list[Any]:
        encrypt = Encrypt(key_service=FileKeys(keyring=keys), key_id="cards")
        return [encrypt, Sign(keyring=keys, key_id="shop", batch_records=64)]

    def test_in_mid_batch_each_record_is_reported_and_comes_once(
        self, second_cluster: Cluster, keys: str, reports: Reports
    ) -> None:
        topic = second_cluster.topic("mid-batch")
        chain = self.protected(keys)
        settings: Any = {"enable_idempotence": True, "batch_num_messages": 20}
        producer = second_cluster.producer(*chain, **settings)
        wanted = [value + bytes(1_000) for value in values(4_000)]
        refused: list[Exception | None] = []
        is_down = threading.Event()

        def records() -> Iterator[dict[str, Any]]:
            for number, value in enumerate(wanted):
                if number == 3_000:  # however fast it is, there is something left to send
                    assert is_down.wait(DEADLINE_S)
                yield {"value": value, "key": b"key", "partition": 0}

        def send() -> None:
            refused.extend(producer.produce_many(topic, records(), on_delivery=reports))

        sender = threading.Thread(target=send)
        sender.start()
        wire = second_cluster.plain_consumer()
        until(lambda: wire.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)[1] > 0)
        second_cluster.stop()
        is_down.set()
        sender.join(DEADLINE_S)
        assert refused == [None] * len(wanted)
        assert len(reports.errors) < len(wanted), "the rest waits for the broker"
        second_cluster.start()
        assert producer.flush(DEADLINE_S) == 0

        assert reports.errors == {value: [None] for value in wanted}
        consumer = second_cluster.consumer(topic, *chain)
        found = second_cluster.rest_of(consumer, topic)
        assert [message.value() for message in found] == wanted
        assert all(consumer.verified(message) for message in found)
        assert len(assert_hidden(second_cluster, topic)) == len(wanted)

    def test_for_too_long_each_record_is_reported_as_failed_and_the_next_ones_go(
        self, second_cluster: Cluster, second_broker: GatedBroker, keys: str, reports: Reports
    ) -> None:
        topic = second_cluster.topic("timed-out")
        chain = self.protected(keys)
        producer = second_cluster.producer(*chain, message_timeout_ms=1_000)
        numbers = iter(range(1_000))
        confirmed: list[bytes] = []

        def goes() -> bool:
            """Send a record, which may take longer than this producer waits."""
            (value,) = values(1, start=next(numbers))
            producer.produce(topic, value, b"key", 0, on_delivery=reports)
            assert producer.flush(DEADLINE_S) == 0
            (error,) = reports.errors.pop(value)
            if error is None:
                confirmed.append(value)
            return error is None

        for _ in range(10):
            until(goes)
        second_broker.cut()
        try:
            lost = values(100, start=1_000)
            records = [{"value": value, "key": b"key", "partition": 0} for value in lost]
            assert producer.produce_many(topic, records, on_delivery=reports) == [None] * len(lost)
            assert producer.flush(DEADLINE_S) == 0
        finally:
            second_broker.admit()
        assert {value: [*map(code_of, errors)] for value, errors in reports.errors.items()} == {
            value: [KafkaError._MSG_TIMED_OUT] for value in lost
        }

        for _ in range(10):
            until(goes)
        consumer = second_cluster.consumer(topic, *chain)
        found = [message.value() for message in second_cluster.rest_of(consumer, topic)]
        assert [value for value in found if value in confirmed] == confirmed
        assert not set(found) & set(lost)
        assert_hidden(second_cluster, topic)


class TestProducerKilledBetweenSlices:
    def test_what_was_confirmed_comes_and_the_half_message_is_given_up(
        self, cluster: Cluster, keys: str, tmp_path: Path
    ) -> None:
        topic, log = cluster.topic("between-slices"), tmp_path / "log"
        command = [sys.executable, str(SEND_PROTECTED), cluster.servers, topic, keys, str(log)]
        wire = cluster.plain_consumer()
        wire.assign([TopicPartition(topic, 0, 0)])
        application = subprocess.Popen([*command, "0", "2", "0.1"])  # slowly, however late this test looks
        try:
            until(lambda: is_slice(wire.poll(0)), "the first slice")
        finally:
            os.kill(application.pid, signal.SIGKILL)
            application.wait()
        slices = [message for message in cluster.on_the_wire(topic) if is_slice(message)]
        assert 0 < len(slices) < 500, "the kill found the third message half sent"
        assert log.read_text().split() == ["0", "1"]

        # What was not confirmed is sent again, by another process.
        subprocess.run([*command, "2", "5"], check=True, timeout=DEADLINE_S)
        assert log.read_text().split() == ["0", "1", "2", "3", "4", "5"]
        encrypt = Encrypt(key_service=FileKeys(keyring=keys), key_id="cards")
        reading = [encrypt, Slice(expire_ms=1_000), Sign(keyring=keys)]
        consumer = cluster.consumer(topic, *reading, enable_auto_commit=False)
        refused: list[HeaderwareError] = []
        found = cluster.rest_of(consumer, topic, refused)
        assert [(message.value() or b"")[:15] for message in found] == values(6)
        if not refused:  # it is given up once its time is over
            with pytest.raises(ReassemblyError) as caught:
                until(lambda: consumer.poll(0.1) and False)
            refused.append(caught.value)
        [half] = refused
        assert isinstance(half, ReassemblyError)
        assert half.offset == slices[0].offset()
        assert str(len(slices)) in str(half), "it says how much of it has come"
        cluster.commit(consumer)
        stored = assert_hidden(cluster, topic)
        assert cluster.committed(topic, topic)[0] == (stored[-1].offset() or 0) + 1


def is_slice(message: Message | None) -> bool:
    return message is not None and "hw.slice" in dict(message.headers() or [])


class FullDisk:
    """A folder on a disk that can be filled and cleared."""

    def __init__(self, folder: Path, *, fill: Callable[[], None], clear: Callable[[], None]) -> None:
        self.folder, self.fill, self.clear = folder, fill, clear


@pytest.fixture(params=["no space left", "no larger file"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FullDisk]:
    """Return a folder on a small disk; or one where this process may write no file, as with a quota."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "no larger file":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)

        def limit(size_bytes: int) -> Callable[[], None]:
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))

        try:
            yield FullDisk(folder, fill=limit(0), clear=limit(before[0]))
        finally:
            limit(before[0])()
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"only root may mount a small disk: {mounted.stderr.strip()}")
    ballast = folder / "ballast"
    try:
        yield FullDisk(folder, fill=lambda: _fill(ballast), clear=ballast.unlink)
    finally:
        # Clients that are closed later still have files there.
        subprocess.run(["umount", "--lazy", folder], check=True)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(ballast).f_bavail == 0


class TestFullDisk:
    def test_the_ledger_of_dedup_lets_records_pass_and_goes_on(
        self, cluster: Cluster, disk: FullDisk, caplog: pytest.LogCaptureFixture
    ) -> None:
        topic = cluster.topic("full-disk")
        producer, wire = cluster.producer(Dedup()), cluster.plain_producer()
        consumer = cluster.consumer(topic, Dedup(store=str(disk.folder / "seen.db")))

        def copy(offset: int) -> None:
            """Be a producer that sends a record twice."""
            found = cluster.on_the_wire(topic)[offset]
            wire.produce(topic, found.value(), found.key(), 0, headers=found.headers())
            assert wire.flush(DEADLINE_S) == 0

        sent(producer, topic, values(5))
        assert read(cluster, consumer, 5) == values(5)
        copy(0)
        sent(producer, topic, values(1, start=5))
        assert read(cluster, consumer, 1) == values(1, start=5), "the copy was dropped"

        disk.fill()
        try:
            sent(producer, topic, values(20, start=6))
            copy(0)
            assert read(cluster, consumer, 21) == [*values(20, start=6), values(1)[0]], "nothing is lost"
        finally:
            disk.clear()
        assert consumer.stats()["dedup"]["store_failures"] > 0
        [logged] = [record.getMessage() for record in caplog.records if "dedup" in record.name]
        assert "until the store works again, copies are delivered, too" in logged

        def copy_is_dropped() -> bool:
            before = consumer.stats()["dedup"]["duplicates"]
            copy(1)
            cluster.rest_of(consumer, topic)
            return bool(consumer.stats()["dedup"]["duplicates"] > before)

        until(copy_is_dropped, "it remembers again")
        cluster.commit(consumer)
        assert cluster.committed(topic, topic)[0] == len(cluster.on_the_wire(topic))

    def test_a_ledger_that_cannot_be_made_is_an_error_of_the_configuration(
        self, cluster: Cluster, disk: FullDisk
    ) -> None:
        disk.fill()
        try:
            with pytest.raises(ConfigError, match=r"seen\.db"):
                cluster.consumer("orders", Dedup(store=str(disk.folder / "seen.db")))
        finally:
            disk.clear()
        cluster.consumer(cluster.topic("made"), Dedup(store=str(disk.folder / "seen.db")))

    def test_a_registry_refuses_the_change_and_keeps_what_it_has(self, disk: FullDisk) -> None:
        before = with_built_in([block("0.1.0.0/16", "a")], [], registrar="platform")
        with TomlStore.create(disk.folder / "registry.toml", before) as store:
            change = Allocate(block("0.2.0.0/16", "b"), "platform")
            disk.fill()
            try:
                with pytest.raises(RegistryError, match=r"registry\.toml"):
                    store.apply(change)
                assert store.load() == before
            finally:
                disk.clear()
            assert store.load() == before
            after = store.apply(change)
        with TomlStore(disk.folder / "registry.toml") as store:
            assert store.load() == after != before

    def test_a_keyring_is_rotated_whole_or_not_at_all(self, disk: FullDisk) -> None:
        path = disk.folder / "keys.json"
        rotate = ["keys", "rotate", "--keyring", str(path), "--id", "shop"]
        edit_keyring(path, lambda keyring: with_new_key(keyring, "shop", "ed25519"), create=True)
        before = path.read_bytes()
        disk.fill()
        try:
            found = CliRunner().invoke(main, rotate)
        finally:
            disk.clear()
        assert found.exit_code == 1
        assert f"keyring {path} cannot be written" in found.output
        assert path.read_bytes() == before
        assert not [*disk.folder.glob(".*.tmp")]
        assert CliRunner().invoke(main, rotate).exit_code == 0
        assert read_keyring(path).current_key("shop", "sign", 0).version == 2


class Picky(Interceptor, frozen=True, kw_only=True):
    """Refuse to send what begins with "bad"."""

    on_error: Any = "dead_letter"

    def on_send(self, record: Record) -> Record:
        if record.value.startswith(b"bad"):
            raise InterceptorError("it is bad")
        return record


class TestMissingDeadLetterTopic:
    """On send; what consumers do is in `test_dead_letters.py`."""

    def test_the_application_keeps_the_record_until_there_is_one(self, second_cluster: Cluster) -> None:
        topic = second_cluster.topic("orders")
        producer = second_cluster.producer(Picky(), topic_metadata_propagation_max_ms=500)
        with pytest.raises(DeadLetterError, match=rf"topic '{topic}\.dead-letter' did not take it"):
            producer.produce(topic, b"bad", b"key", 0)
        sent(producer, topic, [b"good"])

        second_cluster.broker.create_topic(f"{topic}.dead-letter")
        until(lambda: refusal(producer, topic, b"bad") is None, "it is kept as a dead letter")
        sent(producer, topic, [b"better"])
        assert [m.value() for m in second_cluster.on_the_wire(topic)] == [b"good", b"better"]
        [letter] = second_cluster.on_the_wire(f"{topic}.dead-letter")
        assert letter.value() == b"bad"
        assert Headers(letter.headers()).last("__connect.errors.stage") == b"ON_SEND"


class TestKeyringGone:
    """For longer than the last good keyring counts."""

    @pytest.mark.parametrize("step", ["sign", "encrypt"])
    def test_nothing_is_sent_or_read_until_it_is_back(self, cluster: Cluster, keys: str, step: str) -> None:
        topic = cluster.topic("keyring-gone")
        chain = {
            "sign": Sign(keyring=keys, key_id="shop", keyring_max_stale_ms=500),
            "encrypt": Encrypt(
                key_service=FileKeys(keyring=keys, max_stale_ms=500),
                key_id="cards",
                data_key_max_age_ms=500,
                data_key_cache_ms=500,
            ),
        }[step]
        producer = cluster.producer(chain)
        consumer = cluster.consumer(topic, chain, enable_auto_commit=False)
        wanted = sent(producer, topic, values(3))
        assert read(cluster, consumer, 3) == wanted

        aside = Path(keys).rename(f"{keys}.aside")
        error = sent_until_refused(producer, topic, wanted)
        assert isinstance(error, HeldBackError)
        assert keys in str(error)
        found = wanted[:3]

        def is_held_back() -> bool:
            try:
                message = consumer.poll(0.1)
            except HeldBackError:
                return True
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
            if len(found) == len(wanted):  # there is no more, so somebody sends one again
                copy = cluster.on_the_wire(topic)[-1]
                wire.produce(topic, copy.value(), copy.key(), 0, headers=copy.headers())
                wire.flush(DEADLINE_S)
                wanted.append(wanted[-1])
            return False

        wire = cluster.plain_producer()
        until(is_held_back, "the stream waits")
        cluster.commit(consumer)
        assert cluster.committed(topic, topic)[0] == len(found)

        aside.rename(keys)
        until(lambda: refusal(producer, topic, b"last") is None, "it is sent again")
        assert producer.flush(DEADLINE_S) == 0
        wanted.append(b"last")
        found += read_on(consumer, len(wanted) - len(found))
        assert found == wanted


class TestKeyServiceDown:
    """Vault's transit engine, over HTTP."""

    @pytest.fixture
    def vault(self) -> Iterator[VaultServer]:
        with VaultServer() as server:
            yield server

    def encrypt(self, vault: VaultServer, **options: Any) -> Encrypt:
        # Patient, unless a test is about a service that hangs: one that is stopped refuses at once.
        patience_ms = options.setdefault("key_service_timeout_ms", 30_000)
        service = Vault(url=vault.url, token=TOKEN, timeout_ms=patience_ms)
        return Encrypt(key_service=service, key_id="orders", **options)

    def test_sending_goes_on_for_the_data_keys_life_and_never_in_plaintext(
        self, cluster: Cluster, vault: VaultServer
    ) -> None:
        topic = cluster.topic("no-vault")
        producer = cluster.producer(self.encrypt(vault, data_key_max_age_ms=1_000))
        wanted: list[bytes] = []
        errors: list[InterceptorError] = []

        def went_on() -> bool:
            vault.start()
            [value] = values(1, start=len(wanted))
            until(lambda: refusal(producer, topic, value) is None, "the service is there")
            wanted.append(value)
            vault.stop()
            before = len(wanted)
            errors.append(sent_until_refused(producer, topic, wanted))
            return len(wanted) > before

        vault.stop()
        until(went_on, "for the data key's life it goes on without the service")
        error = errors[-1]
        assert isinstance(error, HeldBackError)
        assert "cannot encrypt, so nothing was sent" in str(error)
        assert TOKEN not in str(error)
        assert len(assert_hidden(cluster, topic)) == len(wanted)

        vault.start()
        until(lambda: refusal(producer, topic, SECRET) is None, "it is sent again")
        assert producer.flush(DEADLINE_S) == 0
        assert_hidden(cluster, topic)
        consumer = cluster.consumer(topic, self.encrypt(vault))
        assert [m.value() for m in cluster.rest_of(consumer, topic)] == [*wanted, SECRET]

    @pytest.mark.parametrize("how", ["stopped", "sealed", "hanging"])
    def test_a_reader_waits_and_goes_on(self, cluster: Cluster, vault: VaultServer, how: str) -> None:
        topic = cluster.topic("no-vault")
        wanted = sent(cluster.producer(self.encrypt(vault)), topic, values(20))
        vault.sealed = how == "sealed"
        vault.delay_s = 30.0 if how == "hanging" else 0.0
        if how == "stopped":
            vault.stop()
        # An outage is no fault of the record, so nothing is dropped for it.
        encrypt = self.encrypt(vault, key_service_timeout_ms=500, on_error="drop")
        consumer = cluster.consumer(topic, encrypt, enable_auto_commit=False)
        for _ in range(3):
            error = held_back(consumer)
            assert TOKEN not in str(error)
            assert (error.topic, error.partition, error.offset) == (topic, 0, 0)
        cluster.commit(consumer)
        assert cluster.committed(topic, topic)[0] < 0, "nothing counts as read"
        assert consumer.assignment(), "it is still in its group"

        vault.sealed, vault.delay_s = False, 0.0
        if how == "stopped":
            vault.start()
        assert read_on(consumer, 20) == wanted
        cluster.commit(consumer)
        assert cluster.committed(topic, topic)[0] == 20

    def test_readers_that_come_and_go_meanwhile_lose_nothing(
        self, cluster: Cluster, vault: VaultServer
    ) -> None:
        topic = cluster.topic("no-vault", partitions=2)
        producer = cluster.producer(self.encrypt(vault))
        for number, value in enumerate(values(20)):
            producer.produce(topic, value, b"key", number % 2)
        assert producer.flush(DEADLINE_S) == 0
        vault.stop()
        first = cluster.consumer(topic, self.encrypt(vault))
        held_back(first)
        second = cluster.consumer(topic, self.encrypt(vault))
        until(
            lambda: len(first.assignment()) == len(second.assignment()) == 1,
            "each has a partition",
            meanwhile=lambda: [polled(first), polled(second)],
        )
        first.close()
        until(lambda: len(second.assignment()) == 2, "one has both", meanwhile=lambda: polled(second))
        vault.start()
        assert sorted(read_on(second, 20)) == values(20)
        assert polled(second) is None
        cluster.commit(second)
        assert [cluster.committed(topic, topic, partition)[0] for partition in (0, 1)] == [10, 10]

    def test_a_reader_goes_on_with_known_keys_until_their_time_is_over(
        self, cluster: Cluster, vault: VaultServer
    ) -> None:
        topic = cluster.topic("no-vault")
        producer = cluster.producer(self.encrypt(vault))
        lasting = cluster.consumer(topic, self.encrypt(vault), group_id=f"{topic}-lasting")
        forgetful = cluster.consumer(topic, self.encrypt(vault, data_key_cache_ms=1_000))
        wanted = sent(producer, topic, values(3))
        assert read(cluster, lasting, 3) == read(cluster, forgetful, 3) == wanted

        vault.stop()
        found = list(wanted)

        def waits() -> bool:
            wanted.extend(sent(producer, topic, values(1, start=len(wanted))))
            try:
                found.extend(message.value() or b"" for message in cluster.take(forgetful, 1))
            except HeldBackError:
                return True
            return False

        until(waits, "the known key's time is over")
        assert read(cluster, lasting, len(wanted) - 3) == wanted[3:], "it knows the key for two hours"
        assert found == wanted[:-1]

        vault.start()
        assert read_on(forgetful, 1) == wanted[-1:]
        assert_hidden(cluster, topic)
