from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from headerware import ConfigError
from headerware.spark_bridge.classic import refuse_remote, require_classic

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")
# A client of Connect makes its objects without a server; in a process of its own, for it claims the session.
# It goes without an ordinary exit, at which newer clients ask the server for minutes.
PROGRAM = """
import os

from pyspark.sql.connect.session import SparkSession
from headerware import ConfigError
from headerware.spark_bridge.chargeback import usage_sink
from headerware.spark_bridge.classic import require_classic

spark = SparkSession.builder.remote("sc://127.0.0.1:1").create()
frame = spark.range(1)
for thing in (spark, frame, spark.read, spark.readStream, frame.write):
    try:
        require_classic(thing)
    except ConfigError as error:
        print(type(thing).__name__, error, flush=True)
try:
    usage_sink("usage")(frame, 0)
except ConfigError as error:
    print("usage_sink", error, flush=True)
os._exit(0)
"""


@pytest.fixture(autouse=True)
def _classic_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


class TestRequireClassic:
    def test_refuses_all_that_is_connects(self) -> None:
        if find_spec("grpc") is None and not os.environ.get("HEADERWARE_REQUIRE_ALL"):
            pytest.skip("Spark Connect's client needs grpcio and grpcio-status")
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        refused = [line.split(" ", 1) for line in done.stdout.splitlines()]
        kinds = ["SparkSession", "DataFrame", "DataFrameReader", "DataStreamReader", "DataFrameWriter"]
        assert [kind for kind, _ in refused] == [*kinds, "usage_sink"]
        assert {"classic Spark session" in message for _, message in refused} == {True}

    def test_lets_others_pass(self) -> None:
        require_classic(object())


class TestRefuseRemote:
    @pytest.mark.parametrize(
        "settings", [{"spark.remote": "local"}, {"spark.api.mode": "connect"}, {"spark.api.mode": "Connect"}]
    )
    def test_refuses_settings_of_connect(self, settings: Mapping[str, str]) -> None:
        with pytest.raises(ConfigError, match="classic Spark session"):
            refuse_remote(settings)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("SPARK_REMOTE", "sc://h"),
            ("SPARK_API_MODE", "connect"),
            ("SPARK_CONNECT_MODE_ENABLED", "1"),
        ],
    )
    def test_refuses_environment_of_connect(
        self, name: str, value: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match="classic Spark session"):
            refuse_remote({})

    def test_the_builder_wins_over_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_API_MODE", "connect")
        refuse_remote({"spark.api.mode": "classic", "spark.master": "local"})
