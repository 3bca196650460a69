from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from headerware import ConfigError
from headerware.spark_bridge.driver import refuse_remote, require_classic

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
from headerware.spark_bridge.driver import require_classic, session_of

spark = SparkSession.builder.remote("sc://127.0.0.1:1").create()
frame = spark.range(1)
for thing in (spark, frame, spark.read, spark.readStream, frame.write):
    try:
        require_classic(thing, "this", "do that")
    except ConfigError as error:
        print(type(thing).__name__, error, flush=True)
print("session", {session_of(reader) is spark for reader in (spark.read, spark.readStream)})
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
        assert [kind for kind, _ in refused] == [*kinds, "session", "usage_sink"]
        assert dict(refused)["session"] == "{True}"
        said = "this needs the driver's JVM, which a session of Spark Connect cannot reach: do that"
        assert {dict(refused)[kind] for kind in kinds} == {said}

    def test_lets_others_pass(self) -> None:
        require_classic(object(), "this", "do that")


class TestRefuseRemote:
    def test_refuses_the_address_of_a_server(self) -> None:
        with pytest.raises(ConfigError, match="leave configure\\(\\) out, and start the server"):
            refuse_remote({"spark.remote": "sc://h"})

    @pytest.mark.parametrize(
        "settings", [{"spark.remote": "local[2]"}, {"spark.api.mode": "connect"}, {"spark.master": "local"}]
    )
    def test_lets_a_server_pass_that_this_process_starts(self, settings: Mapping[str, str]) -> None:
        refuse_remote(settings)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("SPARK_REMOTE", "sc://h"),
            ("SPARK_CONNECT_MODE_ENABLED", "1"),
        ],
    )
    def test_refuses_environment_of_connect(
        self, name: str, value: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match="leave configure"):
            refuse_remote({})

    def test_the_builder_wins_over_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_REMOTE", "sc://h")
        refuse_remote({"spark.remote": "local"})
