"""The bridge with a client of Spark Connect, on a server of its own process."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
import pytest

from headerware import Chain, Headers, Record
from headerware.interceptors import Dedup, Sign, Slice, Trail
from headerware.keyring.lifecycle import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge.connector_jars import cached_jars, package, resolve
from headerware.spark_bridge.session import spark_home
from tests.spark.programs.connect_client import CUTTING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.conftest import Kafka

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

PROGRAM: Final = Path(__file__).parent / "programs" / "connect_client.py"
START_S: Final = 120
CLIENT_S: Final = 400
LARGE: Final = random.Random(1).randbytes(8_000)
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Spark Connect server, as ``start-connect-server.sh`` does, and return its address."""
    home = spark_home()
    settings = {"spark.jars.packages": package(pyspark.__version__)}
    resolve(settings, pyspark.__version__, home)
    jars = ",".join(map(str, cached_jars(pyspark.__version__, settings)))
    folder = tmp_path_factory.mktemp("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    confs = {
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    (jar,) = (home / "jars").glob("spark-connect_*.jar")
    command = [home / "bin" / "spark-submit", "--master", "local[2]", "--jars", jars]
    command += [part for key, value in confs.items() for part in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", jar]
    log = folder / "log"
    with log.open("w") as output:
        started = subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_S
        while "Spark Connect server started" not in log.read_text():
            assert started.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        started.terminate()
        started.wait(START_S)


@pytest.fixture
def run(server: str, kafka: Kafka, tmp_path: Path) -> Run:
    """Return a function that lets a client do one piece of work, and returns what the client printed."""
    shared = {
        "servers": kafka.servers,
        "checkpoint": str(tmp_path / "checkpoint"),
        "progress": str(tmp_path / "progress"),
    }

    def client(work: str, **given: Any) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), work, server, json.dumps({**shared, **given})],
            capture_output=True,
            text=True,
            timeout=CLIENT_S,
            check=False,
        )
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
        assert [letter.value for letter in kafka.wire(letters)] == [damaged.value]

    def test_a_killed_worker_loses_and_doubles_nothing(self, run: Run, kafka: Kafka, tmp_path: Path) -> None:
        topic, target = kafka.topic("killed"), kafka.topic("killed-target")
        kafka.topic(f"{topic}.dead-letter")
        values = [f"{number}".encode() for number in range(30)]
        kafka.send(CUTTING, *(Record(topic, value) for value in [*values[:15], LARGE, *values[15:]]))
        given = {"topic": topic, "target": target, "batch": 10, "stop": str(tmp_path / "stop")}
        assert run("stream", **given)["error"] is not None
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

    def test_says_what_cannot_work(self, run: Run, kafka: Kafka) -> None:
        topic = kafka.topic("refused")
        kafka.send(None, Record(topic, b"v"))
        said = run("refused", topic=topic)
        assert "expected the folder of this query's checkpoint" in said["elsewhere"]
        assert "use a classic session, or take the step out of this chain" in said["audit"]
        assert said["called"].startswith("expected to be called by a streaming query")
        assert "has no topic no-such-topic" in said["topic"]
        assert said["jaas"].startswith("kafka.sasl.jaas.config: librdkafka")
