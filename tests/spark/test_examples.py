"""The Spark examples, one of them by spark-submit; and the code of the page on Spark."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
import pytest

from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import decode, encode, foreach_batch
from tests.gallery import EXAMPLES, entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from headerware.testing import KafkaBroker
    from tests.spark.conftest import Kafka

ROOT: Final = Path(__file__).parents[2]
GALLERY: Final = entries()
PAGE: Final = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
SUBMIT: Final = Path(pyspark.__file__).parent / "bin" / "spark-submit"
DEADLINE_S: Final = 800.0
FENCED: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def ended(folder: Path, *command: str) -> str:
    """Run a command outside of the clone, and return its output."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_stream(shown: str) -> None:
    """Check the last output of the example of a stream."""
    assert "the first service sent 3,378 messages; 2 were altered" in shown
    assert "the second service read 3,378 messages; dead letters: 2" in shown
    assert shown.count("does not fit the record") == 2
    # One trail from service to service, which names the job and its batch.
    assert re.search(r" catalogue +produced into .*\n.* spark/by-state#\d+ +read from ", shown), shown
    assert re.search(r" search +read from ", shown), shown
    assert len(re.findall(r"^batch \d+: ", shown, re.MULTILINE)) > 1
    assert GALLERY["spark_foreach_batch.py"].is_shown_by(shown), shown


@pytest.mark.broker
@pytest.mark.long
class TestForeachBatch:
    @pytest.mark.timeout(DEADLINE_S)
    def test_runs_alone_by_spark_submit_as_the_page_says(self, tmp_path: Path) -> None:
        (line,) = re.findall(r"^ {4}(spark-submit .*/spark_foreach_batch\.py)$", PAGE, re.MULTILINE)
        _, *options, _ = line.replace(":4.0.0", f":{pyspark.__version__}").split()
        python = ["--conf", f"spark.pyspark.python={sys.executable}"]
        check_stream(
            ended(tmp_path, str(SUBMIT), *options, *python, str(EXAMPLES / "spark_foreach_batch.py"))
        )


@pytest.mark.broker
@pytest.mark.long
class TestFirstProgram:
    @pytest.mark.usefixtures("spark")
    def test_of_the_page_shows_what_the_page_says(
        self, kafka: Kafka, kafka_broker: KafkaBroker, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (program,) = (block for block in FENCED.findall(PAGE) if block.startswith("# first.py"))
        program = program.replace('"orders"', f'"{kafka.topic("orders")}"')
        exec(program.replace("localhost:9092", kafka_broker.bootstrap_servers), {})  # noqa: S102 - our page
        shown = PAGE.partition("# first.py")[2].partition("```text\n")[2].partition("```")[0]
        assert shown in capsys.readouterr().out


@pytest.mark.broker
@pytest.mark.long
class TestBackfill:
    @pytest.mark.timeout(DEADLINE_S)
    def test_signs_a_history_anew(self, kafka_broker: KafkaBroker, run_example: Callable[..., Any]) -> None:
        there = ["--bootstrap-servers", kafka_broker.bootstrap_servers]
        code, shown = run_example(EXAMPLES / "spark_backfill.py", *there)
        assert not code
        (once,) = re.findall(r"the old topic has ([\d,]+) records, each signed with history-2025", shown)
        (twice,) = re.findall(r"signed with history-2026: ([\d,]+) in all", shown)
        assert int(twice.replace(",", "")) == 2 * int(once.replace(",", ""))
        assert f"that trusts history-2026 only got each once: {once}" in shown
        assert f"the same reader refused all {once} of the old topic" in shown
        assert GALLERY["spark_backfill.py"].is_shown_by(shown), shown

    @pytest.mark.timeout(DEADLINE_S)
    def test_ends_with_1_where_records_are_missing(
        self, kafka_broker: KafkaBroker, run_example: Callable[..., Any]
    ) -> None:
        there = ["--bootstrap-servers", kafka_broker.bootstrap_servers]
        code, shown = run_example(EXAMPLES / "spark_backfill.py", *there, backfill=lambda *_: None)
        assert code == "the records did not come through once each, under the new key alone"
        assert "signed with history-2026: 0 in all" in shown


@pytest.mark.broker
@pytest.mark.long
class TestCompaction:
    @pytest.mark.usefixtures("interpreted")
    def test_shows_a_topic_before_and_after(
        self,
        spark: SparkSession,
        kafka_broker: KafkaBroker,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        runpy.run_path(str(EXAMPLES / "compaction_spark.py"))["compact"](spark, kafka_broker)
        shown = capsys.readouterr().out
        assert "the job read 10 records, and wrote 3" in shown
        assert "the worker read 2 more, and wrote 1" in shown
        assert GALLERY["compaction_spark.py"].is_shown_by(shown), shown


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.one_spark
@pytest.mark.timeout(DEADLINE_S)
class TestTables:
    @pytest.mark.parametrize("name", ["spark_delta.py", "spark_iceberg.py", "spark_pipeline.py"])
    def test_have_each_record_once_after_a_failure(self, tmp_path: Path, name: str) -> None:
        shown = ended(tmp_path, sys.executable, str(EXAMPLES / name))
        assert GALLERY[name].is_shown_by(shown), shown

    def test_have_each_record_once_after_a_spark_connect_server_was_killed(self, tmp_path: Path) -> None:
        shown = ended(tmp_path, sys.executable, str(EXAMPLES / "spark_pipeline.py"), "--connect")
        assert re.search(r"^batch 1: [\d,]+ in, [\d,]+ out.* \(a replay\)$", shown, re.MULTILINE), shown
        for line in (
            "the table has batch 1; the driver is killed",
            "the table has 4,020 records",
            "accounts read 2,000 settled orders",
        ):
            assert line in shown, shown


class TestPage:
    @pytest.mark.parametrize("function", [decode, encode, foreach_batch], ids=lambda found: found.__name__)
    def test_lists_all_options(self, function: Callable[..., Any]) -> None:
        table = PAGE.partition(f"| `{function.__name__}(")[2].partition("\n\n")[0]
        first = [row.split("|")[1] for row in table.splitlines()[2:]]
        listed = {name for cell in first for name in re.findall(r"`([\w*]+)`", cell)}
        options = {
            name
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        assert {name for name in options if not any(fnmatch(name, each) for each in listed)} == set()
        assert {each for each in listed if not any(fnmatch(name, each) for name in options)} == set()

    def test_frame_there_and_back_and_over_a_join_shows_what_it_says(
        self, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        section = PAGE.partition("## A frame, there and back")[2]
        found = FENCED.search(section)
        joined = FENCED.search(section.partition("### Headers over a join")[2])
        assert found is not None
        assert joined is not None
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda keys: with_new_key(keys, "orders-2026", "ed25519"), create=True)
        # The workers of the shared session have another working directory than a user's program.
        program = (found[1] + joined[1]).replace('"keys.json"', repr(str(keyring)))
        namespace: dict[str, Any] = {"spark": spark}
        exec(compile(program, "docs/spark.md", "exec"), namespace)  # noqa: S102 - our own
        shown = re.findall(r"^print\(.*\)  # (.*)$", program, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == shown
        assert len(shown) > 1
