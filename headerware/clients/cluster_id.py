"""The cluster's id. Asking for it never blocks; a step that states it in the first record waits for it, once.

All clients of the process wait for a cluster together. If the cluster cannot be reached, the first wait is
long, and clients that are made in the next half minute hardly wait.

Only the thread that polls asks a consumer for the id. From confluent-kafka 2.16 on, a call of another thread
waits until the current poll ends, and may wait for many polls if they follow each other; a call in a callback
would wait for ever. So other threads and callbacks only look at what is known, and the thread that polls asks
for them.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from threading import Event, RLock, Thread
from typing import Any, Final

from confluent_kafka import KafkaException

from headerware.core.bounded_cache import BoundedCache
from headerware.kafka.admin import Admin
from headerware.kafka.settings import bootstrap_servers

_WAIT_S: Final = 2.0
"""How long the first record may wait; a client that reaches its brokers knows the id within milliseconds."""
_SHORT_WAIT_S: Final = 0.05
"""How long the first record may wait if another client has just waited in vain."""
_UNREACHABLE_S: Final = 30.0
"""How long after such a wait the cluster counts as out of reach."""
_waits: Final[BoundedCache[str | None, float]] = BoundedCache(1_000)
"""When the wait for a cluster ends or has ended, by its addresses, until a client reaches the cluster."""
_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 5.0
_CALLBACK_RETRY_S: Final = 1.0
_log: Final = logging.getLogger("headerware")

_Ask = Callable[[float], str | None]
"""Returns the cluster's id, or None if the id is still unknown after that many seconds; 0 does not wait."""


class ClusterIdPort:
    """Return the cluster's id, or None as long as it is unknown; safe for several threads."""

    def __init__(
        self, ask: _Ask, may_ask: Callable[[], bool] = lambda: True, *, servers: str | None = None
    ) -> None:
        self._ask = ask
        self._servers = servers
        self._may_ask = may_ask
        self._is_wanted = False
        self._known: str | None = None
        self._waiting = RLock()  # a signal's handler may send, too
        self.may_wait: bool = True
        """Whether no call of :meth:`wait` has returned yet."""

    def __call__(self) -> str | None:
        """Return the id if it is known, without waiting."""
        if self._known is None and self._asks_here():
            self._learn(0)
        return self._known

    def _learn(self, timeout_s: float) -> None:
        self._known = self._ask(timeout_s)
        if self._known is not None:
            _waits.pop(self._servers, None)

    def ask_for_others(self) -> None:
        """Ask for the id if another thread wanted it and may not ask; this thread polls."""
        if self._is_wanted:
            self()

    def _asks_here(self) -> bool:
        self._is_wanted = not self._may_ask()
        return not self._is_wanted

    def wait(self) -> None:
        """Return once the id is known, or after two seconds at most; only the first call waits.

        Calls of other threads return together with the first. A thread that must not ask does not wait.
        """
        if self.may_wait and self._asks_here():
            with self._waiting:
                self._wait_if_first()

    def _wait_if_first(self) -> None:
        if self.may_wait:
            if self._known is None:
                self._learn(_wait_s(self._servers))
            self.may_wait = False


def _wait_s(servers: str | None) -> float:
    """Return how long a client may wait for its cluster: until the client that waited first gives up."""
    now = time.monotonic()
    ends = _waits.get(servers)
    if ends is None or now > ends + _UNREACHABLE_S:
        ends = _waits[servers] = now + _WAIT_S
    return max(_SHORT_WAIT_S, ends - now)


def cluster_id_port(
    client: Any,
    conf: Mapping[str, Any],
    is_in_callback: Callable[[Any], bool] = lambda _: False,
    *,
    may_ask: Callable[[Any], bool] = lambda _: True,
) -> ClusterIdPort:
    """Return the port that finds out the id of a client's cluster.

    The client is held weakly; ``may_ask`` says whether this thread may call the client. From confluent-kafka
    2.16 on, the client knows the id: a timeout of 0 only looks at what librdkafka's own threads have learned
    (16 us the first time, 3 us while it is unknown, then nothing). A producer's callback must not call its
    client, so a short-lived thread looks, once a second at most. For a client of an older version, a thread
    of our own asks. If the application passes tokens by ``oauth_cb``, nobody asks: that thread would call
    ``oauth_cb`` while the client calls it, too, and a failure there would count as the client's.
    """
    servers = bootstrap_servers(conf)
    if hasattr(client, "cluster_id"):
        reference = weakref.ref(client)

        def may_ask_now() -> bool:
            live = reference()
            return live is not None and may_ask(live)

        return ClusterIdPort(_asker(client, is_in_callback), may_ask_now, servers=servers)
    ask = _unknown if conf.get("oauth_cb") is not None else _background_asker(conf)
    return ClusterIdPort(ask, servers=servers)


def _unknown(_timeout_s: float) -> None:
    return None


def _asker(client: Any, is_in_callback: Callable[[Any], bool]) -> _Ask:
    reference = weakref.ref(client)
    again_at = 0.0

    def ask(timeout_s: float) -> str | None:
        nonlocal again_at
        live = reference()
        if live is None:
            return None
        if not is_in_callback(live):
            return _asked(live, timeout_s)
        # A call on the thread of a callback would make confluent-kafka abort the process.
        if not timeout_s and time.monotonic() < again_at:
            return None
        again_at = time.monotonic() + _CALLBACK_RETRY_S
        found: list[str | None] = []
        thread = Thread(
            target=lambda: found.append(_asked(live, timeout_s)), name="headerware-cluster-id", daemon=True
        )
        thread.start()
        thread.join()
        return found[0]

    return ask


def _asked(client: Any, timeout_s: float) -> str | None:
    try:
        found: str | None = client.cluster_id(timeout_s)
    except (KafkaException, RuntimeError):  # unknown as yet; not initialised, or closed
        return None
    return found


def _background_asker(conf: Mapping[str, Any]) -> _Ask:
    """Ask through a client of its own, so that the application never closes its client during the call."""
    settings = dict(conf)
    found: list[str] = []
    is_answered = Event()
    again_at = 0.0

    def look() -> None:
        try:
            cluster_id: str | None = Admin(settings, timeout_s=_TIMEOUT_S).metadata().cluster_id
        except Exception as error:  # noqa: BLE001 - a thread that nobody sees; it is asked again
            _log.debug("the cluster's id is not known yet: %s", type(error).__name__)
            return
        if cluster_id:
            found.append(cluster_id)
            is_answered.set()

    def ask(timeout_s: float) -> str | None:
        nonlocal again_at
        if not found and time.monotonic() >= again_at:
            again_at = time.monotonic() + _TIMEOUT_S + _RETRY_S
            Thread(target=look, name="headerware-cluster-id", daemon=True).start()
        is_answered.wait(timeout_s)
        return found[0] if found else None

    return ask
