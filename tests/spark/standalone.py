"""Spark's own standalone cluster on this machine: a master and workers, each a process, on loopback only.

Each worker has an address of its own, 127.0.0.1, 127.0.0.2 and so on, because Spark starts the second attempt
at a slow task on another host only.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from headerware.spark_bridge.session import spark_home
from headerware.testing.process import WatchedProcess

if TYPE_CHECKING:
    from pathlib import Path

MASTER_HOST: Final = "127.0.0.1"
START_S: Final = 120.0
GRACE_S: Final = 20.0
_CLASS: Final = "org.apache.spark.deploy."
_STARTED: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master (\S+)")


class StandaloneCluster:
    """A master and workers, for a ``with`` block; ports are chosen by the system.

    Args:
        folder: gets the logs, and for each worker the folder of its executors.
        workers: how many workers.
        cores: the cores of each worker.
        memory: the memory that each worker has for executors, as Spark writes it.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self.url = ""
        """The address of the master, for ``SparkSession.builder.master(...)``."""
        self._folder = folder
        self._workers = workers
        self._options = ("--cores", str(cores), "--memory", memory)
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.url = self._start("master", MASTER_HOST, "master.Master", _STARTED)
            for number in range(1, self._workers + 1):
                name, host = f"worker-{number}", f"127.0.0.{number}"
                options = (*self._options, "--work-dir", str(self._folder / name), self.url)
                self._start(name, host, "worker.Worker", _REGISTERED, *options)
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def logs(self) -> str:
        """Return the ends of all logs, also those of executors."""
        found = sorted([*self._folder.glob("*.log"), *self._folder.glob("worker-*/*/*/stderr")])
        return "\n".join(f"== {path}\n{_text(path)[-3000:]}" for path in found)

    def _start(self, name: str, host: str, which: str, ready: re.Pattern[str], *options: str) -> str:
        """Start a process, and return the first group of the line that says that it is ready."""
        local = self._folder / f"{name}-local"
        local.mkdir(parents=True)
        log = self._folder / f"{name}.log"
        # SPARK_LOCAL_IP: else the pages of master and worker listen on all addresses.
        settings = (f"SPARK_LOCAL_IP={host}", f"SPARK_LOCAL_DIRS={local}", "SPARK_DAEMON_MEMORY=256m")
        program = (str(spark_home() / "bin" / "spark-class"), f"{_CLASS}{which}")
        ports = ("--host", host, "--port", "0", "--webui-port", "0")
        with log.open("wb") as output:
            process = WatchedProcess(["env", *settings, *program, *ports, *options], output)
        self._ends.callback(process.end, grace_seconds=GRACE_S)
        deadline = time.monotonic() + START_S
        while (found := ready.search(_text(log))) is None:
            if process.exit_code() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Spark's {name} did not start; the end of its log:\n{_text(log)[-3000:]}")
            time.sleep(0.05)
        return found[1]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
