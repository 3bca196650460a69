"""The key service ``vault``, against a server that answers as Vault does."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from headerware import ConfigError, Context
from headerware.keyring.services import (
    InvalidWrappedKeyError,
    KeyDeletedError,
    KeyDeniedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    NoSuchKeyError,
    Vault,
    open_key_service,
)
from tests.vault_server import TOKEN, VaultServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headerware.keyring.services import KeyService

KEY = bytes(range(32))


@pytest.fixture
def vault() -> Iterator[VaultServer]:
    with VaultServer() as server:
        yield server


def opened(vault: VaultServer, **options: Any) -> KeyService:
    return Vault(url=vault.url, **{"token": TOKEN, **options}).open(Context())


class TestKeys:
    def test_have_versions(self, vault: VaultServer) -> None:
        service = opened(vault)
        old = service.wrap("orders", KEY, b"c")
        vault.rotate("orders")
        new = service.wrap("orders", KEY, b"c")
        assert (old.version, new.version) == ("1", "2")
        assert [service.unwrap("orders", one.wrapped, b"c") for one in (old, new)] == [KEY, KEY]

    def test_of_versions_that_are_no_longer_decrypted_are_gone(self, vault: VaultServer) -> None:
        service = opened(vault)
        wrapped = service.wrap("orders", KEY, b"c").wrapped
        vault.rotate("orders")
        vault.keys["orders"].min_decryption_version = 2
        with pytest.raises(KeyDeletedError, match="min_decryption_version"):
            service.unwrap("orders", wrapped, b"c")

    def test_that_are_not_there_hold_back_unless_they_are_listed_as_deleted(self, vault: VaultServer) -> None:
        wrapped = opened(vault).wrap("orders", KEY, b"c").wrapped
        del vault.keys["orders"]
        with pytest.raises(NoSuchKeyError, match="list it in deleted_keys"):
            opened(vault).unwrap("orders", wrapped, b"c")
        calls = len(vault.calls)
        with pytest.raises(KeyDeletedError):
            opened(vault, deleted_keys=("orders",)).unwrap("orders", wrapped, b"c")
        assert len(vault.calls) == calls

    def test_may_have_other_names_in_vault(self, vault: VaultServer) -> None:
        service = opened(vault, keys={"o": "orders"})
        wrapped = service.wrap("o", KEY, b"c").wrapped
        assert opened(vault).unwrap("orders", wrapped, b"c") == KEY
        assert vault.calls[0][0] == "/v1/transit/encrypt/orders"

    def test_cannot_name_another_path(self, vault: VaultServer) -> None:
        for name in ("../../sys/seal", "orders/../payments", "..", "orders?x=1", "orders%2f..", ""):
            with pytest.raises(NoSuchKeyError, match="can have the name"):
                opened(vault).wrap(name, KEY, b"c")
        assert vault.calls == []


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, KeyServiceError),
            (403, KeyDeniedError),
            (404, NoSuchKeyError),
            (412, KeyServiceUnavailableError),
            (429, KeyServiceUnavailableError),
            (472, KeyServiceUnavailableError),
            (500, KeyServiceUnavailableError),
            (502, KeyServiceUnavailableError),
            (503, KeyServiceUnavailableError),
        ],
    )
    def test_say_what_may_help(self, vault: VaultServer, status: int, kind: type[KeyServiceError]) -> None:
        service = opened(vault)
        wrapped = service.wrap("orders", KEY, b"c").wrapped
        vault.status = status
        with pytest.raises(KeyServiceError) as caught:
            service.wrap("orders", KEY, b"c")
        assert type(caught.value) is kind
        with pytest.raises(InvalidWrappedKeyError if status == 400 else kind):
            service.unwrap("orders", wrapped, b"c")

    def test_of_a_sealed_vault_hold_back(self, vault: VaultServer) -> None:
        service = opened(vault)
        vault.sealed = True
        with pytest.raises(KeyServiceUnavailableError, match="VaultDown"):
            service.wrap("orders", KEY, b"c")
        vault.sealed = False
        assert service.wrap("orders", KEY, b"c")

    @pytest.mark.parametrize(
        "raw",
        [
            *(b"", b"<html>", b"[]", b"{}", b"1", b'{"data": null}', b'{"data": {}}'),
            *(
                b'{"data": {"plaintext": "%%"}}',
                b'{"data": {"plaintext": ""}}',
                b'{"data": {"ciphertext": 1}}',
            ),
        ],
    )
    def test_that_are_nonsense_are_errors(self, vault: VaultServer, raw: bytes) -> None:
        service = opened(vault)
        wrapped = service.wrap("orders", KEY, b"c").wrapped
        vault.raw = raw
        with pytest.raises(KeyServiceUnavailableError):
            service.wrap("orders", KEY, b"c")
        with pytest.raises(KeyServiceUnavailableError):
            service.unwrap("orders", wrapped, b"c")

    def test_that_take_too_long_are_not_waited_for(self, vault: VaultServer) -> None:
        service = opened(vault, timeout_ms=100)
        vault.delay_s = 1.0
        with pytest.raises(KeyServiceUnavailableError, match="Timeout"):
            service.wrap("orders", KEY, b"c")


class TestToken:
    def test_of_a_file_is_read_for_each_call(self, vault: VaultServer, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text(f"{TOKEN}\n")
        service = opened(vault, token=None, token_file=str(path))
        service.wrap("orders", KEY, b"c")
        vault.tokens = {"s.renewed"}
        with pytest.raises(KeyDeniedError):
            service.wrap("orders", KEY, b"c")
        path.write_text("s.renewed")
        service.wrap("orders", KEY, b"c")
        assert [token for _, token in vault.calls] == [TOKEN, TOKEN, "s.renewed"]

    @pytest.mark.parametrize("content", ["", "two\nlines", "t\u00f6ken", "x" * 10_000])
    def test_that_is_none_is_not_sent(self, vault: VaultServer, tmp_path: Path, content: str) -> None:
        path = tmp_path / "token"
        path.write_text(content)
        with pytest.raises(KeyServiceUnavailableError, match="token_file"):
            opened(vault, token=None, token_file=str(path)).wrap("orders", KEY, b"c")

    @pytest.mark.parametrize(
        "change", [lambda path: path.chmod(0o666), lambda path: os.chown(path, 12345, -1)]
    )
    def test_in_a_file_that_others_can_change_are_not_used(
        self, vault: VaultServer, tmp_path: Path, change: Callable[[Path], None]
    ) -> None:
        path = tmp_path / "token"
        path.write_text(TOKEN)
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        change(path)
        before = len(vault.calls)
        with pytest.raises(KeyServiceUnavailableError, match=r"written by others|belongs to user 12345"):
            opened(vault, token=None, token_file=str(path)).wrap("orders", KEY, b"c")
        assert len(vault.calls) == before, "nothing was sent"
        assert vault.calls == []

    def test_is_neither_taken_from_the_environment_nor_sent_through_it(
        self, vault: VaultServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with VaultServer() as another:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "VAULT_ADDR"):
                monkeypatch.setenv(name, another.url)
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("VAULT_TOKEN", "s.of-the-environment")
            opened(vault).wrap("orders", KEY, b"c")
            assert [token for _, token in vault.calls] == [TOKEN]
            assert another.calls == []

    def test_is_shown_nowhere(self, vault: VaultServer) -> None:
        options = Vault(url=vault.url, token=TOKEN)
        vault.status = 403
        with pytest.raises(KeyDeniedError) as caught:
            options.open(Context()).wrap("orders", KEY, b"c")
        shown = [options, options.__rich_repr__(), caught.value, caught.value.__cause__]
        assert TOKEN not in f"{shown!r} {caught.value}"


class TestTls:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        """Make a certificate for this machine, signed by itself, with its key in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vault of the tests")])
        now, here = datetime.now(UTC), x509.IPAddress(ip_address("127.0.0.1"))
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([here]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, SHA256())
        )
        path = tmp_path / "vault.pem"
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + made.public_bytes(Encoding.PEM)
        )
        return path

    def test_is_verified_by_the_certificates_of_the_options_alone(
        self, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        with VaultServer(tls=tls) as vault:
            service = opened(vault, ca=str(certificate))
            assert service.unwrap("orders", service.wrap("orders", KEY, b"c").wrapped, b"c") == KEY
            service.close()
            calls = len(vault.calls)
            for name in ("REQUESTS_CA_BUNDLE", "VAULT_CACERT", "CURL_CA_BUNDLE"):
                monkeypatch.setenv(name, str(certificate))
            with pytest.raises(KeyServiceUnavailableError, match="SSLError"):
                opened(vault).wrap("orders", KEY, b"c")
            assert len(vault.calls) == calls


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"url": "http://vault.example:8200"}, "url"),
            ({"url": "ftp://127.0.0.1"}, "url"),
            ({"url": "vault:8200"}, "url"),
            ({"url": "https://user:word@vault.example"}, "url"),
            ({"url": "http://127.0.0.1.example:8200"}, "url"),
            ({"token": None}, "token"),
            ({"token_file": "token"}, "token"),
            ({"token": "two\nlines"}, "token"),
        ],
    )
    def test_that_cannot_work_are_refused(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Vault(**{"url": "https://vault.example", "token": "t", **options})
        assert caught.value.path == path

    @pytest.mark.parametrize(
        "url",
        ["http://localhost:8200", "http://127.0.0.1:8200", "http://[::1]:8200", "https://vault.example"],
    )
    def test_take_http_on_this_machine_alone(self, url: str) -> None:
        assert Vault(url=url, token="t").url == url
        assert Vault(url="http://vault:8200", token="t", allow_http=True).allow_http

    def test_come_from_a_table_as_configuration_has_it(
        self, vault: VaultServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOKEN_OF_VAULT", TOKEN)
        table = {"type": "vault", "url": vault.url, "token": "${env:TOKEN_OF_VAULT}"}
        service = open_key_service(table, Context())
        assert service.unwrap("orders", service.wrap("orders", KEY, b"c").wrapped, b"c") == KEY

    def test_of_an_unknown_type_are_refused_with_a_hint(self) -> None:
        with pytest.raises(ConfigError, match="there is no key service type 'valt'") as caught:
            open_key_service({"type": "valt"}, Context())
        assert "vault" in str(caught.value)
        assert caught.value.path == "service"
