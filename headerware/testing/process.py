"""A child process that ends when this process ends, even if it is killed.

The child is started through a small shell watchdog, which reads a pipe whose other end only this process
holds. A line on the pipe ends the watchdog. At end of file, which the kernel causes even after SIGKILL, it
kills the child and removes the child's temporary folder. (PR_SET_PDEATHSIG would fire when the starting
*thread* ends, and exists on Linux only.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WATCHED = """
folder=$1; shift
exec 3<&0 </dev/null
( read -r _ <&3 || { kill -KILL $$; [ -z "$folder" ] || rm -rf -- "$folder"; } ) 2>/dev/null &
exec 3<&-
exec "$@"
"""


class WatchedProcess:
    """Start a program in a session of its own, with its output in a file that is opened for writing.

    If this process dies first, the watchdog removes the ``temporary`` folder.
    """

    def __init__(self, command: Sequence[str], output: IO[bytes], *, temporary: Path | None = None) -> None:
        self._owner_pid = os.getpid()
        self._child = subprocess.Popen(  # noqa: S603 - the command is the library's own
            ["/bin/sh", "-c", _WATCHED, "sh", str(temporary or ""), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in a terminal must not reach the child
        )

    @property
    def pid(self) -> int:
        """The program's process id: the shell replaces itself by the program."""
        return self._child.pid

    def exit_code(self) -> int | None:
        """Return the exit code, or None while the program runs."""
        code = self._child.poll()
        if code is not None:
            self._end_watchdog()
        return code

    def end(self, *, grace_seconds: float) -> None:
        """Ask the program to end, and kill it after the grace period."""
        if os.getpid() != self._owner_pid or self.exit_code() is not None:
            return
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._end_watchdog()

    def kill(self) -> None:
        """Kill the program and wait until it is gone."""
        if os.getpid() != self._owner_pid:
            return
        self._child.kill()
        self._child.wait()
        self._end_watchdog()

    def _end_watchdog(self) -> None:
        pipe = self._child.stdin
        if pipe is None or pipe.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            pipe.write(b"\n")
            pipe.flush()
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
