"""Executors without Headerware, which get it only from the driver."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.connector, pytest.mark.long]  # its jars are what the program is given
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 200
CHAIN = """
[[interceptors]]
type = "trail"
service = "shipping"

[[interceptors]]
type = "compress"

[[interceptors]]
type = "slice"
max_bytes = 2_000

[[interceptors]]
type = "sign"
keyring = "{keyring}"
key_id = "test"
require = "enforce"

[[interceptors]]
type = "header_ids"
"""
# The driver's program. It has Headerware; its arguments name the Pythons of its workers.
PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession
from headerware.spark_bridge import foreach_batch
from headerware.spark_bridge.session import require_connector
from headerware.spark_bridge.decoding import decode
from headerware.spark_bridge.encoding import encode
from headerware.spark_bridge.session import configure

told = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]").appName("shipping").config("spark.ui.enabled", "false")
spark = configure(builder.config("spark.sql.warehouse.dir", os.getcwd()), jars=told["jars"]).getOrCreate()
require_connector(spark)
context = spark.sparkContext
conf = context.getConf()
found = {"packages": conf.get("spark.jars.packages"), "jars": conf.get("spark.jars")}

row = ("t", 0, 7, bytearray(b"k"), bytearray(os.urandom(5_000)), [("own", bytearray(b"x"))])
columns = "topic string, partition int, offset long, key binary, value binary, "
columns += "headers array<struct<key:string,value:binary>>"
frame = spark.createDataFrame([row], columns)

def attempt(name, python):
    context.pythonExec = python
    try:
        found[name] = [[h.key for h in r.headers] for r in encode(frame, told["chain"]).collect()]
    except Exception as error:
        found[name] = str(error)

attempt("before", told["bare"])
attempt("without_arrow", told["without_arrow"])
context.pythonExec = told["without_arrow"]
work = foreach_batch(told["reading"], lambda frame, _: frame.collect(), checkpoint="stream")
rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load().selectExpr(
    "'t' topic",
    "cast(string(value) as binary) value",
    "cast(array() as array<struct<key:string,value:binary>>) headers",
)
query = rows.writeStream.foreachBatch(work).option("checkpointLocation", "stream").start()
try:
    query.awaitTermination(told["seconds"])
except Exception as error:
    found["streamed"] = str(error)
context.addPyFile(told["wheel"])
attempt("missing", told["without_msgspec"])
attempt("encoded", told["bare"])
if isinstance(found["encoded"], list):
    wire = encode(frame, told["chain"]).rdd.collect()
    numbered = [(r.topic, 0, offset, r.key, r.value, r.headers) for offset, r in enumerate(wire)]
    plain = decode(spark.createDataFrame(numbered, columns), told["chain"]).collect()
    found["decoded"] = [[bytes(r.value) == bytes(row[4]), [h.key for h in r.headers]] for r in plain]
print("FOUND", json.dumps(found))
"""


def python_without(folder: Path, *names: str) -> str:
    """Make a Python with the installed packages of this one, except for some."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not any(name in entry.name.lower() for name in (*names, "headerware", "__pycache__")):
            (site / entry.name).symlink_to(entry)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the program once, with the connector's jars from a folder, and return its results."""
    folder = tmp_path_factory.mktemp("shipping")
    jars = folder / "jars"
    jars.mkdir()
    for jar in spark.sparkContext.getConf().get("spark.jars", "").split(","):
        shutil.copy(unquote(urlsplit(jar).path), jars)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
    (folder / "chain.toml").write_text(CHAIN.format(keyring=folder / "keys.json"))
    (folder / "program.py").write_text(PROGRAM)
    (folder / "reading.toml").write_text('[[interceptors]]\ntype = "compress"\n')
    told = {
        "reading": str(folder / "reading.toml"),
        "seconds": SECONDS,
        "jars": str(jars),
        "chain": str(folder / "chain.toml"),
        "wheel": str(next(folder.glob("*.whl"))),
        "bare": python_without(folder / "bare"),
        "without_msgspec": python_without(folder / "less", "msgspec"),
        "without_arrow": python_without(folder / "without_arrow", "pyarrow"),
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "program.py", json.dumps(told)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=kept,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    return result


class TestJarsFolder:
    def test_the_connector_comes_from_it(self, found: dict[str, Any]) -> None:
        assert found["packages"] is None
        assert "spark-sql-kafka-0-10" in found["jars"]


class TestShippedWheel:
    def test_the_whole_chain_runs_from_it(self, found: dict[str, Any]) -> None:
        assert isinstance(found["encoded"], list), found["encoded"]
        assert len(found["encoded"]) > 1, "the message should have been cut"
        # HeaderIds had the ids of the built-in registry, which is a file in the wheel.
        assert {name for headers in found["encoded"] for name in headers} == {"own", "hw.ids"}
        assert found["decoded"] == [[True, ["own", "hw.trail"]]]


class TestMissingModule:
    def test_headerware_itself_is_named_with_how_to_ship_it(self, found: dict[str, Any]) -> None:
        assert "has no module 'headerware', which this chain needs. Ship it by" in found["before"]
        assert "addPyFile" in found["before"]

    def test_a_compiled_package_is_named_with_how_to_ship_it(self, found: dict[str, Any]) -> None:
        assert "has no module 'msgspec', which this chain needs. Ship it by --archives" in found["missing"]

    def test_pyarrow_is_named_although_spark_itself_needs_it(self, found: dict[str, Any]) -> None:
        named = "has no module 'pyarrow', which this chain needs. Ship it by --archives"
        assert named in found["without_arrow"]
        error = rf"TaskError: batch \d: RuntimeError: the executor's Python .*{named}"
        assert re.search(error, found["streamed"])
