"""Amazon S3, and other stores with its protocol, as an object store.

boto3 finds the credentials and signs; objects themselves go over HTTP connections of our own, which follow no
redirect, take no proxy or address from the environment, and are cut when their time is over. The reasons
against obstore and boto3's own transfers are in docs/decisions/0014-objects-are-moved-by-ourselves.md.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from headerware.core.backoff import pause_s
from headerware.core.errors import ConfigError, MissingPartError, NoSuchObjectError, ObjectStoreError
from headerware.core.extras import install_command
from headerware.core.options import PATH
from headerware.core.per_process import PerProcess
from headerware.core.remote import require_safe_address
from headerware.object_store.store import Found, ObjectStoreOptions, StoredObject

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_CHUNK_BYTES: Final = 1 << 18
_MAX_ERROR_BYTES: Final = 1 << 16
_CONNECT_S: Final = 5.0
_LIST_S: Final = 30.0
_ATTEMPTS: Final = 3
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_SIGNED_FOR_S: Final = 900
_CODE: Final = re.compile(rb"<Code>([A-Za-z]{1,64})</Code>")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_LINE_BREAKS: Final = re.compile(r"\s+")


class S3Objects(ObjectStoreOptions, frozen=True, kw_only=True):
    """Keep objects in a bucket; boto3 finds the credentials, and all else is in these options.

    Args:
        bucket: the bucket.
        prefix: the beginning of the objects' names, such as ``claims/eu``.
        region: the bucket's region, such as ``eu-central-1``.
        endpoint: the address of the store, such as the address of MinIO or of a VPC endpoint; None for the
            address of the region. Neither the environment nor AWS's own configuration files can change it.
        ca_file: a file with the certificates (PEM) of a store's own authority; None for the authorities of
            the system.
        allow_http: whether an endpoint on another machine may be without TLS; for tests.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "s3"

    bucket: Annotated[str, msgspec.Meta(min_length=3, max_length=2048)]
    region: Annotated[str, msgspec.Meta(min_length=1)]
    prefix: str = ""
    endpoint: str | None = None
    ca_file: Annotated[str, PATH] | None = None
    allow_http: bool = False

    def __post_init__(self) -> None:
        """Refuse a prefix that a store could read in another way, and an endpoint without TLS."""
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                "expected parts of ASCII letters, digits, dots, underscores and hyphens between slashes, "
                "none of which begins with a dot",
                path="prefix",
            )
        if self.endpoint is not None:
            require_safe_address(self.endpoint, what="values", allow_http=self.allow_http, path="endpoint")

    def open(self) -> S3ObjectStore:
        """Return the store; it connects with the first call.

        Raises:
            MissingPartError: boto3 is not installed.
            ConfigError: boto3 or ssl refuses an option.
        """
        return S3ObjectStore(self)


class S3ObjectStore:
    """The objects of a bucket; see :class:`S3Objects`."""

    def __init__(self, options: S3Objects) -> None:
        self._options: Final = options
        self._client: Final = PerProcess(self._make_client)
        try:
            self._tls: Final = ssl.create_default_context(cafile=options.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot be read: {error.strerror or error}", path="ca_file") from error

    def put(self, name: str, content: bytes, sha256: bytes, timeout_s: float) -> None:
        """Upload an object in one piece; the store compares the digest before it keeps anything."""
        checksum = base64.b64encode(sha256).decode()
        url = self._signed("put_object", name, ChecksumSHA256=checksum)
        headers = {"x-amz-checksum-sha256": checksum}
        exchange, _ = self._answered("PUT", url, content, headers, time.monotonic() + timeout_s)
        exchange.close()

    @contextmanager
    def read(self, name: str, timeout_s: float) -> Iterator[Found]:
        """Ask for an object."""
        url = self._signed("get_object", name)
        exchange, response = self._answered("GET", url, None, {}, time.monotonic() + timeout_s)
        try:
            size = response.length
            if size is None:
                raise self._failure("it does not say how large an object is")
            yield Found(size, self._chunks(response))
        finally:
            exchange.close()

    def objects(self, folder: str) -> Iterator[StoredObject]:
        """List the objects whose names begin with the name of the folder."""
        begin = self._key(f"{folder}/")
        own = len(begin) - len(folder) - 1
        with self._calling("list objects"):
            pages = self._client.get().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._options.bucket, Prefix=begin):
                for found in page.get("Contents", ()):
                    modified_ms = int(found["LastModified"].timestamp() * 1000)
                    yield StoredObject(str(found["Key"])[own:], int(found["Size"]), modified_ms)

    def delete(self, name: str) -> None:
        """Delete an object; in a bucket with versions, its last version becomes a noncurrent one."""
        with self._calling("delete an object"):
            self._client.get().delete_object(Bucket=self._options.bucket, Key=self._key(name))

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._client.get().close()

    def _key(self, name: str) -> str:
        prefix = self._options.prefix
        return f"{prefix}/{name}" if prefix else name

    def _signed(self, operation: str, name: str, **parameters: str) -> SplitResult:
        with self._calling("sign a request"):
            url: str = self._client.get().generate_presigned_url(
                operation,
                Params={"Bucket": self._options.bucket, "Key": self._key(name), **parameters},
                ExpiresIn=_SIGNED_FOR_S,
            )
            return urlsplit(url)

    def _answered(
        self, method: str, url: SplitResult, body: bytes | None, headers: dict[str, str], deadline: float
    ) -> tuple[_Exchange, HTTPResponse]:
        """Make a request until it succeeds, is refused for good, or its time is over."""
        for attempt in range(1, _ATTEMPTS + 1):
            pause = pause_s(attempt, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
            again = attempt < _ATTEMPTS and time.monotonic() + pause < deadline
            exchange = _Exchange(deadline)
            try:
                response = exchange.begin(method, url, body, headers, self._tls)
                if response.status == 200:
                    return exchange, response
                refusal = self._refusal(response)
            except (OSError, HTTPException) as error:
                exchange.close()
                if not again:
                    late = time.monotonic() >= deadline
                    why = "no complete answer in time" if late else type(error).__name__
                    raise self._failure(why) from error
            except BaseException:
                exchange.close()
                raise
            else:
                exchange.close()
                if response.status not in _TRANSIENT or not again:
                    raise refusal
            time.sleep(pause)
        raise AssertionError("the last attempt has returned or raised")

    def _refusal(self, response: HTTPResponse) -> ObjectStoreError:
        """Return the error for an answer, with its code only, because its text may quote anything."""
        if 300 <= response.status < 400:
            return self._failure(f"it redirects (HTTP {response.status}), which is not followed")
        found = _CODE.search(response.read(_MAX_ERROR_BYTES))
        code = found[1].decode() if found else "no code"
        if response.status == 404 and code == "NoSuchKey":
            return NoSuchObjectError(f"the bucket {self._options.bucket!r} has no such object")
        advice = "; the store also says so of missing objects, unless s3:ListBucket is granted"
        hint = advice if code == "AccessDenied" and response.status == 403 else ""
        return self._failure(f"{code}, HTTP {response.status}{hint}")

    def _chunks(self, response: HTTPResponse) -> Iterator[bytes]:
        while True:
            try:
                chunk = response.read(_CHUNK_BYTES)
            except (OSError, HTTPException) as error:
                raise self._failure(f"an object was cut off ({type(error).__name__})") from error
            if not chunk:
                return
            yield chunk

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        from botocore.exceptions import (  # noqa: PLC0415 - heavy, and an extra
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )

        try:
            yield
        except ClientError as error:
            code = _LINE_BREAKS.sub(" ", str(error.response.get("Error", {}).get("Code", "")))[:64]
            raise self._failure(f"{what}: {code or 'no code'}") from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise self._failure(f"{what}: boto3 finds no credentials") from error
        except (BotoCoreError, RecursionError) as error:  # boto3 asks a store that redirects for ever
            raise self._failure(f"{what}: {type(error).__name__}") from error

    def _failure(self, why: str) -> ObjectStoreError:
        return ObjectStoreError(f"the store of the bucket {self._options.bucket!r}: {why}")

    def _make_client(self) -> Any:
        try:
            import boto3  # noqa: PLC0415 - heavy, and an extra
            from botocore.config import Config  # noqa: PLC0415 - likewise
            from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - likewise
        except ImportError as error:
            raise MissingPartError(
                f"object stores of type s3 need boto3: {install_command('storage')}"
            ) from error
        options = self._options
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_LIST_S,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            signature_version="s3v4",
            ignore_configured_endpoint_urls=True,
            proxies={},  # no proxies of the environment, as for objects themselves
            # Else boto3 signs for AWS's global address, which redirects to the region's for a day.
            s3={
                "addressing_style": "virtual" if options.endpoint is None else "path",
                "us_east_1_regional_endpoint": "regional",
            },
        )
        try:
            session = boto3.session.Session(region_name=options.region)
            return session.client("s3", endpoint_url=options.endpoint, config=config, verify=options.ca_file)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"boto3 refuses the options: {error}", path="s3") from error


class _Exchange:
    """One request and its answer, on a connection of their own, which is cut at a deadline.

    A timeout of a socket begins anew with each byte, so it bounds nothing if the bytes come slowly.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline: Final = deadline
        self._connection: HTTPConnection | None = None
        self._alarm: threading.Timer | None = None
        self.response: HTTPResponse | None = None

    def begin(
        self,
        method: str,
        url: SplitResult,
        body: bytes | None,
        headers: dict[str, str],
        tls: ssl.SSLContext,
    ) -> HTTPResponse:
        """Send the request, and return the beginning of the answer."""
        host, timeout_s = url.hostname or "", max(0.001, self._deadline - time.monotonic())
        connect_s = min(_CONNECT_S, timeout_s)
        connection = (
            HTTPSConnection(host, url.port, timeout=connect_s, context=tls)
            if url.scheme == "https"
            else HTTPConnection(host, url.port, timeout=connect_s)
        )
        self._connection = connection
        connection.connect()
        opened: socket.socket = connection.sock
        opened.settimeout(timeout_s)
        # A thread that waits in a system call of the socket goes on only when the socket is shut down.
        self._alarm = threading.Timer(max(0.0, self._deadline - time.monotonic()), _cut, (opened,))
        self._alarm.daemon = True
        self._alarm.start()
        connection.request(method, f"{url.path}?{url.query}", body, headers)
        self.response = response = connection.getresponse()
        return response

    def close(self) -> None:
        """Close the connection, even if the answer was not read to its end."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self.response is not None:
            self.response.close()
        if self._connection is not None:
            self._connection.close()


def _cut(opened: socket.socket) -> None:
    with suppress(OSError):  # it may be closed
        # Not an SSLSocket's own shutdown, after which ciphertext would be read as if it were content.
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
