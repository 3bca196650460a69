from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from headerware import ConfigError
from headerware.core.extras import install_command
from headerware.spark_bridge.connector_jars import package, version_numbers
from headerware.spark_bridge.session import (
    CONNECT_REQUIREMENTS,
    REQUIREMENTS,
    SUBMIT_ARGS,
    Requirement,
    builder_settings,
    check,
    configure,
    file_settings,
    joined,
    spark_home,
    submit_settings,
    wanted,
)
from headerware.testing import MissingPartError

PACKAGE = package(pyspark.__version__)
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
CLEAN = (
    SUBMIT_ARGS,
    "PYSPARK_GATEWAY_PORT",
    "HEADERWARE_SPARK_JARS",
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "MASTER",
    "SPARK_SUBMIT_OPTS",
    "JAVA_TOOL_OPTIONS",
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

    def test_takes_the_jars_that_were_resolved_before(self, builder: SparkSession.Builder, ivy: Path) -> None:
        parts = [name.removesuffix(".jar").rpartition("-")[::2] for name in JARS]
        lines = [f'<dependency org="org.apache.spark" name="{name}" rev="{rev}"/>' for name, rev in parts[1:]]
        connector, version = parts[0]
        put(ivy / "cache/org.apache.spark" / connector / f"ivy-{version}.xml", "".join(lines))
        cached = (ivy / "cache/org.apache.spark" / name / "jars" / f"{name}-{rev}.jar" for name, rev in parts)
        jars = [put(jar).as_uri() for jar in cached]
        settings = builder_settings(configure(builder.config("spark.jars", "/opt/own.jar")))
        assert settings["spark.jars"] == ",".join(["/opt/own.jar", *jars])
        assert "spark.jars.packages" not in settings

    def test_keeps_the_log_free_of_each_start(self, builder: SparkSession.Builder) -> None:
        option = builder_settings(configure(builder))[JAVA_OPTIONS]
        assert option.startswith("-Dlog4j2.configurationFile=file:///")
        assert Path(option.partition("file://")[2]).is_file()

    def test_leaves_java_options_that_are_set(self, builder: SparkSession.Builder) -> None:
        builder.config(JAVA_OPTIONS, "-Xss8m")
        assert builder_settings(configure(builder))[JAVA_OPTIONS] == "-Xss8m"

    @pytest.mark.parametrize("way", ["file", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"])
    def test_leaves_logging_that_is_set(
        self, way: str, builder: SparkSession.Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if way == "file":
            put(tmp_path / "conf/log4j2.properties")
        else:
            monkeypatch.setenv(way, "-Dlog4j2.configurationFile=own.xml")
        assert JAVA_OPTIONS not in builder_settings(configure(builder))

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
            ConfigError, match=f"^{SUBMIT_ARGS}: it sets spark.jars.packages.* add {PACKAGE} to it"
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
        with pytest.raises(ConfigError, match="the JVM of a Spark Connect server runs already"):
            configure(SparkSession.builder.remote("sc://127.0.0.1:1"))


class TestBuilderSettings:
    def test_are_what_was_set_on_it_as_text(self) -> None:
        builder = SparkSession.builder.master("local[2]").config("spark.x", 3)
        assert builder_settings(builder) == {"spark.master": "local[2]", "spark.x": "3"}


class TestSparkHome:
    def test_is_pysparks_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARK_HOME", raising=False)
        assert (spark_home() / "jars").is_dir()

    def test_refuses_a_folder_without_spark(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        with pytest.raises(MissingPartError, match=f"no bin/spark-submit in {tmp_path}"):
            spark_home()


class TestFileSettings:
    def test_reads_keys_and_values_and_passes_over_comments(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "# spark.a 1\n\nspark.jars.packages   g:a:1,g:b:2\nspark.b=x y\nspark.c : 3\nalone\n"
        (tmp_path / "spark-defaults.conf").write_text(text)
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        expected = {"spark.jars.packages": "g:a:1,g:b:2", "spark.b": "x y", "spark.c": "3"}
        assert file_settings() == expected

    def test_is_empty_without_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        assert file_settings() == {}


class TestSubmitSettings:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", {}),
            ("pyspark-shell", {}),
            ("--packages g:a:1 pyspark-shell", {"spark.jars.packages": "g:a:1"}),
            (
                "--packages=g:a:1 --jars 'a b.jar' x",
                {"spark.jars.packages": "g:a:1", "spark.jars": "a b.jar"},
            ),
            ("--conf spark.x=1=2 -c spark.y=3 x", {"spark.x": "1=2", "spark.y": "3"}),
            ("--conf spark.jars=a --jars b x", {"spark.jars": "b"}),
            ("--verbose --driver-memory 2g --master local[1] x", {"spark.master": "local[1]"}),
        ],
    )
    def test_reads_a_command_line(
        self, text: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SUBMIT_ARGS, text)
        assert submit_settings() == expected

    @pytest.mark.parametrize("text", ["--packages 'g:a:1", "--packages"])
    def test_refuses_what_is_no_command_line(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(SUBMIT_ARGS, text)
        with pytest.raises(ConfigError, match="PYSPARK_SUBMIT_ARGS: expected the options of spark-submit"):
            submit_settings()


class TestJoined:
    def test_keeps_order_and_drops_repeats_and_gaps(self) -> None:
        assert joined("a, b,", ["c", "a"], "") == "a,b,c"


PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


class TestRequirements:
    def test_are_those_of_the_spark_extra(self) -> None:
        extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
        assert {wanted(requirement).replace(".0,", ",") for requirement in REQUIREMENTS} == {
            text.replace(".0,", ",") for text in extras["spark"] if not text.startswith("protobuf")
        }  # without protobuf, which decode_stateful alone needs

    def test_of_connect_are_those_of_its_extra(self) -> None:
        extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
        modules = {"grpcio": "grpc", "grpcio-status": "grpc_status", "googleapis-common-protos": "google.rpc"}
        own = {"headerware[spark]", "zstandard"}  # of each installation
        bounds = {text.partition(">=")[0] for text in extras["spark-connect"]} - own
        asked = [requirement.name for requirement in CONNECT_REQUIREMENTS[len(REQUIREMENTS) :]]
        assert sorted(asked) == sorted(modules[name] for name in bounds)


class TestCheck:
    def test_accepts_what_is_fit(self) -> None:
        for requirement in REQUIREMENTS:
            check(requirement)

    def test_names_what_is_missing_and_how_to_install_it(self) -> None:
        with pytest.raises(MissingPartError, match="no_such_part is missing") as caught:
            check(Requirement("no_such_part", (1,)))
        assert str(caught.value).endswith(install_command("spark"))

    @pytest.mark.parametrize("module", ["grpc", "grpc_status", "google.rpc"])
    def test_a_session_of_connect_names_its_own_extra(
        self, monkeypatch: pytest.MonkeyPatch, module: str
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(
            MissingPartError, match=f"{module} is missing, and Spark Connect needs it"
        ) as caught:
            configure(SparkSession.builder.config("spark.api.mode", "connect"))
        assert str(caught.value).endswith(install_command("spark-connect"))

    def test_refuses_what_is_too_old(self) -> None:
        with pytest.raises(MissingPartError, match=r"msgspec \S+ is too old: .* msgspec>=99.1: "):
            check(Requirement("msgspec", (99, 1)))

    def test_refuses_what_is_too_new(self) -> None:
        with pytest.raises(MissingPartError, match=r"msgspec \S+ is too new: .* msgspec>=0,<0.1: "):
            check(Requirement("msgspec", (0,), (0, 1)))

    def test_a_module_without_a_version_is_missing(self) -> None:
        with pytest.raises(MissingPartError, match="keyword is missing"):
            check(Requirement("keyword", (1,)))


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "expected"), [("4.1.0.dev2", (4, 1, 0)), ("3", (3,)), ("26.0.1", (26, 0, 1)), ("x", ())]
    )
    def test_reads_leading_numbers(self, text: str, expected: tuple[int, ...]) -> None:
        assert version_numbers(text) == expected
