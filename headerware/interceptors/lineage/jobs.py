"""Jobs, their runs and the topics that they read and write, under the names that OpenLineage gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.interceptors.trail import TrailReading

_DEFAULT_PORT: Final = 9092
_RUNS: Final = UUID("1c0a9d8e-6f57-4d0c-8f0b-6f2d6c1e7a52")
"""The namespace of the ids of runs that were read in trails."""
UNKNOWN: Final = "unknown"
"""The name of a job or a cluster that a trail does not name."""


class Dataset(msgspec.Struct, frozen=True, order=True):
    """A topic: ``namespace`` is its cluster, such as ``kafka://broker:9092``, and ``name`` the topic."""

    namespace: str
    name: str


class Job(msgspec.Struct, frozen=True, order=True):
    """A service: the namespace that OpenLineage groups jobs by, and its name."""

    namespace: str
    name: str


class JobRun(msgspec.Struct, kw_only=True):
    """One run of a job, with the datasets that the run has read and written.

    Args:
        job: the job.
        run_id: the id of the run.
        began_ms: when the run began, in milliseconds since the epoch.
        latest_ms: when the run was last seen at work, in milliseconds since the epoch.
        inputs: how many records the run read from each dataset; None if that is not known.
        outputs: how many records the run wrote to each dataset; None if that is not known.
        processing: OpenLineage's processing type of the job.
    """

    job: Job
    run_id: UUID
    began_ms: int
    latest_ms: int
    inputs: dict[Dataset, int | None] = {}
    outputs: dict[Dataset, int | None] = {}
    processing: str = "STREAMING"


def kafka_namespace(bootstrap_servers: str) -> str:
    """Return the namespace of a cluster's topics: ``kafka://`` with the first of its addresses.

    This follows OpenLineage's "Dataset Naming". The port is 9092 if the address has none, as in librdkafka.
    """
    first = bootstrap_servers.split(",", maxsplit=1)[0].strip()
    address = first.rpartition("://")[2].rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        host, port = address, str(_DEFAULT_PORT)
    return f"kafka://{host}:{port}"


class TrailRuns:
    """The runs of all jobs that the trails of some records name.

    Each job has one run, which lasts from its first entry to its last. The run's id is made from the job and
    the first entry, so every reader of the same records gets the same runs.

    Args:
        job_namespace: the namespace of the jobs.
        clusters: the namespaces of clusters, by the name or id in trails.
    """

    def __init__(self, job_namespace: str, clusters: Mapping[str, str]) -> None:
        self._job_namespace = job_namespace
        self._clusters = clusters
        self._runs: dict[Job, JobRun] = {}

    def add(self, trail: TrailReading, found_in: Dataset | None = None) -> None:
        """Add the entries of one record's trail.

        ``found_in`` is the dataset in which the record was found. It is used as the output of
        the latest entry if this entry names only the topic, because the producer did not know the cluster.
        """
        for number, entry in enumerate(trail, 1):
            run = self._run(entry.by_whom, entry.when_ms)
            for datasets, cluster, topic in (
                (run.inputs, entry.read_from_cluster, entry.read_from_topic),
                (run.outputs, entry.produced_into_cluster, entry.produced_into_topic),
            ):
                if topic is not None:
                    dataset = Dataset(self._namespace(cluster), topic)
                    if cluster is None and number == len(trail) and found_in and found_in.name == topic:
                        dataset = found_in
                    datasets[dataset] = (datasets.get(dataset) or 0) + 1

    def runs(self) -> list[JobRun]:
        """Return the runs, ordered by their beginning."""
        for run in self._runs.values():
            run.run_id = uuid5(_RUNS, f"{run.job.namespace}\n{run.job.name}\n{run.began_ms}")
        return sorted(self._runs.values(), key=lambda run: (run.began_ms, run.job))

    def _run(self, by_whom: str | None, when_ms: int) -> JobRun:
        # A job of Spark's writes "service/job#batch": the batches are one job.
        job = Job(self._job_namespace, (by_whom or UNKNOWN).partition("#")[0] or UNKNOWN)
        run = self._runs.get(job)
        if run is None:
            run = JobRun(job=job, run_id=_RUNS, began_ms=when_ms, latest_ms=when_ms)
            self._runs[job] = run
        run.began_ms, run.latest_ms = min(run.began_ms, when_ms), max(run.latest_ms, when_ms)
        return run

    def _namespace(self, cluster: str | None) -> str:
        return f"kafka://{UNKNOWN}" if cluster is None else self._clusters.get(cluster, f"kafka://{cluster}")
