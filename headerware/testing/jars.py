"""Find the jars of Apache Kafka, or fetch them.

They are looked for in this order: ``KAFKA_HOME/libs``, the folder in ``HEADERWARE_KAFKA_JARS``, the cache
(``HEADERWARE_CACHE``, else ``XDG_CACHE_HOME/headerware``, else ``~/.cache/headerware``). If none has them,
they are fetched into the cache by the Ivy inside pyspark (with the settings file in
``HEADERWARE_IVY_SETTINGS``, if any) or by Maven. Several processes may fetch at once: one holds a lock, and
the folder gets its name only when it is complete.

``python -m headerware.testing.jars`` prints the folder of the broker's jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.atomic_files import locked
from headerware.core.errors import MissingPartError
from headerware.core.extras import install_command
from headerware.core.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KAFKA_VERSION: Final = "4.3.1"
_LOG4J_VERSION = "2.25.4"
_FETCH_SECONDS = 600
_TAIL_LINES = 15


class JarSet(msgspec.Struct, frozen=True):
    """A set of jars: the name of its cache folder, a pattern for one of its jars, and its packages."""

    name: str
    sign: str
    coordinates: tuple[tuple[str, str, str], ...]


# Kafka's jars log through slf4j and bring no binding; without a binding, a broker fails silently.
_LOGGING = ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION)
BROKER_JARS: Final = JarSet(
    f"kafka-{KAFKA_VERSION}", "kafka_2.1*.jar", (("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), _LOGGING)
)
TOOLS_JARS: Final = JarSet(
    f"kafka-tools-{KAFKA_VERSION}",
    "kafka-tools-[0-9]*.jar",
    (("org.apache.kafka", "kafka-tools", KAFKA_VERSION), _LOGGING),
)


def find_jars(jars: JarSet) -> Path:
    """Return a folder that holds the jars; fetch them if need be."""
    tried: list[str] = []
    for label, folder in _folders(jars):
        if folder is None:
            tried.append(f"{label}: not set")
        elif any(folder.glob(jars.sign)):
            return folder
        else:
            tried.append(f"{label}: no {jars.sign} in {folder}")
    with locked(cache_folder() / ".lock"):
        target = cache_folder() / jars.name
        if target.is_dir() or _fetch(jars, target, tried):
            return target
    lines = "\n".join(f"  - {line}" for line in tried)
    message = (
        f"the jars of {jars.name} can neither be found nor fetched; tried:\n{lines}\n"
        "Set KAFKA_HOME to an unpacked Apache Kafka 4, or HEADERWARE_KAFKA_JARS to a folder of its jars, "
        "or, where Maven Central can be reached, install Maven or pyspark: "
        f"{install_command('spark')}"
    )
    raise MissingPartError(message)


def cache_folder() -> Path:
    """Return the folder in which fetched jars are kept."""
    if named := os.environ.get("HEADERWARE_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headerware"


def _folders(jars: JarSet) -> list[tuple[str, Path | None]]:
    home, folder = os.environ.get("KAFKA_HOME"), os.environ.get("HEADERWARE_KAFKA_JARS")
    return [
        ("KAFKA_HOME", Path(home) / "libs" if home else None),
        ("HEADERWARE_KAFKA_JARS", Path(folder) if folder else None),
        ("cache", cache_folder() / jars.name),
    ]


def _fetch(jars: JarSet, target: Path, tried: list[str]) -> bool:
    ways: tuple[tuple[str, Callable[[JarSet, Path, Path], str]], ...] = (
        ("Ivy in pyspark", _fetch_by_ivy),
        ("Maven", _fetch_by_maven),
    )
    for label, fetch in ways:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as work:
            staging = Path(work) / "jars"
            staging.mkdir()
            problem = fetch(jars, Path(work), staging)
            if not problem and any(staging.glob(jars.sign)):
                staging.rename(target)
                return True
            tried.append(f"{label}: {problem or 'it brought no ' + jars.sign}")
    return False


def _fetch_by_ivy(jars: JarSet, work: Path, staging: Path) -> str:
    ivy = _ivy_jar()
    if ivy is None:
        return "pyspark is not installed"
    description = work / "ivy.xml"
    description.write_text(_ivy_file(jars), encoding="utf-8")
    settings = os.environ.get("HEADERWARE_IVY_SETTINGS")
    command = [str(find_java()), "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-settings", settings] if settings else []
    command += ["-cache", str(cache_folder() / "ivy"), "-ivy", str(description), "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", f"{staging}/[artifact]-[revision].[ext]"]
    return _run(command)


def _fetch_by_maven(jars: JarSet, work: Path, staging: Path) -> str:
    maven = shutil.which("mvn")
    if maven is None:
        return "no mvn on the PATH"
    description = work / "pom.xml"
    description.write_text(_maven_file(jars), encoding="utf-8")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={staging}", "-DincludeScope=runtime"]
    return _run([maven, "-q", "-B", "-f", str(description), *goal])


def _run(command: Sequence[str]) -> str:
    """Run a resolver; return an empty text on success, else the end of its output."""
    try:
        done = subprocess.run(  # noqa: S603 - the command is the library's own
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_FETCH_SECONDS} s"
    if done.returncode == 0:
        return ""
    said = done.stdout.decode(errors="replace").splitlines()[-_TAIL_LINES:]
    return f"exit code {done.returncode}\n      " + "\n      ".join(said)


def _ivy_jar() -> Path | None:
    spec = find_spec("pyspark")  # found, not imported
    for root in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(root).glob("jars/ivy-*.jar")):
            return jar
    return None


def _ivy_file(jars: JarSet) -> str:
    wanted = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="default->default"/>'
        for org, name, version in jars.coordinates
    )
    return (
        f'<ivy-module version="2.0"><info organisation="headerware" module="{jars.name}"/>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _maven_file(jars: JarSet) -> str:
    wanted = "".join(
        f"<dependency><groupId>{org}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for org, name, version in jars.coordinates
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>headerware</groupId>"
        f"<artifactId>{jars.name}</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


def main() -> int:
    """Print where the broker's jars are, or what is missing."""
    try:
        found = find_jars(BROKER_JARS)
    except MissingPartError as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    print(f"Apache Kafka {KAFKA_VERSION}: {found}")  # noqa: T201 - this is a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
