"""Java: finding it, and running the console tools of Apache Kafka as a peer from another language.

``python -m headerware.testing.java`` says whether a Java that is new enough is here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headerware.testing.errors import BrokerError, MissingPartError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OLDEST_JAVA: Final = 17
_PROBE_SECONDS = 30
_MARGIN_SECONDS = 30
# ConsoleProducer tells of a record that it could not deliver by its log alone, and exits with 0.
_UNDELIVERED = "ERROR ErrorLoggingCallback"
_ADVICE = (
    f"Apache Kafka 4 and Spark 4 need Java {OLDEST_JAVA} or newer. Install one, for instance with "
    "'apt install openjdk-17-jre-headless', 'dnf install java-21-openjdk-headless' or "
    "'brew install openjdk@21', or set JAVA_HOME to it."
)
_LOGGING = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.target={target}
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{{1}} %m%n
rootLogger.level={level}
rootLogger.appenderRef.out.ref=out
"""


def find_java() -> Path:
    """Give the Java to run: the one in ``JAVA_HOME``, else the one on the ``PATH``.

    Raises:
        MissingPartError: there is none, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = (
            f"no bin/java in JAVA_HOME ({home})" if home else "no java on the PATH, and JAVA_HOME is not set"
        )
        message = f"Java is missing: {where}. {_ADVICE}"
        raise MissingPartError(message)
    version = java_version(Path(found))
    if version < OLDEST_JAVA:
        message = f"Java is too old: {found} is version {version}. {_ADVICE}"
        raise MissingPartError(message)
    return Path(found)


def java_version(java: Path) -> int:
    """Give a Java's major version, 8 for what calls itself 1.8.

    Raises:
        MissingPartError: it does not run, or does not tell its version.
    """
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


def write_logging_file(folder: Path, *, target: str, level: str) -> str:
    """Write a log4j configuration and give the Java option that names it.

    Args:
        folder: where to write it.
        target: ``SYSTEM_OUT`` or ``SYSTEM_ERR``.
        level: the root logger's level.
    """
    file = folder / "log4j2.properties"
    file.write_text(_LOGGING.format(target=target, level=level), encoding="utf-8")
    return f"-Dlog4j2.configurationFile={file}"


class JavaTools:
    """Run Kafka's console consumer and producer, which share no code with librdkafka.

    Raises:
        MissingPartError: Java or the jars of kafka-tools are not to be had.
    """

    def __init__(self) -> None:
        from headerware.testing.jars import TOOLS_JARS, find_jars  # noqa: PLC0415 - jars needs find_java

        self._java = find_java()
        self._jars = find_jars(TOOLS_JARS)

    def console_consumer(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        max_messages: int,
        properties: Mapping[str, str] | None = None,
        consumer_config: Mapping[str, str] | None = None,
        timeout_ms: int = 30_000,
    ) -> list[str]:
        """Read a topic from its beginning and give what the tool prints, a string a line.

        Args:
            bootstrap_servers: the cluster's addresses.
            topic: the topic.
            max_messages: how many records to read.
            properties: of the formatter, such as ``{"print.headers": "true"}``.
            consumer_config: of the consumer, such as ``{"isolation.level": "read_committed"}``.
            timeout_ms: how long to wait for the next record; what came before is given all the same.

        Raises:
            BrokerError: the tool failed; the message ends with what it said.
        """
        arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"]
        arguments += ["--max-messages", str(max_messages), "--timeout-ms", str(timeout_ms)]
        arguments += _options("--formatter-property", properties)
        arguments += _options("--command-property", consumer_config)
        seconds = timeout_ms / 1000 * (max_messages + 1) + _MARGIN_SECONDS
        out = self._run("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments, "", seconds)
        return out.splitlines()

    def console_producer(
        self,
        bootstrap_servers: str,
        topic: str,
        lines: Iterable[str],
        *,
        properties: Mapping[str, str] | None = None,
        producer_config: Mapping[str, str] | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        """Produce one record a line, and return when the broker has them all.

        Args:
            bootstrap_servers: the cluster's addresses.
            topic: the topic.
            lines: the records, without line ends.
            properties: of the reader, such as ``{"parse.headers": "true", "parse.key": "true"}``.
            producer_config: of the producer, such as ``{"compression.type": "zstd"}``.
            timeout_ms: how long the whole run may take.

        Raises:
            BrokerError: the tool failed; the message ends with what it said.
        """
        arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic]
        arguments += _options("--reader-property", properties)
        arguments += _options("--command-property", producer_config)
        text = "".join(f"{line}\n" for line in lines)
        seconds = timeout_ms / 1000 + _MARGIN_SECONDS
        self._run("org.apache.kafka.tools.ConsoleProducer", arguments, text, seconds)

    def _run(self, main: str, arguments: Sequence[str], text: str, seconds: float) -> str:
        with tempfile.TemporaryDirectory(prefix="headerware-java-") as folder:
            logging = write_logging_file(Path(folder), target="SYSTEM_ERR", level="WARN")
            command = [str(self._java), "-Xmx256m", logging, "-cp", f"{self._jars}/*", main, *arguments]
            try:
                done = subprocess.run(  # noqa: S603 - the command is the library's own
                    command, input=text.encode(), capture_output=True, timeout=seconds, check=False
                )
            except subprocess.TimeoutExpired as error:
                message = f"{main} did not end within {seconds:.0f} s"
                raise BrokerError(message) from error
        said = done.stderr.decode(errors="replace")
        if done.returncode or _UNDELIVERED in said:
            message = f"{main} failed with exit code {done.returncode}:\n{said}"
            raise BrokerError(message)
        return done.stdout.decode(errors="backslashreplace")


def _options(name: str, values: Mapping[str, str] | None) -> list[str]:
    return [part for key, value in (values or {}).items() for part in (name, f"{key}={value}")]


def main() -> int:
    """Print the Java that is found, or what is missing."""
    try:
        java = find_java()
    except MissingPartError as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    print(f"Java {java_version(java)}: {java}")  # noqa: T201 - this is a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
