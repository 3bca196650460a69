"""The README and the page for the first ten minutes, run as they are written: in order, in a fresh folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.links import FENCE, ROOT
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "getting-started.md"
INSTALLS = "pip install "
"""A test of the release installs the package; here it is installed."""
RUNS_ON = "headerware dev "


class Reader:
    """Somebody with two terminals in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        unset = ("HEADERWARE_BOOTSTRAP_SERVERS", "HEADERWARE_CONFIG", "HEADERWARE_KEYRING")
        self.environment = {name: value for name, value in os.environ.items() if name not in unset}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.first_terminal: subprocess.Popen[bytes] | None = None
        self.typed = 0

    def type(self, line: str) -> str:
        """Run a command line, and return what it prints; a command that goes on has its own terminal."""
        self.typed += 1
        if not line.startswith(RUNS_ON):
            done = subprocess.run(  # noqa: S602 - the page's own line
                line,
                shell=True,
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                check=False,
            )
            assert done.returncode == 0, f"{line}: {done.stderr.decode()}"
            return done.stdout.decode()
        output = self.folder / "first-terminal"
        with output.open("wb") as file:
            self.first_terminal = subprocess.Popen(  # noqa: S602 - likewise
                f"exec {line}",
                shell=True,
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=file,
            )
        until(lambda: "(session.timeout.ms)" in output.read_text(), "the cluster has started")
        printed = output.read_text()
        (found,) = re.findall(r"export (\w+)=(\S+)\n", printed)
        self.environment |= dict([found])
        return printed

    def leave(self) -> int | None:
        """Press Ctrl-C in the first terminal, and return the exit code."""
        if self.first_terminal is None:
            return None
        self.first_terminal.send_signal(signal.SIGINT)
        return self.first_terminal.wait(60)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    if made.first_terminal is not None and made.first_terminal.poll() is None:
        made.first_terminal.kill()
        made.first_terminal.wait()


def without_chance(text: str) -> list[str]:
    """Return the lines of a text, without times, ports and the name of the cluster."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z", "TIME", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    return re.sub(r"mockCluster[0-9a-f]+", "CLUSTER", text).splitlines()


def test_the_page_does_what_it_says(reader: Reader) -> None:
    page = PAGE.read_text(encoding="utf-8")
    printed = ""
    for found in FENCE.finditer(page):
        kind, block = found.groups()
        before = page[: found.start()].rstrip().rpartition("\n")[2]
        if kind == "python":
            (name,) = re.findall(r"[Ss]ave (?:this|it) as `([\w.]+)`", before)
            (reader.folder / name).write_text(block)
        elif kind == "toml":
            assert (reader.folder / "headerware.toml").read_text() == block
        elif kind == "text":
            assert without_chance(printed) == without_chance(block)
        else:
            printed = "".join(
                reader.type(line) for line in block.splitlines() if not line.startswith(INSTALLS)
            )
    assert reader.typed == 9
    until(
        lambda: "✗ refused" in (reader.folder / "first-terminal").read_text(), "the refused record is shown"
    )
    verified = subprocess.run(
        ["headerware", "verify", "orders", "-c", "headerware.toml"],
        cwd=reader.folder,
        env=reader.environment,
        capture_output=True,
        check=False,
    )
    assert verified.returncode == 1
    assert reader.leave() == 0


def test_the_readme_does_what_it_says(reader: Reader) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = ""
    for kind, block in FENCE.findall(page):
        if kind == "python":
            assert len([line for line in block.splitlines() if line]) <= 12
            (reader.folder / "app.py").write_text(block)
        for line in block.splitlines():
            if line.startswith("headerware "):
                printed = reader.type(line)
    assert printed == "b'{\"id\": 1}' [('tenant', b'north')]\n"
    assert reader.typed == 3
    until(
        lambda: "✓ delivered" in (reader.folder / "first-terminal").read_text(), "the first terminal shows it"
    )
    assert reader.leave() == 0
