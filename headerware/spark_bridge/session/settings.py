"""What is already set for a session, before it starts or while it runs.

Before the JVM starts, three places count, and Spark prefers the later one: ``spark-defaults.conf``, the
builder, and ``PYSPARK_SUBMIT_ARGS``. What the last one sets, a builder cannot change.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError, MissingPartError
from headerware.core.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
_NO_SPARK = f"expected Spark in SPARK_HOME or in pyspark ({install_command('spark')})"
_OPTIONS = {
    "--packages": "spark.jars.packages",
    "--jars": "spark.jars",
    "--master": "spark.master",
    "--repositories": "spark.jars.repositories",
}
# A key, then = or : or white space, as in Java's properties files.
_PROPERTY = re.compile(r"([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*)")


def builder_settings(builder: SparkSession.Builder) -> dict[str, str]:
    """Return what the builder's owner has set on it."""
    return {key: str(value) for key, value in builder._options.items()}  # noqa: SLF001 - it has no getter


def spark_home() -> Path:
    """Return the folder of the Spark that pyspark would start: ``SPARK_HOME``, or its own.

    Raises:
        MissingPartError: there is no Spark in it.
    """
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - Spark only where it is used

    try:
        home = Path(_find_spark_home())  # type: ignore[no-untyped-call]
    except SystemExit as error:  # its way to say that pyspark came without Spark
        raise MissingPartError(f"{_NO_SPARK}: pyspark came without one") from error
    if not (home / "bin" / "spark-submit").is_file():
        raise MissingPartError(f"{_NO_SPARK}: no bin/spark-submit in {home}")
    return home


def file_settings() -> dict[str, str]:
    """Return what ``spark-defaults.conf`` sets, of the Spark that pyspark would start."""
    folder = os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf"
    file = Path(folder) / "spark-defaults.conf"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    found = [_PROPERTY.fullmatch(line.strip()) for line in lines]
    return {match[1]: match[2] for match in found if match}


def submit_settings() -> dict[str, str]:
    """Return what ``PYSPARK_SUBMIT_ARGS`` sets, as spark-submit will read it.

    Raises:
        ConfigError: it cannot be read as a command line.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    for option, key in _OPTIONS.items():
        parser.add_argument(option, dest=key)
    try:
        known, _ = parser.parse_known_args(shlex.split(os.environ.get(SUBMIT_ARGS, "")))
    except (ValueError, argparse.ArgumentError) as error:
        message = "expected the options of spark-submit, then pyspark-shell; it is no such command line"
        raise ConfigError(message, path=SUBMIT_ARGS) from error
    confs = dict(setting.split("=", 1) for setting in known.conf if "=" in setting)
    options = {key: value for key in _OPTIONS.values() if (value := getattr(known, key)) is not None}
    return {**confs, **options}


def running_settings() -> dict[str, str] | None:
    """Return what is set in the JVM that runs already, or None where none does.

    It runs when a session was made before in this process, and under spark-submit, which starts Python from
    the JVM.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - Spark only where it is used
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001 - no getter
        return None
    SparkContext._ensure_initialized()  # noqa: SLF001 - to connect to spark-submit's JVM; what a session does
    active = SparkSession.getActiveSession()
    session = {} if active is None else active.conf.getAll
    return {**dict(SparkConf().getAll()), **session}


def joined(*lists: str | Iterable[str]) -> str:
    """Join what Spark keeps as lists with commas, each item once."""
    items = [item for part in lists for item in (part.split(",") if isinstance(part, str) else part)]
    return ",".join(dict.fromkeys(item.strip() for item in items if item.strip()))
