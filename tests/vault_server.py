"""A server that answers as Vault's transit engine does over HTTP, for tests; on 127.0.0.1.

It follows Vault's API documentation and messages: tokens, seals, key versions, ``min_decryption_version``,
deletion, AEAD keys with ``associated_data``, derived keys with ``context``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

TOKEN = "s.token-of-the-tests"


class Refused(Exception):  # noqa: N818 - it carries an answer
    def __init__(self, status: int, *errors: str) -> None:
        super().__init__(status)
        self.status = status
        self.errors = errors


class TransitKey:
    def __init__(self, *, derived: bool = False) -> None:
        self.versions = [os.urandom(32)]
        self.derived = derived
        self.min_decryption_version = 1

    def cipher(self, version: int, context: bytes) -> AESGCM:
        secret = self.versions[version - 1]
        if not self.derived:
            return AESGCM(secret)
        if not context:
            raise Refused(
                400, "missing 'context' for key derivation; the key was created using a derived key"
            )
        return AESGCM(HKDF(SHA256(), 32, None, context).derive(secret))


class VaultServer:
    """A Vault with keys ``orders`` and ``payments``; it can be stopped, started, sealed and slowed down."""

    def __init__(self, *, derived: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.keys: dict[str, TransitKey] = {}
        self.derived = derived
        self.tokens = {TOKEN}
        self.denied: set[str] = set()
        """Operations that a policy forbids to all tokens."""
        self.sealed = False
        self.status: int | None = None
        self.redirect: str | None = None
        self.raw: bytes | None = None
        self.delay_s = 0.0
        self.connections: set[socket.socket] = set()
        self.calls: list[tuple[str, str | None]] = []
        self.reset()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self._port}"

    def reset(self) -> None:
        self.keys = {name: TransitKey(derived=self.derived) for name in ("orders", "payments")}

    def start(self) -> None:
        vault = self

        class Handler(_Handler):
            owner = vault

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        if self.tls is not None:
            # The handshake is made by the thread that reads.
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="vault-of-the-tests", daemon=True
        ).start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            for connection in tuple(self.connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def rotate(self, name: str) -> None:
        self.keys[name].versions.append(os.urandom(32))

    def answer(self, method: str, path: str, token: str | None, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((path, token))
        if self.sealed:
            raise Refused(503, "Vault is sealed")
        if self.status is not None:
            raise Refused(self.status, "as the test wants it")
        if token not in self.tokens:
            raise Refused(403, "permission denied")
        parts = path.strip("/").split("/")
        if len(parts) != 4 or parts[:2] != ["v1", "transit"] or method != "POST":
            raise Refused(404, f"no handler for route {path!r}. route entry not found.")
        operation, name = parts[2:]
        if operation in self.denied:
            raise Refused(403, "1 error occurred: permission denied")
        key = self.keys.get(name)
        if operation == "encrypt":
            # A token that may not create keys is refused for a key that is not there.
            if key is None:
                raise Refused(403, "permission denied")
            return self._encrypted(key, body)
        if operation == "decrypt":
            if key is None:
                raise Refused(400, "encryption key not found")
            return self._decrypted(key, body)
        raise Refused(404)

    def _encrypted(self, key: TransitKey, body: dict[str, Any]) -> dict[str, Any]:
        plain, bound, context = (
            _bytes_of(body, name) for name in ("plaintext", "associated_data", "context")
        )
        version = len(key.versions)
        nonce = os.urandom(12)
        sealed = nonce + key.cipher(version, context).encrypt(nonce, plain, bound)
        text = f"vault:v{version}:{base64.b64encode(sealed).decode()}"
        return {"data": {"ciphertext": text, "key_version": version}}

    def _decrypted(self, key: TransitKey, body: dict[str, Any]) -> dict[str, Any]:
        bound, context = _bytes_of(body, "associated_data"), _bytes_of(body, "context")
        prefix, _, rest = str(body.get("ciphertext", "")).removeprefix("vault:v").partition(":")
        if not prefix.isdigit():
            raise Refused(400, "invalid ciphertext: no prefix")
        version = int(prefix)
        if version > len(key.versions):
            raise Refused(400, "invalid ciphertext: version is too new")
        if version < key.min_decryption_version:
            raise Refused(400, "ciphertext or signature version is disallowed by policy (too old)")
        try:
            sealed = base64.b64decode(rest, validate=True)
        except ValueError:
            raise Refused(400, "invalid ciphertext: could not decode base64") from None
        if len(sealed) < 28:
            raise Refused(400, "invalid ciphertext: too short")
        try:
            plain = key.cipher(version, context).decrypt(sealed[:12], sealed[12:], bound)
        except InvalidTag:
            raise Refused(400, "cipher: message authentication failed") from None
        return {"data": {"plaintext": base64.b64encode(plain).decode()}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: VaultServer

    def setup(self) -> None:
        super().setup()
        self.owner.connections.add(self.connection)

    def handle(self) -> None:
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # a client that does not trust this server
            super().handle()

    def finish(self) -> None:
        self.owner.connections.discard(self.connection)
        with contextlib.suppress(OSError):  # of a server that was stopped
            super().finish()

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_GET(self) -> None:
        self._serve("GET")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        owner = self.owner
        if owner.delay_s:
            time.sleep(owner.delay_s)
        token = self.headers.get("X-Vault-Token")
        if owner.redirect is not None:
            owner.calls.append((self.path, token))
            self._send(307, b"", location=owner.redirect + self.path)
            return
        if owner.raw is not None:
            self._send(200, owner.raw)
            return
        try:
            answer = owner.answer(method, self.path, token, json.loads(body or b"{}"))
            self._send(200, json.dumps(answer).encode())
        except Refused as refused:
            self._send(refused.status, json.dumps({"errors": list(refused.errors)}).encode())

    def _send(self, status: int, body: bytes, *, location: str | None = None) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # a client that has given up


def _bytes_of(body: dict[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(body.get(name) or "", validate=True)
    except ValueError:
        raise Refused(400, f"failed to base64-decode {name}") from None
