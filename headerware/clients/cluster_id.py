"""The cluster's id, learned in the background: asking for it never blocks."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, Final

from confluent_kafka import KafkaException

from headerware.clients.settings import connection_settings

_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 5.0
_CALLBACK_RETRY_S: Final = 1.0
_log: Final = logging.getLogger("headerware")


def cluster_id_port(
    client: Any, conf: Mapping[str, Any], is_in_callback: Callable[[Any], bool]
) -> Callable[[], str | None]:
    """Return a function that returns the cluster's id, or None as long as it is unknown.

    The client is held weakly. From confluent-kafka 2.16 on it knows the id itself: a timeout of 0 only looks
    at what librdkafka's own threads have learned (16 us the first time, 3 us while it is unknown, then
    nothing). Inside a callback, which must not call its client, a short-lived thread looks, once a second at
    most. For a client of an older version, a thread of our own asks. If the application passes tokens by
    ``oauth_cb``, nobody asks: the callback would run in that thread at the same time as for the client, and
    its failure there would be the client's.
    """
    if hasattr(client, "cluster_id"):
        ask = _asker(client, is_in_callback)
    elif conf.get("oauth_cb") is not None:
        return _unknown
    else:
        ask = _background_asker(conf)
    known: str | None = None

    def cluster_id() -> str | None:
        nonlocal known
        if known is None:
            known = ask()
        return known

    return cluster_id


def _unknown() -> None:
    return None


def _asker(client: Any, is_in_callback: Callable[[Any], bool]) -> Callable[[], str | None]:
    reference = weakref.ref(client)
    again_at = 0.0

    def ask() -> str | None:
        nonlocal again_at
        live = reference()
        if live is None:
            return None
        if not is_in_callback(live):
            return _asked(live)
        # On the thread of a callback, confluent-kafka would abort the process.
        if time.monotonic() < again_at:
            return None
        again_at = time.monotonic() + _CALLBACK_RETRY_S
        found: list[str | None] = []
        thread = Thread(target=lambda: found.append(_asked(live)), name="headerware-cluster-id", daemon=True)
        thread.start()
        thread.join()
        return found[0]

    return ask


def _asked(client: Any) -> str | None:
    try:
        found: str | None = client.cluster_id(0)
    except (KafkaException, RuntimeError):  # unknown as yet; not initialised, or closed
        return None
    return found


def _background_asker(conf: Mapping[str, Any]) -> Callable[[], str | None]:
    """Ask through a client of its own, so that closing the application's never meets a call under way."""
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - slow to import, and new versions need none

    settings = connection_settings(conf)
    found: list[str] = []
    again_at = 0.0

    def look() -> None:
        try:
            cluster_id: str | None = AdminClient(settings).list_topics(timeout=_TIMEOUT_S).cluster_id
        except Exception as error:  # noqa: BLE001 - a thread that nobody sees; it is asked again
            _log.debug("the cluster's id is not known yet: %s", type(error).__name__)
            return
        if cluster_id:
            found.append(cluster_id)

    def ask() -> str | None:
        nonlocal again_at
        if not found and time.monotonic() >= again_at:
            again_at = time.monotonic() + _TIMEOUT_S + _RETRY_S
            Thread(target=look, name="headerware-cluster-id", daemon=True).start()
        return found[0] if found else None

    return ask
