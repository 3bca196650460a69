"""What the bridge asks of Spark's driver: the one place that tells a classic session from Spark Connect's.

A classic session is in the driver's process and reaches its JVM. A session of Spark Connect is a client of a
server: it has no JVM and no SparkContext, also in ``foreachBatch``, whose function runs in a Python worker
next to the server's driver. What needs the JVM is refused there by :func:`require_classic`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark.sql import SparkSession

_CONNECT: Final = "pyspark.sql.connect."
_DESCRIPTION: Final = "spark.job.description"
_QUERY_ID: Final = "sql.streaming.queryId"
_REMOTE: Final = (
    "configure() prepares a session that starts its own JVM, and the JVM of a Spark Connect server runs "
    "already: leave configure() out, and start the server with Spark's Kafka connector (--packages or --jars)"
)


class Driver(Protocol):
    """What the bridge asks of the driver of one session."""

    jvm: Any
    """The driver's JVM, through py4j; None if it cannot be reached."""
    context: Any
    """An object that lives as long as the driver's accumulators."""

    def app_name(self) -> str:
        """Return the name of the application, for jobs that are not named."""

    def parallelism(self) -> int:
        """Return the number of tasks that Spark runs at a time."""

    def running_queries(self) -> Collection[str]:
        """Return the ids of the streaming queries that may be calling this function."""

    def describe(self, description: str | None) -> str | None:
        """Describe the jobs that follow, for Spark's pages; return the description until now."""


class _ClassicDriver:
    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm  # noqa: SLF001 - a classic session's way to its JVM
        self.context: Any = spark.sparkContext

    def app_name(self) -> str:
        return self.context.appName or "spark"

    def parallelism(self) -> int:
        return int(self.context.defaultParallelism)

    def running_queries(self) -> Collection[str]:
        found = self.context.getLocalProperty(_QUERY_ID)
        return () if found is None else (str(found),)

    def describe(self, description: str | None) -> str | None:
        before: str | None = self.context.getLocalProperty(_DESCRIPTION)
        self.context.setLocalProperty(_DESCRIPTION, description)  # None removes it
        return before


class _ConnectDriver:
    jvm = None

    def __init__(self, spark: SparkSession) -> None:
        self.context: Any = spark

    def app_name(self) -> str:
        return self.context.conf.get("spark.app.name", None) or "spark"

    def parallelism(self) -> int:
        return _parallelism(self.context)

    def running_queries(self) -> Collection[str]:
        return [str(query.id) for query in self.context.streams.active]

    def describe(self, description: str | None) -> str | None:
        """Do nothing: Connect has tags for jobs, and no descriptions."""


@lru_cache(maxsize=8)
def _parallelism(spark: SparkSession) -> int:
    """Return the number of partitions that Spark chooses for a range, which is its default parallelism."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark only where it is used

    numbers = spark.range(100_000).select(F.spark_partition_id().alias("number"))
    ((last,),) = numbers.agg(F.max("number")).collect()
    return int(last) + 1


def driver_of(spark: SparkSession) -> Driver:
    """Return what a session's driver can be asked."""
    return _ConnectDriver(spark) if _is_connect(spark) else _ClassicDriver(spark)


def session_of(reader: Any) -> SparkSession:
    """Return the session of a DataFrameReader or DataStreamReader, which has no public name for it."""
    session: SparkSession = reader._client if _is_connect(reader) else reader._spark  # noqa: SLF001
    return session


@contextmanager
def described(spark: SparkSession, description: str) -> Iterator[None]:
    """Describe the jobs of a block, for Spark's pages and listeners."""
    driver = driver_of(spark)
    before = driver.describe(description)
    try:
        yield
    finally:
        driver.describe(before)


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the classes of the errors that Spark raises; a client of Connect may be without py4j."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark only where it is used

    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - as above
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JError


def require_classic(of_spark: object, what: str, instead: str) -> None:
    """Raise ConfigError for a session, frame, reader or writer of Spark Connect.

    Args:
        of_spark: the session, or what was made by it.
        what: what needs the driver's JVM.
        instead: what to do with a session of Connect.
    """
    if _is_connect(of_spark):
        raise ConfigError(
            f"{what} needs the driver's JVM, which a session of Spark Connect cannot reach: {instead}"
        )


def names_connect(settings: Mapping[str, str]) -> bool:
    """Return whether a builder's settings or the environment ask for a session of Spark Connect."""
    mode = settings.get("spark.api.mode") or os.environ.get("SPARK_API_MODE")
    return bool(_remote(settings)) or (mode or "").lower() == "connect"


def refuse_remote(settings: Mapping[str, str]) -> None:
    """Raise ConfigError if a builder's settings or the environment name a Spark Connect server."""
    remote = _remote(settings)
    if "SPARK_CONNECT_MODE_ENABLED" in os.environ or (remote and not remote.startswith("local")):
        raise ConfigError(_REMOTE)


def _remote(settings: Mapping[str, str]) -> str:
    return settings.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")


def _is_connect(of_spark: object) -> bool:
    return any(kind.__module__.startswith(_CONNECT) for kind in type(of_spark).__mro__)
