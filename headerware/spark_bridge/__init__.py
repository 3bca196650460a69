"""The same chains over Spark's DataFrames and in ``foreachBatch``; a name is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.spark_bridge.admin import KafkaAdmin
    from headerware.spark_bridge.batches.foreach import Progress, foreach_batch
    from headerware.spark_bridge.batches.sinks import kafka_sink, writer_sink
    from headerware.spark_bridge.compaction import copy_topic
    from headerware.spark_bridge.decoding import decode
    from headerware.spark_bridge.encoding import encode, keep_headers
    from headerware.spark_bridge.failures import split_failures
    from headerware.spark_bridge.frames.avro_types import avro_type
    from headerware.spark_bridge.frames.json_types import json_type
    from headerware.spark_bridge.native.data_source import register_source
    from headerware.spark_bridge.origin import kafka_source
    from headerware.spark_bridge.session import configure
    from headerware.spark_bridge.stateful import decode_stateful

__all__ = [
    "KafkaAdmin",
    "Progress",
    "avro_type",
    "configure",
    "copy_topic",
    "decode",
    "decode_stateful",
    "encode",
    "foreach_batch",
    "json_type",
    "kafka_sink",
    "kafka_source",
    "keep_headers",
    "register_source",
    "split_failures",
    "writer_sink",
]

_HOMES: Final = {
    "KafkaAdmin": "admin",
    "Progress": "batches.foreach",
    "avro_type": "frames.avro_types",
    "configure": "session",
    "copy_topic": "compaction",
    "decode": "decoding",
    "decode_stateful": "stateful",
    "encode": "encoding",
    "foreach_batch": "batches.foreach",
    "json_type": "frames.json_types",
    "kafka_sink": "batches.sinks",
    "kafka_source": "origin",
    "keep_headers": "encoding",
    "register_source": "native.data_source",
    "split_failures": "failures",
    "writer_sink": "batches.sinks",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
