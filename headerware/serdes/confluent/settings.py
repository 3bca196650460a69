"""Settings of confluent-kafka's serdes and of its registry client, converted from configuration.

confluent-kafka takes one flat dict with dotted names and exact types for each direction. Configuration has
tables instead of dotted names, or only text if it is flat, and one set of settings for both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headerware.core.errors import ConfigError

_WRITING: Final = frozenset(
    {
        "auto.register.schemas",
        "normalize.schemas",
        "reference.subject.name.strategy",
        "skip.known.types",
        "use.schema.id",
        "validate.strict",
        "validate.strict.allow.default",
        "validation.rules.execution",
        "validation.rules.executor",
        "validation.rules.fail.fast",
    }
)
"""The settings that confluent-kafka's deserializers refuse."""

_TABLES: Final = frozenset(
    {"bearer.auth.custom.provider.config", "subject.name.strategy.conf", "use.latest.with.metadata"}
)
"""Settings that have a table as value."""

_STRATEGY: Final = "subject.name.strategy"
_STRATEGY_TYPE: Final = f"{_STRATEGY}.type"
_STRATEGIES: Final = {
    "topic": "topic_subject_name_strategy",
    "record": "record_subject_name_strategy",
    "topic_record": "topic_record_subject_name_strategy",
}
"""confluent-kafka's functions by word; before 2.14 it takes no words."""

_ID_SETTINGS: Final = ("schema.id.serializer", "schema.id.deserializer")


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


_FROM_TEXT: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    **dict.fromkeys(
        (
            "auto.register.schemas",
            "normalize.schemas",
            "skip.known.types",
            "use.latest.version",
            "validate",
            "validate.strict",
            "validate.strict.allow.default",
            "validation.rules.fail.fast",
        ),
        (_truth, "true or false"),
    ),
    **dict.fromkeys(
        (
            "cache.capacity",
            "cache.latest.ttl.sec",
            "max.retries",
            "retries.max.wait.ms",
            "retries.wait.ms",
            "timeout",
            "use.schema.id",
        ),
        (_number, "a number"),
    ),
}


def flat(settings: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    """Return settings under their dotted names, with text converted to the types that are expected."""
    found: dict[str, Any] = {}
    for name, value in _flattened(settings, ""):
        convert, expected = _FROM_TEXT.get(name, (None, ""))
        if convert is not None and isinstance(value, str):
            try:
                found[name] = convert(value)
            except (KeyError, ValueError):
                raise ConfigError(f"expected {expected}", path=f"{path}.{name}") from None
        else:
            found[name] = value
    return found


def serde_settings(settings: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    """Return the settings of a serde as :func:`flat` does, with the function for its subject strategy."""
    found = flat(settings, path=path)
    for name in _ID_SETTINGS:
        if name in found:
            raise ConfigError('use the option id_in = "prefix" or "header" instead', path=f"{path}.{name}")
    word = found.get(_STRATEGY, found.get(_STRATEGY_TYPE))
    if not isinstance(word, str):
        return found
    for name in (_STRATEGY, _STRATEGY_TYPE):
        found.pop(name, None)
    key = word.lower().replace("-", "_")
    if key == "associated":
        return {**found, _STRATEGY_TYPE: "ASSOCIATED"}
    if key not in _STRATEGIES:
        words = ", ".join(sorted({*_STRATEGIES, "associated"}))
        raise ConfigError(f"expected one of {words}, or a function", path=f"{path}.{_STRATEGY}")
    return {**found, _STRATEGY: _strategy(_STRATEGIES[key])}


def for_reading(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a serde that its deserializer accepts."""
    return {name: value for name, value in settings.items() if name not in _WRITING}


def _strategy(name: str) -> Any:
    from confluent_kafka import schema_registry  # noqa: PLC0415 - heavy, and an extra

    return getattr(schema_registry, name)


def _flattened(settings: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and dotted not in _TABLES:
            found += _flattened(value, f"{dotted}.")
        else:
            found.append((dotted, value))
    return found
