"""Each page of docs/guides is followed as a reader would.

A block whose first line is a comment with a file's name becomes that file. The lines of an ``sh`` block run
in order, in the folder with these files. What they print is compared with the ``text`` block that follows, if
there is one: each of its lines must come, in order; ``...`` stands for anything within a line.

Pages about frameworks run in ``.venv-frameworks``, which has these, and all others in ``.venv``: `make test`
runs this file in both.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.testing import KafkaBroker

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDES: Final = sorted(page for page in (ROOT / "docs" / "guides").glob("*.md") if page.name != "README.md")
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED: Final = re.compile(r"(?:#|//) ([\w./-]+\.\w+)$", re.MULTILINE)
IN_FRAMEWORKS: Final = {"django", "fastapi", "gunicorn"}
HAS_FRAMEWORKS: Final = find_spec("faststream") is not None
RUN_HERE: Final = [page for page in GUIDES if (page.stem in IN_FRAMEWORKS) == HAS_FRAMEWORKS]
SERVERS: Final = "localhost:9092"
WEB_PORT: Final = "8000"
TIMEOUT_S: Final = 120
INTERNAL: Final = {"__consumer_offsets", "__transaction_state"}


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that it becomes, or None."""
        found = NAMED.match(self.text)
        return found[1] if found else None


@pytest.fixture
def servers(kafka_broker: KafkaBroker) -> Iterator[str]:
    """Return the broker's address, and leave no topic and no group behind, for pages use the same names."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    before = names(admin)
    yield kafka_broker.bootstrap_servers

    def is_gone() -> bool:
        """Delete what is new; a group whose member has died has it for some time."""
        topics, groups = (now - then for now, then in zip(names(admin), before, strict=True))
        waited = admin.delete_topics(list(topics)) if topics else {}
        waited |= admin.delete_consumer_groups(list(groups)) if groups else {}
        for done in waited.values():
            with suppress(KafkaException):
                done.result(DEADLINE_S)
        return not topics and not groups

    until(is_gone, "no topic and no group is left")


def names(admin: AdminClient) -> tuple[set[str], set[str]]:
    """Return the topics and the groups that there are."""
    groups = admin.list_consumer_groups().result(DEADLINE_S).valid
    return set(admin.list_topics(timeout=DEADLINE_S).topics) - INTERNAL, {group.group_id for group in groups}


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return str(listening.getsockname()[1])


@pytest.mark.broker
@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_does_what_it_says(page: Path, servers: str, tmp_path: Path) -> None:
    printed = ""
    steps = 0
    web_port = free_port()
    for block in map(Block._make, FENCE.findall(page.read_text(encoding="utf-8"))):
        text = block.text.replace(SERVERS, servers).replace(WEB_PORT, web_port)
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(text, encoding="utf-8")
        elif block.kind == "sh":
            printed = run(text, tmp_path)
            steps += 1
        elif block.kind == "text":
            expect(block.text, printed.replace(servers, SERVERS))
    assert steps, "a guide has commands"


def test_have_pages_about_each_framework() -> None:
    assert {page.stem for page in GUIDES} >= IN_FRAMEWORKS


def test_fit_on_a_screen_each() -> None:
    lines = {page.stem: len(page.read_text(encoding="utf-8").splitlines()) for page in GUIDES}
    assert {name: count for name, count in lines.items() if count > 100} == {}


def run(commands: str, folder: Path) -> str:
    """Run a block's lines as a shell would, and return all that they print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        printed, _ = shell.communicate()
    assert shell.returncode == 0, f"{commands}\n{printed}"
    return printed


def expect(expected: str, printed: str) -> None:
    """Find each expected line in what was printed, in order."""
    rest = iter(printed.splitlines())
    for line in filter(None, map(str.rstrip, expected.splitlines())):
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert any(re.fullmatch(pattern, candidate.rstrip()) for candidate in rest), (
            f"not printed, or not in this order: {line}\n{printed}"
        )
