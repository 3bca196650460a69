"""Plug-ins for one test, in real modules with real entry points; and nothing at work when a test begins."""

from __future__ import annotations

import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Protocol

import pytest

from headerware.core import carry, plugins
from headerware.interceptors import built_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GADGET = """
    from typing import Annotated, ClassVar, Literal
    import msgspec
    from headerware import ConfigError, Interceptor, Place, Record
    from headerware.core.options import PATH

    class Gadget(Interceptor, frozen=True, kw_only=True):
        type: ClassVar[str] = "gadget"

        level: Annotated[int, msgspec.Meta(ge=1, le=9)] = 3
        ratio: float = 0.5
        strict: bool = False
        mode: Literal["fast", "small"] = "fast"
        names: tuple[str, ...] = ()
        accept: tuple[str, ...] | None = None
        token: str = ""
        limit: int | None = None
        keyring: Annotated[str, PATH] = ""
        cache: Annotated[str, PATH] | None = None

        def __post_init__(self) -> None:
            if self.token == "wrong":
                raise ConfigError("expected another token", path="token")

        def on_send(self, record: Record) -> Record:
            return record.with_headers(record.headers.add("gadget", self.name or self.type))

    class Early(Gadget, frozen=True, kw_only=True):
        type: ClassVar[str] = "early"
        place: ClassVar[Place | None] = Place.TRAIL

    class Late(Gadget, frozen=True, kw_only=True):
        type: ClassVar[str] = "late"
        place: ClassVar[Place | None] = Place.COMPRESS
"""


class InstallPlugin(Protocol):
    def __call__(
        self, *words: str, source: str = ..., entry: str | None = ..., distribution: str = ...
    ) -> str: ...


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallPlugin]:
    """Return a function that installs entry points ``word = module:Word``, and gives the module's name."""
    installed: list[str] = []

    def install(
        *words: str, source: str = GADGET, entry: str | None = None, distribution: str = "gadgets"
    ) -> str:
        folder = tmp_path / f"site-{distribution}"
        module = f"{distribution}_{tmp_path.name.replace('-', '_')}"
        information = folder / f"{distribution}-1.0.dist-info"
        information.mkdir(parents=True)
        (folder / f"{module}.py").write_text(dedent(source), encoding="utf-8")
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{word} = {entry or f'{module}:{word.title()}'}" for word in words]
        (information / "entry_points.txt").write_text("\n".join([f"[{built_in.GROUP}]", *lines]) + "\n")
        monkeypatch.syspath_prepend(folder)
        installed.append(module)
        plugins._entry_points.cache_clear()
        return module

    yield install
    for module in installed:
        sys.modules.pop(module, None)
    plugins._entry_points.cache_clear()


@pytest.fixture
def gadgets(install_plugin: InstallPlugin) -> str:
    """Install the interceptors ``gadget``, ``early`` and ``late``, and give their module's name."""
    return install_plugin("gadget", "early", "late")


@pytest.fixture(autouse=True)
def nothing_at_work() -> Iterator[None]:
    """Let no record be at work, as one is while a consumer that another test left open is in its loop."""
    before = carry._current.set(None)
    yield
    carry._current.reset(before)
