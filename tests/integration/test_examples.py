"""The examples run as a user would run them: each alone, by one command, from anywhere."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import confluent_kafka
import pytest

from headerware import Chain, Headers, Producer
from headerware.interceptors import Trail
from headerware.testing import EmbeddedCluster
from tests.gallery import EXAMPLES, entries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import Message

pytestmark = pytest.mark.long

GALLERY: Final = entries()
DEADLINE_S: Final = 180.0


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs an example elsewhere than in its folder, and gives what it prints."""

    def run_example(path: Path, *arguments: str) -> str:
        command = [sys.executable, str(path), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        said = done.stderr.splitlines()
        assert all(line in SAID.get(path.name, ()) for line in said), done.stderr
        # Consoles wrap long lines.
        return " ".join(done.stdout.split())

    return run_example


# Spark's own words go to stderr, and its examples take longer: tests/spark runs them.
ALONE = sorted(path for path in EXAMPLES.glob("*.py") if "spark" not in path.read_text())


SHOWN: Final = {
    "carry_on.py": (
        r"order 1 > payment > packing > shipping, tenant b'north'"
        r" [-0-9]+ [:.0-9]+Z +payment +read from \S+/orders-\w+, produced into \S+/paid-\w+"
        r" [-0-9]+ [:.0-9]+Z +\S+ \w+ +packing +read from \S+/paid-\w+, produced into \S+/packed-\w+"
        r" [-0-9]+ [:.0-9]+Z +\S+ \w+ +shipping +read from \S+/packed-\w+, produced into \S+/sent-\w+"
        r" [-0-9]+ [:.0-9]+Z +\S+ \w+ +report +read from \S+/sent-\w+$"
    ),
    "files_source.py": r"airports.csv (3,376) records, \1 different .* stocks.csv (559) records, \2 differ",
}


SAID: Final = {
    "connect_masking.py": ("MaskField: an object has none of the fields emial; it passes unmasked",),
    "files_source.py": ("tables: reads files, sends to topic tables, exactly once",),
    "guard.py": (  # the embedded cluster has only such topics
        (
            "the topic ingress.orders-example has message.timestamp.type=CreateTime, so producers choose the "
            "timestamps by which the guard reads records again, and after a restart copies of records with "
            "old timestamps may pass; set LogAppendTime"
        ),
    ),
}
"""What examples write on standard error."""


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.name)
def test_runs_alone(path: Path, run: Callable[..., str]) -> None:
    shown = run(path)
    assert re.search(SHOWN.get(path.name, "."), shown), shown
    assert GALLERY[path.name].is_shown_by(shown), shown


class TestMirror:
    def test_shows_one_trail_across_two_clusters(self, run: Callable[..., str]) -> None:
        shown = run(EXAMPLES / "mirror.py")
        assert re.search(
            r"mirrored 5 records of 'orders'"
            r".* shop +produced into east/orders"
            r".* mirror +read from east/orders, produced into west/orders"
            r".* billing +read from west/orders$",
            shown,
        ), shown

    def test_mirrors_between_given_clusters(self, run: Callable[..., str]) -> None:
        with EmbeddedCluster(topics={"stocks": 1}) as source, EmbeddedCluster(topics={"stocks": 1}) as target:
            conf = {"bootstrap.servers": source.bootstrap_servers}
            with Producer(conf, chain=Chain([Trail(service="exchange")])) as producer:
                for number in range(3):
                    producer.produce("stocks", b"%d" % number, b"key", headers=[("a", None)])
            addresses = ["--source", source.bootstrap_servers, "--target", target.bootstrap_servers]
            shown = run(EXAMPLES / "mirror.py", *addresses, "--topic", "stocks", "--count", "3")
            assert "mirrored 3 records of 'stocks'" in shown
            assert re.search(r" exchange +produced into ", shown), shown
            copies = read(target, "stocks", 3)
        assert [copy.value() for copy in copies] == [b"0", b"1", b"2"]
        assert {copy.key() for copy in copies} == {b"key"}
        assert {Headers(copy.headers()).names() for copy in copies} == {("a", "hw.trail")}


def read(cluster: EmbeddedCluster, topic: str, count: int) -> list[Message]:
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "check"}
    consumer = confluent_kafka.Consumer({**conf, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), timeout=0.2)
    consumer.close()
    return found
