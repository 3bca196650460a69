"""Rows against what one would use instead: OpenTelemetry's instrumentation, FastStream and Quix Streams.

Both sides run in one process of ``.venv-frameworks``, which has these packages (peers_job.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from report import Row

from headerware.testing import KafkaBroker

BENCH: Final = Path(__file__).parent
PYTHON: Final = BENCH.parent / ".venv-frameworks" / "bin" / "python"


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure all rows against peers, as that process finds them."""
    if not PYTHON.exists():
        sys.exit(f"expected {PYTHON}, where the peers are; `make .venv-frameworks/.ready` makes it")
    command = [PYTHON, BENCH / "peers_job.py", broker.bootstrap_servers, str(pairs)]
    env = {**os.environ, "PYTHONPATH": str(BENCH)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as job:
        assert job.stdout is not None
        for line in job.stdout:
            yield Row(**json.loads(line))
    if job.returncode:
        raise subprocess.CalledProcessError(job.returncode, command)
