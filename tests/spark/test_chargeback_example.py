"""The example as a user runs it: its output, its files, and its own checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from headerware.testing import KafkaBroker

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "chargeback_report.py"
DEADLINE_S: Final = 250.0

CHANGED: Final = """\
import runpy, sys
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
main = runpy.run_path(sys.argv.pop(1))["main"]
main.callback.__globals__["record_bytes"] = lambda *_: 1
main()
"""

_OWN: Final = frozenset({"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"})
"""Variables that a session of this process may set, and that must not reach another process."""

pytestmark = [pytest.mark.broker]


def ended(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {key: value for key, value in os.environ.items() if key not in _OWN}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


class TestChargebackReport:
    def test_writes_a_bill_for_what_moved(self, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
        done = ended(tmp_path, str(EXAMPLE), "--bootstrap-servers", kafka_broker.bootstrap_servers)
        assert done.returncode == 0, done.stderr
        folder = tmp_path / "chargeback-report"
        report = (folder / "report.html").read_text(encoding="utf-8")
        owners = ("geography", "markets", "climate", "billing", "unattributed")
        assert all(owner in done.stdout and owner in report for owner in owners)
        assert str(folder / "report.html") in done.stdout
        assert "Reads that are not known" not in report
        rows = pq.read_table(folder / "usage").to_pylist()
        assert sum(row["records"] for row in rows if row["direction"] == "out") == 1_500
        assert {row["producer"] for row in rows if row["records"]} == {"catalogue", "exchange", None}

    def test_ends_with_1_where_the_bill_is_not_for_what_moved(
        self, kafka_broker: KafkaBroker, tmp_path: Path
    ) -> None:
        servers = ["--bootstrap-servers", kafka_broker.bootstrap_servers]
        done = ended(tmp_path, "-c", CHANGED, str(EXAMPLE), *servers)
        assert done.returncode == 1
        assert done.stderr.endswith("the bill is not for what was produced and read\n"), done.stderr
