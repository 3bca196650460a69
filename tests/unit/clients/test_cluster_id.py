from __future__ import annotations

import threading
import time
from typing import Any

from headerware.clients.cluster_id import cluster_id_port


class Old:
    """A client of confluent-kafka before 2.16, which does not know its cluster's id."""


class TestAnOldClient:
    def test_has_a_thread_that_asks(self, connection: dict[str, Any]) -> None:
        ask, deadline = cluster_id_port(Old(), connection, lambda _: False), time.monotonic() + 10
        while ask() is None:
            assert time.monotonic() < deadline
        assert isinstance(ask(), str)

    def test_calls_no_callback_of_the_applications_in_it(self, connection: dict[str, Any]) -> None:
        def token(_: str) -> tuple[str, float]:
            called.append(threading.current_thread())
            return "token", time.time() + 300

        called: list[threading.Thread] = []
        oauth = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token}
        ask = cluster_id_port(Old(), {**connection, **oauth}, lambda _: False)
        before = set(threading.enumerate())
        assert ask() is None
        assert set(threading.enumerate()) <= before
        assert not called
