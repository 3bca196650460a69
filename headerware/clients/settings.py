"""A client's configuration, read as confluent-kafka reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Final, ParamSpec

from headerware.core.chain import Chain
from headerware.core.hooks import Interceptor, has_hook
from headerware.core.session import Session
from headerware.kafka.settings import number
from headerware.kafka.wrong_properties import explaining_properties

_Arguments = ParamSpec("_Arguments")
_STATISTICS_INTERVAL: Final = "statistics.interval.ms"


def chain_by_name(init: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """Return a client's ``__init__`` that says how a chain is given, if it gets one without a name."""

    @wraps(init)
    def checked(*args: _Arguments.args, **options: _Arguments.kwargs) -> None:
        if any(
            isinstance(each, Chain | Interceptor | str | list | tuple) or has_hook(each) for each in args[1:]
        ):
            name = type(args[0]).__name__
            raise TypeError(f"{name} takes the chain by name; write {name}(conf, chain=...)")
        init(*args, **options)

    return checked


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
    """Initialise a client of C; if a property is wrong, say what the application may have meant.

    Raises:
        KafkaException: librdkafka refuses the configuration.
    """
    with explaining_properties(conf):
        c_init(client, conf)


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
