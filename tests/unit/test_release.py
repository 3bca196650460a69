"""What `make release` checks, as far as it needs neither a build nor a package index."""

from __future__ import annotations

import importlib.util
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_each_extra_is_tried_or_for_development(release: Any) -> None:
    assert set(release.PROJECT["optional-dependencies"]) == {*release.EXTRAS, *release.DEVELOPMENT}


def test_each_classified_python_is_tried(release: Any) -> None:
    assert release.PYTHONS == ["3.11", "3.12", "3.13"]


class TestLicences:
    @pytest.mark.parametrize(
        "stated",
        [
            {"license": {"id": "GPL-3.0-or-later"}},
            {"license": {"id": "AGPL-3.0-only"}},
            {"license": {"name": "License :: OSI Approved :: GNU General Public License v2 (GPLv2)"}},
            {"license": {"name": "GNU Affero"}},
            {"expression": "SSPL-1.0"},
            {"license": {"id": "BUSL-1.1"}},
        ],
    )
    def test_that_bind_an_application_are_refused(self, release: Any, stated: dict[str, Any]) -> None:
        with pytest.raises(release.CheckError, match=r"not to be shipped with: some \("):
            release.check_licences([{"name": "some", "licenses": [stated]}])

    @pytest.mark.parametrize(
        "stated",
        [
            {"license": {"id": "Apache-2.0"}},
            {"license": {"id": "MPL-2.0"}},
            {"license": {"id": "LGPL-3.0-only"}},
            {"license": {"name": "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)"}},
            {"expression": "Apache-2.0 OR BSD-3-Clause"},
        ],
    )
    def test_of_other_kinds_pass(self, release: Any, stated: dict[str, Any]) -> None:
        release.check_licences([{"name": "some", "licenses": [stated]}])

    def test_that_nobody_states_are_refused(self, release: Any) -> None:
        with pytest.raises(release.CheckError, match="no licence is known of some"):
            release.check_licences([{"name": "some"}])


class TestContents:
    @pytest.mark.parametrize(
        "litter", ["tests/test_it.py", "headerware/__pycache__/it.pyc", "headerware/tests/it.py"]
    )
    def test_of_a_wheel_are_the_package_alone(self, release: Any, tmp_path: Path, litter: str) -> None:
        with zipfile.ZipFile(tmp_path / "it.whl", "w") as wheel:
            for name in [*tracked(), "headerware-0.1.0.dist-info/licenses/LICENSE", litter]:
                wheel.writestr(name, "")
        with pytest.raises(release.CheckError, match=f"the wheel has {litter}$"):
            release.check_contents(tmp_path / "it.whl", tmp_path / "it.tar.gz")

    def test_of_a_wheel_are_complete(self, release: Any, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "it.whl", "w") as wheel:
            for name in {*tracked(), "headerware-0.1.0.dist-info/licenses/LICENSE"} - {"headerware/py.typed"}:
                wheel.writestr(name, "")
        with pytest.raises(release.CheckError, match=r"the wheel lacks headerware/py\.typed"):
            release.check_contents(tmp_path / "it.whl", tmp_path / "it.tar.gz")


def tracked() -> list[str]:
    return subprocess.check_output(["git", "ls-files", "headerware"], cwd=ROOT, text=True).splitlines()


class TestTable:
    def test_names_what_failed_and_goes_on(self, release: Any) -> None:
        table = release.Table()
        with table.row("first"):
            release.check_licences([{"name": "some"}])
        with table.row("second"):
            pass
        assert table.failed == ["first"]
        assert [line.split()[:2] for line in str(table).splitlines()] == [
            ["first", "FAILED"],
            ["second", "passed"],
        ]
