"""Metrics of sources, through OpenTelemetry's metrics API (docs/sources.md).

The values are read from the tasks' statistics when an exporter asks. Without an SDK no exporter asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.metrics import Observation, get_meter

from headerware.sources.engine.statistics import Statistics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions

    from headerware.sources.engine.task import SourceTask


def _left(task: SourceTask) -> int | None:
    progress = task.progress
    return None if progress is None or progress.length < 0 else max(0, progress.length - progress.position)


_OUTCOME: Final = "headerware.source.outcome"
_COUNTERS: Final[Mapping[str, tuple[str, str, Mapping[str, str]]]] = {
    "headerware.source.objects": (
        "{object}",
        "Objects that were read to their end, or could not be.",
        {"complete": "complete", "failed": "failed"},
    ),
    "headerware.source.records": (
        "{record}",
        "Records by what became of them.",
        {
            "read": "records",
            "stored": "acknowledged",
            "dropped": "dropped",
            "bad": "bad_records",
            "dead_lettered": "dead_letters",
        },
    ),
    "headerware.source.size": ("By", "Bytes of the records that are stored.", {"": "acknowledged_bytes"}),
    "headerware.source.retries": (
        "{attempt}",
        "Attempts after a failure to list, open or read.",
        {"": "retries"},
    ),
}
"""By counter: the unit, the description, and the field of Statistics for each outcome."""
_GAUGES: Final[Mapping[str, tuple[str, str, Callable[[SourceTask], float | None]]]] = {
    "headerware.source.waiting": (
        "{object}",
        "Objects that have failed and wait for another attempt.",
        lambda task: task.waiting,
    ),
    "headerware.source.queued": (
        "{record}",
        "Records that were read and wait to be sent.",
        lambda task: task.queued,
    ),
    "headerware.source.in_flight": (
        "{record}",
        "Records that were read and are not stored.",
        lambda task: task.statistics.in_flight,
    ),
    "headerware.source.lag": (
        "By",
        "Bytes that are left of the object that is read now, if it tells.",
        _left,
    ),
    "headerware.source.last_commit": (
        "s",
        "When offsets were stored last, in seconds since the epoch.",
        lambda task: None if task.stored_at_ms is None else task.stored_at_ms / 1_000,
    ),
}


class _Instruments:
    """The instruments of the process, and the tasks whose statistics exporters read."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._at_work: Final[dict[SourceTask, Mapping[str, str]]] = {}
        self._ended: Final[dict[tuple[str, str], Statistics]] = {}
        """The statistics of ended tasks, by source and number, so that counters never fall."""
        meter = get_meter("headerware.sources")
        for name, (unit, description, _) in _COUNTERS.items():
            meter.create_observable_counter(name, [partial(self._counts, name)], unit, description)
        for name, (unit, description, _) in _GAUGES.items():
            meter.create_observable_gauge(name, [partial(self._values, name)], unit, description)

    def add(self, task: SourceTask) -> None:
        with self._lock:
            self._at_work[task] = _labels(task.config.name, task.task)

    def remove(self, task: SourceTask) -> None:
        with self._lock:
            if self._at_work.pop(task, None) is not None:
                key = task.config.name, str(task.task)
                self._ended[key] = _sum(self._ended.get(key), task.statistics)

    def _counts(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        fields = _COUNTERS[name][2]
        with self._lock:
            sums = dict(self._ended)
            for task in self._at_work:
                key = task.config.name, str(task.task)
                sums[key] = _sum(sums.get(key), task.statistics)
        for (source, number), counted in sums.items():
            for outcome, field in fields.items():
                labels = _labels(source, number) | ({_OUTCOME: outcome} if outcome else {})
                yield Observation(getattr(counted, field), labels)

    def _values(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        read = _GAUGES[name][2]
        with self._lock:
            tasks = list(self._at_work.items())
        for task, labels in tasks:
            value = read(task)
            if value is not None:
                yield Observation(value, dict(labels))


@cache
def instruments() -> _Instruments:
    """Return the instruments of this process; the first call makes them."""
    return _Instruments()


def _labels(source: str, task: Any) -> dict[str, str]:
    return {"headerware.source.name": source, "headerware.source.task": str(task)}


def _sum(one: Statistics | None, other: Statistics) -> Statistics:
    if one is None:
        return copy(other)
    names = one.__struct_fields__
    return Statistics(**{name: getattr(one, name) + getattr(other, name) for name in names})
