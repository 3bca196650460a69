"""docs/registry.md and docs/header-ids.md from top to bottom, as somebody who begins would do it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from headerware.cli import main
from headerware.registry import default_names, use_registry
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[3] / "docs"
REGISTRY = DOCS / "registry.md"
HEADER_IDS = DOCS / "header-ids.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PIPE = "git show origin/main:registry.toml | "
BROKERS = "localhost:9092"


class Page:
    """Runs the blocks of a page, and keeps what they said by the line or the block."""

    def __init__(self, path: Path, brokers: str) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.said: dict[str, str] = {}
        self.left: list[Any] = []
        self._name = str(path)
        self._brokers = brokers

    def run(self) -> None:
        for kind, block in FENCE.findall(self.text):
            if kind == "python":
                self._execute(block)
            elif not kind:
                for line in block.splitlines():
                    self._command(line)

    def _execute(self, block: str) -> None:
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block.replace(BROKERS, self._brokers), self._name, "exec"), names)  # noqa: S102 - our own
        self.said[block] = out.getvalue()
        self.left += [names["store"]] if "store" in names else []

    def _command(self, line: str) -> None:
        command, _, comment = line.partition("  # ")
        piped = command.startswith(PIPE)
        before = Path("registry.toml").read_text(encoding="utf-8") if piped else None
        result = self._invoke(command.removeprefix(PIPE), before)
        assert result.exit_code == (1 if comment.startswith("exit code 1") else 0), (line, result.output)
        self.said[line] = result.output

    def _invoke(self, command: str, stdin: str | None) -> Result:
        words = shlex.split(command.replace(BROKERS, self._brokers))
        assert words[:2] == ["headerware", "header-ids"]
        return CliRunner().invoke(main, words[1:], input=stdin)


@contextlib.contextmanager
def ran(path: Path, folder: Path) -> Iterator[Page]:
    with pytest.MonkeyPatch.context() as patch, EmbeddedCluster(topics={"header-ids": 1}) as cluster:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.delenv("HEADERWARE_REGISTRY", raising=False)
        done = Page(path, cluster.bootstrap_servers)
        try:
            done.run()
            yield done
        finally:
            for store in done.left:
                store.close()
            use_registry(None)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with ran(REGISTRY, tmp_path_factory.mktemp("page")) as done:
        yield done


def said(page: Page, beginning: str) -> str:
    (found,) = (text for line, text in page.said.items() if line.startswith(beginning))
    return found


class TestRegistry:
    def test_takes_the_block_and_the_ids_that_it_says(self, page: Page) -> None:
        assert said(page, "headerware header-ids block allocate --size") == (
            "allocated 0.1.0.0/16 to orders, by platform\n"
        )
        assert "registered 0.1.0.1 " in said(page, "headerware header-ids register tenant")
        assert "registered 0.1.8.1 " in said(page, "headerware header-ids register refund-reason")

    def test_looks_up_what_it_says(self, page: Page) -> None:
        assert said(page, "headerware header-ids lookup tenant") == said(
            page, "headerware header-ids lookup '~QAB'"
        )
        assert "lies in 0.1.8.0/24 of refunds" in said(page, "headerware header-ids lookup 0.1.8.200")

    def test_checks_in_ci(self, page: Page) -> None:
        assert said(page, PIPE) == "registry.toml: ok (2 blocks, 3 entries)\n"

    def test_fills_the_topic_and_follows_it(self, page: Page) -> None:
        assert "tenant" not in said(page, "headerware header-ids list --registry kafka://")
        (store,) = page.left
        assert store.load().by_name("tenant") is not None
        assert default_names().id_of("tenant") == 0x00010001


class TestHeaderIds:
    def test_shows_what_is_on_the_wire(self, tmp_path: Path) -> None:
        with ran(HEADER_IDS, tmp_path) as page:
            printed = re.findall(r"^print\(.*\)  # (.*)$", page.text, re.MULTILINE)
            assert len(printed) == 2
            assert said(page, "from headerware import Chain").splitlines() == printed
