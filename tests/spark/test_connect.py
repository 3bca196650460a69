"""The bridge with a client of Spark Connect, on a server of its own process."""

from __future__ import annotations

import json
import random
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
import pytest

from headerware import Chain, Headers, Record
from headerware.interceptors import Compress, Dedup, Sign, Slice, Trail
from headerware.keyring.lifecycle import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge.connector_jars import cached_jars, package, resolve
from headerware.spark_bridge.session import spark_home
from tests.gallery import EXAMPLES
from tests.spark.programs.connect_client import CUTTING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.spark.conftest import Kafka

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(1800)]

PROGRAM: Final = Path(__file__).parent / "programs" / "connect_client.py"
START: Final = runpy.run_path(str(EXAMPLES / "demo" / "spark.py"))["connect_server"]
CLIENT_S: Final = 600
LARGE: Final = random.Random(1).randbytes(8_000)
Run = Callable[..., dict[str, Any]]


def serving(folder: Path) -> AbstractContextManager[tuple[str, int]]:
    """Run a server in a process of its own; yield its address and pid."""
    settings = {"spark.jars.packages": package(pyspark.__version__)}
    resolve(settings, pyspark.__version__, spark_home())
    jars = ",".join(map(str, cached_jars(pyspark.__version__, settings)))
    confs = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.codegen.wholeStage": "false",
    }
    found: AbstractContextManager[tuple[str, int]] = START(folder, confs)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("server")) as (url, _):
        yield url


@pytest.fixture
def run(server: str, kafka: Kafka, tmp_path: Path) -> Run:
    """Return a function that lets a client do one piece of work, and returns what the client printed."""
    shared = {
        "servers": kafka.servers,
        "checkpoint": str(tmp_path / "checkpoint"),
        "progress": str(tmp_path / "progress"),
    }

    def client(work: str, *, url: str = server, **given: Any) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), work, url, json.dumps({**shared, **given})],
            capture_output=True,
            text=True,
            timeout=CLIENT_S,
            check=False,
        )
        if done.returncode == -signal.SIGKILL:
            return {"error": "killed"}
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return client


def progress(folder: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / "progress").read_text().splitlines()]


class TestFrames:
    def test_decode_encode_columns_and_sql(self, run: Run, kafka: Kafka) -> None:
        topic, target = kafka.topic("connect"), kafka.topic("connect-target")
        small = Record(topic, b"small", headers=Headers([("note", b"first")]))
        kafka.send(CUTTING, small, Record(topic, LARGE))
        found = run("frames", topic=topic, target=target)
        assert found["columns"] == [["writer", "first", 5], ["writer", None, len(LARGE)]]
        assert [by_whom for by_whom, _ in found["sql"]] == ["writer", "writer"]
        read, refused = kafka.read(target, Chain([Trail(), Dedup(), Slice()]))
        assert (sorted(len(each.value or b"") for each in read), refused) == ([5, len(LARGE)], [])
        assert found["slices"] == len(kafka.wire(target)) > 2

    def test_signatures_dead_letters_and_typed_values(self, run: Run, kafka: Kafka, tmp_path: Path) -> None:
        topic, typed = kafka.topic("signed"), kafka.topic("typed")
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda keys: with_new_key(keys, "orders", "hmac-sha256"), create=True)
        kafka.send(Chain([Sign(keyring=str(keyring), key_id="orders")]), Record(topic, b"good"))
        kafka.send(None, Record(topic, b"forged"))
        kafka.send(None, Record(typed, b'{"name": "tea", "count": 3}'))
        found = run("protected", topic=topic, typed=typed, keyring=str(keyring))
        assert found["verified"] == [["orders", "good"]]
        ((letter_topic, step, error),) = found["dead_letters"]
        assert (letter_topic, step) == (f"{topic}.dead-letter", "sign")
        assert "Signature" in error
        assert found["typed"] == [["tea", 3]]


class TestForeachBatch:
    def test_slices_repeats_and_dead_letters_over_batches(
        self, run: Run, kafka: Kafka, tmp_path: Path
    ) -> None:
        topic, target = kafka.topic("stream"), kafka.topic("stream-target")
        letters = kafka.topic(f"{topic}.dead-letter")
        slices = kafka.cut(topic, CUTTING, LARGE)
        damaged = Record(topic, b"not compressed", headers=Headers([("hw.compress", b"zstd")]))
        kafka.send(None, *slices[:2], Record(topic, b"small"))
        assert run("stream", topic=topic, target=target) == {"error": None}
        kafka.send(None, *slices[2:], damaged, Record(topic, b"later"))
        assert run("stream", topic=topic, target=target) == {"error": None}
        read, refused = kafka.read(target, Chain([Trail(), Slice()]))
        assert (sorted(len(each.value or b"") for each in read), refused) == ([5, 5, len(LARGE)], [])
        assert [each[:3] for each in progress(tmp_path)] == [[0, False, False], [1, False, False]]
        assert progress(tmp_path)[0][3] == 2
        lines = [each[6] for each in progress(tmp_path)]
        assert lines[0] == "batch 0: 3 in, 1 out, 2 slices wait"
        assert lines[1].startswith(f"batch 1: {len(slices)} in, 2 out, 1 refused")
        assert [letter.value for letter in kafka.wire(letters)] == [damaged.value]

    @pytest.mark.parametrize("what", ["worker", "server"])
    def test_a_kill_loses_and_doubles_nothing(
        self, run: Run, kafka: Kafka, tmp_path: Path, what: str
    ) -> None:
        topic, target = kafka.topic(f"killed-{what}"), kafka.topic(f"killed-{what}-target")
        kafka.topic(f"{topic}.dead-letter")
        values = [f"{number}".encode() for number in range(30)]
        kafka.send(CUTTING, *(Record(topic, value) for value in [*values[:15], LARGE, *values[15:]]))
        given = {"topic": topic, "target": target, "batch": 10, "stop": str(tmp_path / "stop")}
        if what == "worker":
            assert run("stream", **given)["error"] is not None
        else:
            with serving(tmp_path) as (url, pid):
                found = run("stream", url=url, jvm=pid, **given)
                if not (tmp_path / "stop").exists():  # Spark itself ended it, as it may on a busy machine
                    found = run("stream", url=url, jvm=pid, **given)
                assert found == {"error": "killed"}, found["error"]
        assert run("stream", **given) == {"error": None}
        once, _ = kafka.read(target, Chain([Trail(), Dedup(), Slice()]))
        assert Counter(each.value for each in once) == Counter([*values, LARGE])
        every, _ = kafka.read(target, Chain([Trail(), Slice()]))
        assert len(every) > len(once)
        assert [each[:3] for each in progress(tmp_path)][:2] == [[0, False, False], [1, False, True]]

    def test_files_get_each_row(self, run: Run, kafka: Kafka, tmp_path: Path) -> None:
        topic = kafka.topic("files")
        kafka.send(None, *(Record(topic, b"v") for _ in range(3)))
        found = run("files", topic=topic, target=str(tmp_path / "table"))
        assert found == {"error": None, "rows": 3}
        assert [each[6] for each in progress(tmp_path)] == ["batch 0: done"]

    def test_audits_and_counts_each_record_once(self, run: Run, kafka: Kafka, tmp_path: Path) -> None:
        topic, reports = kafka.topic("audited"), kafka.topic("reports")
        kafka.send(Chain([Compress()]), *(Record(topic, b"v" * 500) for _ in range(3)))
        given = {"topic": topic, "target": str(tmp_path / "table"), "reports": reports}
        assert run("counted", **given) == {"error": None}
        ((*_, decoded, encoded, line),) = progress(tmp_path)
        assert (line, encoded) == ("batch 0: 3 in, 3 out", {})
        assert decoded["bytes_out"] == 1500 > decoded["bytes_in"]
        assert decoded["steps"]["compress"]
        (report,) = kafka.wire(reports)
        assert isinstance(report.value, bytes)
        (count,) = json.loads(report.value)["counts"]
        assert (count["topic"], count["records"]) == (topic, 3)

    def test_says_what_cannot_work(self, run: Run, kafka: Kafka) -> None:
        topic = kafka.topic("refused")
        kafka.send(None, Record(topic, b"v"))
        said = run("refused", topic=topic)
        assert "expected the folder of this query's checkpoint" in said["elsewhere"]
        assert "use a classic session, or take the step out of this chain" in said["lineage"]
        assert said["called"].startswith("expected to be called by a streaming query")
        assert "has no topic no-such-topic" in said["topic"]
        assert said["jaas"].startswith("kafka.sasl.jaas.config: librdkafka")
