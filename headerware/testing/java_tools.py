"""Run the console tools of Apache Kafka, as clients in another language."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headerware.core.java import find_java
from headerware.testing.errors import BrokerError
from headerware.testing.jars import TOOLS_JARS, find_jars
from headerware.testing.java import write_logging_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MARGIN_SECONDS = 30
# ConsoleProducer reports an undelivered record only in its log, and exits with 0.
_UNDELIVERED = "ERROR ErrorLoggingCallback"


class JavaTools:
    """Run Kafka's console consumer and producer, which share no code with librdkafka.

    Raises:
        MissingPartError: Java is missing, or the jars of kafka-tools can neither be found nor fetched.
    """

    def __init__(self) -> None:
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
        """Read a topic from its beginning, and return the lines that the tool prints.

        Args:
            bootstrap_servers: the cluster's addresses.
            topic: the topic.
            max_messages: how many records to read.
            properties: of the formatter, such as ``{"print.headers": "true"}``.
            consumer_config: of the consumer, such as ``{"isolation.level": "read_committed"}``.
            timeout_ms: how long to wait for the next record; records that came before are returned anyway.

        Raises:
            BrokerError: the tool failed; the message ends with its output.
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
            timeout_ms: how long the tool may take in all.

        Raises:
            BrokerError: the tool failed; the message ends with its output.
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
