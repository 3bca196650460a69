from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from headerware import ConfigError
from headerware.spark_bridge.session.configure import configure
from headerware.spark_bridge.session.connector_jars import package
from headerware.spark_bridge.session.settings import SUBMIT_ARGS, builder_settings
from headerware.testing import MissingPartError

PACKAGE = package(pyspark.__version__)
MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
CLEAN = (
    SUBMIT_ARGS,
    "PYSPARK_GATEWAY_PORT",
    "HEADERWARE_SPARK_JARS",
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "MASTER",
)
JARS = (
    f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar",
    f"spark-token-provider-kafka-0-10_2.13-{pyspark.__version__}.jar",
    "kafka-clients-3.9.0.jar",
    "commons-pool2-2.12.0.jar",
)


@pytest.fixture(autouse=True)
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand before the start of the JVM, with an Ivy cache that has the connector."""
    for name in CLEAN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    # Set, then taken away, so that whatever configure sets goes when the test is over.
    monkeypatch.setenv("PYSPARK_PYTHON", "unset")
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    folder = tmp_path / "ivy"
    put(folder / "jars" / f"org.apache.spark_{JARS[0]}")
    put(folder / "cache/org.apache.spark/spark-sql-kafka-0-10_2.13/jars" / JARS[0])
    return folder


@pytest.fixture
def builder(ivy: Path) -> SparkSession.Builder:
    return SparkSession.builder.master("local[2]").config("spark.jars.ivy", str(ivy))


def put(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


class TestConfigure:
    def test_gives_the_same_builder(self, builder: SparkSession.Builder) -> None:
        assert configure(builder) is builder

    def test_adds_the_connector_of_this_spark(self, builder: SparkSession.Builder) -> None:
        assert builder_settings(configure(builder))["spark.jars.packages"] == PACKAGE

    def test_twice_is_once(self, builder: SparkSession.Builder) -> None:
        once = dict(builder_settings(configure(builder)))
        assert builder_settings(configure(builder)) == once

    def test_adds_it_to_the_packages_that_are_there(self, builder: SparkSession.Builder, ivy: Path) -> None:
        put(ivy / "jars/g_a-1.jar")
        put(ivy / "cache/g/a/jars/a-1.jar")
        builder.config("spark.jars.packages", "g:a:1")
        assert builder_settings(configure(builder))["spark.jars.packages"] == f"g:a:1,{PACKAGE}"

    def test_keeps_the_packages_of_the_defaults_file(
        self, builder: SparkSession.Builder, ivy: Path, tmp_path: Path
    ) -> None:
        put(ivy / "jars/g_a-1.jar")
        put(ivy / "cache/g/a/jars/a-1.jar")
        put(tmp_path / "conf/spark-defaults.conf", "spark.jars.packages g:a:1\n")
        assert builder_settings(configure(builder))["spark.jars.packages"] == f"g:a:1,{PACKAGE}"

    def test_leaves_a_connector_that_is_named(self, builder: SparkSession.Builder) -> None:
        builder.config("spark.jars", f"/opt/jars/{JARS[0]}")
        settings = builder_settings(configure(builder))
        assert settings["spark.jars"] == f"/opt/jars/{JARS[0]}"
        assert "spark.jars.packages" not in settings

    @pytest.mark.parametrize("way", ["argument", "environment"])
    def test_takes_jars_from_a_folder(
        self,
        way: str,
        builder: SparkSession.Builder,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        jars = [put(tmp_path / "my jars" / name) for name in JARS]
        folder = tmp_path / "my jars"
        builder.config("spark.jars", "/opt/own.jar")
        if way == "environment":
            monkeypatch.setenv("HEADERWARE_SPARK_JARS", str(folder))
        settings = builder_settings(configure(builder, jars=folder if way == "argument" else None))
        assert settings["spark.jars"] == ",".join(["/opt/own.jar", *(jar.as_uri() for jar in jars)])
        assert "spark.jars.packages" not in settings

    def test_refuses_packages_that_spark_would_not_see(
        self, builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SUBMIT_ARGS, "--packages g:a:1 pyspark-shell")
        with pytest.raises(
            ConfigError, match=f"^{SUBMIT_ARGS}: it sets spark.jars.packages.* add {PACKAGE} there"
        ):
            configure(builder)

    def test_names_this_python_for_local_workers(self, builder: SparkSession.Builder) -> None:
        configure(builder)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable

    def test_names_the_python_that_the_session_names(self, builder: SparkSession.Builder) -> None:
        configure(builder.config("spark.pyspark.python", "/opt/python"))
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"

    def test_leaves_the_python_that_the_environment_names(
        self, builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other")
        configure(builder.config("spark.pyspark.python", "/opt/python"))
        assert os.environ["PYSPARK_PYTHON"] == "/opt/other"

    def test_names_no_python_for_other_machines(self, builder: SparkSession.Builder) -> None:
        configure(builder.master("spark://cluster:7077"))
        assert "PYSPARK_PYTHON" not in os.environ

    def test_bounds_arrow_batches(self, builder: SparkSession.Builder) -> None:
        assert builder_settings(configure(builder))[MAX_BYTES] == str(64 * 1024 * 1024)

    def test_leaves_a_bound_that_is_set(self, builder: SparkSession.Builder) -> None:
        assert builder_settings(configure(builder.config(MAX_BYTES, "1m")))[MAX_BYTES] == "1m"

    def test_says_that_java_is_missing(
        self, builder: SparkSession.Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(MissingPartError, match="Java is missing: no bin/java in JAVA_HOME"):
            configure(builder)

    def test_says_that_java_is_too_old(
        self, builder: SparkSession.Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path / "bin/java", "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n").chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(MissingPartError, match=r"Java is too old: .* is version 11"):
            configure(builder)

    def test_refuses_spark_connect(self) -> None:
        with pytest.raises(ConfigError, match="classic Spark session"):
            configure(SparkSession.builder.remote("sc://127.0.0.1:1"))
