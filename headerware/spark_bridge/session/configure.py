"""Configuring a session: the Kafka connector, the workers' Python, and how large Arrow batches may grow.

What the bridge sets, and never over what is set already:

=================================================  ====================================================
spark.jars.packages, or spark.jars                 the Kafka connector of the installed pyspark
PYSPARK_PYTHON (environment)                       spark.pyspark.python, else, for a local master, this
                                                   Python: pyspark itself would take ``python3``
spark.sql.execution.arrow.maxBytesPerBatch         64 MiB: Spark 4.0 goes to 256, and each worker holds a
                                                   batch several times over, as it came, as records, and as
                                                   it goes; 10,000 slices of 900 KB would fill it
=================================================  ====================================================

``maxRecordsPerBatch`` stays Spark's 10,000: large enough for batch hooks, and the bytes are bounded.
``useLargeVarTypes`` stays off, for a bounded batch does not need it and it changes the types that the user's
own Arrow functions see.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headerware.core.errors import ConfigError
from headerware.spark_bridge.classic import refuse_remote
from headerware.spark_bridge.session.connector import check_connector
from headerware.spark_bridge.session.connector_jars import (
    CONNECTOR,
    JARS_FOLDER,
    comes_with_spark,
    jars_in,
    package,
    resolve,
)
from headerware.spark_bridge.session.requirements import check_requirements
from headerware.spark_bridge.session.settings import (
    SUBMIT_ARGS,
    builder_settings,
    file_settings,
    joined,
    running_settings,
    spark_home,
    submit_settings,
)
from headerware.testing.java import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"
_ARROW = {"spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024)}


def configure(
    builder: SparkSession.Builder, *, jars: str | os.PathLike[str] | None = None
) -> SparkSession.Builder:
    """Set what the bridge needs on a session's builder: ``configure(SparkSession.builder).getOrCreate()``.

    Call it last, after the settings of your own, which it never changes. Where a JVM runs already (a session
    was made before, or spark-submit started this program), only the connector's presence is checked: then it
    must have come with that session, or by spark-submit's ``--packages``.

    Args:
        builder: of a classic session, not of Spark Connect.
        jars: a folder that holds the connector's jars, for those without Maven Central; without it, the
            folder in the environment variable ``HEADERWARE_SPARK_JARS``, if that is set.

    Raises:
        ConfigError: the builder is Spark Connect's, or ``PYSPARK_SUBMIT_ARGS`` leaves no way to add the
            connector.
        MissingPartError: no Java, pyarrow or pandas that is fit, or the connector cannot be had.
    """
    check_requirements()
    own = builder_settings(builder)
    refuse_remote(own)
    running = running_settings()
    if running is None:
        find_java()
        _add_connector(builder, own, _folder(jars))
        made = {**file_settings(), **own, **submit_settings()}
    else:
        _check_running_connector()
        made = {**running, **own}
    _choose_python(made)
    for key in _ARROW.keys() - made.keys():
        builder.config(key, _ARROW[key])
    return builder


def _folder(jars: str | os.PathLike[str] | None) -> Path | None:
    named = jars or os.environ.get(JARS_FOLDER)
    return Path(named).expanduser() if named else None


def _add_connector(builder: SparkSession.Builder, own: Mapping[str, str], folder: Path | None) -> None:
    """Add the connector in the first way that is open, unless somebody has."""
    import pyspark  # noqa: PLC0415 - Spark only where it is used

    version, home = pyspark.__version__, spark_home()
    settings = {**file_settings(), **own, **submit_settings()}
    named = any(CONNECTOR in settings.get(key, "") for key in (_PACKAGES, _JARS))
    if not named and not comes_with_spark(home):
        key = _PACKAGES if folder is None else _JARS
        added = [package(version)] if folder is None else [jar.as_uri() for jar in jars_in(folder, version)]
        _check_open(key, added)
        settings[key] = joined(settings.get(key, ""), added)
        builder.config(key, settings[key])
    if settings.get(_PACKAGES):
        resolve(settings, version, home)


def _check_open(key: str, added: list[str]) -> None:
    if key not in submit_settings():
        return
    message = f"it sets {key}, and Spark would not see what is added to it here; add {','.join(added)} there"
    raise ConfigError(message, path=SUBMIT_ARGS)


def _check_running_connector() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - Spark only where it is used

    check_connector(SparkContext._jvm)  # noqa: SLF001 - there may be no session yet to ask


def _choose_python(made: Mapping[str, str]) -> None:
    """Name the workers' Python where pyspark looks for it, which is the environment alone."""
    local = made.get("spark.master", os.environ.get("MASTER", "local")).startswith("local")
    # Elsewhere, this machine's path may name nothing.
    chosen = made.get("spark.pyspark.python") or (sys.executable if local else None)
    if chosen:
        os.environ.setdefault("PYSPARK_PYTHON", chosen)
