"""The Makefile's targets use the environment that they need, and no larger one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL, WHOLE = ".venv-demo", ".venv"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "program"),
    [("demo", "bin/python examples/demo/run.py"), ("broker", "bin/python -m headerware.testing.jars")],
)
@pytest.mark.parametrize("there", [SMALL, WHOLE])
def test_demo_and_broker_run_in_the_small_environment_unless_the_whole_is_there(
    clone: Path, target: str, program: str, there: str
) -> None:
    (clone / there).mkdir()
    (clone / there / ".ready").touch()
    make = shutil.which("make")
    assert make is not None
    plan = subprocess.run([make, "-n", target], cwd=clone, capture_output=True, text=True, check=True).stdout
    assert program in plan
    assert f"{there}/bin/python" in plan
    assert "pip install" not in plan
