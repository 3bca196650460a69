"""Runs as OpenLineage's events, and the client that sends them; this needs the extra ``lineage``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal

from headerware.core.errors import ConfigError, MissingPartError
from headerware.core.extras import install_command

try:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        input_statistics_input_dataset,
        job_type_job,
        output_statistics_output_dataset,
        processing_engine_run,
    )
    from openlineage.client.serde import Serde
except ImportError as _error:
    _message = f"lineage needs openlineage-python: {install_command('lineage')}"
    raise MissingPartError(_message) from _error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.interceptors.lineage.jobs import Dataset, JobRun

Kind = Literal["START", "RUNNING", "COMPLETE", "FAIL"]
_VERSION: Final = version("kafka-headerware")
_PRODUCER: Final = f"urn:headerware:{_VERSION}"
"""What OpenLineage asks of every event and facet: a URI of the code that made it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def run_event(run: JobRun, kind: Kind, when_ms: int) -> RunEvent:
    """Return the event of a run with all that it has read and written so far.

    Args:
        run: the run.
        kind: what has happened to it.
        when_ms: when, in milliseconds since the epoch.
    """
    engine = processing_engine_run.ProcessingEngineRunFacet(
        version=_VERSION, name="Headerware", producer=_PRODUCER
    )
    job_type = job_type_job.JobTypeJobFacet(
        processingType=run.processing, integration="HEADERWARE", jobType="JOB", producer=_PRODUCER
    )
    return RunEvent(
        eventType=RunState[kind],
        eventTime=(_EPOCH + timedelta(milliseconds=when_ms)).isoformat(timespec="milliseconds"),
        run=Run(str(run.run_id), facets={"processing_engine": engine}),
        job=Job(run.job.namespace, run.job.name, facets={"jobType": job_type}),
        inputs=[
            InputDataset(dataset.namespace, dataset.name, inputFacets=_input_facets(count))
            for dataset, count in _sorted(run.inputs)
        ],
        outputs=[
            OutputDataset(dataset.namespace, dataset.name, outputFacets=_output_facets(count))
            for dataset, count in _sorted(run.outputs)
        ],
        producer=_PRODUCER,
    )


def as_json_object(event: RunEvent) -> dict[str, Any]:
    """Return an event as OpenLineage writes it."""
    return Serde.to_dict(event)


def open_client() -> OpenLineageClient:
    """Return OpenLineage's client, configured as it is everywhere: by its file or its variables.

    Raises:
        ConfigError: its configuration is wrong.
    """
    try:
        return OpenLineageClient()
    except Exception as error:
        raise ConfigError(
            f"OpenLineage's client refuses its configuration ({type(error).__name__}); see openlineage.yml "
            "and the variables that begin with OPENLINEAGE"
        ) from error


def require_receiver(client: OpenLineageClient) -> None:
    """Raise a ConfigError if nobody would receive what a client sends, because nothing says where to."""
    if client.transport.kind == "noop":
        raise ConfigError("nothing would be sent: OPENLINEAGE_DISABLED switches OpenLineage's client off")
    if client.transport.kind == "console" and not client.config.transport:
        raise ConfigError(
            "nothing says where OpenLineage's events go: set OPENLINEAGE_URL to the address of the receiver, "
            "or name a transport in openlineage.yml"
        )


def _sorted(datasets: Mapping[Dataset, int | None]) -> list[tuple[Dataset, int | None]]:
    return sorted(datasets.items(), key=lambda item: item[0])


def _input_facets(count: int | None) -> dict[str, Any]:
    if count is None:
        return {}
    facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=count, producer=_PRODUCER
    )
    return {"inputStatistics": facet}


def _output_facets(count: int | None) -> dict[str, Any]:
    if count is None:
        return {}
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=count, producer=_PRODUCER
    )
    return {"outputStatistics": facet}
