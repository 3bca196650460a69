from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from headerware import ConfigError
from headerware.spark_bridge.session.settings import (
    SUBMIT_ARGS,
    builder_settings,
    file_settings,
    joined,
    spark_home,
    submit_settings,
)
from headerware.testing import MissingPartError

if TYPE_CHECKING:
    from pathlib import Path


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
