"""Find the Java that Apache Kafka and Spark run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from headerware.core.errors import MissingPartError

_OLDEST_JAVA: Final = 17
_PROBE_SECONDS = 30
_ADVICE = (
    f"Apache Kafka 4 and Spark 4 need Java {_OLDEST_JAVA} or newer, and the tests compile for it. "
    "Install a JDK, for instance with 'apt install openjdk-17-jdk-headless', "
    "'dnf install java-21-openjdk-devel' or 'brew install openjdk@21', or set JAVA_HOME to it."
)


def find_java(*, newest: int | None = None) -> Path:
    """Return the Java in ``JAVA_HOME``, else on the ``PATH``; refuse one before 17 or after ``newest``."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = (
            f"no bin/java in JAVA_HOME ({home})" if home else "no java on the PATH, and JAVA_HOME is not set"
        )
        message = f"Java is missing: {where}. {_ADVICE}"
        raise MissingPartError(message)
    version = java_version(Path(found))
    if version < _OLDEST_JAVA:
        message = f"Java is too old: {found} is version {version}. {_ADVICE}"
        raise MissingPartError(message)
    if newest is not None and version > newest:
        message = (
            f"Java is too new: {found} is version {version}. Set JAVA_HOME to a Java of version "
            f"{_OLDEST_JAVA} to {newest}, or install a newer Spark."
        )
        raise MissingPartError(message)
    return Path(found)


def java_version(java: Path) -> int:
    """Return a Java's major version, which is 8 for 1.8."""
    try:
        done = subprocess.run(  # noqa: S603 - asks a java for its version
            [java, "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"Java does not run: {java}: {error}. {_ADVICE}"
        raise MissingPartError(message) from error
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if match is None:
        message = f"Java does not tell its version: {java} gave exit code {done.returncode}. {_ADVICE}"
        raise MissingPartError(message)
    return int(match[1])
