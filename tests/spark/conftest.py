"""What the Spark tests share: one session for the whole run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headerware.spark_bridge.session.configure import configure
from headerware.testing import MissingPartError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

JVM_ENDS_S = 60

# pyspark leaves the closing of the sockets that results come through to the garbage collector.
LEFT_TO_COLLECTOR = r"ignore:unclosed <socket\.socket .*raddr=\('127\.0\.0\.1':ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests of this folder, and no others, pass over what pyspark does not close."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT_TO_COLLECTOR))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the run's only session; do not stop it, and make no other in this process."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415

        builder = configure(SparkSession.builder.master("local[2]").appName("headerware-tests"))
    except (ImportError, MissingPartError) as error:
        if os.environ.get("HEADERWARE_REQUIRE_ALL"):
            pytest.fail(f"HEADERWARE_REQUIRE_ALL is set, and a part is missing: {error}", pytrace=False)
        pytest.skip(str(error))
    warehouse = tmp_path_factory.mktemp("warehouse")
    for key, value in {**CONF, "spark.sql.warehouse.dir": str(warehouse)}.items():
        builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gateway: Any = session.sparkContext._gateway
    yield session
    session.stop()
    # The JVM ends when nobody holds its standard input; it must not outlive the run.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JVM_ENDS_S)
