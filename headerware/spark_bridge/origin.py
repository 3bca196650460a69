"""Read topics, and keep the origin of the records in the frame.

The column ``topic`` carries the origin as metadata, which Spark keeps through filters and selections and into
each micro-batch. A computed ``topic`` has no origin, and a union has the origin of its first frame.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.errors import HeaderwareError
from headerware.core.hooks import label, states
from headerware.core.order import idle_on
from headerware.spark_bridge.admin import KafkaAdmin
from headerware.spark_bridge.chain_source import log
from headerware.spark_bridge.driver import session_of
from headerware.spark_bridge.session import require_connector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming import DataStreamReader

_READING: Final = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
"""The bridge's default options for reading Kafka."""
_SERVERS: Final = "kafka.bootstrap.servers"
_METADATA: Final = "headerware"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records of a frame come from: a cluster's id, and the topics that were read at first."""

    cluster_id: str | None = None
    topics: tuple[str, ...] = ()

    @classmethod
    def of(cls, frame: DataFrame) -> Origin:
        """Return the origin that a frame carries."""
        metadata = frame.schema["topic"].metadata if "topic" in frame.columns else {}
        return msgspec.convert(metadata.get(_METADATA, {}), cls)


def kafka_source(reader: DataFrameReader | DataStreamReader, options: Mapping[str, Any]) -> DataFrame:
    """Read topics with their headers, and only committed records.

    The function asks the cluster whether the topics exist, and for the cluster's id, which the frame keeps:
    :func:`decode` and :func:`foreach_batch` compare signatures and encrypted records with it.

    Args:
        reader: ``spark.read`` or ``spark.readStream``.
        options: options of Spark's Kafka source, such as ``kafka.bootstrap.servers`` and ``subscribe``; they
            win over the two options that are set here, ``includeHeaders`` and ``kafka.isolation.level``.

    Raises:
        ConfigError: a topic does not exist; or, with Spark Connect, an option cannot be translated for
            confluent-kafka, which asks the cluster there.
        AdminError: the cluster does not answer.
        MissingPartError: the session has no Kafka connector.
    """
    spark = session_of(reader)
    require_connector(spark)
    given = {key.lower(): str(value) for key, value in options.items()}
    defaults = {key: value for key, value in _READING.items() if key.lower() not in given}
    origin = Origin()
    if _SERVERS in given:  # otherwise the reader may have the option already
        with KafkaAdmin(spark, options) as admin:
            origin = Origin(cluster_id=admin.cluster_id(), topics=_topics(admin, given))
    frame = reader.format("kafka").options(**defaults, **options).load()
    return frame.withMetadata("topic", {_METADATA: msgspec.to_builtins(origin)})


def _topics(admin: KafkaAdmin, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topics that are read, which must exist; none if Spark will refuse the options."""
    pattern = options.get("subscribepattern")
    if pattern is not None:
        found = tuple(admin.matching_topics(pattern))
        if not found:
            log.warning("subscribePattern: no topic fits %r, so nothing is read for now", pattern)
        return found
    path = "assign" if "assign" in options else "subscribe"
    names = _assigned(options) if path == "assign" else options.get(path, "").split(",")
    topics = tuple(topic for name in names if (topic := name.strip()))
    admin.require_topics(topics, path=path)
    return topics


def _assigned(options: Mapping[str, str]) -> list[str]:
    try:
        assigned = json.loads(options["assign"])
    except ValueError:
        return []
    return list(assigned) if isinstance(assigned, dict) else []


def cluster_of(frame: DataFrame, chain: Iterable[object], cluster_id: str | None) -> str | None:
    """Return the id of the cluster that a frame was read from; warn if a step needs it and it is unknown.

    A given id wins over the frame's; an empty text means that the id is unknown, without a warning.
    """
    found = Origin.of(frame).cluster_id if cluster_id is None else cluster_id
    if found is None:
        warn_of_unknown_cluster(chain, "read the topic with kafka_source(), or give cluster_id=")
    return found or None


def warn_of_unknown_cluster(chain: Iterable[object], advice: str) -> None:
    """Log which steps name or compare the cluster's id, which is not known."""
    asking = [
        label(step)
        for step in chain
        if states(step, "names_cluster") and getattr(step, "cluster", None) is None
    ]
    if asking:
        log.warning("%s: the cluster's id is neither written nor compared; %s", ", ".join(asking), advice)


def warn_of_other_topics(chain: Iterable[object], topics: Iterable[str]) -> None:
    """Log which patterns of a chain fit none of the topics, if these are known."""
    known = tuple(topics)
    try:
        idle = idle_on(tuple(chain), known) if known else ()
    except HeaderwareError as error:  # the executors may have a file that the driver does not have
        log.warning("the patterns of the chain are not compared with %s: %s", ", ".join(known), error)
        return
    for name, found in idle:
        log.warning("%s: %s (%s)", name, found, ", ".join(known))
