"""How many examples Hypothesis makes, by the profile that HYPOTHESIS_PROFILE names.

``medium`` is the default; ``full`` is what `make test-exhaustive` runs, ``fast`` is for a quick look.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from hypothesis import HealthCheck, settings

# Two cores shared with brokers and other tests say nothing about an example's time.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("medium", settings.get_profile("full"), max_examples=30)
settings.register_profile("fast", settings.get_profile("full"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "medium"))

# Where Spark is not installed, as with the oldest clients, there is nothing of its bridge to try.
collect_ignore = (
    []
    if find_spec("pyspark") and find_spec("pyarrow")
    else ["test_reassembly_batches.py", "test_typed_columns.py"]
)
