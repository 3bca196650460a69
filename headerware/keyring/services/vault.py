"""The key service ``vault``: keys of HashiCorp Vault's transit engine (or OpenBao's), through hvac.

A wrapped data key is transit's unchanged ciphertext, such as ``vault:v3:...``; the number is the key's
version. The context is transit's ``associated_data``, which its AEAD keys authenticate, or, for derived keys,
its ``context``, from which the key is derived. A key that is not derived ignores a ``context``; the self-test
of data keys detects this.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import (
    ConfigError,
    InvalidWrappedKeyError,
    KeyDeletedError,
    KeyDeniedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    MissingPartError,
    NoSuchKeyError,
)
from headerware.core.extras import install_command
from headerware.core.options import PATH
from headerware.core.per_process import PerProcess
from headerware.core.plain_files import changeable_by_others, read_plain, why_unreadable
from headerware.core.remote import require_safe_address
from headerware.keyring.services.service import KeyServiceOptions, Wrapped, require_undeleted

if TYPE_CHECKING:
    from headerware.core.context import Context

_CIPHERTEXT: Final = re.compile(rb"vault:v([1-9]\d{0,8}):[A-Za-z0-9+/]+={0,2}")
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
"""The names that transit's keys can have; no other text may become a part of the address."""
_TOKEN: Final = re.compile(r"(?:hv)?[sbr]\.[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9]+)?")
"""The tokens that Vault makes; an older one has no ``hv``, and one of a namespace ends with its id."""
_MAX_TOKEN_BYTES: Final = 8192
_DOMAIN: Final = b"headerware\0"
"""A prefix of the context, so that no other ciphertext under the same key passes for a data key."""


class Vault(KeyServiceOptions, frozen=True, kw_only=True):
    """Use keys of Vault's transit engine.

    Args:
        url: Vault's address, such as ``https://vault.example:8200``. Redirects are not followed, so that the
            token is sent nowhere else.
        mount: the path at which the transit engine is mounted.
        keys: the names of transit's keys by the ids in ``key_ids`` and records; an id that is not listed is
            the key's own name.
        token: Vault's token, best as ``${env:VAULT_TOKEN}``.
        token_file: a file with the token, such as the one of Vault Agent; it is read for each call, so a
            renewed token is used at once.
        namespace: Vault's namespace, or None.
        ca: a file with the certificates that verify Vault; None uses the certificates of this machine.
        bind: how the context is bound: as ``associated_data`` (AEAD keys), or as ``context`` (keys with
            ``derived=true``).
        timeout_ms: how long a request may take to connect, and then to answer, in milliseconds.
        deleted_keys: ids of keys that Vault has deleted: their records are refused for good, not held back.
            Vault itself cannot tell a deleted key from a key that never existed.
        allow_http: whether a Vault on another machine may be without TLS; for tests.

    Raises:
        ConfigError: an option has an invalid value.
    """

    type: ClassVar[str] = "vault"
    printable: ClassVar[tuple[str, ...]] = (
        "url",
        "mount",
        "keys",
        "token_file",
        "namespace",
        "ca",
        "bind",
        "timeout_ms",
        "deleted_keys",
        "allow_http",
    )

    url: str
    mount: Annotated[str, msgspec.Meta(min_length=1)] = "transit"
    keys: dict[str, str] = msgspec.field(default_factory=dict)
    token: str | None = None
    token_file: Annotated[str | None, PATH] = None
    namespace: str | None = None
    ca: Annotated[str | None, PATH] = None
    bind: Literal["associated_data", "context"] = "associated_data"
    timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 4_000
    deleted_keys: tuple[str, ...] = ()
    allow_http: bool = False

    def __post_init__(self) -> None:
        """Refuse an address without TLS, and require one source of the token."""
        require_safe_address(self.url, what="data keys", allow_http=self.allow_http, path="url")
        if (self.token is None) == (self.token_file is None):
            raise ConfigError("expected either token or token_file", path="token")
        if self.token_file is not None and _TOKEN.fullmatch(os.path.basename(self.token_file)):  # noqa: PTH119 - options are plain text
            raise ConfigError("expected a path, found a token; give it by token", path="token_file")
        if self.token is not None and not _is_token(self.token):
            raise ConfigError("expected one line of printable text", path="token")

    def open(self, context: Context) -> VaultService:  # noqa: ARG002 - it needs no clock
        """Return the service; it connects on the first call.

        Raises:
            MissingPartError: hvac is not installed.
        """
        return VaultService(self)


class VaultService:
    """Wrap under keys of Vault's transit engine; see :class:`Vault`."""

    def __init__(self, options: Vault) -> None:
        self._options: Final = options
        self._client: Final = PerProcess(self._make_client)

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        """Ask transit to encrypt; see :class:`KeyService`."""
        found = self._call("encrypt", key_id, context, plaintext=_base64(data_key))
        wrapped = str(found.get("ciphertext", "")).encode()
        matched = _CIPHERTEXT.fullmatch(wrapped)
        if matched is None:
            raise KeyServiceUnavailableError(f"Vault, encrypt under {key_id!r}: its answer is no ciphertext")
        return Wrapped(wrapped, matched[1].decode())

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Ask transit to decrypt; see :class:`KeyService`."""
        if _CIPHERTEXT.fullmatch(wrapped) is None:
            raise InvalidWrappedKeyError("it is no ciphertext of Vault's transit engine")
        found = self._call("decrypt", key_id, context, ciphertext=wrapped.decode())
        try:
            plain = base64.b64decode(str(found.get("plaintext", "")), validate=True)
        except (binascii.Error, ValueError):
            plain = b""
        if not plain:
            raise KeyServiceUnavailableError(f"Vault, decrypt under {key_id!r}: its answer has no plaintext")
        return plain

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._client.get().adapter.close()

    def _make_client(self) -> Any:
        try:
            import hvac  # noqa: PLC0415 - heavy, and an extra
            import requests  # noqa: PLC0415 - hvac is built on it
        except ImportError as error:
            raise MissingPartError(f"vault needs hvac: {install_command('vault')}") from error
        options = self._options
        session = requests.Session()
        session.trust_env = False  # no proxy or password of the environment: only Vault may see the token
        session.verify = options.ca or True
        return hvac.Client(
            url=options.url,
            token=options.token or "",
            namespace=options.namespace,
            timeout=options.timeout_ms / 1000,
            allow_redirects=False,
            session=session,
        )

    def _call(self, operation: str, key_id: str, context: bytes, **given: str) -> dict[str, Any]:
        import hvac.exceptions  # noqa: PLC0415 - heavy, and an extra
        import requests  # noqa: PLC0415 - likewise

        options = self._options
        require_undeleted(key_id, options.deleted_keys)
        what = f"Vault, {operation} under {key_id!r}"
        name = options.keys.get(key_id, key_id)
        if _NAME.fullmatch(name) is None:
            raise NoSuchKeyError(f"{what}: no key of Vault's can have the name {name!r}")
        client = self._client.get()
        if options.token_file is not None:
            client.token = _read_token(options.token_file)
        ask = getattr(client.secrets.transit, f"{operation}_data")
        bound = {options.bind: _base64(_DOMAIN + context)}
        try:
            answer = ask(name=name, mount_point=options.mount, **given, **bound)
        except hvac.exceptions.VaultError as error:
            raise _refusal(what, operation, error) from error
        except requests.RequestException as error:
            raise KeyServiceUnavailableError(f"{what}: {type(error).__name__}") from error
        except ValueError as error:
            raise KeyServiceUnavailableError(f"{what}: its answer is no JSON") from error
        found = answer.get("data") if isinstance(answer, dict) else None
        if isinstance(found, dict):
            return found
        status = getattr(answer, "status_code", 200)
        if 300 <= status < 400:
            raise KeyServiceUnavailableError(
                f"{what}: it redirects (HTTP {status}), and redirects are not followed: set url to "
                "the new address"
            )
        raise KeyServiceUnavailableError(f"{what}: its answer has no data (HTTP {status})")


def _refusal(what: str, operation: str, error: Any) -> KeyServiceError:
    """Return the error for a refusal of Vault; its text is read, but not quoted."""
    from hvac import exceptions  # noqa: PLC0415 - heavy, and an extra

    text = " ".join(map(str, error.errors or [error.args[0] if error.args else ""]))
    if isinstance(error, exceptions.Forbidden | exceptions.Unauthorized):
        return KeyDeniedError(f"{what}: permission denied, or the token is no longer valid")
    if isinstance(error, exceptions.InvalidPath):
        return NoSuchKeyError(f"{what}: no transit engine is mounted there, or it has no such key")
    if not isinstance(error, exceptions.InvalidRequest):
        return KeyServiceUnavailableError(f"{what}: {type(error).__name__}")
    if "key not found" in text:
        return NoSuchKeyError(f"{what}: it has no such key; if it was deleted, list it in deleted_keys")
    if "disallowed by policy" in text:
        return KeyDeletedError(f"{what}: the key's version is below its min_decryption_version")
    if operation == "decrypt":
        return InvalidWrappedKeyError(f"{what}: it was not wrapped under this key for this context")
    return KeyServiceError(f"{what}: Vault refuses the request (HTTP 400)")


def _read_token(path: str) -> str:
    try:
        content, status = read_plain(path, _MAX_TOKEN_BYTES)
        token = content.decode().strip()
    except (OSError, ValueError) as error:
        raise KeyServiceUnavailableError(
            f"token_file {os.fspath(path)} cannot be read: {why_unreadable(path, error)}"
        ) from None
    if problem := changeable_by_others(path, status):
        raise KeyServiceUnavailableError(f"token_file {os.fspath(path)} {problem}")
    if not _is_token(token):
        raise KeyServiceUnavailableError(f"token_file {os.fspath(path)} holds no token: expected one line")
    return token


def _is_token(text: str) -> bool:
    return text.isascii() and text.isprintable() and bool(text) and " " not in text


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
