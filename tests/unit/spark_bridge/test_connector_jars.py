from __future__ import annotations

import subprocess
import sys
import threading
import time
import tomllib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from headerware.spark_bridge.connector_jars import cached_jars, comes_with_spark, jars_in, package, resolve
from headerware.spark_bridge.session import spark_home
from headerware.testing import MissingPartError

if TYPE_CHECKING:
    from collections.abc import Iterator


VERSION = "4.0.0"
MAVEN_NAMES = (
    "spark-sql-kafka-0-10_2.13-4.0.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "kafka-clients-3.9.0.jar",
    "commons-pool2-2.12.0.jar",
)
CONNECTOR_JAR = "spark-sql-kafka-0-10_2.13/4.0.1/spark-sql-kafka-0-10_2.13-4.0.1.jar"
PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
(PINNED,) = (each for each in PROJECT["optional-dependencies"]["dev"] if each.startswith("pyspark=="))
# An Ivy without a repository: whatever it does not have, it cannot get.
NO_REPOSITORY = """
<ivysettings><settings defaultResolver="none"/>
<resolvers><filesystem name="none"><artifact pattern="{}/nowhere/[artifact].[ext]"/></filesystem></resolvers>
</ivysettings>
"""

# An Ivy with one Maven repository.
ONE_REPOSITORY = """
<ivysettings><settings defaultResolver="only"/>
<resolvers><ibiblio name="only" m2compatible="true" root="{}"/></resolvers>
</ivysettings>
"""
DEPENDENCIES = """
<ivy-module version="2.0"><dependencies>
  <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.0.0" force="true"/>
  <dependency org="org.apache.spark" name="spark-sql_2.13" rev="4.0.0" force="true"/>
  <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.0" force="true"/>
  <dependency org="org.apache.commons" name="commons-pool2" rev="2.12.0" force="true"/>
</dependencies></ivy-module>
"""
COORDINATES = "<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
GROUPS = ("org.apache.spark", "org.apache.spark", "org.apache.kafka", "org.apache.commons")


class QuietHandler(SimpleHTTPRequestHandler):
    """A Maven repository in a folder."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Note what is asked for, and answer slowly, as a large jar takes time."""
        self.asked.append(self.path)
        time.sleep(self.path.endswith(".jar"))
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Write nothing."""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """Return the address of a Maven repository that answers, and has what is in the folder `maven`."""
    (tmp_path / "maven").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/maven/"
        server.shutdown()
        thread.join()


def publish(repository: Path, *versions: str) -> None:
    """Put versions of the connector, with the other jars that it needs, into a Maven repository."""
    others = [
        (group, *jar.removesuffix(".jar").rsplit("-", 1))
        for group, jar in zip(GROUPS, MAVEN_NAMES, strict=True)
    ][1:]
    needed = "".join(f"<dependency>{COORDINATES.format(*each)}</dependency>" for each in others)
    connector = ("org.apache.spark", "spark-sql-kafka-0-10_2.13")
    for group, name, version in [*((*connector, version) for version in versions), *others]:
        folder = repository / group.replace(".", "/") / name / version
        folder.mkdir(parents=True)
        (folder / f"{name}-{version}.jar").touch()
        dependencies = needed if (group, name) == connector else ""
        (folder / f"{name}-{version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion>{COORDINATES.format(group, name, version)}"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
    listed = "".join(f"<version>{version}</version>" for version in versions)
    (repository / "org/apache/spark" / connector[1] / "maven-metadata.xml").write_text(
        f"<metadata><versioning><versions>{listed}</versions></versioning></metadata>"
    )


@pytest.fixture
def ivy_cache(tmp_path: Path) -> Path:
    """Make an Ivy folder into which the connector was resolved."""
    for group, name in zip(GROUPS, MAVEN_NAMES, strict=True):
        jar = tmp_path / "cache" / group / name.rpartition("-")[0] / "jars" / name
        jar.parent.mkdir(parents=True)
        jar.touch()
    connector = tmp_path / "cache/org.apache.spark/spark-sql-kafka-0-10_2.13"
    (connector / "ivy-4.0.0.xml").write_text(DEPENDENCIES)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the jars that the connector needs, and one that it does not."""
    for name in (*MAVEN_NAMES, "slf4j-api-2.0.16.jar"):
        (tmp_path / name).touch()
    return tmp_path


class TestJarsIn:
    def test_gives_those_that_the_connector_needs(self, folder: Path) -> None:
        assert [jar.name for jar in jars_in(folder, VERSION)] == list(MAVEN_NAMES)

    def test_takes_ivys_names(self, folder: Path) -> None:
        for name in MAVEN_NAMES:
            (folder / name).rename(folder / f"org.x_{name}")
        assert [jar.name for jar in jars_in(folder, VERSION)] == [f"org.x_{name}" for name in MAVEN_NAMES]

    def test_names_what_is_missing_and_what_to_do(self, folder: Path) -> None:
        (folder / "kafka-clients-3.9.0.jar").unlink()
        with pytest.raises(MissingPartError) as caught:
            jars_in(folder, VERSION)
        text = str(caught.value)
        assert f"in {folder}; found no kafka-clients." in text
        for advice in ("configure(builder, jars=folder)", "HEADERWARE_SPARK_JARS", "--packages org.apache"):
            assert advice in text

    def test_refuses_a_jar_that_is_there_twice(self, folder: Path) -> None:
        (folder / "kafka-clients-3.8.0.jar").touch()
        with pytest.raises(MissingPartError, match="found 2 of kafka-clients"):
            jars_in(folder, VERSION)

    def test_refuses_the_connector_of_another_spark(self, folder: Path) -> None:
        with pytest.raises(MissingPartError, match=r"found spark-sql-kafka-0-10_2\.13-4\.0\.0\.jar"):
            jars_in(folder, "4.1.0")

    def test_takes_another_patch_of_the_same_spark(self, folder: Path) -> None:
        assert len(jars_in(folder, "4.0.3")) == 4

    def test_names_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(MissingPartError, match=r"in .*nowhere; found no spark-sql-kafka-0-10_2\.13"):
            jars_in(tmp_path / "nowhere", VERSION)


class TestComesWithSpark:
    def test_looks_among_sparks_own_jars(self, tmp_path: Path) -> None:
        assert not comes_with_spark(tmp_path)
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / MAVEN_NAMES[0]).touch()
        assert comes_with_spark(tmp_path)


class TestCachedJars:
    def test_gives_what_was_resolved_with_the_connector(self, ivy_cache: Path) -> None:
        found = cached_jars(VERSION, {"spark.jars.ivy": str(ivy_cache)})
        assert [jar.name for jar in found] == list(MAVEN_NAMES)
        assert all(jar.is_file() for jar in found)

    def test_gives_none_if_one_is_gone(self, ivy_cache: Path) -> None:
        next(ivy_cache.rglob("kafka-clients-*.jar")).unlink()
        assert cached_jars(VERSION, {"spark.jars.ivy": str(ivy_cache)}) == []

    def test_gives_none_of_another_version(self, ivy_cache: Path) -> None:
        assert cached_jars("4.0.1", {"spark.jars.ivy": str(ivy_cache)}) == []


class TestResolve:
    def test_asks_nobody_where_the_cache_has_all(self, tmp_path: Path) -> None:
        handed_out = tmp_path / "jars" / f"org.apache.spark_{MAVEN_NAMES[0]}"
        cached = tmp_path / "cache/org.apache.spark/spark-sql-kafka-0-10_2.13/jars" / MAVEN_NAMES[0]
        for file in (handed_out, cached):
            file.parent.mkdir(parents=True)
            file.touch()
        settings = {"spark.jars.packages": package(VERSION), "spark.jars.ivy": str(tmp_path)}
        resolve(settings, VERSION, tmp_path / "no-spark-here")

    def test_says_what_was_tried_and_what_to_do(self, tmp_path: Path) -> None:
        file = tmp_path / "ivysettings.xml"
        file.write_text(NO_REPOSITORY.format(tmp_path))
        settings = {
            "spark.jars.packages": package("4.0.99"),
            "spark.jars.ivy": str(tmp_path / "ivy"),
            "spark.jars.ivySettings": str(file),
        }
        with pytest.raises(MissingPartError) as caught:
            resolve(settings, "4.0.99", spark_home())
        text = str(caught.value)
        assert f"cannot resolve {package('4.0.99')}; tried its Ivy cache ({tmp_path / 'ivy'})" in text
        assert "unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.99" in text
        assert "\tat " not in text
        assert "configure(builder, jars=folder)" in text

    @pytest.mark.parametrize(
        ("published", "answers", "remedy"),
        [
            (
                ["4.0.1", "4.1.0", "4.0.10"],
                True,
                "a pyspark whose connector is: pip install 'pyspark==4.1.0'",
            ),
            ([], True, f"the pyspark of Headerware's tests: pip install '{PINNED}'"),
            ([], False, ""),
        ],
    )
    def test_names_a_version_that_is_published_if_a_repository_answered(
        self, tmp_path: Path, repository: str, published: list[str], remedy: str, *, answers: bool
    ) -> None:
        if published:
            publish(tmp_path / "maven", *published)
        root = repository if answers else "http://127.0.0.1:9/maven/"
        file = tmp_path / "ivysettings.xml"
        file.write_text(ONE_REPOSITORY.format(root))
        settings = {
            "spark.jars.packages": package("4.0.99"),
            "spark.jars.ivy": str(tmp_path / "ivy"),
            "spark.jars.ivySettings": str(file),
        }
        with pytest.raises(MissingPartError) as caught:
            resolve(settings, "4.0.99", spark_home())
        host = root.split("/")[2]
        says = f"{host} answered, but does not have {package('4.0.99')}"
        assert (says in str(caught.value), f"install {remedy}" in str(caught.value)) == (answers, answers)
        assert ("let Spark reach Maven Central" in str(caught.value)) is not answers
        assert ("\n" in str(caught.value)) is not answers

    def test_resolves_once_for_processes_that_start_together(self, tmp_path: Path, repository: str) -> None:
        publish(tmp_path / "maven", "4.0.1")
        file = tmp_path / "ivysettings.xml"
        file.write_text(ONE_REPOSITORY.format(repository))
        settings = {
            "spark.jars.packages": package("4.0.1"),
            "spark.jars.ivy": str(tmp_path / "ivy"),
            "spark.jars.ivySettings": str(file),
        }
        code = (
            "from pathlib import Path; from headerware.spark_bridge.connector_jars import resolve; "
            f"resolve({settings}, '4.0.1', Path({str(spark_home())!r}))"
        )
        started = [
            subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        errors = [process.communicate(timeout=200)[1] for process in started]
        assert [process.returncode for process in started] == [0, 0, 0], errors
        assert QuietHandler.asked.count(f"/maven/org/apache/spark/{CONNECTOR_JAR}") == 1

    def test_keeps_a_repositorys_password_to_itself(self, tmp_path: Path) -> None:
        spark = tmp_path / "bin" / "spark-submit"
        spark.parent.mkdir()
        spark.write_text("#!/bin/sh\necho 'tried https://me:secret@repo.test/maven' >&2\nexit 1\n")
        spark.chmod(0o755)
        settings = {"spark.jars.packages": package(VERSION), "spark.jars.ivy": str(tmp_path)}
        with pytest.raises(MissingPartError, match=r"tried https://repo\.test/maven") as caught:
            resolve(settings, VERSION, tmp_path)
        assert "secret" not in str(caught.value)
