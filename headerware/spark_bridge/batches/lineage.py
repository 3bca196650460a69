"""The lineage of a streaming query: the driver reports its run; executors only count records.

A run of the query is a run of the job, with the same id. It ends, or fails, with the query.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.sql.streaming import StreamingQueryListener, StreamingQueryManager

from headerware.core.errors import ConfigError
from headerware.interceptors.lineage import Lineage
from headerware.interceptors.lineage.jobs import Dataset, Job
from headerware.interceptors.lineage.reporter import reporter
from headerware.spark_bridge.driver import spark_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from headerware.interceptors.lineage.reporter import Member, Reporter

_log: Final = logging.getLogger("headerware.spark_bridge")
_RUN_ID: Final = "spark.jobGroup.id"
"""The property in which Spark has the id of a query's run while a batch is processed."""
_SERVICE: Final = "spark"
"""The name of the service in trails if the options have none."""


def query_lineage(found: Lineage) -> QueryLineage:
    """Return the reporter of a query whose chain has this interceptor.

    Raises:
        ConfigError: ``lineage`` has no ``dataset_namespace``, which names the cluster of the topics.
        MissingPartError: openlineage-python is not installed.
    """
    if found.dataset_namespace is None:
        raise ConfigError(
            "expected a namespace such as kafka://broker:9092, found none: Spark does not say from which "
            "cluster a frame was read",
            path="interceptors.lineage.dataset_namespace",
        )
    return QueryLineage(found, found.dataset_namespace)


class QueryLineage:
    """Report one query, run by run."""

    def __init__(self, options: Lineage, namespace: str) -> None:
        self._options = options
        self._namespace = namespace
        self._run: _QueryRun | None = None

    def report(
        self,
        spark: SparkSession,
        query_id: str,
        *,
        job: str,
        read: Mapping[str, int],
        written: Mapping[Dataset, int | None],
    ) -> None:
        """Add a batch to the run of the query that is under way on this thread.

        Args:
            spark: the session of the batch.
            query_id: the id of the query.
            job: the name of the job in trails, without the service.
            read: how many records were read, by topic.
            written: how many were written, None if that is not known.
        """
        run_id = UUID(spark.sparkContext.getLocalProperty(_RUN_ID))
        if self._run is None or self._run.run_id != run_id:
            self._run = _QueryRun(run_id, f"{self._options.service or _SERVICE}/{job}", self._options)
            try:
                # Listen on the query's own session: the session of the batch is a copy, which learns of no
                # query.
                StreamingQueryManager(_java_query(spark, query_id).sparkSession().streams()).addListener(
                    self._run
                )
            except spark_errors() + (AttributeError, TypeError):  # noqa: RUF005 - mypy
                _log.info("Spark does not report the query's end; the run ends with the driver")
        self._run.add(self._namespace, read, written)


def _java_query(spark: SparkSession, query_id: str) -> Any:
    """Return Spark's own object of a query, which the session of a batch does not list."""
    session: Any = spark
    queries = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - no public way
    return queries.get(session._jvm.java.util.UUID.fromString(query_id))  # noqa: SLF001 - as above


class _QueryRun(StreamingQueryListener):
    """One run of a query; Spark tells it when the query ends."""

    def __init__(self, run_id: UUID, job: str, options: Lineage) -> None:
        self.run_id: Final = run_id
        self._job = Job(options.job(job).namespace, job)
        self._interval_s = options.interval_s
        self._reporter: Reporter = reporter()
        self._members: dict[str, Member] = {}

    def add(self, namespace: str, read: Mapping[str, int], written: Mapping[Dataset, int | None]) -> None:
        """Add what a batch has read and written."""
        member = self._member(namespace)
        for topic, count in read.items():
            member.read(topic, count)
        for dataset, written_count in written.items():
            self._member(dataset.namespace).wrote(dataset.name, written_count)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the first batch begins the run."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """End the run."""
        if UUID(str(event.runId)) == self.run_id:
            for member in self._members.values():
                member.leave("COMPLETE" if event.exception is None else "FAIL")

    def _member(self, namespace: str) -> Member:
        member = self._members.get(namespace)
        if member is None:
            member = self._members[namespace] = self._reporter.join(
                self._job, namespace, interval_s=self._interval_s, run_id=self.run_id
            )
        return member
