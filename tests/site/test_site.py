"""The built site in a real browser: search, both schemes, narrow screens, and no error on any page.

`make test-docs` builds the site and runs these tests.
"""

from __future__ import annotations

import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from headerware.testing.pytest_plugin import cannot_run
from tests.site.browser import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

playwright: Any = pytest.importorskip("playwright.sync_api")

SITE = Path(__file__).parents[2] / "build" / "docs"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
NARROW = {"width": 360, "height": 640}
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3).map(Number)"
"""The red, green and blue of the page."""
PIXEL = """async picture => {
    await picture.decode();
    const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    return [...context.getImageData(40, 60, 1, 1).data.slice(0, 3)];
}"""
"""The red, green and blue inside the first box of a diagram."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Log nothing."""

    assert SITE.exists(), "run `make docs` first"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = chromium()
    if found is None:
        cannot_run("no Chromium for this machine")
    with playwright.sync_playwright() as driver:
        # Without its sandbox, because containers and root have none; it reads our own pages only.
        options = {"executable_path": found.path, "args": ["--no-sandbox"]}
        made = driver.chromium.launch(**options, env={**os.environ, **found.environment})
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    context = browser.new_context(**getattr(request, "param", {}))
    yield context.new_page()
    context.close()


class TestSearch:
    @pytest.mark.parametrize(
        ("words", "expected"), [("rotate", "rotate"), ("replay_window", "sign"), ("poison", "poison")]
    )
    def test_finds_pages(self, page: Any, address: str, words: str, expected: str) -> None:
        page.goto(f"{address}/docs/index.html")
        page.fill("input[name=q]", words)
        page.press("input[name=q]", "Enter")
        page.wait_for_selector(f"#search-results li a[href*='{expected}']")

    def test_says_that_it_found_nothing(self, page: Any, address: str) -> None:
        page.goto(f"{address}/search.html?q=xyzzyplugh")
        page.wait_for_selector("#search-results p >> text=did not match any documents")


class TestSchemes:
    @pytest.mark.parametrize(
        ("page", "dark"),
        [({"color_scheme": "light"}, False), ({"color_scheme": "dark"}, True)],
        indirect=["page"],
    )
    def test_follow_the_system_also_in_pictures(
        self,
        page: Any,
        address: str,
        dark: bool,  # noqa: FBT001 - a parameter of the test
    ) -> None:
        page.goto(f"{address}/docs/how-it-works.html")
        pictures = page.query_selector_all("img[src*='.svg']")
        assert len(pictures) == 5
        shades = [page.evaluate(BACKGROUND), pictures[0].evaluate(PIXEL)]
        assert [max(shade) < 80 for shade in shades] == [dark] * 2
        assert [min(shade) > 200 for shade in shades] == [not dark] * 2

    def test_can_be_chosen(self, page: Any, address: str) -> None:
        page.goto(f"{address}/docs/how-it-works.html")
        page.evaluate("document.body.dataset.theme = 'dark'")
        picture = page.query_selector("img[src*='record']")
        assert max(page.evaluate(BACKGROUND)) < 80
        page.wait_for_function("getComputedStyle(document.body).colorScheme === 'dark'")
        assert max(picture.evaluate(PIXEL)) < 80


class TestPages:
    def test_there_are_some(self) -> None:
        assert {"index.html", "search.html", "docs/interceptors/sign.html", "spec/signature.html"} <= {*PAGES}

    def test_begin_at_the_index(self, page: Any, address: str) -> None:
        page.goto(address)
        page.wait_for_url(f"{address}/docs/index.html")

    @pytest.mark.parametrize("page", [{"viewport": NARROW}], indirect=True)
    def test_fit_a_narrow_screen_and_have_no_error(self, page: Any, address: str) -> None:
        problems: list[str] = []
        where = ""

        def note(problem: str) -> None:
            problems.append(f"{where}: {problem}")

        def note_error(message: Any) -> None:
            if message.type == "error":
                note(message.text)

        def note_foreign(request: Any) -> None:
            if not request.url.startswith((address, "data:")):
                note(f"asks {request.url}")

        page.on("console", note_error)
        page.on("pageerror", lambda error: note(str(error)))
        page.on("request", note_foreign)
        page.on("requestfailed", lambda request: note(f"cannot load {request.url}"))
        for where in [each for each in PAGES if each != "index.html"]:  # which leads to another at once
            page.goto(f"{address}/{where}")
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > NARROW["width"]:
                note(f"is {width} px wide")
        assert problems == []
