"""Attacks on key services and data keys: refused or held back, with few calls, and never in plaintext."""

from __future__ import annotations

import base64
import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Consumer, Context, HeldBackError, InterceptorError, Producer, Record
from headerware.core.errors import KeyringError
from headerware.core.header_text import encode_text
from headerware.core.headers import Headers
from headerware.interceptors import Encrypt
from headerware.interceptors.encrypt.envelope import TAIL_BYTES, Statement
from headerware.keyring import with_deletion, with_new_key, with_revocation, with_rotation
from headerware.keyring.services import (
    DataKey,
    DataKeys,
    FileKeys,
    InvalidWrappedKeyError,
    KeyDeletedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    NoSuchKeyError,
    Vault,
    Wrapped,
)
from headerware.keyring.writing import edit_keyring
from tests.vault_server import TOKEN, VaultServer
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

SCOPE = "cluster/orders"


@pytest.fixture
def vault() -> Iterator[VaultServer]:
    with VaultServer() as server:
        yield server


def data_keys(vault: VaultServer, **options: Any) -> DataKeys:
    service = Vault(url=vault.url, token=TOKEN, timeout_ms=1_000).open(Context())
    return DataKeys(service, **{"key_ids": ["orders", "payments"], **options})


def forged(number: int) -> bytes:
    """Return a wrapped key as Vault writes them, which nobody made."""
    return b"vault:v1:" + base64.b64encode(number.to_bytes(4) + os.urandom(56))


def outcome_of(call: Callable[[], object]) -> object:
    try:
        return call()
    except (HeldBackError, KeyServiceError) as error:
        return type(error)


def is_read(keys: DataKeys, key: DataKey, scope: str, key_id: str = "orders") -> bool:
    """Return whether the service has answered within the time of these."""
    found = outcome_of(lambda: keys.to_read(key_id, key.wrapped, scope))
    assert found is HeldBackError or (isinstance(found, DataKey) and found.secret == key.secret)
    return found is not HeldBackError


class TestFloods:
    def test_of_forged_wrapped_keys_leave_genuine_ones_alone_and_cost_the_service_a_bounded_rate(
        self, vault: VaultServer
    ) -> None:
        with (
            closing(data_keys(vault)) as writer,
            closing(data_keys(vault, max_failed_unwraps_per_s=5, timeout_ms=100)) as keys,
        ):
            genuine = [writer.to_send("orders", f"cluster/{number}", 1) for number in range(3)]
            for number, key in enumerate(genuine):
                until(lambda key=key, number=number: is_read(keys, key, f"cluster/{number}"))  # type: ignore[misc]
            calls, began = len(vault.calls), time.monotonic()
            outcomes = [
                outcome_of(lambda number=number: keys.to_read("orders", forged(number), SCOPE))  # type: ignore[misc]
                for number in range(60)
            ]
            # Those that are known go on through the flood, and so do those of another key.
            for number, key in enumerate(genuine):
                assert keys.to_read("orders", key.wrapped, f"cluster/{number}").secret == key.secret
            # Which of them wait is a matter of time: a slow answer is waited for, too.
            assert set(outcomes) <= {InvalidWrappedKeyError, HeldBackError}
            assert len(vault.calls) - calls <= 10 + 5 * (time.monotonic() - began) + 1
            other = writer.to_send("payments", SCOPE, 1)
            until(lambda: is_read(keys, other, SCOPE, "payments"))
            # What was not decided is decided in its turn, and no genuine key is refused for the flood.
            late = writer.to_send("orders", "cluster/late", 1)
            found: object = HeldBackError
            while found is HeldBackError:
                assert time.monotonic() - began < 60
                found = outcome_of(lambda: keys.to_read("orders", late.wrapped, "cluster/late"))
            assert isinstance(found, DataKey)

    def test_are_refused_as_they_come_where_asking_costs_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        edit_keyring(path, lambda ring: with_new_key(ring, "orders", "aes-256"), create=True)
        service = FileKeys(keyring=str(path)).open(Context())
        genuine = service.wrap("orders", bytes(range(32)), SCOPE.encode()).wrapped
        with closing(DataKeys(service, key_ids=["orders"], max_failed_unwraps_per_s=1)) as keys:
            for number in range(2_000):
                with pytest.raises(InvalidWrappedKeyError):
                    keys.to_read("orders", genuine[:-4] + number.to_bytes(4), SCOPE)
            assert keys.to_read("orders", genuine, SCOPE).secret == bytes(range(32))
            assert (keys.stats()["rate_limited"], keys.stats()["failures"]) == (0, 2_000)

    def test_under_a_deleted_version_push_no_genuine_key_out(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        edit_keyring(path, lambda ring: with_new_key(ring, "orders", "aes-256"), create=True)
        service = FileKeys(keyring=str(path)).open(Context())
        old = service.wrap("orders", bytes(range(32)), SCOPE.encode()).wrapped
        edit_keyring(path, lambda ring: with_deletion(with_rotation(ring, "orders"), "orders", version=1))
        with closing(DataKeys(FileKeys(keyring=str(path)).open(Context()), cache_entries=100)) as keys:
            genuine = keys.to_send("orders", SCOPE, 1)
            keys.to_read("orders", genuine.wrapped, SCOPE)
            for number in range(300):
                with pytest.raises(KeyDeletedError):
                    keys.to_read("orders", old[:-4] + number.to_bytes(4), SCOPE)
            path.unlink()  # so that no call would answer any more
            assert keys.to_read("orders", genuine.wrapped, SCOPE).secret == genuine.secret
            assert keys.stats()["unwraps"] == 1

    def test_of_the_same_forged_key_cost_one_call(self, vault: VaultServer) -> None:
        with closing(data_keys(vault)) as keys:
            for _ in range(100):
                with pytest.raises(InvalidWrappedKeyError):
                    keys.to_read("orders", b"vault:v1:" + base64.b64encode(bytes(64)), SCOPE)
            assert len(vault.calls) == 1

    def test_of_what_is_no_ciphertext_cost_none(self, vault: VaultServer) -> None:
        with closing(data_keys(vault)) as keys:
            for junk in (
                b"junk",
                b"vault:v0:AAAA",
                b"vault:v1:",
                b"vault:v1:A\n",
                b"vault:v1:../x",
                b"\xff" * 99,
            ):
                with pytest.raises(InvalidWrappedKeyError):
                    keys.to_read("orders", junk, SCOPE)
            assert vault.calls == []

    def test_of_unlisted_keys_cost_none(self, vault: VaultServer) -> None:
        with closing(data_keys(vault)) as keys:
            for name in ("admin", "orders/../payments", "ORDERS", "orders ", ""):
                with pytest.raises(InvalidWrappedKeyError, match="which is not accepted here"):
                    keys.to_read(name, forged(0), SCOPE)
            assert vault.calls == []


class TestMoved:
    def test_wrapped_keys_open_in_no_other_scope_and_under_no_other_key(self, vault: VaultServer) -> None:
        with closing(data_keys(vault)) as writer, closing(data_keys(vault)) as keys:
            wrapped = writer.to_send("orders", SCOPE, 1).wrapped
            for key_id, scope in (
                *(("orders", "cluster/payments"), ("orders", "other/orders"), ("orders", "cluster/orders2")),
                *(("payments", SCOPE), ("orders", f"{SCOPE}/"), ("orders", "Cluster/orders")),
            ):
                with pytest.raises(InvalidWrappedKeyError):
                    keys.to_read(key_id, wrapped, scope)
            assert keys.to_read("orders", wrapped, SCOPE).secret

    def test_what_others_encrypted_under_the_same_key_is_no_data_key(self, vault: VaultServer) -> None:
        import hvac  # noqa: PLC0415 - an application's own client

        client = hvac.Client(url=vault.url, token=TOKEN)
        given = client.secrets.transit.encrypt_data(
            name="orders",
            plaintext=base64.b64encode(os.urandom(32)).decode(),
            associated_data=base64.b64encode(SCOPE.encode()).decode(),
        )
        with closing(data_keys(vault)) as keys, pytest.raises(InvalidWrappedKeyError):
            keys.to_read("orders", given["data"]["ciphertext"].encode(), SCOPE)
        client.adapter.close()


class TestService:
    def test_redirects_are_not_followed_and_the_token_goes_nowhere_else(self, vault: VaultServer) -> None:
        with VaultServer() as thief, closing(data_keys(vault)) as keys:
            vault.redirect = thief.url
            with pytest.raises(KeyServiceUnavailableError, match="redirects"):
                keys.to_send("orders", SCOPE, 1)
            with pytest.raises(HeldBackError):
                keys.to_read("orders", forged(0), SCOPE)
            assert thief.calls == []

    def test_an_answer_of_another_size_is_refused(self, vault: VaultServer) -> None:
        with closing(data_keys(vault)) as writer, closing(data_keys(vault)) as keys:
            wrapped = writer.to_send("orders", SCOPE, 1).wrapped
            vault.raw = b'{"data": {"plaintext": "%s"}}' % base64.b64encode(bytes(range(16)))
            with pytest.raises(InvalidWrappedKeyError, match="16 bytes"):
                keys.to_read("orders", wrapped, SCOPE)

    def test_without_it_nothing_is_given_to_encrypt_with(self, vault: VaultServer) -> None:
        vault.stop()
        with closing(data_keys(vault)) as keys, pytest.raises(KeyServiceUnavailableError):
            keys.to_send("orders", SCOPE, 1)


class TestDeletedKeys:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "keys.json"
        edit_keyring(path, lambda ring: with_new_key(ring, "orders", "aes-256"), create=True)
        return path

    @pytest.mark.parametrize("end", [with_deletion, with_revocation])
    def test_are_told_from_outages_and_from_forgeries(self, path: Path, end: Any) -> None:
        with closing(DataKeys(FileKeys(keyring=str(path)).open(Context()))) as writer:
            wrapped = writer.to_send("orders", SCOPE, 1).wrapped
        edit_keyring(path, lambda ring: end(ring, "orders"))
        with closing(DataKeys(FileKeys(keyring=str(path)).open(Context()))) as keys:
            with pytest.raises(KeyDeletedError):
                keys.to_read("orders", wrapped, SCOPE)
            with pytest.raises(InvalidWrappedKeyError):
                keys.to_read("orders", wrapped[:20], SCOPE)
            with pytest.raises(KeyDeletedError):
                keys.to_send("orders", SCOPE, 1)

    def test_are_used_from_memory_until_the_clock_says_otherwise(self, path: Path) -> None:
        now_ms = 1_000_000_000_000
        service = FileKeys(keyring=str(path)).open(Context(now_ms=lambda: now_ms))
        with closing(DataKeys(service, cache_age_ms=10_000, now_ms=lambda: now_ms)) as keys:
            wrapped = service.wrap("orders", bytes(range(32)), SCOPE.encode()).wrapped
            keys.to_read("orders", wrapped, SCOPE)
            edit_keyring(path, lambda ring: with_deletion(ring, "orders"))
            now_ms += 7_999
            assert keys.to_read("orders", wrapped, SCOPE).secret
            now_ms += 2_001
            with pytest.raises(KeyDeletedError):
                keys.to_read("orders", wrapped, SCOPE)

    def test_the_number_of_a_coming_version_stops_readers_once_and_for_a_bounded_time(
        self, path: Path
    ) -> None:
        now_ms = 1_000_000_000_000
        service = FileKeys(keyring=str(path)).open(Context(now_ms=lambda: now_ms))
        wrapped = service.wrap("orders", bytes(range(32)), SCOPE.encode()).wrapped
        coming, far = (wrapped[:1] + version.to_bytes(2) + wrapped[3:] for version in (2, 3))
        with pytest.raises(InvalidWrappedKeyError):
            service.unwrap("orders", far, SCOPE.encode())
        with pytest.raises(NoSuchKeyError, match="distribute the keyring"):
            service.unwrap("orders", coming, SCOPE.encode())
        now_ms += 300_000
        for _ in range(3):
            with pytest.raises(InvalidWrappedKeyError):
                service.unwrap("orders", coming, SCOPE.encode())


class Unwrapping:
    """An interceptor that keeps each record's value under the data key that its header carries."""

    def __init__(self, keys: DataKeys) -> None:
        self.keys = keys

    def on_send(self, record: Record) -> Record:
        key = self.keys.to_send("orders", SCOPE, 1)
        return record.with_headers(record.headers.add("wrapped", key.wrapped))

    def on_consume(self, record: Record) -> Record:
        wrapped: Any = record.headers.last("wrapped")
        try:
            self.keys.to_read("orders", wrapped, SCOPE)
        except KeyServiceError as error:
            raise InterceptorError(str(error)) from error
        return record


class TestStreams:
    """A consumer in the middle of its stream, and a service that is stopped and started."""

    def test_wait_for_the_service_and_pass_nothing_over(
        self, vault: VaultServer, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        with closing(data_keys(vault, max_uses=5)) as writer:
            self.produce(embedded_cluster, topic, writer, 20)
        with closing(data_keys(vault, timeout_ms=300, cache_entries=1024)) as keys:
            consumer = self.consumer(embedded_cluster, topic, keys)
            values, _ = self.poll_until(consumer, lambda values: len(values) >= 7)
            vault.stop()
            down, took_s = self.poll_until(consumer, lambda _: False, seconds=2.0)
            values += down
            assert len(values) < 20
            vault.start()
            rest, _ = self.poll_until(consumer, lambda rest: len(values) + len(rest) == 20)
            assert values + rest == [b"%d" % number for number in range(20)]
            assert took_s[-1] < 20 * (0.3 + 0.05)  # the bound, and a poll's own wait
            consumer.close()

    def test_are_not_blocked_by_a_slow_service_beyond_the_bound(
        self, vault: VaultServer, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        with closing(data_keys(vault, max_uses=1)) as writer:
            self.produce(embedded_cluster, topic, writer, 2)
        with closing(data_keys(vault, timeout_ms=100)) as keys:
            vault.delay_s = 0.5
            consumer = self.consumer(embedded_cluster, topic, keys)
            values, _ = self.poll_until(consumer, lambda values: len(values) == 2, seconds=60)
            assert values == [b"0", b"1"]
            assert (
                keys.stats()["misses"] > 2
            )  # each was asked for again: no poll waited until the answer came
            consumer.close()

    def test_refuse_records_of_a_deleted_key_and_go_on(
        self, vault: VaultServer, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        with closing(data_keys(vault)) as writer:
            self.produce(embedded_cluster, topic, writer, 2)
        vault.rotate("orders")
        vault.keys["orders"].min_decryption_version = 2
        with closing(data_keys(vault)) as writer:
            self.produce(embedded_cluster, topic, writer, 2)
        with closing(data_keys(vault)) as keys:
            consumer = self.consumer(embedded_cluster, topic, keys)
            values, _ = self.poll_until(consumer, lambda values: len(values) == 2)
            assert values == [b"0", b"1"]
            consumer.close()

    def produce(self, cluster: EmbeddedCluster, topic: str, keys: DataKeys, count: int) -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers}, chain=Chain([Unwrapping(keys)]))
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(60) == 0

    def consumer(self, cluster: EmbeddedCluster, topic: str, keys: DataKeys) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": topic,
                "auto.offset.reset": "earliest",
            },
            chain=Chain([Unwrapping(keys)]),
        )
        consumer.subscribe([topic])
        return consumer

    def poll_until(
        self, consumer: Consumer, done: Callable[[list[Any]], bool], *, seconds: float = 60.0
    ) -> tuple[list[Any], list[float]]:
        """Poll until it is done or time is up; return the values, and how long each poll took, in order."""
        values: list[Any] = []
        took_s, deadline = list[float](), time.monotonic() + seconds
        while not done(values) and time.monotonic() < deadline:
            began = time.monotonic()
            try:
                message = consumer.poll(0.05)
            except InterceptorError:
                message = None
            took_s.append(time.monotonic() - began)
            if message is not None:
                assert message.error() is None
                values.append(message.value())
        return values, sorted(took_s)


class TestKeysThatBindNothing:
    """Vault ignores a context for a key that is not derived: records could be moved between topics."""

    @pytest.fixture
    def encrypt(self, vault: VaultServer) -> Encrypt:
        return Encrypt(key_service=Vault(url=vault.url, token=TOKEN, bind="context"), key_id="orders")

    def test_stop_a_producer_at_its_start(self, encrypt: Encrypt) -> None:
        with pytest.raises(
            KeyringError, match="key_service: the key service unwraps a data key under 'orders'"
        ):
            Chain([encrypt]).open(Context(side="producer"))

    def test_let_a_consumer_read_nothing(self, vault: VaultServer, encrypt: Encrypt) -> None:
        with Chain([encrypt]).open(Context(side="consumer", cluster_id=lambda: "prod")) as session:
            bound = Vault(url=vault.url, token=TOKEN, bind="context").open(Context())
            wrapped = bound.wrap("orders", bytes(32), b"prod/orders").wrapped
            layout = Statement("orders", "1", wrapped, "prod", "orders").encode() + bytes(TAIL_BYTES)
            [outcome] = session.consume_outcomes(
                [Record("orders", b"x", headers=Headers([("hw.encrypt", encode_text(layout))]))]
            )
            assert isinstance(outcome, HeldBackError)
            assert "for another context" in str(outcome)

    def test_a_service_that_is_down_stops_no_start(self, vault: VaultServer, encrypt: Encrypt) -> None:
        vault.stop()
        Chain([encrypt]).open(Context(side="producer")).close()
        vault.start()


def test_a_service_that_lies_about_its_wrapping_is_not_believed(vault: VaultServer) -> None:
    """A service that returns the data key itself as the wrapped one would publish it."""

    class Lying:
        def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
            return Wrapped(b"wrapped:" + data_key)

        def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
            return wrapped[8:]

        def close(self) -> None: ...

    with closing(DataKeys(Lying())) as keys, pytest.raises(KeyServiceError, match="contains the plain key"):
        keys.to_send("orders", SCOPE, 1)
