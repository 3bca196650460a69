"""The Makefile's targets use the environment that they need, and no larger one."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
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


@pytest.fixture(autouse=True)
def _a_make_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a make that is started here know nothing of the one that has started the tests."""
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "WORKERS", "CLUSTERS", "FAILED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def environments(clone: Path) -> Path:
    """Environments whose pytest says how it was called; tests/integration and the oldest client's fail."""
    for name in (
        ".venv",
        ".venv-oldest",
        ".venv-native",
        ".venv-frameworks",
        ".venv-docs",
        ".venv-newest-spark",
        ".venv-newest-connector",
        ".venv-python3.99",
    ):
        programs = clone / name / "bin"
        programs.mkdir(parents=True)
        (programs / "python").write_text("#!/bin/sh\n")
        (programs / "sphinx-build").write_text("#!/bin/sh\n")
        (programs / "pytest").write_text(
            '#!/bin/sh\necho "ran $0 $*"\n'
            'case "$0 $*" in *"not long tests/integration"|*-oldest*) exit 1;; esac\n'
        )
        for program in programs.iterdir():
            program.chmod(0o755)
        (clone / name / ".ready").touch()
    (clone / ".venv-native" / ".built").touch()
    return clone


def native_stage(
    environments: Path, cargo: str | None, target: str = "test-native"
) -> subprocess.CompletedProcess[str]:
    """Run the stage of native steps with a cargo of this script, or without one."""
    if cargo is not None:
        (environments / "cargo").write_text(f"#!/bin/sh\n{cargo}\n")
        (environments / "cargo").chmod(0o755)
    make = shutil.which("make")
    assert make is not None
    command = [make, target, "CARGO=./cargo", "VERSIONS=test-native"]
    return subprocess.run(command, cwd=environments, capture_output=True, text=True, check=False)


def test_native_steps_are_tested_where_cargo_is(environments: Path) -> None:
    done = native_stage(environments, 'echo "cargo $1"')
    assert done.returncode == 0, done.stderr
    assert "cargo test\nran .venv-native/bin/pytest -n 6" in done.stdout


@pytest.mark.parametrize("cargo", ['test "$1" != test', 'test "$1" != metadata'])
def test_native_steps_that_fail_or_are_no_crates_are_a_failure(environments: Path, cargo: str) -> None:
    done = native_stage(environments, cargo)
    assert done.returncode != 0
    assert "ran" not in done.stdout


@pytest.mark.parametrize(
    ("cargo", "why"),
    [('test "$1" != fetch', "the crates cannot be fetched"), (None, "cargo is missing")],
)
class TestNativeStepsThatCannotBeBuilt:
    @pytest.mark.parametrize("given", ["1", None])
    @pytest.mark.parametrize("target", ["test-native", "test-versions"])
    def test_are_a_failure(
        self, environments: Path, monkeypatch: pytest.MonkeyPatch,
        cargo: str | None, why: str, given: str | None, target: str,
    ) -> None:  # fmt: skip
        monkeypatch.delenv("HEADERWARE_REQUIRE_ALL", raising=False)
        if given is not None:
            monkeypatch.setenv("HEADERWARE_REQUIRE_ALL", given)
        done = native_stage(environments, cargo, target)
        assert done.returncode != 0
        assert f"test-native: failed, because {why}" in done.stderr
        assert "-native/bin/pytest" not in done.stdout

    def test_are_skipped_in_a_line_if_not_all_is_required(
        self, environments: Path, monkeypatch: pytest.MonkeyPatch, cargo: str | None, why: str
    ) -> None:
        monkeypatch.setenv("HEADERWARE_REQUIRE_ALL", "")
        done = native_stage(environments, cargo)
        assert done.returncode == 0
        assert done.stdout == f"test-native: skipped, because {why}\n"


def test_test_goes_on_after_a_stage_that_failed_and_says_so_at_the_end(environments: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run([make, "test"], cwd=environments, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    started = [
        line for line in done.stdout.splitlines() if "/pytest" in line and not line.startswith("HEADERWARE")
    ]
    for folder in ("tests/unit", "tests/integration", "tests/spark"):
        assert any(folder in line for line in started), folder
    processes = {line.partition("tests/")[2]: line.partition(" -n ")[2][0] for line in started}
    assert {what: count for what, count in processes.items() if what.startswith("spark")} == {
        "spark -m broker and not long": "2",
        "spark -m not broker and not long": "1",
    }
    assert {count for what, count in processes.items() if not what.startswith("spark")} == {"3"}
    assert not any("-oldest" in line or "-newest" in line for line in started)
    assert "make test: failed: test-integration;" in done.stderr


def test_test_long_runs_what_takes_minutes(environments: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run([make, "test-long"], cwd=environments, capture_output=True, text=True, check=True)
    for folder in ("tests/spark -m long", "-m long tests/integration", "tests/frameworks", "tests/site"):
        assert folder in done.stdout, folder
    stages = "test-spark-long test-integration-long test-frameworks test-docs"
    assert f"make test-long: passed: {stages}" in done.stdout


def test_test_versions_runs_the_oldest_and_the_newest(environments: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    command = [make, "test-versions", "NEWER_PYTHONS=no-such-python", "CARGO=true"]
    done = subprocess.run(command, cwd=environments, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    for environment in (".venv-oldest", ".venv-native", ".venv-newest-spark", ".venv-newest-connector"):
        assert f"ran {environment}/bin/pytest" in done.stdout
    assert "make test-versions: failed: test-oldest;" in done.stderr


def test_test_goes_on_where_the_environment_of_a_stage_cannot_be_made(environments: Path) -> None:
    (environments / ".venv-frameworks" / ".ready").unlink()
    (environments / ".venv-frameworks" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    make = shutil.which("make")
    assert make is not None
    command = [make, "test-long", "PYTHON=false", "LONG=test-frameworks test-spark"]
    done = subprocess.run(command, cwd=environments, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "tests/spark" in done.stdout
    assert "make test-long: failed: test-frameworks;" in done.stderr


def test_the_newest_python_runs_its_part_of_the_tests(environments: Path) -> None:
    newer = environments / "python3.99"
    newer.write_text("#!/bin/sh\n")
    newer.chmod(0o755)
    make = shutil.which("make")
    assert make is not None
    command = [make, "test-newest-python", f"NEWER_PYTHONS=no-such-python {newer}"]
    done = subprocess.run(command, cwd=environments, capture_output=True, text=True, check=True)
    assert "ran .venv-python3.99/bin/pytest -n 6" in done.stdout
    assert "tests/unit/core" in done.stdout


def test_no_newer_python_is_no_failure_and_is_told_in_a_line(environments: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    command = [make, "test-newest-python", "NEWER_PYTHONS=no-such-python"]
    done = subprocess.run(command, cwd=environments, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "test-newest-python: skipped, because none of these is here and newer than .venv: no-such-python\n"
    )


def test_the_supported_pythons_are_those_that_are_tested(clone: Path) -> None:
    project = tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (clone / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    oldest, *newer = named
    assert project["requires-python"] == f">={oldest}"
    assert f"CANDIDATES := $(if $(PYTHON),$(PYTHON),python{oldest} " in makefile
    assert f"NEWER_PYTHONS := {' '.join(f'python{version}' for version in reversed(newer))}\n" in makefile
    supported = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    assert f"| CPython | {', '.join(named)}, on POSIX |" in supported


def test_another_python_must_be_named(environments: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run(
        [make, "test-python"], cwd=environments, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "name a Python: make test-python PYTHON=" in done.stderr


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
