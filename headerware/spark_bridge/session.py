"""Configure a session: the Kafka connector, the workers' Python, and the size of Arrow batches.

``configure`` sets the following, and never changes what is set already:

=================================================  ====================================================
spark.jars, or spark.jars.packages                 the Kafka connector of the installed pyspark
spark.driver.extraJavaOptions                      log4j2.properties of this package: Spark's defaults without
                                                   the lines that each start logs
PYSPARK_PYTHON (environment)                       spark.pyspark.python, else, for a local master, this
                                                   Python; pyspark itself would take ``python3``
spark.sql.execution.arrow.maxBytesPerBatch         64 MiB: Spark 4.0 has 256, and each worker holds a batch
                                                   several times over: as it came, as records, and as it
                                                   goes; 10,000 slices of 900 KB would fill its memory
=================================================  ====================================================

``maxRecordsPerBatch`` remains Spark's 10,000: large enough for batch hooks, and the bytes are bounded.
``useLargeVarTypes`` remains off: a bounded batch does not need it, and it changes the types that the user's
own Arrow functions see.

Before the JVM starts, settings come from three places, and Spark prefers the later one:
``spark-defaults.conf``, the builder, and ``PYSPARK_SUBMIT_ARGS``. A builder cannot change what the last one
sets.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.errors import ConfigError, MissingPartError
from headerware.core.extras import install_command
from headerware.core.java import find_java
from headerware.spark_bridge.connector_jars import (
    CONNECTOR,
    JARS_FOLDER,
    advice,
    cached_jars,
    comes_with_spark,
    jars_in,
    package,
    resolve,
    version_numbers,
)
from headerware.spark_bridge.driver import driver_of, names_connect, refuse_remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession


_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"
_ARROW = {"spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024)}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("log4j2.properties")
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


def configure(
    builder: SparkSession.Builder, *, jars: str | os.PathLike[str] | None = None
) -> SparkSession.Builder:
    """Set what the bridge needs on a session's builder: ``configure(SparkSession.builder).getOrCreate()``.

    Call it last, after your own settings, which it never changes. If a JVM runs already (a session was made
    before, or spark-submit started this program), it only checks for the connector, which must have
    come with that session, or by spark-submit's ``--packages``.

    Args:
        builder: the builder of a session that starts its own JVM: not one that names a Spark Connect server.
        jars: a folder with the connector's jars, where Maven Central cannot be reached; if None, the folder
            in the environment variable ``HEADERWARE_SPARK_JARS``, if that is set.

    Raises:
        ConfigError: the builder names a Spark Connect server, or ``PYSPARK_SUBMIT_ARGS`` leaves no way to add
            the connector.
        MissingPartError: Java, pyarrow or pandas is missing or does not fit, or the connector is missing.
    """
    own = builder_settings(builder)
    refuse_remote(own)
    _check_requirements(CONNECT_REQUIREMENTS if names_connect(own) else REQUIREMENTS)
    running = _running_settings()
    if running is None:
        find_java(newest=_newest_java())
        _add_connector(builder, own, _folder(jars))
        made = {**file_settings(), **own, **submit_settings()}
        _choose_logging(builder, made)
    else:
        _check_running_connector()
        made = {**running, **own}
    _choose_python(made)
    for key in _ARROW.keys() - made.keys():
        builder.config(key, _ARROW[key])
    return builder


def _newest_java() -> int | None:
    """Return the newest Java on which the installed Spark starts, or None if that is not known."""
    import pyspark  # noqa: PLC0415 - Spark only where it is used

    return 22 if version_numbers(pyspark.__version__)[:2] == (4, 0) else None  # later, Hadoop cannot log in


def _folder(jars: str | os.PathLike[str] | None) -> Path | None:
    named = jars or os.environ.get(JARS_FOLDER)
    return Path(named).expanduser() if named else None


def _add_connector(builder: SparkSession.Builder, own: Mapping[str, str], folder: Path | None) -> None:
    """Add the connector in the first way that is possible, unless it is there already."""
    import pyspark  # noqa: PLC0415 - Spark only where it is used

    version, home = pyspark.__version__, spark_home()
    settings = {**file_settings(), **own, **submit_settings()}
    named = any(CONNECTOR in settings.get(key, "") for key in (_PACKAGES, _JARS))
    added: dict[str, str] = {}
    if not named and not comes_with_spark(home):
        key = _PACKAGES if folder is None else _JARS
        items = [package(version)] if folder is None else [jar.as_uri() for jar in jars_in(folder, version)]
        _check_open(key, items)
        added[key] = joined(settings.get(key, ""), items)
    settings |= added
    if settings.get(_PACKAGES):
        resolve(settings, version, home)
    if added.get(_PACKAGES) == package(version) and _JARS not in submit_settings():
        jars = [jar.as_uri() for jar in cached_jars(version, settings)]
        added = {_JARS: joined(settings.get(_JARS, ""), jars)} if jars else added
    for key, value in added.items():
        builder.config(key, value)


def _choose_logging(builder: SparkSession.Builder, settings: Mapping[str, str]) -> None:
    """Let the JVM log to this package's file, unless some logging or Java option is set already."""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")
    java_options = " ".join(os.environ.get(name, "") for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"))
    if _JAVA_OPTIONS in settings or "log4j" in java_options or any(folder.glob("log4j2.*")):
        return
    if _LOGGING.is_file():  # not in an archive
        builder.config(_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")


def _check_open(key: str, added: list[str]) -> None:
    if key not in submit_settings():
        return
    message = f"it sets {key}, so Spark would ignore what is added here; add {','.join(added)} to it"
    raise ConfigError(message, path=SUBMIT_ARGS)


def _check_running_connector() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - Spark only where it is used

    _check_connector(SparkContext._jvm)  # noqa: SLF001 - there may be no session yet


def _choose_python(made: Mapping[str, str]) -> None:
    """Set the workers' Python in the environment, the only place where pyspark looks for it."""
    local = made.get("spark.master", os.environ.get("MASTER", "local")).startswith("local")
    # On other machines this path may not exist.
    chosen = made.get("spark.pyspark.python") or (sys.executable if local else None)
    if chosen:
        os.environ.setdefault("PYSPARK_PYTHON", chosen)


def require_connector(spark: SparkSession) -> None:
    """Check that a session has the Kafka connector, which cannot be added to a running session.

    Nothing is checked without a JVM: the server of Spark Connect says itself that it has no ``kafka``.
    """
    jvm = driver_of(spark).jvm
    if jvm is not None:
        _check_connector(jvm)


def speculates(spark: SparkSession) -> bool:
    """Return whether Spark runs slow tasks twice (``spark.speculation``), which no session can change."""
    return spark.conf.get("spark.speculation", "false") == "true"


def _check_connector(jvm: Any) -> None:
    """Raise MissingPartError if the driver's JVM cannot load the Kafka source."""
    import pyspark  # noqa: PLC0415 - Spark only where it is used
    from py4j.java_gateway import JavaClass  # noqa: PLC0415

    # py4j takes an unknown class for a package.
    if isinstance(jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider, JavaClass):
        return
    message = (
        "this Spark runs without its Kafka connector, which cannot be added any more: stop the program, and "
        f"make the first session with configure(builder). {advice(pyspark.__version__)}"
    )
    raise MissingPartError(message)


def builder_settings(builder: SparkSession.Builder) -> dict[str, str]:
    """Return the settings of a builder."""
    return {key: str(value) for key, value in builder._options.items()}  # noqa: SLF001 - it has no getter


def spark_home() -> Path:
    """Return the folder of the Spark that pyspark would start: ``SPARK_HOME``, or its own."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - Spark only where it is used

    try:
        home = Path(_find_spark_home())  # type: ignore[no-untyped-call]
    except SystemExit as error:  # raised if pyspark came without Spark
        raise MissingPartError(f"{_NO_SPARK}: pyspark came without one") from error
    if not (home / "bin" / "spark-submit").is_file():
        raise MissingPartError(f"{_NO_SPARK}: no bin/spark-submit in {home}")
    return home


def file_settings() -> dict[str, str]:
    """Return the settings in ``spark-defaults.conf`` of the Spark that pyspark would start."""
    folder = os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf"
    file = Path(folder) / "spark-defaults.conf"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    found = [_PROPERTY.fullmatch(line.strip()) for line in lines]
    return {match[1]: match[2] for match in found if match}


def submit_settings() -> dict[str, str]:
    """Return the settings in ``PYSPARK_SUBMIT_ARGS``, as spark-submit reads it."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    for option, key in _OPTIONS.items():
        parser.add_argument(option, dest=key)
    try:
        known, _ = parser.parse_known_args(shlex.split(os.environ.get(SUBMIT_ARGS, "")))
    except (ValueError, argparse.ArgumentError) as error:
        message = "expected the options of spark-submit, then pyspark-shell; found another command line"
        raise ConfigError(message, path=SUBMIT_ARGS) from error
    confs = dict(setting.split("=", 1) for setting in known.conf if "=" in setting)
    options = {key: value for key in _OPTIONS.values() if (value := getattr(known, key)) is not None}
    return {**confs, **options}


def _running_settings() -> dict[str, str] | None:
    """Return the settings of the JVM that runs already, or None if none runs.

    A JVM runs if this process made a session before, and under spark-submit, which starts Python from the
    JVM.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - Spark only where it is used
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001 - no getter
        return None
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to spark-submit's JVM, as a session does
    active = SparkSession.getActiveSession()
    session = {} if active is None else active.conf.getAll
    return {**dict(SparkConf().getAll()), **session}


def joined(*lists: str | Iterable[str]) -> str:
    """Join lists, which Spark separates by commas, with each item once."""
    items = [item for part in lists for item in (part.split(",") if isinstance(part, str) else part)]
    return ",".join(dict.fromkeys(item.strip() for item in items if item.strip()))


class Requirement(msgspec.Struct, frozen=True):
    """A module, the oldest version that works, the first that is too new, if any is known, and its extra."""

    name: str
    oldest: tuple[int, ...]
    """Empty for a module that does not say its version."""
    too_new: tuple[int, ...] | None = None
    extra: str = "spark"


REQUIREMENTS: Final = (
    Requirement("pyspark", (4, 0), (5,)),
    Requirement("pyarrow", (15,)),
    Requirement("pandas", (2, 2), (3,)),
)
CONNECT_REQUIREMENTS: Final = (
    *REQUIREMENTS,
    Requirement("grpc", (1, 67), extra="spark-connect"),
    Requirement("grpc_status", (), extra="spark-connect"),
    Requirement("google.rpc", (), extra="spark-connect"),
)
_NEEDED_BY: Final = {"spark": "the Spark bridge", "spark-connect": "Spark Connect"}


def _check_requirements(requirements: Iterable[Requirement]) -> None:
    """Raise MissingPartError unless all modules are installed in versions that fit."""
    for requirement in requirements:
        check(requirement)


def check(requirement: Requirement) -> None:
    """Raise MissingPartError if a module is missing, too old or too new."""
    name, install = requirement.name, install_command(requirement.extra)
    try:
        module = import_module(name)
        if not requirement.oldest:
            return
        found = str(module.__version__)
    except (ImportError, AttributeError) as error:  # a folder of that name imports, but has no version
        message = f"{name} is missing, and {_NEEDED_BY[requirement.extra]} needs it: {install}"
        raise MissingPartError(message) from error
    version = version_numbers(found)
    too_new = requirement.too_new is not None and version >= requirement.too_new
    if too_new or version < requirement.oldest:
        message = (
            f"{name} {found} is too {'new' if too_new else 'old'}: "
            f"{_NEEDED_BY[requirement.extra]} needs {wanted(requirement)}: {install}"
        )
        raise MissingPartError(message)


def wanted(requirement: Requirement) -> str:
    """Return the versions that fit as pip writes them: ``pandas>=2.2,<3``."""
    oldest = ".".join(map(str, requirement.oldest))
    below = "" if requirement.too_new is None else ",<" + ".".join(map(str, requirement.too_new))
    return f"{requirement.name}>={oldest}{below}"
