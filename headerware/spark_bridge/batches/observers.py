"""Audit, metrics and trace of a query: tasks count, and the driver reports the counts of finished batches."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from headerware.core.context import Context
from headerware.core.hooks import label
from headerware.core.native import native_module
from headerware.interceptors.audit import Audit
from headerware.interceptors.metrics import Metrics
from headerware.interceptors.telemetry import warn_without_sdk
from headerware.interceptors.trace import Trace
from headerware.spark_bridge.executors.counts import merged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from headerware.core.chain import Chain

_log: Final = logging.getLogger("headerware.spark_bridge")
REPORT_COLUMNS: Final = "topic string, key binary, value binary"
"""The columns of the reports of ``audit``."""


class Observers:
    """The observing steps of one chain, open on the driver for one query."""

    def __init__(self, chain: Chain, side: Literal["producer", "consumer"], job: str) -> None:
        self._stats: Mapping[str, Any] = {}
        """The counters of the chain's steps, over all finished batches."""
        group = f"spark/{job}" if side == "consumer" else None
        context = Context(side=side, client_id=job, group_id=group, stats=lambda: self._stats)
        self._has_compared = False
        steps = list(zip(chain.names, chain, strict=True))
        self._metrics = [step.open(context) for _, step in steps if isinstance(step, Metrics)]
        self._audits = {name: step.open(context) for name, step in steps if isinstance(step, Audit)}
        for _, step in steps:
            if isinstance(step, Trace) and step.mode != "propagate":
                warn_without_sdk(label(step), context, is_set_up=is_traced(), what="spans")

    def reports(
        self, counts: Mapping[str, Any], *, query_id: str, batch_id: int, now_ms: int
    ) -> list[tuple[Any, ...]]:
        """Return the rows of :data:`REPORT_COLUMNS` that a batch adds to the audit.

        A replay repeats the session and the numbers, and of equal reports only one counts.
        """
        counted = counts.get("audit", {})
        return [
            (record.topic, record.key, record.value)
            for name, audit in self._audits.items()
            for record in audit.batch_reports(
                **counted.get(name, {}),
                session=_digest(query_id, batch_id, name),
                now_ms=now_ms,
            )
        ]

    def done(self, counts: Mapping[str, Any]) -> None:
        """Add the counts of a batch that is done to the metrics."""
        self._stats = merged(self._stats, counts.get("steps", {}))
        for step in self._metrics:
            step.count(consumed=counts.get("given", {}), sent=counts.get("topics", {}))
        for name, audit in self._audits.items():
            audit.count_batch(**counts.get("audit", {}).get(name, {}))
        self._compare_native(counts.get("native", {}))

    def _compare_native(self, tasks: Mapping[str, int]) -> None:
        """Log once if the driver has native steps and executors do not: the rows are the same, but slower."""
        module, mine = native_module()
        others = set(tasks) - {mine}
        if module is not None and others and not self._has_compared:
            self._has_compared = True
            _log.warning(
                "the driver has native steps (%s) and executors do not (%s), so these run all steps in "
                "Python; ship headerware-native with the executors' environment",
                mine,
                "; ".join(sorted(others)),
            )


def is_traced() -> bool:
    """Return whether spans may be recorded here, which needs an SDK."""
    # Asking a tracer would make a span, which an exporter would see.
    silent = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
    return not isinstance(trace.get_tracer_provider(), silent)


def _digest(*parts: object) -> str:
    """Return a session's name: 16 hexadecimal digits that are the same in a replay."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:16]
