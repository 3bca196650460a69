"""Where a consumer's dead letters go: a producer of its own, made when the first one is due."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headerware.clients.messages import wire_headers
from headerware.core.config import DEAD_LETTER
from headerware.core.record import Record

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
        "logger",
    }
)
_CONNECTION_PREFIXES: Final = ("sasl.", "ssl.")
_TIMEOUT_MS: Final = 30_000


class DeadLetters:
    """Publish records with the consumer's own connection settings.

    Args:
        conf: the consumer's configuration; ``headerware.dead_letter.<key>`` overrides a producer's key.

    May be used by several threads.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = producer_settings(conf)
        self._lock = Lock()
        self._producer: confluent_kafka.Producer | None = None

    def publish(self, record: Record) -> None:
        """Send a finished record and return once it is stored.

        Raises:
            KafkaException: it was not stored within the delivery timeout.
        """
        reports: list[KafkaError | None] = []
        with self._lock:
            if self._producer is None:
                self._producer = confluent_kafka.Producer(self._conf)
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                lambda error, _: reports.append(error),
                None,
                record.timestamp_ms or 0,
                wire_headers(record.headers),
            )
            self._producer.flush()
        if reports[0] is not None:
            raise KafkaException(reports[0])

    def close(self) -> None:
        """Close the producer, if there is one."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


def producer_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Give a producer's settings out of a consumer's."""
    settings = {
        key: value
        for key, value in conf.items()
        if key in _CONNECTION or key.startswith(_CONNECTION_PREFIXES)
    }
    own = {key.removeprefix(DEAD_LETTER): value for key, value in conf.items() if key.startswith(DEAD_LETTER)}
    return {"message.timeout.ms": _TIMEOUT_MS, **settings, **own}
