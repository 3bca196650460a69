"""Lineage: which job reads which topics and writes which, told to OpenLineage.

``jobs`` has jobs, their runs and datasets, and reads them in trails; ``events`` makes OpenLineage's events of
them; ``reporter`` is the thread that sends these; ``interceptor`` has the options and the hooks.
"""

from headerware.interceptors.lineage.interceptor import Lineage

__all__ = ["Lineage"]
