"""The hint for a missing part is a command that can be pasted into a shell."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from subprocess import check_output

from headerware.core.extras import install_command

ROOT = Path(__file__).parents[3]


def test_in_a_clone_names_it_and_the_running_python() -> None:
    assert shlex.split(install_command("cbor")) == [
        sys.executable,
        *("-m", "pip", "install", "--editable"),
        f"{ROOT}[cbor]",
    ]


def test_elsewhere_is_for_a_clone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "headerware" / "core" / "extras.py", tmp_path)
    program = "from extras import install_command; print(install_command('cbor'))"
    found = check_output([sys.executable, "-c", program], cwd=tmp_path, text=True)
    assert found == f"in a clone of Headerware, {sys.executable} -m pip install '.[cbor]'\n"


def test_without_an_extra_names_headerware_itself() -> None:
    assert shlex.split(install_command())[-1] == str(ROOT)


def test_every_hint_names_an_extra_that_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {
        name
        for path in (ROOT / "headerware").rglob("*.py")
        for name in re.findall(r"install_command\(['\"](\w+)['\"]\)", path.read_text(encoding="utf-8"))
    }
    assert {"spark", "connect", "confluent", "cbor", "protobuf"} <= found <= set(extras)


def test_nothing_tells_to_install_from_an_index_that_has_it_not() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "headerware").rglob("*.py")]
    assert [path for path in pages if "kafka-headerware[" in path.read_text(encoding="utf-8")] == []
