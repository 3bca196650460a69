"""Properties of librdkafka, read as it reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
COMMON_PROPERTIES: Final = (
    *sorted(_CONNECTION),
    *("acks", "batch.size", "compression.type", "delivery.timeout.ms", "enable.idempotence", "linger.ms"),
    *("message.max.bytes", "partitioner", "queue.buffering.max.kbytes", "queue.buffering.max.messages"),
    *("request.timeout.ms", "retries", "retry.backoff.ms", "transactional.id"),
    *("auto.commit.interval.ms", "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store"),
    *("enable.partition.eof", "fetch.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms", "group.id"),
    *("group.instance.id", "group.protocol", "heartbeat.interval.ms", "isolation.level", "on_commit"),
    *("max.partition.fetch.bytes", "max.poll.interval.ms", "partition.assignment.strategy"),
    *("session.timeout.ms", "debug", "error_cb", "stats_cb", "statistics.interval.ms", "throttle_cb"),
    *("sasl.mechanism", "sasl.mechanisms", "sasl.password", "sasl.username", "sasl.oauthbearer.config"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
)
"""The properties that applications write most, for suggestions; librdkafka does not list its own."""
_CONNECTION_PREFIXES: Final = ("sasl.", "ssl.")


def dotted(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return librdkafka's properties under their dotted names: configuration may have tables instead."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= dotted(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def connection_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that another client needs to reach the same cluster."""
    return {
        key: value
        for key, value in conf.items()
        if key in _CONNECTION or key.startswith(_CONNECTION_PREFIXES)
    }


def bootstrap_servers(conf: Mapping[str, Any]) -> str | None:
    """Return the addresses of the brokers, under either of the names that librdkafka has for them."""
    found = conf.get("bootstrap.servers") or conf.get("metadata.broker.list")
    return None if found is None else str(found)


def boolean(conf: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return a boolean property, which may be text."""
    value = conf.get(name)
    return default if value is None else str(value).lower() in _TRUE


def number(conf: Mapping[str, Any], name: str, default: int) -> int:
    """Return a whole number, which may be text; the default for other values, which librdkafka refuses."""
    value = conf.get(name)
    try:
        return default if value is None else int(value)
    except (TypeError, ValueError):
        return default
