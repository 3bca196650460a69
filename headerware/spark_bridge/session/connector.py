"""Spark's Kafka connector in a session that runs: whether it is there, and reading by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import MissingPartError
from headerware.spark_bridge.classic import require_classic
from headerware.spark_bridge.session.connector_jars import advice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

READING: Final = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
"""How the bridge reads Kafka, unless the user says otherwise."""


def kafka_source(reader: DataFrameReader | DataStreamReader, options: Mapping[str, Any]) -> DataFrame:
    """Read topics with their headers, and only what was committed.

    Args:
        reader: ``spark.read`` or ``spark.readStream``.
        options: of Spark's Kafka source, such as ``kafka.bootstrap.servers`` and ``subscribe``; they win
            over the two that are set here, ``includeHeaders`` and ``kafka.isolation.level``.

    Raises:
        ConfigError: the reader is Spark Connect's.
        MissingPartError: the session has no Kafka connector.
    """
    require_classic(reader)
    require_connector(reader._spark)  # noqa: SLF001 - it does not name its session otherwise
    given = {key.lower() for key in options}
    defaults = {key: value for key, value in READING.items() if key.lower() not in given}
    return reader.format("kafka").options(**defaults, **options).load()


def require_connector(spark: SparkSession) -> None:
    """Check that the session has the Kafka connector; it cannot be added to one that runs.

    Raises:
        ConfigError: the session is Spark Connect's.
        MissingPartError: the session has no Kafka connector.
    """
    require_classic(spark)
    check_connector(spark._jvm)  # noqa: SLF001 - a classic session's way to its JVM


def check_connector(jvm: Any) -> None:
    """Check that a driver's JVM can load the Kafka source.

    Args:
        jvm: py4j's view of it.

    Raises:
        MissingPartError: it cannot.
    """
    import pyspark  # noqa: PLC0415 - Spark only where it is used
    from py4j.java_gateway import JavaClass  # noqa: PLC0415

    # py4j takes a name that the class loader does not know for a package.
    if isinstance(jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider, JavaClass):
        return
    message = (
        "this Spark runs without its Kafka connector, which cannot be added any more: stop the program, and "
        f"make the first session with configure(builder). {advice(pyspark.__version__)}"
    )
    raise MissingPartError(message)
