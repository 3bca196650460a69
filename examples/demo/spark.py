"""Start Spark, or a Spark Connect server, with the JVM's output in a file; one line names a missing part."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

try:
    from pyspark.sql import SparkSession  # noqa: TC002 - check that it is installed
except ImportError:
    sys.exit("this example needs Spark: run python -m pip install -e '.[demo,spark]' in the repository")

from headerware.spark_bridge import configure
from headerware.spark_bridge.session import spark_home

_RUNNING = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has started Java itself
_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED: Final = "Spark Connect server started"
_START_S: Final = 300


def start(builder: SparkSession.Builder) -> SparkSession:
    """Start a session that shows no progress bars, with the Kafka connector that pyspark needs.

    Ivy and log4j write some fifty lines to the standard error of the JVM at each start. They go into a file,
    which is shown if Spark does not start. Spark's own tables stay out of the working directory.
    """
    if not (os.environ.get(_RUNNING) or os.environ.get("JAVA_HOME") or shutil.which("java")):
        sys.exit("this example needs Java 17 or newer: install openjdk-17-jre-headless, or set JAVA_HOME")
    folder = tempfile.mkdtemp(prefix="spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log = Path(folder, "spark.log")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.warehouse.dir", str(Path(folder, "warehouse")))
    saved = os.dup(2)
    with (
        log.open("wb") as file,
        Console().status("starting Spark"),
    ):
        os.dup2(file.fileno(), 2)
        try:
            spark = configure(builder).getOrCreate()
        except Exception:
            os.write(saved, log.read_bytes())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Run a Spark Connect server, as start-connect-server.sh does; yield its address and the JVM's pid.

    The server runs the functions that a client sends with this Python.
    """
    home = spark_home()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    confs = {"spark.connect.grpc.binding.port": port, "spark.sql.warehouse.dir": folder / "warehouse"}
    (jar,) = (home / "jars").glob("spark-connect_*.jar")
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    for key, value in {**confs, **settings}.items():
        command += ["--conf", f"{key}={value}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "--class", _SERVER, str(jar)],
            env={**environment, "PYSPARK_PYTHON": sys.executable},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + _START_S
        while _STARTED not in log.read_text():
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"Spark Connect's server did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}", server.pid
    finally:
        server.kill()
        server.wait()
