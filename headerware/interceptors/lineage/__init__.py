"""Lineage: report to OpenLineage which topics each job reads and writes.

``jobs`` has jobs, their runs and datasets, and finds runs in trails; ``events`` makes OpenLineage's events of
runs; ``reporter`` has the thread that sends events; ``interceptor`` has the options and the hooks.
"""

from headerware.interceptors.lineage.interceptor import Lineage

__all__ = ["Lineage"]
