"""Two plug-ins by different people, installed as packages, in one chain that a file configures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "examples" / "plugin_template"
SECOND = ROOT / "tests" / "plugins" / "second_plugin"

CONFIG = """
[[interceptors]]
type = "stamp"
text = "${env:STAMP_TEXT}"
topics = ["orders*"]

[[interceptors]]
type = "region"
code = "eu"
"""

PROGRAM = """
import json, sys
from headerware import Context, Record, load_chain

chain = load_chain(sys.argv[1])
with chain.open(Context(now_ms=lambda: 1234)) as session:
    sent = session.send([Record("orders", b"v"), Record("payments", b"v")])
    seen = session.consume(sent)
    print(json.dumps({
        "names": chain.names,
        "modules": [type(interceptor).__module__ for interceptor in chain],
        "sent": [[[name, value.decode()] for name, value in record.headers] for record in sent],
        "seen": [[name for name, _ in record.headers] for record in seen],
        "local": [record.local for record in seen],
        "stamped": session.stats()["stamp"]["stamped"],
    }))
"""


class Site:
    """A folder with both plug-ins installed, and processes that see it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.path), "STAMP_TEXT": "here"}
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
            *("--no-index", "--no-deps", "--no-build-isolation", "--target", str(path)),
            *(str(TEMPLATE), str(SECOND)),
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return Site(path)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "headerware.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


class TestTwoPlugIns:
    def test_work_in_one_chain(self, site: Site, config: Path) -> None:
        done = site.run("-W", "error", "-c", PROGRAM, config)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {
            "names": ["stamp", "region"],
            "modules": ["headerware_stamp.stamp", "headerware_region"],
            "sent": [[["stamp", "here;1234"], ["region", "eu"]], [["region", "eu"]]],
            "seen": [["stamp"], []],
            "local": [{"stamp": 1234}, None],
            "stamped": 1,
        }

    def test_are_explained_by_the_command(self, site: Site, config: Path) -> None:
        done = site.run("-m", "headerware", "explain", config, "--json")
        assert done.returncode == 0, done.stderr
        found = {item["name"]: item["implementation"] for item in json.loads(done.stdout)["result"]["send"]}
        assert found == {
            "stamp": "headerware_stamp.stamp.Stamp",
            "region": "headerware_region.Region",
        }

    def test_are_suggested_for_a_word_that_is_nearly_theirs(self, site: Site, config: Path) -> None:
        config.write_text(CONFIG.replace('"region"', '"regoin"'), encoding="utf-8")
        done = site.run("-m", "headerware", "check", config)
        assert done.returncode == 1
        assert "there is no interceptor type 'regoin'; did you mean 'region'?" in done.stderr


class TestTemplate:
    def test_passes_its_own_tests(self, site: Site) -> None:
        done = site.run(
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", TEMPLATE / "pyproject.toml"),
            *("--rootdir", TEMPLATE, TEMPLATE / "tests"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout

    def test_leaves_nothing_behind_in_its_folder(self, site: Site) -> None:
        found = {path.name for path in TEMPLATE.iterdir()} - {"__pycache__"}
        assert found == {"README.md", "pyproject.toml", "src", "tests"}
