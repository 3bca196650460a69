"""The documentation as a site: ``make docs`` builds it into build/docs.

The pages are plain Markdown that reads as well in the repository. What Sphinx needs in addition is made here
as the pages are read: a list of links to pages is a table of contents, a link to a folder leads to the README
of the folder, and the page of a package gets the docstrings of its public names, with the annotations of what
they return.
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.ext.autodoc.mock import mock

from headerware import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

project = "Headerware"
author = "The Headerware authors"
release = __version__
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "spec/*.md",
    "bench/*.md",
    "examples/README.md",
    "examples/*/README.md",
    "tests/connect_oracle/README.md",
]
exclude_patterns = [".*", "build", "dist", "headerware", "interceptors", "registry", "serdes", "spark_bridge"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_heading_anchors = 6
autodoc_member_order = "bysource"
# Too large for a build of pages, and not needed to read docstrings.
autodoc_mock_imports = ["py4j", "pyspark", "pyarrow", "pandas"]
autodoc_typehints = "none"
napoleon_use_ivar = True
# Names of other libraries, and of modules that have no page.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!headerware\.).*"), ("py:.*", r"headerware\.core\..*")]
# The annotation of what a function returns is a plain name, such as Policy, which two packages may have.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = "Headerware"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["index.html"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
MEANING = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)
DEFAULT = re.compile(r"<(?:(\w+\.\w+): [^>]*|[^<>]*(?:<[^<>]*>)?[^<>]*)>")
"""A default in a signature that is not Python: of an enumeration, or a function."""
SECTION = re.compile(r"^## +(.*)$", re.MULTILINE)
LISTS = {
    root_doc,
    "docs/api/README",
    "docs/decisions/README",
    "docs/guides/README",
    "docs/interceptors/README",
    "spec/README",
}
"""The pages whose links are tables of contents; those of the first are in its sections."""


def read(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx's signature
    """Add to a page what Sphinx needs in addition to the Markdown."""
    text = LINK.sub(
        lambda link: f"[{link['text']}]({_file(page, link['target'])}{link['anchor'] or ''})", source[0]
    )
    package = page.removeprefix("docs/api/")
    names = _names(package) if package.startswith("headerware") else ""
    source[0] = "".join([text, names, *_contents(page, text)])


def _file(page: str, target: str) -> str:
    """Return the README of a folder, or the target itself."""
    readme = ROOT / posixpath.dirname(page) / target / "README.md"
    return f"{target.rstrip('/')}/README.md" if "://" not in target and readme.exists() else target


def _contents(page: str, text: str) -> Iterator[str]:
    """Yield the tables of contents of a page that lists others: hidden, because its text has the links."""
    if page not in LISTS:
        return
    prose = FENCE.sub("", text)
    parts = SECTION.split(prose) if page == root_doc else ["", "", prose]
    folder = posixpath.dirname(page)
    for caption, part in zip(parts[1::2], parts[2::2], strict=True):
        pages: dict[str, str] = {}
        for link in LINK.finditer(part):
            target = f"/{posixpath.normpath(posixpath.join(folder, link['target']))}"
            if target.endswith(".md") and _is_below(page, target):
                pages.setdefault(target, link["text"].replace("`", ""))
        if pages:
            title = [f":caption: {caption}"] if caption else []
            entries = [f"{text} <{target}>" for target, text in pages.items()]
            yield "\n".join(["", "", "```{toctree}", ":hidden:", *title, "", *entries, "```", ""])


def _is_below(page: str, target: str) -> bool:
    """Return whether a page belongs below a list: the index lists all pages, others those of their folder."""
    return page == root_doc or (
        posixpath.dirname(target) == f"/{posixpath.dirname(page)}" and target != f"/{page}.md"
    )


def _names(package: str) -> str:
    """Return directives for the public names of a package."""
    with mock(autodoc_mock_imports):
        module = importlib.import_module(package)
        public: dict[str, Any] = {name: getattr(module, name) for name in module.__all__}
    lines = []
    for name, found in sorted(public.items(), key=lambda item: item[0].lower()):
        if inspect.isclass(found):
            kind = "autoexception" if issubclass(found, BaseException) else "autoclass"
        else:
            kind = "autofunction" if inspect.isroutine(found) else "autodata"
        members = ["   :members:"] if kind == "autoclass" else []
        if inspect.isclass(found) and issubclass(found, Enum):
            members.append("   :undoc-members:")
        lines += [f".. {kind}:: {package}.{name}", *members, ""]
    return "\n".join(["", "```{eval-rst}", *lines, "```", ""])


def sign(
    app: Sphinx,  # noqa: ARG001 - Sphinx's signature, as below
    what: str,  # noqa: ARG001
    name: str,  # noqa: ARG001
    found: Any,
    options: Any,  # noqa: ARG001
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Return a signature without addresses of functions, with the annotation of what it returns."""
    if inspect.isclass(found):
        if issubclass(found, Enum):
            return "", None
    else:
        annotation = getattr(found, "__annotations__", {}).get("return")
        returns = annotation if isinstance(annotation, str) else returns
    return signature and DEFAULT.sub(lambda default: default[1] or "...", signature), returns


def describe(
    app: Sphinx,  # noqa: ARG001 - as above
    what: str,
    name: str,
    found: Any,  # noqa: ARG001
    options: Any,  # noqa: ARG001
    lines: list[str],
) -> None:
    """Replace the docstring of a value's type by the meaning that the page of its package has."""
    if what == "data":
        package, _, own = name.rpartition(".")
        page = ROOT / "docs" / "api" / f"{package}.md"
        meanings = dict(MEANING.findall(page.read_text(encoding="utf-8")))
        lines[:] = [meanings[own].replace("`", "``"), ""]


def setup(app: Sphinx) -> None:
    """Let Sphinx pass pages through :func:`read`, and names through :func:`sign` and :func:`describe`."""
    app.connect("source-read", read)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-process-docstring", describe)
