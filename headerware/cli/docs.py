"""``headerware docs``: show the pages of the documentation in the terminal.

The pages are Markdown, as on the site, without the files at the root of the repository: in a clone the files
themselves, and in an installation copies of them inside the package.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headerware.cli.json_output import answer
from headerware.cli.options import json_option
from headerware.cli.tables import output_console
from headerware.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

_PAGES: Final = (
    *("docs/**/*.md", "spec/**/*.md", "examples/**/README.md"),
    *("bench/*.md", "tests/connect_oracle/README.md"),
)
"""The files of all pages; `pyproject.toml` packs the same files into the wheel."""


@click.command()
@click.argument("page", required=False)
@json_option
def docs(page: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Show a PAGE of the documentation, or list all pages.

    A page is named by its path (guides/fastapi, spec/trail), by the end of its path (fastapi), or by the
    beginning or the end of its name if no other page begins or ends so (rotate). A terminal gets the page
    formatted, in a pager; a pipe gets the Markdown.
    """
    pages = _pages()
    if page is None:
        titles = {name: _title(path) for name, path in pages.items()}
        answer(titles, lambda: _list(titles), as_json=as_json)
        return
    name = _find_name(page, list(pages))
    text = pages[name].read_text(encoding="utf-8")
    answer({"page": name, "text": text}, lambda: _show(output_console(), text), as_json=as_json)


def _pages(package: Path = Path(__file__).parents[1]) -> dict[str, Path]:
    """Return the files of all pages by name, docs/ first; a README has the name of its folder."""
    packed = package / "_docs"
    root = packed if packed.is_dir() else package.parent
    pages: dict[str, Path] = {}
    for pattern in _PAGES:
        for path in root.glob(pattern):
            name = path.relative_to(root).with_suffix("").as_posix()
            pages[name.removeprefix("docs/").removesuffix("/README")] = path
    # The pages of docs/ itself first, then folder by folder.
    return dict(sorted(pages.items(), key=lambda page: (page[0].rpartition("/")[0], page[0])))


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")


def _find_name(wanted: str, names: list[str]) -> str:
    """Return the page of this name, or the first whose path ends with it, or else the only one alike."""
    plain = wanted.lower().removesuffix(".md").removesuffix("/readme").removeprefix("docs/").strip("/")
    for name in names:
        if plain == name.lower():
            return name
    for name in names:
        if name.lower().endswith(f"/{plain}"):
            return name
    ends = {name.rpartition("/")[2]: name for name in reversed(names)}
    alike = [name for end, name in ends.items() if end.startswith(plain) or end.endswith(plain)]
    if len(alike) == 1:
        return alike[0]
    hint = did_you_mean(plain, [*names, *ends], then="`headerware docs` lists all pages")
    raise click.UsageError(f"there is no page {wanted!r}{hint}")


def _list(titles: dict[str, str]) -> None:
    for folder, of_folder in groupby(titles, lambda name: name.rpartition("/")[0]):
        names = list(of_folder)
        width = max(map(len, names))
        click.secho(f"{folder or 'pages'}:", bold=True)
        for name in names:
            click.echo(f"  {name.ljust(width)}  {titles[name]}")


def _show(console: Console, text: str) -> None:
    if not console.is_terminal:
        click.echo(text, nl=False)
        return
    from rich.markdown import Markdown  # noqa: PLC0415 - no other command needs it

    with console.capture() as shown:
        console.print(Markdown(text, hyperlinks=False), soft_wrap=False)
    click.echo_via_pager(shown.get(), color=True)
