"""Read OpenLineage's events by the library's own classes, which refuse what its schema does not have."""

from __future__ import annotations

import importlib
import json
import pkgutil
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import attr
from openlineage.client import event_v2, generated
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DEADLINE_S: Final = 60.0
_FACETS: Final[dict[str, Any]] = {
    found._get_schema(): found
    for module in pkgutil.iter_modules(generated.__path__)
    for found in vars(importlib.import_module(f"{generated.__name__}.{module.name}")).values()
    if isinstance(found, type) and attr.has(found) and hasattr(found, "_get_schema")
}


def read_event(document: dict[str, Any]) -> RunEvent:
    """Return the event that a JSON object is, or raise if it is none."""
    given = dict(document)
    # What the specification asks of texts, which the classes do not hold.
    assert datetime.fromisoformat(given["eventTime"]).tzinfo is not None
    assert urlsplit(given["producer"]).scheme
    assert str(UUID(given["run"]["runId"])) == given["run"]["runId"]
    assert given.pop("schemaURL") == RunEvent._get_schema()
    return RunEvent(
        eventType=RunState(given.pop("eventType")),
        run=Run(**_with_facets(given.pop("run"), "facets")),
        job=Job(**_with_facets(given.pop("job"), "facets")),
        inputs=[InputDataset(**_with_facets(one, "inputFacets")) for one in given.pop("inputs")],
        outputs=[OutputDataset(**_with_facets(one, "outputFacets")) for one in given.pop("outputs")],
        **given,
    )


class Told(NamedTuple):
    """The parts of an event that tests compare."""

    kind: str
    job: str
    inputs: dict[str, int | None]
    outputs: dict[str, int | None]


def told(event: RunEvent) -> Told:
    """Return what an event says: topics by their namespace and name, with their counts."""
    assert event.eventType is not None
    return Told(
        event.eventType.value,
        f"{event.job.namespace}/{event.job.name}",
        {_place(one): _rows(one.inputFacets, "inputStatistics") for one in event.inputs or ()},
        {_place(one): _rows(one.outputFacets, "outputStatistics") for one in event.outputs or ()},
    )


class Events:
    """The file that OpenLineage's client writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def to_file(cls, path: Path, monkeypatch: pytest.MonkeyPatch) -> Events:
        """Let OpenLineage's client write to a file."""
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(path))
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
        return cls(path)

    def read(self) -> list[RunEvent]:
        """Return the events so far."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [read_event(json.loads(line)) for line in lines]

    def wait(self, count: int) -> list[RunEvent]:
        """Return the events once there are so many."""
        deadline = time.monotonic() + DEADLINE_S
        while len(found := self.read()) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} events came"
            time.sleep(0.02)
        return found


def _with_facets(given: dict[str, Any], name: str) -> dict[str, Any]:
    facets = {}
    for key, facet in given.get(name, {}).items():
        fields = dict(facet)
        kind = _FACETS[fields.pop("_schemaURL")]
        facets[key] = kind(producer=fields.pop("_producer"), **fields)
    rest = {key: value for key, value in given.items() if key == name or value != {}}
    return {**rest, name: facets}


def _place(dataset: event_v2.Dataset) -> str:
    return f"{dataset.namespace}/{dataset.name}"


def _rows(facets: dict[str, Any] | None, name: str) -> int | None:
    return facets[name].rowCount if facets and name in facets else None
