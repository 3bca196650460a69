"""Attacks on claim checks: by those who write records, by those who write objects, and by stores."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import ssl
import time
import tracemalloc
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headerware import Chain, ClaimError, Consumer, Context, HeldBackError, MissingObjectError, Producer
from headerware.core.errors import ObjectStoreError, TransportHeaderError
from headerware.core.header_text import encode_text
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Claim, ClaimCheck, Compress, decode_claim
from headerware.interceptors.claim_check import CLAIM_HEADER, STUB
from headerware.object_store import Found, open_object_store
from headerware.testing import EmbeddedCluster
from tests.object_server import ObjectServer
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headerware.interceptors.claim_check import ClaimCheckStep

VALUE = b"the contract " * 100
FORBIDDEN = b"what no record may reach"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "forbidden").write_bytes(FORBIDDEN)
    return tmp_path / "store"


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")


@contextmanager
def opened(store: Any, **options: Any) -> Iterator[ClaimCheckStep]:
    settings: dict[str, Any] = {"min_bytes": 100, "timeout_ms": 2_000, **options}
    with closing(ClaimCheck(stores={"archive": store}, **settings).open(Context())) as step:
        yield step


def in_folder(path: Path) -> dict[str, Any]:
    return {"type": "folder", "path": str(path)}


def sent(step: ClaimCheckStep, value: bytes = VALUE) -> tuple[Record, Claim]:
    record = step.on_send(Record("orders", value, headers=Headers([("a", b"1")])))
    return record, decode_claim(record.headers.last(CLAIM_HEADER))


def claiming(claim: Claim, topic: str = "orders") -> Record:
    return Record(topic, STUB, headers=Headers([(CLAIM_HEADER, claim.encode())]))


def claim_on(content: bytes, **changes: Any) -> Claim:
    claim = Claim("archive", "orders", bytes(16), hashlib.sha256(content).digest(), len(content))
    return claim._replace(**changes)


class TestForgedClaims:
    @pytest.mark.parametrize(
        "topic",
        [
            "..",
            ".",
            "../..",
            "../forbidden",
            "/etc",
            "orders/../..",
            "orders\0",
            "%2e%2e",
            "",
            "ordérs",
            "a" * 250,
        ],
    )
    def test_that_name_a_path_are_refused(self, folder: Path, topic: str) -> None:
        forged = claim_on(FORBIDDEN, topic=topic)
        with opened(in_folder(folder), accept_topics=("*",)) as step, pytest.raises(ClaimError, match="read"):
            step.on_consume(claiming(forged))

    @pytest.mark.parametrize(
        "alias", ["..", "../archive", "", "s3://elsewhere/x", "http://127.0.0.1/", "archive\0", "-", "a" * 64]
    )
    def test_that_name_an_address_in_place_of_a_store_are_refused(self, folder: Path, alias: str) -> None:
        with opened(in_folder(folder)) as step, pytest.raises(ClaimError, match="alias is not valid"):
            step.on_consume(claiming(claim_on(VALUE, store=alias)))

    def test_that_name_an_unknown_store_are_refused(self, folder: Path) -> None:
        with (
            opened(in_folder(folder)) as step,
            pytest.raises(ClaimError, match="configured are archive; give the"),
        ):
            step.on_consume(claiming(claim_on(VALUE, store="attic")))

    def test_on_objects_of_another_topic_are_refused(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            record, _ = sent(step)
            with pytest.raises(ClaimError, match="accept_topics"):
                step.on_consume(record.replace(topic="public"))
        with opened(in_folder(folder), accept_topics=("orders",)) as step:
            assert step.on_consume(record.replace(topic="public")).value == VALUE

    def test_above_the_cap_are_refused_before_the_store_is_asked(self, server: ObjectServer) -> None:
        with (
            opened(server.options(), max_object_bytes=1_000) as step,
            pytest.raises(ClaimError, match="max_object_bytes"),
        ):
            step.on_consume(claiming(claim_on(b"", length=(1 << 64) - 1)))
        assert server.requests == []

    @pytest.mark.parametrize("difference", [-1, 1, 1 << 20])
    def test_that_lie_about_the_length_are_refused(self, folder: Path, difference: int) -> None:
        with opened(in_folder(folder)) as step:
            _, claim = sent(step)
            with pytest.raises(ClaimError, match="the claim says"):
                step.on_consume(claiming(claim._replace(length=claim.length + difference)))

    def test_with_another_digest_are_refused(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            _, claim = sent(step)
            with pytest.raises(ClaimError, match="digest"):
                step.on_consume(claiming(claim._replace(sha256=bytes(32))))

    @pytest.mark.parametrize(
        "text", [None, b"", b"not base64", encode_text(b"\x02" + bytes(80)), encode_text(b"\x01" * 57)]
    )
    def test_that_cannot_be_read_are_refused(self, folder: Path, text: bytes | None) -> None:
        record = Record("orders", STUB, headers=Headers([(CLAIM_HEADER, text)]))
        with opened(in_folder(folder)) as step, pytest.raises(ClaimError, match="cannot be read"):
            step.on_consume(record)

    @pytest.mark.parametrize("value", [None, b"", b"another value", STUB + b"x"])
    def test_on_a_record_with_a_value_of_its_own_are_refused(self, folder: Path, value: bytes | None) -> None:
        with opened(in_folder(folder)) as step:
            record, _ = sent(step)
            with pytest.raises(ClaimError, match="value of its own"):
                step.on_consume(record.replace(value=value))

    def test_that_come_twice_are_refused(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            record, claim = sent(step)
            doubled = record.with_headers(record.headers.append((CLAIM_HEADER, claim.encode())))
            with pytest.raises(ClaimError, match="2 times"):
                step.on_consume(doubled)


class TestStrippedHeaders:
    def test_do_not_make_the_stub_a_value(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            record, _ = sent(step)
            with pytest.raises(ClaimError, match="taken off"):
                step.on_consume(record.with_headers(Headers([("a", b"1")])))

    def test_are_never_needed_by_a_value_that_reads_like_the_stub(self, folder: Path) -> None:
        with opened(in_folder(folder), min_bytes=10_000) as step:
            record, _ = sent(step, STUB)
            assert step.on_consume(record).value == STUB

    def test_are_no_tombstones(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            assert sent(step)[0].value == STUB

    def test_and_readers_without_the_step_give_out_no_stub(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            record, _ = sent(step)
        with (
            Chain([Compress()]).open(Context()) as session,
            pytest.raises(TransportHeaderError, match="claim"),
        ):
            session.consume([record])


class TestStoredObjects:
    def test_that_are_swapped_are_refused(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            (first, one), (second, other) = sent(step), sent(step, VALUE.upper())
            (folder / one.name).rename(folder / "kept")
            (folder / other.name).rename(folder / one.name)
            (folder / "kept").rename(folder / other.name)
            for record in (first, second):
                with pytest.raises(ClaimError, match="digest"):
                    step.on_consume(record)

    def test_that_are_changed_are_refused(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            record, claim = sent(step)
            path = folder / claim.name
            path.chmod(0o600)
            path.write_bytes(VALUE[:-1] + b"?")
            with pytest.raises(ClaimError, match="digest"):
                step.on_consume(record)

    def test_that_are_links_are_not_followed(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            claim = claim_on(FORBIDDEN)
            (folder / "orders").mkdir()
            (folder / claim.name).symlink_to(folder.parent / "forbidden")
            with pytest.raises(MissingObjectError, match="link"):
                step.on_consume(claiming(claim))

    def test_in_a_linked_folder_are_not_reached(self, folder: Path) -> None:
        claim = claim_on(FORBIDDEN)
        (folder.parent / "elsewhere").mkdir()
        (folder.parent / claim.name.replace("orders", "elsewhere")).write_bytes(FORBIDDEN)
        (folder / "orders").symlink_to(folder.parent / "elsewhere")
        with opened(in_folder(folder)) as step:
            with pytest.raises(HeldBackError):
                step.on_consume(claiming(claim))
            with pytest.raises(HeldBackError):
                sent(step)
        assert len(list((folder.parent / "elsewhere").iterdir())) == 1

    def test_that_are_pipes_are_not_waited_for(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            claim = claim_on(FORBIDDEN)
            (folder / "orders").mkdir()
            os.mkfifo(folder / claim.name)
            with pytest.raises(MissingObjectError, match="pipe"):
                step.on_consume(claiming(claim))

    def test_that_are_huge_are_not_read(self, folder: Path) -> None:
        with opened(in_folder(folder)) as step:
            record, claim = sent(step)
            path = folder / claim.name
            path.chmod(0o600)
            os.truncate(path, 1 << 40)
            tracemalloc.start()
            try:
                with pytest.raises(ClaimError, match="the claim says"):
                    step.on_consume(record)
                assert tracemalloc.get_traced_memory()[1] < 1 << 20
            finally:
                tracemalloc.stop()

    def test_that_never_end_are_cut_at_the_claimed_length(self) -> None:
        store = EndlessStore(len(VALUE))
        with opened(store) as step, pytest.raises(ClaimError, match="has more than the claim's"):
            step.on_consume(claiming(claim_on(VALUE)))
        assert store.given <= len(VALUE) + 2 * EndlessStore.CHUNK_BYTES

    def test_that_are_missing_have_an_error_of_their_own(self, folder: Path, server: ObjectServer) -> None:
        with opened(in_folder(folder)) as step:
            sent(step)
            with pytest.raises(MissingObjectError, match="it was deleted before its record, or the alias"):
                step.on_consume(claiming(claim_on(VALUE)))
        with opened(server.options()) as step, pytest.raises(MissingObjectError):
            step.on_consume(claiming(claim_on(VALUE)))

    def test_of_a_store_that_is_gone_as_a_whole_are_not_missing(
        self, folder: Path, server: ObjectServer
    ) -> None:
        with opened(in_folder(folder / "unmounted")) as step, pytest.raises(HeldBackError, match="not there"):
            step.on_consume(claiming(claim_on(VALUE)))
        other = server.options(bucket="another-bucket")
        with opened(other) as step, pytest.raises(HeldBackError, match="NoSuchBucket"):
            step.on_consume(claiming(claim_on(VALUE)))


class EndlessStore:
    """A store whose objects are longer than it states."""

    CHUNK_BYTES = 1_000

    def __init__(self, stated: int) -> None:
        self.stated = stated
        self.given = 0

    @contextmanager
    def read(self, name: str, timeout_s: float) -> Iterator[Any]:
        yield self.stated_with_chunks()

    def stated_with_chunks(self) -> Any:
        def chunks() -> Iterator[bytes]:
            while True:
                self.given += self.CHUNK_BYTES
                yield bytes(self.CHUNK_BYTES)

        return Found(self.stated, chunks())

    def put(self, name: str, content: bytes, sha256: bytes, timeout_s: float) -> None:
        raise NotImplementedError

    def objects(self, folder: str) -> Iterator[Any]:
        raise NotImplementedError

    def delete(self, name: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class TestStores:
    def test_that_redirect_are_not_followed(self, server: ObjectServer) -> None:
        with ObjectServer() as elsewhere, opened(server.options()) as step:
            record, claim = sent(step)
            server.mode, server.elsewhere = "redirect", f"{elsewhere.url}/archive/{claim.name}"
            elsewhere.objects[claim.name] = VALUE
            with pytest.raises(HeldBackError, match="redirects"):
                step.on_consume(record)
            with pytest.raises(HeldBackError, match="redirects"):
                sent(step)
            assert elsewhere.requests == []

    def test_take_no_address_or_proxy_from_the_environment(
        self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        with ObjectServer() as elsewhere:
            for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, elsewhere.url)
            with opened(server.options()) as step:
                assert step.on_consume(sent(step)[0]).value == VALUE
            with closing(open_object_store(server.options(), path="store")) as store:
                assert len(list(store.objects("orders"))) == 1
            assert elsewhere.requests == []

    @pytest.mark.parametrize("mode", ["slow_head", "slow_body"])
    def test_that_give_a_byte_now_and_then_are_cut_off(self, server: ObjectServer, mode: Any) -> None:
        with opened(server.options()) as patient, opened(server.options(), timeout_ms=300) as step:
            record, _ = sent(patient)
            server.mode, began = mode, time.monotonic()
            with pytest.raises(HeldBackError):
                step.on_consume(record)
            assert time.monotonic() - began < 30  # the bytes would take a minute and more

    @pytest.mark.parametrize("mode", ["slow_head", "slow_body"])
    @pytest.mark.parametrize("timeout_ms", [300, 1_100])
    def test_that_do_not_answer_are_waited_for_once(
        self, server: ObjectServer, mode: Any, timeout_ms: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A batch has hundreds of records, and a consumer that waited for each would lose its partitions."""
        with opened(server.options()) as patient, opened(server.options(), timeout_ms=timeout_ms) as step:
            record, _ = sent(patient)
            server.mode = mode
            with pytest.raises(HeldBackError) as caught:
                step.on_consume(record)
            server.mode, asked = None, len(server.requests)
            for _ in range(100):
                with pytest.raises(HeldBackError, match=re.escape(str(caught.value))):
                    step.on_consume(record)
            assert len(server.requests) == asked
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + 10)
            monkeypatch.setattr("headerware.interceptors.claim_check.time", later)
            assert step.on_consume(record).value == VALUE

    def test_that_take_and_never_answer_stop_a_producer_for_a_bounded_time(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
            options = {"type": "s3", "bucket": "archive", "region": "eu-central-1", "endpoint": endpoint}
            with opened(options, timeout_ms=300) as step, pytest.raises(HeldBackError, match="nothing was"):
                sent(step)

    @pytest.mark.parametrize("mode", ["unavailable", "denied", "cut", "chunked"])
    def test_that_fail_hold_records_back(self, server: ObjectServer, mode: Any) -> None:
        with opened(server.options()) as step:
            record, _ = sent(step)
            server.mode = mode
            with pytest.raises(HeldBackError):
                step.on_consume(record)
            server.mode = None
            assert step.on_consume(record).value == VALUE

    def test_that_are_busy_are_asked_again(self, server: ObjectServer) -> None:
        with opened(server.options()) as step:
            server.mode = "busy_once"
            record, _ = sent(step)
            server.mode = "busy_once"
            assert step.on_consume(record).value == VALUE

    def test_that_lie_about_the_size_are_refused(self, server: ObjectServer) -> None:
        with opened(server.options()) as step:
            record, _ = sent(step)
            server.stated_length = len(VALUE) - 1
            with pytest.raises(ClaimError, match="the claim says"):
                step.on_consume(record)

    def test_quote_nothing_of_a_value_a_key_or_a_signed_address(self, server: ObjectServer) -> None:
        with opened(server.options()) as step:
            record, _ = sent(step)
            server.mode = "denied"
            with pytest.raises(HeldBackError) as caught:
                step.on_consume(record)
        text = f"{caught.value!s} {caught.value.__cause__!s}"
        for secret in ("contract", "X-Amz", "http:", record.headers.last(CLAIM_HEADER).decode()):  # type: ignore[union-attr]
            assert secret not in text


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ssl.SSLContext]:
    """Make the certificate of a store on loopback: its file, and what a server needs."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a store")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    folder = tmp_path_factory.mktemp("authority")
    public_file, both_file = folder / "store.pem", folder / "both.pem"
    public_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    both_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *private) + public_file.read_bytes())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(both_file)
    return str(public_file), server


class TestTls:
    def test_is_verified_against_the_authorities_of_the_configuration(
        self, authority: tuple[str, ssl.SSLContext]
    ) -> None:
        ca_file, context = authority
        with ObjectServer(context) as server:
            with opened(server.options(ca_file=ca_file)) as step:
                assert step.on_consume(sent(step)[0]).value == VALUE
            with closing(open_object_store(server.options(ca_file=ca_file), path="store")) as store:
                assert [found.size_bytes for found in store.objects("orders")] == [len(VALUE)]
            with opened(server.options()) as step, pytest.raises(HeldBackError, match="SSLCert"):
                sent(step)

    def test_does_not_make_a_slow_store_a_forger(self, authority: tuple[str, ssl.SSLContext]) -> None:
        ca_file, context = authority
        with ObjectServer(context) as server, opened(server.options(ca_file=ca_file)) as step:
            record, _ = sent(step)
            server.mode = "slow_body"
            with (
                opened(server.options(ca_file=ca_file), timeout_ms=500) as hasty,
                pytest.raises(HeldBackError),
            ):
                hasty.on_consume(record)


class TestLists:
    def test_that_redirect_for_ever_are_an_error_of_ours(self, server: ObjectServer) -> None:
        with ObjectServer() as elsewhere:
            server.mode, server.elsewhere = "redirect", f"{elsewhere.url}/archive"
            with (
                closing(open_object_store(server.options(), path="store")) as store,
                pytest.raises(ObjectStoreError),
            ):
                list(store.objects("orders"))
            assert elsewhere.requests == []


class TestClients:
    def test_pass_over_no_record_while_the_store_is_down(
        self, cluster: EmbeddedCluster, server: ObjectServer
    ) -> None:
        step = ClaimCheck(stores={"archive": server.options()}, min_bytes=100, timeout_ms=2_000)
        topic = "claimed-through-an-outage"
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers}, chain=Chain([step]))
        producer.produce(topic, VALUE, partition=0)
        producer.produce(topic, b"small", partition=0)
        producer.flush(60)
        server.mode = "unavailable"
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reads"}
        with closing(
            Consumer({**settings, "auto.offset.reset": "earliest"}, chain=Chain([step]))
        ) as consumer:
            consumer.subscribe([topic])
            values: list[bytes | None] = []
            held = 0

            def read() -> None:
                nonlocal held
                try:
                    message = consumer.poll(0.2)
                except HeldBackError:
                    held += 1
                else:
                    if message is not None:
                        values.append(message.value())

            until(lambda: held, meanwhile=read)
            assert values == []
            server.mode = None
            until(lambda: len(values) == 2, meanwhile=read)
        assert values == [VALUE, b"small"]

    def test_send_nothing_if_the_store_is_down(self, cluster: EmbeddedCluster, server: ObjectServer) -> None:
        step = ClaimCheck(
            stores={"archive": server.options()}, min_bytes=100, timeout_ms=2_000, on_error="dead_letter"
        )
        server.mode = "unavailable"
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers}, chain=Chain([step]))
        with pytest.raises(HeldBackError, match="nothing was sent"):
            producer.produce("claimed-in-vain", VALUE)
        assert len(producer) == 0
        assert "claimed-in-vain.dead-letter" not in producer.list_topics(timeout=60).topics
