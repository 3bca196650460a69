"""Start Spark for an example: the JVM's output goes into a file, and one line names a missing part."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

try:
    from pyspark.sql import SparkSession  # noqa: TC002 - check that it is installed
except ImportError:
    sys.exit("this example needs Spark: run python -m pip install -e '.[demo,spark]' in the repository")

from headerware.spark_bridge import configure

_RUNNING = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has started Java itself


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
