"""A client's configuration, read as confluent-kafka reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from headerware.core.session import Session
from headerware.core.suggestions import did_you_mean
from headerware.kafka.settings import COMMON_PROPERTIES, number

_UNKNOWN: Final = re.compile(r'No such configuration property: "([^"]+)"')
_SERDE: Final = re.compile(r"(?:key|value)\.(serializer|deserializer)(?:\.|$)")
_STATISTICS_INTERVAL: Final = "statistics.interval.ms"


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


def initialise(c_init: Callable[..., None], client: object, conf: Mapping[str, Any]) -> None:
    """Initialise a client of C; if it does not know a property, say what the application may have meant.

    Raises:
        KafkaException: librdkafka refuses the configuration.
    """
    try:
        c_init(client, conf)
    except KafkaException as error:
        advice = advice_on(error)
        if not advice:
            raise
        code, text = error.args[0].code(), error.args[0].str()
        raise KafkaException(KafkaError(code, f"{text} ({advice})")) from None


def advice_on(error: KafkaException) -> str:
    """Return what the application may have meant by a property that librdkafka does not know, or nothing."""
    found = _UNKNOWN.search(error.args[0].str()) if isinstance(error.args[0], KafkaError) else None
    if found is None:
        return ""
    serde = _SERDE.match(found[1])
    if serde is not None:
        kind = "SerializingProducer" if serde[1] == "serializer" else "DeserializingConsumer"
        return f"{kind} takes it, and so does Async{kind}"
    return did_you_mean(found[1], (*COMMON_PROPERTIES, "interceptors")).removesuffix(" ")


def listen_to_statistics(
    conf: dict[str, Any], session: Session, in_force: Callable[[], Session | None]
) -> None:
    """Pass librdkafka's statistics to the session in force, and then to the application.

    ``session`` is the client's first session; later sessions get statistics only if the first one wants them.
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
    """Pass statistics to the session in force, and then to the application."""
    session = in_force()
    if session is not None:
        session.statistics(text)
    if callback is not None:
        callback(text)
