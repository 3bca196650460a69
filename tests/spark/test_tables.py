"""Delta and Iceberg tables: a driver is killed when the table has a batch, or in the middle of the write.

The real packages come by Ivy, into a session of their own: a running one cannot load them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware import Record
from headerware.spark_bridge.connector_jars import version_numbers

if TYPE_CHECKING:
    from tests.spark.conftest import Kafka

pyspark = pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.broker,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(version_numbers(pyspark.__version__)[:2] != (4, 0), reason="the packages' own Spark"),
]

PROGRAM: Final = Path(__file__).parent / "programs" / "append_to_tables.py"
DEADLINE_S: Final = 400
SENT: Final = [f"n-{number:02d}" for number in range(60)]
TABLES: Final = ("delta-written", "delta-writing", "iceberg-written", "iceberg-writing", "iceberg-expired")


def ended(kafka: Kafka, topic: str, folder: Path, mode: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), kafka.servers, topic, str(folder), mode]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.fixture(scope="module")
def result(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of the second driver, after the first was killed."""
    folder = tmp_path_factory.mktemp("tables")
    topic = kafka.topic("tables")
    kafka.topic(f"{topic}-out")
    kafka.send(None, *(Record(topic, value.encode()) for value in SENT))
    killed = ended(kafka, topic, folder, "stop")
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr[-3000:]
    done = ended(kafka, topic, folder, "finish")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class TestTableSink:
    @pytest.mark.parametrize("table", TABLES)
    def test_appends_each_batch_once_although_its_driver_was_killed(
        self, result: dict[str, Any], table: str
    ) -> None:
        assert result["rows"][table] == SENT

    @pytest.mark.parametrize("table", [name for name in TABLES if name != "iceberg-expired"])
    def test_counts_the_records_of_a_replay_that_the_table_has(
        self, result: dict[str, Any], table: str
    ) -> None:
        assert result["replays"][table] == [[1, 20]]

    def test_says_that_nobody_knows_where_snapshots_have_expired(self, result: dict[str, Any]) -> None:
        assert "table lake.db.expired: expected a snapshot of an earlier batch" in result["error"]
        assert "delete begun/000000000001-* in the ledger" in result["error"]

    def test_appends_the_dead_letters_of_both_chains_of_a_batch(self, result: dict[str, Any]) -> None:
        assert result["rows"]["letters"] == ["n-03", "n-04"]
