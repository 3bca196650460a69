"""Build a release and check what users would get: ``make release``.

It builds the wheel and the sdist from the commit that is checked out, twice, and leaves them in ``dist``,
with the list of all packages that users install with them (``sbom.json``, CycloneDX). Each check is a row of
the table at the end; the command fails if a check fails. docs/stability.md says what a release promises.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [
    found[1]
    for classifier in PROJECT["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier))
]
"""The supported versions of Python; extras, types and licences are checked with the oldest."""
DEVELOPMENT = {"demo", "dev", "docs", "frameworks", "release", "test"}
"""The extras for work in a clone."""

_SERIALIZE = "from headerware import Chain; from headerware.interceptors import Serialize; "
EXTRAS = {
    "aws": "from headerware import Context; from headerware.keyring.services import AwsKms; "
    "AwsKms(region='eu-west-1').open(Context()).close()",
    "cbor": f"{_SERIALIZE}from headerware.serdes import Cbor; Chain([Serialize(value=Cbor())]).open()",
    "confluent": f"{_SERIALIZE}from headerware.serdes import Avro, RegistrySchemas; "
    "store = RegistrySchemas(url='mock://release'); "
    "Chain([Serialize(value=Avro(schema='\"long\"', store=store))]).open()",
    "connect": "from headerware.connect.predicates import Expression; Expression({'expression': 'true'})",
    "contract": "from pathlib import Path; from headerware import Context; "
    "from headerware.interceptors import Contract; "
    "Path('orders.yaml').write_text('asyncapi: 3.0.0\\nchannels: {}\\n'); "
    "Contract(file='orders.yaml').open(Context()).close()",
    "jose": "from headerware.keyring import Keyring, encode_jwks, with_new_key; "
    "encode_jwks(with_new_key(Keyring(), 'orders', 'ed25519'))",
    "lineage": "from headerware import Chain, Producer; from headerware.interceptors import Lineage; "
    "servers = {'bootstrap.servers': '127.0.0.1:1', 'log_level': 0}; "
    "Producer(servers, chain=Chain([Lineage(service='orders')])).close()",
    "live": "from pathlib import Path; from headerware import Producer; "
    "Path('live.toml').write_text('[[interceptors]]\\ntype = \"trail\"\\nservice = \"orders\"\\n'); "
    "Producer({'bootstrap.servers': '127.0.0.1:1', 'log_level': 0, 'headerware.config': 'live.toml', "
    "'headerware.reload': 'watch'}).close()",
    "native": "from headerware.core.extras import install_command; "
    "from headerware.core.native import native_module; "
    "module, found = native_module(); module or exit(f'{found}: {install_command(\"native\")}')",
    "protobuf": f"{_SERIALIZE}from headerware.serdes import Protobuf; "
    "message = 'google.protobuf.wrappers_pb2:StringValue'; "
    "Chain([Serialize(value=Protobuf(message=message))]).open()",
    "report": "from headerware.ops.chargeback.report import require_report; require_report()",
    "sources": "from headerware.sources.ready import HttpPages, ObjectStorage, SqlTables; "
    "import cramjam, lz4, pyarrow",
    "spark": "from headerware.spark_bridge import decode; "
    "from headerware.spark_bridge.session import REQUIREMENTS, check; [check(each) for each in REQUIREMENTS]",
    "spark-connect": "from headerware.spark_bridge.session import CONNECT_REQUIREMENTS, REQUIREMENTS, check; "
    "[check(each) for each in CONNECT_REQUIREMENTS[len(REQUIREMENTS):] + REQUIREMENTS]",
    "storage": "from headerware.object_store.s3 import S3Objects; "
    "S3Objects(bucket='orders', region='eu-west-1').open()",
    # The view is for terminals.
    "tail": "import os, pty, sys; "
    "ask = 'from headerware.cli.tail import _is_terminal as found; raise SystemExit(not found())'; "
    "sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, '-c', ask])))",
    "vault": "from headerware import Context; from headerware.keyring.services import Vault; "
    "Vault(url='https://vault.test', token='t').open(Context()).close()",
}
"""For each extra a program that uses it; without the extra, the program says how to install the extra."""

REFUSED_LICENCES = re.compile(
    r"(?<!L)GPL|Affero|(?<!Lesser )General Public|SSPL|Server Side|BUSL|Business Source"
)
"""Licences that would bind an application that installs Headerware; MPL and LGPL do not."""
NATIVE_SBOM = "sboms/headerware-native.cyclonedx.json"
"""The list of crates that maturin puts into the wheel of headerware-native."""
LICENCES = {"cel-python": "Apache-2.0", "protobuf": "BSD-3-Clause", "tink": "Apache-2.0"}
"""Licences that a package's metadata has in a form of its own, as its LICENSE file says."""


class CheckError(Exception):
    """A check has failed; the text is the reason."""


class Table:
    """The rows: what was checked, whether it passed, how long it took."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._rows: list[str] = []

    @contextmanager
    def row(self, name: str) -> Iterator[None]:
        """Record the result of a check; a failed check does not stop the others."""
        print(f"== {name}", flush=True)
        began, result = time.monotonic(), "passed"
        try:
            yield
        except (CheckError, OSError, subprocess.SubprocessError) as error:
            result = "FAILED"
            self.failed.append(name)
            print(_reason(error), flush=True)
        self._rows.append(f"{name:<52} {result:<6} {time.monotonic() - began:6.0f} s")

    def __str__(self) -> str:
        """Return the table as text."""
        return "\n".join(self._rows)


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        output = f"{error.stdout or ''}{error.stderr or ''}".strip()
        return f"exit code {error.returncode} of {' '.join(map(str, error.cmd))[:200]}\n{output[-4000:]}"
    return str(error)


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command to its end, and return its output; raise CalledProcessError if it fails."""
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HEADERWARE"))
    }
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**outside, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=1800,
    )
    return done.stdout + done.stderr


def module(name: str, *words: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a module of this environment, .venv-release."""
    return run(sys.executable, "-m", name, *words, cwd=cwd, **environment)


# What is built


def build(work: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from the sdist; return wheel and sdist."""
    work.mkdir()
    run("git", "clone", "--quiet", ROOT, work / "clone", cwd=work)
    out = ("--outdir", work / "dist", work / "clone")
    module("build", "--no-isolation", *out, cwd=work, SOURCE_DATE_EPOCH=time_of_commit())
    return next((work / "dist").glob("*.whl")), next((work / "dist").glob("*.tar.gz"))


def time_of_commit() -> str:
    """Return the time that files of a build state, in seconds."""
    return run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()


def check_contents(wheel: Path, sdist: Path) -> None:
    """Compare the names of files with those that git has."""
    tracked = set(run("git", "ls-files", cwd=ROOT).splitlines())
    package = {name for name in tracked if name.startswith("headerware/")}
    metadata = f"{PROJECT['name']}-{PROJECT['version']}.dist-info/"
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    expected = {*package, f"{metadata}licenses/LICENSE", "headerware/py.typed", "headerware/__init__.pyi"}
    _require("the wheel lacks", expected - in_wheel)
    ours = ("headerware/", metadata)
    _require("the wheel has", {name for name in in_wheel if not name.startswith(ours) or _is_litter(name)})
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    _require(
        "the sdist lacks", {*package, "LICENSE", "README.md", "CHANGELOG.md", "spec/README.md"} - in_sdist
    )
    _require("the sdist has", in_sdist - tracked - {"PKG-INFO"})


def _require(what: str, names: set[str]) -> None:
    if names:
        raise CheckError(f"{what} {', '.join(sorted(names)[:20])}")


def _is_litter(name: str) -> bool:
    is_page = name.startswith("headerware/_docs/")
    return "__pycache__" in name or name.endswith(".pyc") or ("/tests/" in name and not is_page)


def check_reproducible(first: tuple[Path, Path], second: tuple[Path, Path]) -> None:
    """Require equal bytes of two builds from two clones."""
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise CheckError(f"two builds of {one.name} differ")


def build_native(work: Path) -> tuple[Path, Path]:
    """Build the sdist of headerware-native, and its wheel from the sdist; return wheel and sdist."""
    manifest = work / "first" / "clone" / "native" / "headerware-native" / "Cargo.toml"
    words = ("build", "--quiet", "--release", "--sdist", "--manifest-path", manifest, "--out", DIST)
    module("maturin", *words, cwd=work, SOURCE_DATE_EPOCH=time_of_commit())
    return next(DIST.glob("headerware_native-*.whl")), next(DIST.glob("headerware_native-*.tar.gz"))


def check_native_contents(wheel: Path, sdist: Path) -> None:
    """Require the tag of all supported Pythons and the version of Headerware, and look at the files."""
    stem = f"headerware_native-{PROJECT['version']}"
    oldest = PYTHONS[0].replace(".", "")
    if not wheel.name.startswith(f"{stem}-cp{oldest}-abi3-"):
        raise CheckError(f"expected a wheel {stem}-cp{oldest}-abi3-..., found {wheel.name}")
    metadata = f"{stem}.dist-info/"
    expected = {
        f"{metadata}{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE", NATIVE_SBOM)
    }
    expected |= {f"headerware_native/{name}" for name in ("__init__.py", "headerware_native.abi3.so")}
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    _require("the wheel lacks", expected - in_wheel)
    _require("the wheel has", in_wheel - expected)
    tracked = {
        name.removeprefix("native/")
        for name in run("git", "ls-files", "native", cwd=ROOT).splitlines()
        if name.endswith((".rs", "/Cargo.toml"))
    }
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    _require("the sdist lacks", {*tracked, "LICENSE", "README.md", "Cargo.lock", "pyproject.toml"} - in_sdist)


def crates(wheel: Path) -> list[dict[str, Any]]:
    """Return the crates that the wheel is made of, as its SBOM (CycloneDX) lists them."""
    sbom = zipfile.ZipFile(wheel).read(f"headerware_native-{PROJECT['version']}.dist-info/{NATIVE_SBOM}")
    components: list[dict[str, Any]] = json.loads(sbom)["components"]
    return components


# What is installed


class Environments:
    """Fresh virtual environments, outside of the clone, with the wheel."""

    def __init__(self, work: Path, wheel: Path) -> None:
        self._work, self._wheel = work, wheel

    def make(self, name: str, version: str, extras: str = "") -> Path:
        """Return the Python of a new environment with the wheel and these extras, in today's versions."""
        folder = self._work / name
        run(find_python(version), "-m", "venv", "--without-pip", folder, cwd=self._work)
        requirement = f"{self._wheel}[{extras}]" if extras else str(self._wheel)
        quiet = ("--quiet", "--disable-pip-version-check", "--find-links", DIST)
        module("pip", "--python", folder / "bin" / "python", "install", *quiet, requirement, cwd=self._work)
        return folder / "bin" / "python"


def find_python(version: str) -> str:
    """Return a Python of this version from the PATH, or one of pyenv's."""
    installed = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python{version}")
    for candidate in [f"python{version}", *map(str, sorted(installed))]:
        try:
            run(candidate, "-c", "import ensurepip, venv", cwd=ROOT)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    raise CheckError(f"Python {version}, which the classifiers name, is not on this machine")


def check_hint(python: Path, extra: str, program: str) -> None:
    """Require that the extra's program fails without it, with the command that installs it."""
    hint = f"-m pip install '{PROJECT['name']}[{extra}]'"
    try:
        run(python, "-c", program, cwd=python.parent)
    except subprocess.CalledProcessError as error:
        if hint not in error.stdout + error.stderr:
            raise CheckError(
                f"without the extra, no {hint!r} in: {(error.stdout + error.stderr)[-2000:]}"
            ) from error
    else:
        raise CheckError(f"{extra} works without the extra")


def write_sbom(python: Path) -> list[dict[str, Any]]:
    """Write dist/sbom.json for an environment, and return its components."""
    file = DIST / "sbom.json"
    subject = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library")
    form = ("--output-reproducible", "--of", "JSON", "--output-file", file)
    module("cyclonedx_py", "environment", *subject, *form, python, SOURCE_DATE_EPOCH=time_of_commit())
    components: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["components"]
    return components


def check_licences(components: list[dict[str, Any]]) -> None:
    """Refuse packages without a licence that we know, or with one that binds the application."""
    stated = {each["name"]: _licences(each) for each in components}
    _require("no licence is known of", {name for name, text in stated.items() if not text})
    refused = {f"{name} ({text})" for name, text in stated.items() if REFUSED_LICENCES.search(text)}
    _require("not to be shipped with:", refused)
    print(f"{len(stated)} packages")


def _licences(component: dict[str, Any]) -> str:
    stated = [
        each.get("expression") or each["license"].get("id") or each["license"]["name"]
        for each in component.get("licenses", ())
    ]
    return ", ".join(stated) or LICENCES.get(component["name"], "")


def main() -> int:
    """Build and check everything, print the table, and return the exit code."""
    if run("git", "status", "--porcelain", cwd=ROOT):
        print("make release builds what is committed: commit or stash your changes first", file=sys.stderr)
        return 1
    table, began, built = Table(), time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="headerware-release-") as temporary:
        work = Path(temporary)
        with table.row("build wheel and sdist, twice"):
            built = [build(work / name) for name in ("first", "second")]
        if built:
            check(table, work, *built)
    print(f"\n{table}\n")
    print(f"make release: {(time.monotonic() - began) / 60:.0f} minutes; ", end="")
    print(f"FAILED: {', '.join(table.failed)}" if table.failed else f"all passed; see {DIST}")
    return 1 if table.failed else 0


def check(table: Table, work: Path, first: tuple[Path, Path], second: tuple[Path, Path]) -> None:
    """Copy what was built to dist, and check it row by row."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    wheel, sdist = (Path(shutil.copy(file, DIST)) for file in first)
    with table.row("reproducible: equal bytes"):
        check_reproducible(first, second)
    with table.row("contents of wheel and sdist"):
        check_contents(wheel, sdist)
    with table.row("metadata, README"):
        module("twine", "check", "--strict", wheel, sdist)
    extras = EXTRAS
    if shutil.which("cargo"):
        check_native(table, work)
    else:
        print("== headerware-native: skipped, because cargo is missing")
        extras = {extra: program for extra, program in EXTRAS.items() if extra != "native"}
    environments = Environments(work, wheel)
    for version in PYTHONS:
        with table.row(f"wheel alone, outside of the clone, Python {version}"):
            python = environments.make(f"python{version}", version)
            run(python, ROOT / "tools" / "try_wheel.py", cwd=_folder(work / f"try{version}"))
    for extra, program in extras.items():
        with table.row(f"extra {extra}: missing, and alone"):
            check_hint(work / f"python{PYTHONS[0]}" / "bin" / "python", extra, program)
            python = environments.make(extra, PYTHONS[0], extra)
            run(python, "-c", program, cwd=_folder(work / f"try-{extra}"))
    everything = work / "all" / "bin" / "python"
    with table.row("types of the installed wheel"):
        environments.make("all", PYTHONS[0], ",".join(extras))
        # pyright asks the first Python of the PATH where packages are; it ignores --pythonpath here.
        path = f"{everything.parent}:{os.environ['PATH']}"
        module("pyright", "--verifytypes", "headerware", "--ignoreexternal", cwd=work, PATH=path)
    with table.row("licences of all that the extras install; sbom.json"):
        check_licences(write_sbom(everything))


def check_native(table: Table, work: Path) -> None:
    """Build headerware-native into dist, and check it row by row."""
    built: list[Path] = []
    with table.row("build headerware-native"):
        built += build_native(work)
    if built:
        wheel, sdist = built
        with table.row("headerware-native: contents, metadata, README"):
            check_native_contents(wheel, sdist)
            module("twine", "check", "--strict", wheel, sdist)
        with table.row("headerware-native: licences of its crates"):
            check_licences(crates(wheel))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


if __name__ == "__main__":
    sys.exit(main())
