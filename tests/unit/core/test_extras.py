"""The hint for a missing part is a command that can be pasted into a shell."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from subprocess import check_output
from typing import Any

import pytest

from headerware.core.extras import install_command

ROOT = Path(__file__).parents[3]
PIP = [sys.executable, "-m", "pip", "install"]
# What pip writes into direct_url.json (PEP 610); nothing for a distribution from an index.
FROM_INDEX = None
FROM_WHEEL = {"url": "file:///tmp/headerware-0.1.0-py3-none-any.whl", "archive_info": {}}
FROM_GIT = {"url": "https://git.test/headerware", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
FROM_FOLDER_THAT_IS_GONE = {"url": "file:///no/such/clone", "dir_info": {}}


def installed(site: Path, origin: dict[str, Any] | None) -> list[str]:
    """Return the words of the hint for `cbor` where Headerware was installed from this origin."""
    core, metadata = site / "headerware" / "core", site / "headerware-0.1.0.dist-info"
    core.mkdir(parents=True)
    metadata.mkdir()
    shutil.copy(ROOT / "headerware" / "core" / "extras.py", core)
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: headerware\nVersion: 0.1.0\n")
    if origin is not None:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    return hint(core)


def hint(core: Path) -> list[str]:
    program = "from extras import install_command; print(install_command('cbor'))"
    return shlex.split(check_output([sys.executable, "-c", program], cwd=core, text=True))


class TestInstallCommand:
    def test_in_a_clone_names_it_and_the_running_python(self) -> None:
        assert shlex.split(install_command("cbor")) == [*PIP, "--editable", f"{ROOT}[cbor]"]

    def test_in_a_clone_names_the_sources_of_native_steps(self) -> None:
        assert shlex.split(install_command("native")) == [*PIP, str(ROOT / "native" / "headerware-native")]

    @pytest.mark.parametrize("origin", [FROM_INDEX, FROM_WHEEL, FROM_GIT, FROM_FOLDER_THAT_IS_GONE])
    def test_elsewhere_names_the_distribution(self, tmp_path: Path, origin: dict[str, Any] | None) -> None:
        assert installed(tmp_path, origin) == [*PIP, "headerware[cbor]"]

    def test_names_the_folder_that_headerware_was_installed_from(self, tmp_path: Path) -> None:
        clone = tmp_path / "a clone"
        clone.mkdir()
        (clone / "pyproject.toml").touch()
        found = installed(tmp_path / "site", {"url": clone.as_uri(), "dir_info": {}})
        assert found == [*PIP, f"{clone}[cbor]"]

    def test_without_metadata_names_the_distribution(self, tmp_path: Path) -> None:
        """For instance in a zip file of sources."""
        core = tmp_path / "headerware" / "core"
        core.mkdir(parents=True)
        shutil.copy(ROOT / "headerware" / "core" / "extras.py", core)
        assert hint(core) == [*PIP, "headerware[cbor]"]

    def test_without_an_extra_names_headerware_itself(self) -> None:
        assert shlex.split(install_command())[-1] == str(ROOT)


@pytest.mark.parametrize("package", ["spark_bridge", "spark_bridge.chargeback"])
def test_a_package_without_its_library_names_the_extra(package: str) -> None:
    program = (
        "import sys; sys.modules |= {'pyspark': None, 'py4j': None}\n"
        f"import headerware.{package} as package\n"
        "from headerware.testing import MissingPartError\n"
        "try: [getattr(package, name) for name in package.__all__]\n"
        "except MissingPartError as error: print(error)\n"
    )
    found = check_output([sys.executable, "-c", program], text=True)
    needed, _, hint = found.partition(": ")
    assert needed in {f"headerware.{package} needs {library}" for library in ("pyspark", "py4j")}
    assert hint == f"{install_command('spark')}\n"


def test_every_hint_names_an_extra_that_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {
        name
        for path in (ROOT / "headerware").rglob("*.py")
        for name in re.findall(
            r"(?:install_command\(|extra=)['\"]([\w-]+)['\"]", path.read_text(encoding="utf-8")
        )
    }
    assert {"spark", "spark-connect", "connect", "confluent", "cbor", "protobuf"} <= found <= set(extras)


def test_pages_for_users_install_from_the_index_or_the_wheel_of_this_version() -> None:
    """CONTRIBUTING alone says how to install from a clone."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "headerware").rglob("*.py")]
    named = {path: re.findall(r"pip install '([^'{]*)\[", path.read_text(encoding="utf-8")) for path in pages}
    assert {source for sources in named.values() for source in sources} == {
        "headerware",
        f"headerware-{version('headerware')}-py3-none-any.whl",
    }
