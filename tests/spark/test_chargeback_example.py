"""The example: its output, its files, and its own checks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

from tests.gallery import entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import KafkaBroker

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "chargeback_report.py"

pytestmark = [pytest.mark.broker, pytest.mark.long]


class TestChargebackReport:
    def test_writes_a_bill_for_what_moved(
        self, kafka_broker: KafkaBroker, tmp_path: Path, run_example: Callable[..., Any]
    ) -> None:
        code, shown = run_example(EXAMPLE, "--bootstrap-servers", kafka_broker.bootstrap_servers)
        assert not code
        folder = tmp_path / "chargeback-report"
        report = (folder / "report.html").read_text(encoding="utf-8")
        owners = ("geography", "markets", "climate", "billing", "unattributed")
        assert all(owner in shown and owner in report for owner in owners)
        assert str(folder / "report.html") in shown
        assert entries()["chargeback_report.py"].is_shown_by(shown), shown
        assert "Reads that are not known" not in report
        rows = pq.read_table(folder / "usage").to_pylist()
        assert sum(row["records"] for row in rows if row["direction"] == "out") == 1_500
        assert {row["producer"] for row in rows if row["records"]} == {"catalogue", "exchange", None}

    def test_ends_with_1_where_the_bill_is_not_for_what_moved(
        self, kafka_broker: KafkaBroker, run_example: Callable[..., Any]
    ) -> None:
        there = ["--bootstrap-servers", kafka_broker.bootstrap_servers]
        code, _ = run_example(EXAMPLE, *there, record_bytes=lambda *_: 1)
        assert code == "the bill is not for what was produced and read"
