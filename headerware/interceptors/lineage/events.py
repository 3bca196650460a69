"""Make OpenLineage's events of runs, and open the client that sends events; needs the extra ``lineage``."""

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
_VERSION: Final = version("headerware")
_PRODUCER: Final = f"urn:headerware:{_VERSION}"
"""The URI of the code that makes an event or facet; OpenLineage requires it in each of them."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def run_event(run: JobRun, kind: Kind, when_ms: int) -> RunEvent:
    """Return an event of a run with all datasets that the run has read and written so far.

    Args:
        run: the run.
        kind: the type of the event.
        when_ms: the time of the event, in milliseconds since the epoch.
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
    """Return an event as a JSON object in OpenLineage's form."""
    return Serde.to_dict(event)


def open_client() -> OpenLineageClient:
    """Return OpenLineage's client, configured by its own file or environment variables.

    Raises:
        ConfigError: the client's configuration is wrong.
    """
    try:
        return OpenLineageClient()
    except Exception as error:
        raise ConfigError(
            f"OpenLineage's client refuses its configuration ({type(error).__name__}); see openlineage.yml "
            "and the variables that begin with OPENLINEAGE"
        ) from error


def require_receiver(client: OpenLineageClient) -> None:
    """Raise a ConfigError if a client has no receiver for its events."""
    if client.transport.kind == "noop":
        raise ConfigError("nothing would be sent: OPENLINEAGE_DISABLED switches OpenLineage's client off")
    if client.transport.kind == "console" and not client.config.transport:
        raise ConfigError(
            "found no receiver of OpenLineage's events: set OPENLINEAGE_URL to the address of the receiver, "
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
