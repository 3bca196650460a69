"""Refuse Spark Connect, whose client has no JVM and whose server runs none of our code.

The bridge reads the commit ledger, Kafka's offsets and the stream's progress in the driver's JVM, and starts
Python workers that its own driver configures. None of this goes through Connect.
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
    """Raise ConfigError for a session, frame, reader or writer of Spark Connect."""
    if any(kind.__module__.startswith(_CONNECT) for kind in type(of_spark).__mro__):
        raise ConfigError(_SENTENCE)


def refuse_remote(settings: Mapping[str, str]) -> None:
    """Raise ConfigError if a builder's settings or the environment ask for Spark Connect."""
    remote = "spark.remote" in settings or bool(os.environ.get("SPARK_REMOTE"))
    mode = settings.get("spark.api.mode") or os.environ.get("SPARK_API_MODE", "")
    if remote or mode.lower() == "connect" or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        raise ConfigError(_SENTENCE)
