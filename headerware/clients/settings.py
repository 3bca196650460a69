"""A client's configuration, read as confluent-kafka reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from headerware.core.session import Session

_STATISTICS_INTERVAL: Final = "statistics.interval.ms"
_TRUE: Final = frozenset({"true", "t", "1"})
_CONNECTION: Final = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "broker.address.family",
        "security.protocol",
        "enable.ssl.certificate.verification",
        "oauth_cb",
        "log_level",
        "logger",
    }
)
_CONNECTION_PREFIXES: Final = ("sasl.", "ssl.")


def merged(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a constructor's dict and keywords merged, or None if confluent-kafka would refuse them."""
    if not args:
        return dict(keywords) if keywords else None
    if len(args) > 1 or not isinstance(args[0], dict):
        return None
    return {**args[0], **keywords}


def flattened(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with ``default.topic.config`` merged into it, as confluent-kafka does."""
    flat = dict(conf)
    nested = flat.pop("default.topic.config", None)
    flat.update(nested or {})
    return flat


def connection_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that another client needs to reach the same cluster."""
    return {
        key: value
        for key, value in conf.items()
        if key in _CONNECTION or key.startswith(_CONNECTION_PREFIXES)
    }


def listen_to_statistics(
    conf: dict[str, Any], session: Session, in_force: Callable[[], Session | None]
) -> None:
    """Have librdkafka's statistics told to the session in force, and then to the application as without it.

    ``session`` is the client's first; only if it wants them, later ones get them.
    """
    if not session.hears_statistics:
        return
    callback = conf.get("stats_cb")
    own_interval = number(conf, _STATISTICS_INTERVAL, 0)
    if _STATISTICS_INTERVAL not in conf and session.statistics_interval_ms is not None:
        conf[_STATISTICS_INTERVAL] = session.statistics_interval_ms
    if callback is None or callable(callback):  # librdkafka refuses anything else
        conf["stats_cb"] = partial(tell_statistics, in_force, callback if own_interval > 0 else None)


def tell_statistics(
    in_force: Callable[[], Session | None], callback: Callable[[str], Any] | None, text: str
) -> None:
    """Tell the session in force, and then the application, what librdkafka says."""
    session = in_force()
    if session is not None:
        session.statistics(text)
    if callback is not None:
        callback(text)


def bootstrap_servers(conf: Mapping[str, Any]) -> str | None:
    """Return the addresses of the brokers, under either of the names that librdkafka has for them."""
    found = conf.get("bootstrap.servers") or conf.get("metadata.broker.list")
    return None if found is None else str(found)


def boolean(conf: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return a boolean property, which may be text."""
    value = conf.get(name)
    return default if value is None else str(value).lower() in _TRUE


def number(conf: Mapping[str, Any], name: str, default: int) -> int:
    """Return a whole number, which may be text; librdkafka refuses what is no number."""
    value = conf.get(name)
    try:
        return default if value is None else int(value)
    except (TypeError, ValueError):
        return default
