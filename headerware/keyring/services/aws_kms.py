"""The key service ``aws_kms``: keys of AWS's Key Management Service, through boto3.

A wrapped data key is KMS's unchanged ``CiphertextBlob``. The context is KMS's encryption context under the
name ``headerware``, so policies (``kms:EncryptionContext:headerware``) and CloudTrail see it as text. A
context that is not UTF-8 is base64 under ``headerware-base64``.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

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
from headerware.core.per_process import PerProcess
from headerware.core.remote import require_safe_address
from headerware.keyring.services.service import KeyServiceOptions, Wrapped, require_undeleted

if TYPE_CHECKING:
    from headerware.core.context import Context

_KEY_ARN: Final = re.compile(r"arn:[a-z-]+:kms:([a-z0-9-]+):\d{12}:key/[A-Za-z0-9-]+")
_ERRORS: Final[dict[str, type[KeyServiceError]]] = {
    "AccessDeniedException": KeyDeniedError,
    "DisabledException": KeyDeletedError,
    "ExpiredTokenException": KeyDeniedError,
    "IncompleteSignature": KeyDeniedError,
    "IncorrectKeyException": InvalidWrappedKeyError,
    "InvalidCiphertextException": InvalidWrappedKeyError,
    "InvalidClientTokenId": KeyDeniedError,
    "InvalidSignatureException": KeyDeniedError,
    "LimitExceededException": KeyServiceUnavailableError,
    "MissingAuthenticationTokenException": KeyDeniedError,
    "NotFoundException": NoSuchKeyError,
    "ThrottlingException": KeyServiceUnavailableError,
    "UnrecognizedClientException": KeyDeniedError,
    "ValidationException": InvalidWrappedKeyError,
}
"""Errors by KMS's exception; for others, such as KMSInvalidStateException, text or status decides."""


class AwsKms(KeyServiceOptions, frozen=True, kw_only=True):
    """Use symmetric keys of AWS KMS; boto3 finds the credentials, and these options set everything else.

    Args:
        region: the region, such as ``eu-central-1``.
        keys: KMS's keys (key ARNs, key ids or aliases) by the ids in ``key_ids`` and records. An id that is
            not listed is passed to KMS unchanged. An alias must keep naming the key that encrypted the
            records, because KMS decrypts under no other key.
        endpoint: the address of KMS, such as a VPC endpoint; None means the region's. Neither the environment
            nor AWS's own configuration files can change the address, and no proxy is used.
        timeout_ms: how long one request may take to connect, and then to answer, in milliseconds.
        attempts: how many requests are made for one call, if KMS fails or throttles.
        deleted_keys: ids of keys that KMS has deleted: their records are refused for good, not held back.
        allow_http: whether an endpoint on another machine may be without TLS; for tests.

    Raises:
        ConfigError: an option has an invalid value.
    """

    type: ClassVar[str] = "aws_kms"
    printable: ClassVar[tuple[str, ...]] = (
        "region",
        "keys",
        "endpoint",
        "timeout_ms",
        "attempts",
        "deleted_keys",
        "allow_http",
    )

    region: Annotated[str, msgspec.Meta(min_length=1)]
    keys: dict[str, str] = msgspec.field(default_factory=dict)
    endpoint: str | None = None
    timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 2_000
    attempts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 2
    deleted_keys: tuple[str, ...] = ()
    allow_http: bool = False

    def __post_init__(self) -> None:
        """Refuse an endpoint without TLS."""
        if self.endpoint is not None:
            require_safe_address(self.endpoint, what="data keys", allow_http=self.allow_http, path="endpoint")

    def open(self, context: Context) -> AwsKmsService:  # noqa: ARG002 - it needs no clock
        """Return the service; it connects on the first call.

        Raises:
            MissingPartError: boto3 is not installed.
            ConfigError: boto3 refuses an option.
        """
        return AwsKmsService(self)


class AwsKmsService:
    """Wrap under keys of AWS KMS; see :class:`AwsKms`."""

    def __init__(self, options: AwsKms) -> None:
        self._options: Final = options
        self._client: Final = PerProcess(self._make_client)

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        """Call Encrypt; see :class:`KeyService`."""
        key = self._key(key_id)
        found = self._call(
            "encrypt", key_id, KeyId=key, Plaintext=data_key, EncryptionContext=_pairs(context)
        )
        if not self._is_of(key, found.get("KeyId")):
            raise KeyServiceError(f"KMS encrypted under another key than {key_id!r}")
        return Wrapped(bytes(found["CiphertextBlob"]))

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Call Decrypt for this key only; see :class:`KeyService`."""
        key = self._key(key_id)
        pairs = _pairs(context)
        found = self._call("decrypt", key_id, KeyId=key, CiphertextBlob=wrapped, EncryptionContext=pairs)
        if not self._is_of(key, found.get("KeyId")):
            raise InvalidWrappedKeyError(f"KMS decrypted it under another key than {key_id!r}")
        return bytes(found["Plaintext"])

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._client.get().close()

    def _key(self, key_id: str) -> str:
        require_undeleted(key_id, self._options.deleted_keys)
        return self._options.keys.get(key_id, key_id)

    def _is_of(self, key: str, answered: Any) -> bool:
        """Return whether the ARN in KMS's answer can belong to the requested key."""
        found = _KEY_ARN.fullmatch(answered) if isinstance(answered, str) else None
        if found is None or found[1] != self._options.region:
            return False
        if ":key/" in key:
            return found[0] == key
        if key.startswith("alias/"):
            return True
        if ":alias/" in key:
            return found[0].split(":")[:5] == key.split(":")[:5]
        return found[0].endswith(f":key/{key}")

    def _make_client(self) -> Any:
        try:
            import boto3  # noqa: PLC0415 - heavy, and an extra
            from botocore.config import Config  # noqa: PLC0415 - likewise
            from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - likewise
        except ImportError as error:
            raise MissingPartError(f"aws_kms needs boto3: {install_command('aws')}") from error
        options = self._options
        seconds = options.timeout_ms / 1000
        config = Config(
            connect_timeout=seconds,
            read_timeout=seconds,
            retries={"total_max_attempts": options.attempts, "mode": "standard"},
            ignore_configured_endpoint_urls=True,
            proxies={},  # ignore the environment's: only KMS may see a data key
        )
        try:
            session = boto3.session.Session(region_name=options.region)
            return session.client("kms", endpoint_url=options.endpoint, config=config)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"boto3 refuses the options: {error}", path="aws_kms") from error

    def _call(self, operation: str, key_id: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import (  # noqa: PLC0415 - heavy, and an extra
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )

        what = f"AWS KMS, {operation} under {key_id!r}"
        try:
            answer: dict[str, Any] = getattr(self._client.get(), operation)(**arguments)
        except ClientError as error:
            raise _refusal(what, operation, error.response) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise KeyDeniedError(f"{what}: boto3 finds no credentials") from error
        except BotoCoreError as error:
            where = self._options.endpoint or self._options.region
            raise KeyServiceUnavailableError(f"{what}: {type(error).__name__} at {where}") from error
        return answer


def _refusal(what: str, operation: str, response: Any) -> KeyServiceError:
    """Return the error for KMS's refusal, with the code only, because KMS's text may quote anything."""
    code = str(response.get("Error", {}).get("Code", ""))[:64]
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = _ERRORS.get(code)
    if kind is None:
        known_state = "pending deletion" in str(response.get("Error", {}).get("Message", ""))
        kind = KeyDeletedError if code == "KMSInvalidStateException" and known_state else None
    if kind is InvalidWrappedKeyError and operation == "encrypt":
        kind = KeyServiceError
    if kind is not None:
        return kind(f"{what}: {code}")
    if 300 <= status < 400:
        return KeyServiceUnavailableError(
            f"{what}: it redirects (HTTP {status}), and redirects are not followed"
        )
    # These are failures, throttling, and keys that wait for their import or whose store is disconnected.
    return KeyServiceUnavailableError(f"{what}: {code or 'no code'}, HTTP {status}")


def _pairs(context: bytes) -> dict[str, str]:
    try:
        return {"headerware": context.decode()}
    except UnicodeDecodeError:
        return {"headerware-base64": base64.b64encode(context).decode()}
