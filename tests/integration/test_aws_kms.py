"""The key service ``aws_kms``, against moto's server, and one that answers as KMS does in bad times."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from contextlib import closing, contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from headerware import ConfigError, Context
from headerware.keyring.services import (
    AwsKms,
    InvalidWrappedKeyError,
    KeyDeletedError,
    KeyDeniedError,
    KeyService,
    KeyServiceError,
    KeyServiceUnavailableError,
    NoSuchKeyError,
)
from headerware.testing import KeyServiceConformance
from tests.kms_server import REGION, KmsServer, set_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = bytes(range(32))
ARN = f"arn:aws:kms:{REGION}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


@pytest.fixture(scope="module")
def moto() -> Iterator[KmsServer]:
    with pytest.MonkeyPatch.context() as environment:
        set_credentials(environment)
        server = KmsServer()
        yield server
        server.client.close()
        server.stop()


class TestMoto(KeyServiceConformance):
    @pytest.fixture(autouse=True)
    def _keys(self, moto: KmsServer) -> None:
        self.moto = moto
        self.keys = {self.key_id: moto.new_key(), self.other_key_id: moto.new_key()}
        self.deleted: tuple[str, ...] = ()

    def open_service(self) -> KeyService:
        options = AwsKms(region=REGION, endpoint=self.moto.url, keys=self.keys, deleted_keys=self.deleted)
        return options.open(Context())

    def delete_key(self, key_id: str) -> None:
        # moto goes on with keys that are to be deleted; KMS's own answers are below.
        self.deleted = (key_id,)

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.moto.stop()
        yield
        self.moto.start()

    def test_takes_a_key_by_its_arn_its_id_and_its_alias(self) -> None:
        arn = self.keys["orders"]
        alias = f"alias/orders-{arn[-12:]}"
        self.moto.client.create_alias(AliasName=alias, TargetKeyId=arn)
        names = [arn, arn.rpartition("/")[2], alias, f"{arn.partition(':key/')[0]}:{alias}"]
        self.keys = {f"key{number}": name for number, name in enumerate(names)}
        with closing(self.open_service()) as service:
            for wrapping in self.keys:
                wrapped = service.wrap(wrapping, KEY, b"c").wrapped
                assert service.unwrap(wrapping, wrapped, b"c") == KEY

    def test_a_context_is_text_where_it_can_be(self) -> None:
        with closing(self.open_service()) as service:
            wrapped = service.wrap("orders", KEY, b"cluster/orders").wrapped
        found = self.moto.client.decrypt(
            CiphertextBlob=wrapped, EncryptionContext={"headerware": "cluster/orders"}
        )
        assert found["Plaintext"] == KEY

    def test_an_alias_that_names_another_key_unwraps_nothing_of_the_old_one(self) -> None:
        alias = f"alias/moved-{self.keys['orders'][-12:]}"
        self.moto.client.create_alias(AliasName=alias, TargetKeyId=self.keys["orders"])
        self.keys["moved"] = alias
        with closing(self.open_service()) as service:
            wrapped = service.wrap("moved", KEY, b"c").wrapped
            self.moto.client.update_alias(AliasName=alias, TargetKeyId=self.keys["payments"])
            with pytest.raises(KeyServiceError):
                service.unwrap("moved", wrapped, b"c")


class Kms:
    """A server that answers each request as the test says; it records the requests."""

    def __init__(self) -> None:
        self.forget()
        kms = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version: ClassVar[str] = "HTTP/1.1"  # type: ignore[misc]

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kms.requests.append(json.loads(body))
                time.sleep(kms.delay_s)
                answer = json.dumps(kms.answer).encode()
                with contextlib.suppress(OSError):  # of a client that has given up
                    self.answer(answer)

            def answer(self, answer: bytes) -> None:
                self.send_response(kms.status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(answer)))
                if kms.location is not None:
                    self.send_header("Location", kms.location)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def forget(self) -> None:
        self.status = 200
        self.delay_s = 0.0
        self.answer: dict[str, Any] = {}
        self.location: str | None = None
        self.requests: list[dict[str, Any]] = []

    @cached_property
    def service(self) -> KeyService:
        """Return the service with the usual options; opening one takes boto3 a while."""
        return self.open()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def open(self, **options: Any) -> KeyService:
        given = {"region": REGION, "endpoint": self.url, "keys": {"orders": ARN}, "attempts": 1, **options}
        return AwsKms(**given).open(Context())


@pytest.fixture(scope="module")
def _kms() -> Iterator[Kms]:
    with pytest.MonkeyPatch.context() as environment:
        set_credentials(environment)
        with closing(Kms()) as server, closing(server.service):
            yield server


@pytest.fixture
def kms(_kms: Kms) -> Kms:
    _kms.forget()
    return _kms


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "code", "message", "kind"),
        [
            (400, "DisabledException", "", KeyDeletedError),
            (400, "KMSInvalidStateException", f"{ARN} is pending deletion.", KeyDeletedError),
            (400, "KMSInvalidStateException", f"{ARN} is pending import.", KeyServiceUnavailableError),
            (400, "NotFoundException", f"Key '{ARN}' does not exist", NoSuchKeyError),
            (400, "AccessDeniedException", "", KeyDeniedError),
            (400, "UnrecognizedClientException", "", KeyDeniedError),
            (400, "ThrottlingException", "", KeyServiceUnavailableError),
            (400, "LimitExceededException", "", KeyServiceUnavailableError),
            (500, "KMSInternalException", "", KeyServiceUnavailableError),
            (500, "DependencyTimeoutException", "", KeyServiceUnavailableError),
            (500, "KeyUnavailableException", "", KeyServiceUnavailableError),
            (503, "", "", KeyServiceUnavailableError),
            (400, "InvalidCiphertextException", "", InvalidWrappedKeyError),
            (400, "IncorrectKeyException", "", InvalidWrappedKeyError),
            (400, "ValidationException", "", InvalidWrappedKeyError),
        ],
    )
    def test_say_what_may_help(
        self, kms: Kms, status: int, code: str, message: str, kind: type[KeyServiceError]
    ) -> None:
        kms.status, kms.answer = status, {"__type": code, "message": f"{message} {KEY.hex()}"}
        with pytest.raises(KeyServiceError) as caught:
            kms.service.unwrap("orders", b"wrapped", b"c")
        assert type(caught.value) is kind
        assert KEY.hex() not in str(caught.value)
        with pytest.raises(KeyServiceError) as caught:
            kms.service.wrap("orders", KEY, b"c")
        assert type(caught.value) is (KeyServiceError if kind is InvalidWrappedKeyError else kind)

    @pytest.mark.parametrize(
        "answered",
        [
            *(ARN.replace("1234abcd", "4321abcd"), ARN.replace("central", "west"), ARN + "x"),
            *("", None, "alias/orders"),
        ],
    )
    def test_for_another_key_are_not_believed(self, kms: Kms, answered: str | None) -> None:
        kms.answer = {"KeyId": answered, "Plaintext": "AAAA", "CiphertextBlob": "AAAA"}
        with pytest.raises(InvalidWrappedKeyError, match="another key"):
            kms.service.unwrap("orders", b"wrapped", b"c")
        with pytest.raises(KeyServiceError, match="another key"):
            kms.service.wrap("orders", KEY, b"c")

    @pytest.mark.parametrize(
        ("configured", "answered", "believed"),
        [
            (ARN, ARN, True),
            ("1234abcd-12ab-34cd-56ef-1234567890ab", ARN, True),
            ("234abcd-12ab-34cd-56ef-1234567890ab", ARN, False),
            ("alias/orders", ARN, True),
            (f"arn:aws:kms:{REGION}:123456789012:alias/orders", ARN, True),
            (f"arn:aws:kms:{REGION}:210987654321:alias/orders", ARN, False),
            ("alias/orders", ARN.replace(REGION, "us-east-1"), False),
        ],
    )
    def test_are_held_to_the_key_that_was_asked_for(
        self, kms: Kms, configured: str, answered: str, *, believed: bool
    ) -> None:
        kms.answer = {"KeyId": answered, "Plaintext": "AAAA"}
        if believed:
            assert kms.service.unwrap(configured, b"wrapped", b"c") == b"\0\0\0"
        else:
            with pytest.raises(InvalidWrappedKeyError, match="another key"):
                kms.service.unwrap(configured, b"wrapped", b"c")
        assert kms.requests[0]["KeyId"] == configured

    def test_that_redirect_are_not_followed(self, kms: Kms) -> None:
        with closing(Kms()) as thief:
            kms.status, kms.location = 307, thief.url
            with pytest.raises(KeyServiceUnavailableError, match="redirects"):
                kms.service.wrap("orders", KEY, b"c")
            assert thief.requests == []

    def test_that_take_too_long_are_not_waited_for(self, kms: Kms) -> None:
        kms.delay_s = 2.0  # whoever waits for it gets an answer
        refused = pytest.raises(KeyServiceUnavailableError, match="ReadTimeout")
        with closing(kms.open(timeout_ms=100)) as service, refused:
            service.wrap("orders", KEY, b"c")

    def test_are_asked_for_a_bounded_number_of_times(self, kms: Kms) -> None:
        kms.status, kms.answer = 500, {"__type": "KMSInternalException"}
        with closing(kms.open(attempts=2)) as service, pytest.raises(KeyServiceUnavailableError):
            service.unwrap("orders", b"wrapped", b"c")
        assert len(kms.requests) == 2

    def test_come_from_the_configured_endpoint_alone_without_a_proxy(
        self, kms: Kms, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(Kms()) as another:
            for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KMS", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, another.url)
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.delenv(name, raising=False)
            kms.answer = {"KeyId": ARN, "Plaintext": "AAAA"}
            with closing(kms.open()) as service:
                service.unwrap("orders", b"wrapped", b"c")
            assert (len(kms.requests), another.requests) == (1, [])

    def test_need_credentials(self, kms: Kms, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        with closing(kms.open()) as service, pytest.raises(KeyDeniedError, match="no credentials"):
            service.wrap("orders", KEY, b"c")
        assert kms.requests == []


class TestOptions:
    def test_refuse_an_endpoint_in_the_clear(self) -> None:
        with pytest.raises(ConfigError, match="in the clear") as caught:
            AwsKms(region=REGION, endpoint="http://kms.example")
        assert caught.value.path == "endpoint"

    def test_refuse_what_is_no_region(self) -> None:
        with pytest.raises(ConfigError, match="refuses the options"):
            AwsKms(region="no region/..").open(Context())
