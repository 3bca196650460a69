"""Kafka clients that no chain covers: an application that imports one gets a warning."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headerware.core.client_chain import is_disabled
from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

OTHER_CLIENTS: Final[Mapping[str, tuple[str, str]]] = {
    "kafka": ("kafka-python", "KafkaProducer"),
    "aiokafka": ("aiokafka", "AIOKafkaProducer"),
}
"""The package and a class of each other client, by its module; another module may have the same name."""
_log: Final = logging.getLogger("headerware")
_has_warned = False


def warn_of_other_client(name: str, module: ModuleType) -> None:
    """Warn once, after the import of a module by its name, if it is a client that no chain covers."""
    global _has_warned  # noqa: PLW0603 - once for the process
    package, its_class = OTHER_CLIENTS[name]
    if _has_warned or its_class not in vars(module) or _is_off():
        return
    _has_warned = True
    _log.warning(
        "this process imports %s, whose records pass no chain: they are sent and read as they are; use "
        "confluent_kafka, or Producer and Consumer of headerware",
        package,
    )


def _is_off() -> bool:
    try:
        return is_disabled()
    except ConfigError:  # a client says so when it opens
        return False
