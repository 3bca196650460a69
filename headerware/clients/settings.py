"""What a client's configuration says, read as confluent-kafka reads it."""

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
_CONNECTION_PREFIXES: Final = ("sasl.", "ssl.")


def merged(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any] | None:
    """Merge a constructor's dict and keywords; None where they are not what confluent-kafka takes."""
    if not args:
        return dict(keywords) if keywords else None
    if len(args) > 1 or not isinstance(args[0], dict):
        return None
    return {**args[0], **keywords}


def flattened(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Lay ``default.topic.config`` over the rest, as confluent-kafka does."""
    flat = dict(conf)
    nested = flat.pop("default.topic.config", None)
    flat.update(nested or {})
    return flat


def connection_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return what any other client needs to reach the same cluster as this one."""
    return {
        key: value
        for key, value in conf.items()
        if key in _CONNECTION or key.startswith(_CONNECTION_PREFIXES)
    }


def boolean(conf: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Read a boolean property, which may be text."""
    value = conf.get(name)
    return default if value is None else str(value).lower() in _TRUE


def number(conf: Mapping[str, Any], name: str, default: int) -> int:
    """Read a whole number, which may be text; what is no number is librdkafka's to refuse."""
    value = conf.get(name)
    try:
        return default if value is None else int(value)
    except (TypeError, ValueError):
        return default
