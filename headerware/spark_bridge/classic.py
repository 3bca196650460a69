"""Refusing Spark Connect, whose frames have no JVM beside them and whose server runs no code of ours.

The bridge reads the commit ledger, Kafka's offsets and the stream's progress in the driver's JVM, and starts
Python workers that its own driver configures. None of it goes through Connect.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SENTENCE = (
    "the Spark bridge needs a classic Spark session, and this is Spark Connect's: run it in the driver, "
    "with SparkSession.builder.master(...) or by spark-submit (spark.api.mode=classic)"
)
_CONNECT = "pyspark.sql.connect."


def require_classic(of_spark: object) -> None:
    """Refuse a session, frame, reader or anything else of Spark Connect's.

    Args:
        of_spark: what the user gave: a SparkSession, a DataFrame, a reader or a writer.

    Raises:
        ConfigError: it is Spark Connect's.
    """
    if any(kind.__module__.startswith(_CONNECT) for kind in type(of_spark).__mro__):
        raise ConfigError(_SENTENCE)


def refuse_remote(settings: Mapping[str, str]) -> None:
    """Refuse a builder, by its settings and the environment, whose session would be Spark Connect's.

    Raises:
        ConfigError: it would be.
    """
    remote = "spark.remote" in settings or bool(os.environ.get("SPARK_REMOTE"))
    mode = settings.get("spark.api.mode") or os.environ.get("SPARK_API_MODE", "")
    if remote or mode.lower() == "connect" or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        raise ConfigError(_SENTENCE)
