"""Each page of docs/guides is followed as a reader would.

A block whose first line is a comment with a file's name becomes that file. A ``diff`` block changes files:
after ``---`` and a file's name, each ``@@`` begins lines that are replaced by others. The lines of an ``sh``
block run in order, in the folder with these files. What they print is compared with the ``text`` block that
follows, if there is one: each of its lines must come, in order; ``...`` stands for anything within a line.

Pages about frameworks run in ``.venv-frameworks``, which has these, and all others in ``.venv``:
`make test-long` runs this file in both.
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
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from headerware.testing import KafkaBroker

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDES: Final = sorted(page for page in (ROOT / "docs" / "guides").glob("*.md") if page.name != "README.md")
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED: Final = re.compile(r"(?:#|//) ([\w./-]+\.\w+)$", re.MULTILINE)
IN_FRAMEWORKS: Final = {"django", "fastapi", "fastapi-asyncio", "gunicorn"}
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
        elif block.kind == "diff":
            change(text, tmp_path)
        elif block.kind == "sh":
            printed = run(text, tmp_path)
            steps += 1
        elif block.kind == "text":
            expect(block.text, printed.replace(servers, SERVERS))
    assert steps, "a guide has commands"


AS_WRITTEN: Final = " --public public.json --lead 5s"
OTHER_WAYS: Final = {
    "as written": AS_WRITTEN,
    "at once": " --public public.json",
    "readers last": "; headerware keys export-public --keyring keys.json --out public.json",
    "one file for all": " --lead 5s",
}


@pytest.mark.broker
@pytest.mark.skipif(HAS_FRAMEWORKS, reason="runs in the other environment")
@pytest.mark.parametrize(
    ("algorithm", "way"),
    [
        ("ed25519", "as written"),
        ("ecdsa-p256", "as written"),
        ("rsa-pss-sha256", "as written"),
        ("hmac-sha256", "one file for all"),
        ("ed25519", "at once"),
        ("ed25519", "readers last"),
    ],
)
def test_a_rotation_under_traffic_loses_nothing(
    algorithm: str, way: str, servers: str, tmp_path: Path
) -> None:
    """A writer and a reader run in processes of their own, and what the page says is done without a pause."""
    page = (
        (ROOT / "docs" / "guides" / "rotate-keys.md").read_text(encoding="utf-8").partition("**Revoke.**")[0]
    )
    assert AS_WRITTEN in page
    page = page.replace(AS_WRITTEN, OTHER_WAYS[way]).replace("ed25519", algorithm).replace(SERVERS, servers)
    if algorithm == "hmac-sha256":  # it has no public half
        page = re.sub("headerware keys export-public .*", "", page).replace("public.json", "keys.json")
    printed = ""
    for block in map(Block._make, FENCE.findall(page)):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "sh":
            printed += run(block.text, tmp_path)
    assert "Traceback" not in printed

    def read() -> list[str]:
        return (tmp_path / "billing.log").read_text(encoding="utf-8").splitlines()

    meanwhile = read()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "wire", "auto.offset.reset": "earliest"})
    sent: list[str] = []
    try:
        end = consumer.get_watermark_offsets(TopicPartition("orders", 0), DEADLINE_S)[1]
        consumer.assign([TopicPartition("orders", 0, 0)])
        until(lambda: len(sent) == end, meanwhile=lambda: sent.extend(_values(consumer.consume(500, 1))))
    finally:
        consumer.close()
    assert sent == [f"order {number}" for number in range(len(sent))], "no send failed"
    with (tmp_path / "billing.log").open("a", encoding="utf-8") as log:
        rest = subprocess.Popen([sys.executable, "reader.py", "billing"], cwd=tmp_path, stdout=log)
        try:
            until(lambda: any(line.startswith(f"{sent[-1]} ") for line in read()), "the rest is read")
        finally:
            rest.terminate()
            rest.wait()
    for lines in (meanwhile, read()):
        assert [line for line in lines if line.startswith("refused")] == []
    versions = [int(line.rpartition(" ")[2]) for line in meanwhile]
    assert versions == sorted(versions)
    assert set(versions) == {1, 2}
    assert {line.partition(" signed")[0] for line in read()} == set(sent), "no record was lost"


def _values(messages: list[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages if message.error() is None]


def test_have_pages_about_each_framework() -> None:
    assert {page.stem for page in GUIDES} >= IN_FRAMEWORKS


def test_fit_on_a_screen_each() -> None:
    lines = {page.stem: len(page.read_text(encoding="utf-8").splitlines()) for page in GUIDES}
    assert {name: count for name, count in lines.items() if count > 100} == {}


def test_wait_no_longer_than_a_number_of_tries() -> None:
    """A loop whose condition never comes would keep a reader waiting, who does not see why."""
    commands = "\n".join(
        text for page in GUIDES for kind, text in FENCE.findall(page.read_text("utf-8")) if kind == "sh"
    )
    assert re.findall(r"^\s*(?:until|while) .*", commands, re.MULTILINE) == []


def run(commands: str, folder: Path) -> str:
    """Run a block's lines as a shell would, and return all that they print; pip installs below the folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    site = str(folder / "site-packages")
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "120",
        "PYTHONPATH": site,
        "PIP_TARGET": site,
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
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


def change(diff: str, folder: Path) -> None:
    """Apply a diff whose hunks have no line numbers; the lines to replace must be in the file once."""
    for of_file in diff.split("--- ")[1:]:
        name, *hunks = of_file.split("@@\n")
        path = folder / name.strip()
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in ("- ", "+ "))
            text = path.read_text(encoding="utf-8")
            assert text.count(before) == 1, f"{name.strip()} does not have these lines once:\n{before}"
            path.write_text(text.replace(before, after), encoding="utf-8")


def expect(expected: str, printed: str) -> None:
    """Find each expected line in what was printed, in order."""
    rest = iter(printed.splitlines())
    for line in filter(None, map(str.rstrip, expected.splitlines())):
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert any(re.fullmatch(pattern, candidate.rstrip()) for candidate in rest), (
            f"not printed, or not in this order: {line}\n{printed}"
        )
