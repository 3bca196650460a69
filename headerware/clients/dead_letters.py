"""Where a consumer's dead letters go: a producer of its own, made when the first one is due."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headerware.clients.messages import wire_headers
from headerware.clients.partitions import PartitionPicker
from headerware.clients.settings import connection_settings
from headerware.core.client_chain import DEAD_LETTER
from headerware.core.errors import DeadLetterError
from headerware.core.record import Record

_TIMEOUT_MS: Final = 30_000


class _Publisher(confluent_kafka.Producer):
    """A plain producer; that of C takes no weak references."""


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
            DeadLetterError: it was not stored within the delivery timeout, and why.
        """
        try:
            self._publish(record)
        except (KafkaException, BufferError) as error:
            raise DeadLetterError(f"topic {record.topic!r} did not take it: {error}") from error

    def pick_partition(self, record: Record) -> int | None:
        """Choose one partition for all slices of a letter, where its key does not."""
        with self._lock:
            return PartitionPicker(self._open(), str(self._conf.get("partitioner", "")))(record)

    def _open(self) -> confluent_kafka.Producer:
        if self._producer is None:
            self._producer = _Publisher(self._conf)
        return self._producer

    def _publish(self, record: Record) -> None:
        reports: list[KafkaError | None] = []
        with self._lock:
            producer = self._open()
            producer.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                lambda error, _: reports.append(error),
                None,
                record.timestamp_ms or 0,
                wire_headers(record.headers),
            )
            producer.flush()
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
    settings = connection_settings(conf)
    own = {key.removeprefix(DEAD_LETTER): value for key, value in conf.items() if key.startswith(DEAD_LETTER)}
    return {"message.timeout.ms": _TIMEOUT_MS, **settings, **own}
