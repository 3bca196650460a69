"""How many examples Hypothesis makes: ``FAST=1`` for a quick look, more in continuous integration."""

from __future__ import annotations

import os
from importlib.util import find_spec

from hypothesis import HealthCheck, settings

# Two cores shared with brokers and other tests say nothing about an example's time.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("full"), max_examples=15)
settings.load_profile("fast" if os.environ.get("FAST") == "1" else "full")

# Where Spark is not installed, as with the oldest clients, there is nothing of its bridge to try.
collect_ignore = (
    []
    if find_spec("pyspark") and find_spec("pyarrow")
    else ["test_reassembly_batches.py", "test_typed_columns.py"]
)
