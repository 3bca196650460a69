"""The address at which a worker tells how it is."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from http.client import HTTPConnection
from typing import Any

import click
import pytest
from click.testing import CliRunner

from headerware.cli.health import Health, health_option, served_health


def asked(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = HTTPConnection(host, port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class TestHealth:
    @pytest.mark.parametrize(("live", "ready"), [(True, True), (True, False), (False, False)])
    def test_is_told_by_the_status(self, *, live: bool, ready: bool) -> None:
        health = Health(live, ready, {"records": 3})
        with served_health(("127.0.0.1", 0), lambda: health) as port:
            assert port is not None
            found = {path: asked(port, path) for path in ("/live", "/ready", "/", "/ready?now")}
        codes = {True: 200, False: 503}
        assert [status for status, _ in found.values()] == [codes[live], codes[ready], 200, codes[ready]]
        bodies: list[Any] = [json.loads(body) for _, body in found.values()]
        assert bodies == [{"live": live, "ready": ready, "records": 3}] * 4

    def test_knows_no_other_path_and_no_other_method(self) -> None:
        with served_health(("127.0.0.1", 0), lambda: Health(live=True, ready=True, details={})) as port:
            assert port is not None
            assert asked(port, "/etc/passwd")[0] == 404
            assert asked(port, "/live", "POST")[0] == 501
            assert asked(port, "/live", "HEAD") == (200, b"")

    def test_a_silent_client_holds_nobody_up(self) -> None:
        with served_health(("127.0.0.1", 0), lambda: Health(live=True, ready=True, details={})) as port:
            assert port is not None
            with socket.create_connection(("127.0.0.1", port)):
                assert asked(port, "/live")[0] == 200

    def test_ends_with_the_worker(self) -> None:
        with served_health(("127.0.0.1", 0), lambda: Health(live=True, ready=True, details={})) as port:
            assert port is not None
        with pytest.raises(ConnectionRefusedError):
            asked(port, "/live")

    def test_of_an_address_in_use_is_one_line(self) -> None:
        def look() -> Health:
            return Health(live=True, ready=True, details={})

        with served_health(("127.0.0.1", 0), look) as port:
            assert port is not None
            with (
                pytest.raises(click.ClickException, match=rf"--health: 127\.0\.0\.1:{port} cannot be used: "),
                served_health(("127.0.0.1", port), look),
            ):
                pass

    def test_is_off_without_an_address(self) -> None:
        with served_health(None, lambda: Health(live=True, ready=True, details={})) as port:
            assert port is None

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("127.0.0.1:8080", "('127.0.0.1', 8080)"),
            ("[::1]:80", "('::1', 80)"),
            ("8080", None),
            ("a:b", None),
            ("a:70000", None),
        ],
    )
    def test_takes_host_and_port(self, text: str, shown: str | None) -> None:
        @click.command()
        @health_option
        def worker(health: Any) -> None:
            click.echo(repr(health))

        result = CliRunner().invoke(worker, ["--health", text])
        assert (result.exit_code, result.output.strip() == shown) == (0 if shown else 2, shown is not None)


def test_commands_load_with_a_click_whose_types_are_not_generic() -> None:
    program = "import click; click.ParamType.__class_getitem__ = None; import headerware.cli"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
