"""The oracle as a process beside the tests: questions in, Kafka Connect's own answers out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from headerware.core.java import find_java
from headerware.testing import MissingPartError
from headerware.testing.jars import TOOLS_JARS, find_jars

KAFKA_VERSION: Final = "4.3.1"
SOURCES: Final = sorted((Path(__file__).parent / "src").glob("*.java"))
_COMPILE_S: Final = 120.0
_BENCH_S: Final = 600.0
_PIPE_BYTES: Final = 16_384
# As run.sh has them: the zone and the locale leak into what Connect does.
_PLACE: Final = ("-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8")
_OPTIONS: Final = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"),
    *_PLACE,
)


class OracleError(Exception):
    """The oracle ended, or does not compile; its last words are in the message."""


class ConnectOracle:
    """Compile the oracle and ask it questions.

    Args:
        folder: where its classes go.

    Raises:
        MissingPartError: no Java that compiles, no jars of Kafka Connect, or of another version.

    One thread at a time may ask.
    """

    def __init__(self, folder: Path) -> None:
        self._java: Final = find_java()
        self._folder: Final = folder
        jars = find_jars(TOOLS_JARS)
        # All but the binding of slf4j, which would write its own lines among the answers.
        path = [folder, *(jar for jar in sorted(jars.glob("*.jar")) if "slf4j-impl" not in jar.name)]
        self._path: Final = os.pathsep.join(map(str, path))
        self._compile()
        self._process: subprocess.Popen[bytes] | None = None
        self.asked: int = 0
        """How many questions have been answered."""
        self.version: Final[dict[str, str]] = self.ask([{"op": "version"}])[0]
        """The versions of Kafka and Java, the zone and the locale."""
        if self.version["kafka"] != KAFKA_VERSION:
            self.close()
            message = f"the jars in {jars} are of Apache Kafka {self.version['kafka']}, not {KAFKA_VERSION}"
            raise MissingPartError(message)

    @property
    def writes_floats_anew(self) -> bool:
        """Whether this Java writes floats in as few digits as they need, as it does from 19 on."""
        return int(self.version["java"].partition(".")[0].partition("-")[0]) >= 19

    def ask(self, questions: Sequence[dict[str, Any]]) -> list[Any]:
        """Ask questions, and give the answers in their order.

        Raises:
            OracleError: it ended.
        """
        process = self._running()
        assert process.stdin is not None, "made with a pipe"
        assert process.stdout is not None, "made with a pipe"
        answers: list[bytes] = []
        for piece in _pieces([json.dumps(question).encode() + b"\n" for question in questions]):
            try:
                process.stdin.write(b"".join(piece))
                process.stdin.flush()
            except BrokenPipeError:
                raise self._ended(process) from None
            answers += [process.stdout.readline() for _ in piece]
            if not answers[-1].endswith(b"\n"):
                raise self._ended(process)
        self.asked += len(questions)
        return [json.loads(answer)["out"] for answer in answers]

    def bench(self, questions: Sequence[dict[str, Any]], rounds: int) -> float:
        """Return how many questions a second it answers in its own process, at best.

        Args:
            questions: what to ask, again and again.
            rounds: how often.
        """
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        done = subprocess.run(
            [*self._command(), "--bench", str(rounds)],
            input=lines,
            capture_output=True,
            text=True,
            timeout=_BENCH_S,
            check=True,
        )
        # Each round's line says how many operations it did in how many seconds, and after "=" the rate.
        return max(float(line.partition(" = ")[2].split()[0]) for line in done.stdout.splitlines())

    def rates(self, groups: Sequence[Sequence[dict[str, Any]]], milliseconds: int) -> list[float]:
        """Return how many operations a second Java does without the JSON around them, fully optimised.

        Args:
            groups: the cases of each rate, of the operations smt, parseString, header.to and header.from.
            milliseconds: how long each is measured.
        """
        lines = "".join(json.dumps(group) + "\n" for group in groups)
        command = [str(self._java), *_PLACE, "-cp", self._path, "Rates", str(milliseconds)]
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, timeout=_BENCH_S, check=True
        )
        return [float(line) for line in done.stdout.splitlines()]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None, "made with a pipe"
            assert process.stdout is not None, "made with a pipe"
            process.stdin.close()
            process.stdout.close()
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _compile(self) -> None:
        # The compiler's own module, for where Java is need not be where a javac is.
        command = [str(self._java), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-Xlint:none"]
        command += ["-cp", self._path, "-d", str(self._folder), *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        if "jdk.compiler not found" in done.stdout + done.stderr:
            message = (
                f"{self._java} has no compiler, for which the oracle needs a JDK: "
                "install one, such as openjdk-17-jdk-headless, or set JAVA_HOME to it"
            )
            raise MissingPartError(message)
        if done.returncode != 0:
            raise OracleError(f"the oracle does not compile: {done.stdout}{done.stderr}")

    def _command(self) -> list[str]:
        return [str(self._java), *_OPTIONS, "-cp", self._path, "Oracle"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with (self._folder / "stderr").open("wb") as errors:
                self._process = subprocess.Popen(
                    [*self._command(), "--flush"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
        return self._process

    def _ended(self, process: subprocess.Popen[bytes]) -> OracleError:
        process.kill()
        said = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace")[-2_000:]
        return OracleError(f"the oracle ended with {process.wait()}: {said}")


def _pieces(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Cut what is to be written so that a pipe holds a piece, lest both sides wait for the other to read."""
    piece: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if piece and size_bytes + len(line) > _PIPE_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(line)
        size_bytes += len(line)
    if piece:
        yield piece
