"""The address at which a worker reports its health by HTTP, for supervisors and probes.

    GET /live     200 as long as the worker runs, 503 if it has failed or is stopping
    GET /ready    200 if the worker makes progress, 503 if it has not begun or is stuck
    GET /         200, with both answers and the worker's details

Each answer has the same body, which is JSON: names and counts, never a payload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from threading import Thread
from typing import Any, Final, NamedTuple

import click

_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d{1,5})")
_PATIENCE_S: Final = 5.0
"""How long a client may take to send its request."""


class Health(NamedTuple):
    """The health of a worker."""

    live: bool
    ready: bool
    details: Mapping[str, Any]


def _address(text: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise click.BadParameter(f"expected HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080, found {text!r}")
    return found["v6"] or found["host"], int(found["port"])


def health_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--health`` to the command of a worker."""
    return click.option(
        "--health",
        type=_address,
        metavar="HOST:PORT",
        help="Serve /live and /ready by HTTP at this address, without authentication.",
    )(command)


@contextmanager
def served_health(address: tuple[str, int] | None, look: Callable[[], Health]) -> Iterator[int | None]:
    """Serve a worker's health at an address, on threads of its own; yield the port.

    Args:
        address: the host and the port, 0 for any; None serves nothing.
        look: returns the worker's health; called from several threads.

    Raises:
        click.ClickException: the address cannot be used.
    """
    if address is None:
        yield None
        return
    host, port = address
    server = (
        type("Server", (ThreadingHTTPServer,), {"address_family": AF_INET6})
        if ":" in host
        else ThreadingHTTPServer
    )
    try:
        serving = server(address, type("Handler", (_Handler,), {"look": staticmethod(look)}))
    except OSError as error:
        raise click.ClickException(
            f"--health: {host}:{port} cannot be used: {error.strerror or error}; name another address"
        ) from error
    with serving:
        thread = Thread(target=serving.serve_forever, name="headerware-health", daemon=True)
        thread.start()
        try:
            yield serving.server_address[1]
        finally:
            serving.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    look: Callable[[], Health]
    timeout = _PATIENCE_S
    server_version = "headerware"
    sys_version = ""

    def do_GET(self) -> None:
        health = self.look()
        known = {"/live": health.live, "/ready": health.ready, "/": True}
        path = self.path.partition("?")[0]
        if path not in known:
            self.send_error(404, "Not Found", "there are /live, /ready and /")
            return
        found = {"live": health.live, "ready": health.ready, **health.details}
        body = json.dumps(found, separators=(",", ":")).encode()
        self.send_response(200 if known[path] else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: probes come every few seconds."""
