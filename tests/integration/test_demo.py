"""``make demo``, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.gallery import entries

if TYPE_CHECKING:
    from headerware.testing import KafkaBroker

RUN: Final = Path(__file__).parents[2] / "examples" / "demo" / "run.py"
TWO_MINUTES_S: Final = 120


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end; longer than two minutes is an error."""
    return subprocess.run(
        [sys.executable, str(RUN), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TWO_MINUTES_S,
        check=False,
    )


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "makes no spans" not in done.stderr
    shown = " ".join(done.stdout.split())  # the console wraps long lines
    assert re.search(
        r"refused sign at demo-\d+-stocks\[0\]@\d+: the signature by key 'demo' version 1 does not fit the "
        r"record: its key, value, covered headers or the signature itself were changed",
        shown,
    ), shown
    assert shown.count("refused") == 1, "and nothing else was"
    digests = re.findall(r"SHA-256 (sent|received) ([0-9a-f]{64})", shown)
    assert [which for which, _ in digests] == ["sent", "received"]
    assert len({digest for _, digest in digests}) == 1
    delivered = re.search(r"([\d,]+) of ([\d,]+) records delivered, ([\d,]+) byte for byte", shown)
    assert delivered is not None
    assert len(set(delivered.groups())) == 1
    assert int(delivered[1].replace(",", "")) > 3_000
    for line in (r" orders +produced into ", r" billing +read from ", r"traceparent 00-0af7651916cd43dd"):
        assert re.search(line, shown), shown
    assert entries()["demo/run.py"].is_shown_by(done.stdout), shown


def test_runs_to_its_end_with_nothing_but_itself(tmp_path: Path) -> None:
    check(run(tmp_path))


@pytest.mark.broker
def test_runs_on_a_given_cluster(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    done = run(tmp_path, "--bootstrap-servers", kafka_broker.bootstrap_servers)
    check(done)
    assert kafka_broker.bootstrap_servers in done.stdout


def test_says_what_went_wrong_and_exits_with_1(tmp_path: Path) -> None:
    done = run(tmp_path, "--bootstrap-servers", "127.0.0.1:1")
    assert done.returncode == 1
    assert "the demo stopped" in done.stdout
    assert "Traceback" not in done.stderr
