"""Write the generated parts of the documents; ``make pages`` runs it, and tests/unit/test_pages.py compares.

A page about an interceptor is written by hand as far as its heading "Options". The rest comes from the class
of its options, from docs/what-others-see.md, and from bench/results.json. The page about hooks is written by
hand as far as its heading "The context"; the rest comes from the docstrings of the context and the services.
The pages of the API come from the docstrings of the public names, and the page of commands from the help
texts of click. tests/performance.py writes the page of figures.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import posixpath
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from headerware import Context, Interceptor
from headerware.cli import main
from headerware.core import services
from headerware.core.option_docs import OptionDoc, argument_docs, option_docs
from headerware.core.plugins import interceptor_type
from tests.diagrams import drawn
from tests.links import LINK, ROOT
from tests.performance import figure, measured, performance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    import msgspec

INTERCEPTORS: Final = "docs/interceptors"
HOOKS: Final = "docs/hooks.md"
STABILITY: Final = "docs/stability.md"
ABOUT_CONTEXT: Final = (
    "`open(context)` gets a [`Context`](api/headerware.md), which belongs to one session of one client. "
    "These fields are [stable](stability.md#stable-names); the others serve Headerware's own interceptors."
)
ABOUT_SERVICES: Final = (
    "The object with the hooks may also have the methods of services. A session looks for them once, when it "
    "opens. The methods of one service go together: an object has all of them, or none. Unless the table "
    "says otherwise, a method is called on the thread that calls the client, one call at a time."
)
OTHERS: Final = "docs/what-others-see.md"
PACKAGES: Final = (
    "headerware",
    "headerware.interceptors",
    "headerware.serdes",
    "headerware.keyring",
    "headerware.connect",
    "headerware.connect.data",
    "headerware.registry",
    "headerware.sources",
    "headerware.workers",
    "headerware.spark_bridge",
    "headerware.testing",
)
"""The packages that have a page of their public names."""
MEASURED: Final = {
    "admission": r"admission, ",
    "claim_check": r"64 MiB value",
    "compress": r".*trail \+ compress|the full chain (on|:)",
    "contract": r"contract of",
    "delay": r"delay, ",
    "encrypt": r"(encrypt|decrypt)\b|.*\+ encrypt",
    "expire": r"expire: ",
    "header_ids": r"header ids: ",
    "serialize": r"Avro: |polyglot: ",
    "sign": r"(sign|verify)\b|(produce|consume), .*\+ sign",
    "slice": r"64 MiB message",
    "trace": r"tracing |.*\btrace against",
    "trail": r"(asyncio )?(produce|publish|consume(\(500\))?), trail",
    "transforms": r"Connect: \w+(\$\w+)?, with a schema",
}
"""The comparisons of the bench that an interceptor is in, as a pattern of their names."""
LEAST: Final = r"(produce|consume), 4 no-op"
"""The comparisons that are a lower limit for every interceptor."""
SCALE: Final = "docs/scale.md"
FIGURES: Final = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)
BENCH_CORES: Final = 2
_PROTECTED: Final = "Spark, a batch of {} records with every protection"
SIZES: Final = (
    (
        "Spark decode, trail + zstd + HMAC",
        "Parquet into Arrow, into Python, through the chain, and back; 1.5 KB values",
        "Kafka",
    ),
    ("Spark encode, trail + zstd + HMAC", "the same in the other direction", "Kafka"),
    (
        "Spark foreachBatch, read and written through the chain",
        "both, with Kafka at both ends and the ledger; 100,000 records, with the fixed time of a query",
        "a network: the broker is on the same machine, and uses a part of the two cores",
    ),
    (
        f"{_PROTECTED.format('20,006')}: CPU a record",
        "a warm batch, read and written: CPU of the driver, its JVM and the Python workers",
        "the brokers, a network",
    ),
    (
        f"{_PROTECTED.format('100,006')}: CPU a record",
        "the same in larger batches, where the fixed price of a batch counts less",
        "the brokers, a network",
    ),
    (
        f"{_PROTECTED.format('100,006')}, first of a session: CPU a record",
        "the same, cold: Python workers start and open the chain, the JVM compiles, the ledger begins",
        "the start of the session itself",
    ),
)
"""The rows by which docs/scale.md sizes a cluster: what each includes, and what it does not."""
ROLE: Final = re.compile(r":\w+:`~?(?:[\w.]+\.)?([^`]+)`")


def written() -> dict[str, str]:
    """Return the text of each page that has a generated part."""
    pages = {f"{INTERCEPTORS}/{word}.md": _interceptor(word) for word in interceptor_type.built_in}
    pages |= {f"docs/api/{package}.md": _package(package) for package in PACKAGES}
    pages[SCALE] = _scale(measured())
    return {**pages, **drawn(), **performance(measured()), HOOKS: _hooks(), "docs/commands.md": _commands()}


def _scale(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page about scale with the core-seconds of each row that is measured."""
    lines = ["| row | includes | does not include | core-seconds a million |", "| --- | --- | --- | ---: |"]
    for name, includes, lacks in SIZES:
        if (row := results.get(name)) is not None:
            is_rate = row["unit"] == "records/s"
            seconds = BENCH_CORES * 1_000_000 / row["ours"] if is_rate else row["ours"]  # us a record
            lines.append(f"| `{name}` | {includes} | {lacks} | {seconds:,.0f} |")
    text = "\n".join(lines)
    return FIGURES.sub(
        lambda found: f"{found[1]}{text}\n{found[2]}", (ROOT / SCALE).read_text(encoding="utf-8")
    )


def _interceptor(word: str) -> str:
    page = f"{INTERCEPTORS}/{word}.md"
    by_hand = (ROOT / page).read_text(encoding="utf-8").partition("\n## Options\n")[0]
    return "\n".join(
        [
            by_hand,
            "## Options",
            "",
            *_options(interceptor_type(word)),
            "",
            "## What others see",
            "",
            *(moved(line, OTHERS, page) for line in _others(word)),
            "",
            "## What it costs",
            "",
            *_costs(word, page),
            "",
        ]
    )


def _options(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the table of an interceptor's own options."""
    yield "| option | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for option in option_docs(kind):
        if option.name not in Interceptor.__struct_fields__:
            cells = f"`{option.name}`", option.type, f"`{_default(option)}`", option.text
            yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""
    yield (
        "`-` marks an option without a default. Every interceptor also has "
        "[these options](../configuration.md#options-that-every-interceptor-has)."
    )


def _default(option: OptionDoc) -> str:
    """Return the default of an option as a document writes it."""
    if option.required:
        return "-"
    if isinstance(option.default, str):
        return option.default or '""'
    return "a list" if option.default and isinstance(option.default, list) else json.dumps(option.default)


def _others(word: str) -> Iterator[str]:
    """Yield the rows about an interceptor of the page about others."""
    text = (ROOT / OTHERS).read_text(encoding="utf-8")
    head, rows = _rows(text, "| interceptor of the producer |")
    found = [row for row in rows if f"`{word}`" in _first(row) or _first(row) == " any, on a tombstone "]
    yield "A reader without Headerware sees this:"
    yield ""
    yield from [head, "| --- " * (head.count("|") - 1) + "|", *found]
    lacking = [_cells(row)[1] for row in _rows(text, "| lacks |")[1] if f"`{word}`" in _first(row)]
    for each in lacking:
        yield ""
        yield f"The application of a reader whose chain lacks `{word}` gets {each}."
    yield ""
    yield "[What others see](what-others-see.md) has all interceptors, and producers without Headerware."


def _rows(text: str, head: str) -> tuple[str, list[str]]:
    """Return the heading and the rows of the table whose heading begins so."""
    lines = text[text.index(head) :].partition("\n\n")[0].splitlines()
    return lines[0], lines[2:]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip()[1:-1].split("|")]


def _first(row: str) -> str:
    return row[1:].partition("|")[0]


def moved(line: str, page: str, to: str) -> str:
    """Return a line of one page with links that lead to the same places from another page."""

    def relinked(link: re.Match[str]) -> str:
        target, _, anchor = link[1].partition("#")
        if "://" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
        found = posixpath.relpath(path, posixpath.dirname(to))
        return f"]({found}#{anchor})" if anchor else f"]({found})"

    return LINK.sub(relinked, line)


def _costs(word: str, page: str) -> Iterator[str]:
    """Yield what the bench measured."""
    found = [row for name, row in measured().items() if re.match(MEASURED.get(word, LEAST), name)]
    if word not in MEASURED:
        yield "The bench does not measure it alone. A chain of four interceptors that do nothing costs this:"
        yield ""
    yield "| comparison | ours | reference | unit | ratio | method |"
    yield "| --- | ---: | ---: | --- | ---: | --- |"
    for row in found:
        figures = (figure(row[each]) for each in ("ours", "reference"))
        ratio = f"{row['ratio']:.2f}"
        yield f"| {' | '.join(map(_cell, (row['name'], *figures, row['unit'], ratio, row['note'])))} |"
    yield ""
    yield moved("The [benchmarks](bench/RESULTS.md) have the machine and all results.", "README.md", page)


def _hooks() -> str:
    """Return the page about hooks: the part by hand, the stable fields of the context, and the services."""
    by_hand = (ROOT / HOOKS).read_text(encoding="utf-8").partition("\n## The context\n")[0]
    names = (ROOT / STABILITY).read_text(encoding="utf-8")
    stable = re.findall(r"(\w+)=", names.partition("\nheaderware.Context(")[2].partition(")\n")[0])
    fields = [
        f"| `{name}` | {_cell(text)} |" for name, text in argument_docs(Context).items() if name in stable
    ]
    return "\n".join(
        [
            *(by_hand, "## The context", "", ABOUT_CONTEXT, ""),
            *("| field | meaning |", "| --- | --- |", *fields, ""),
            *("## Services", "", ABOUT_SERVICES, ""),
            *("| method | service | call |", "| --- | --- | --- |", *_services(), ""),
        ]
    )


def _services() -> Iterator[str]:
    """Yield a row for each method of each service; the first row of a service says what it is for."""
    for service in vars(services).values():
        if not (inspect.isclass(service) and service.__module__ == services.__name__):
            continue
        purpose = _markdown(inspect.getdoc(service) or "")
        for name, method in vars(service).items():
            if not name.startswith("_"):
                arguments = ", ".join(list(inspect.signature(method).parameters)[1:])
                called = _markdown(inspect.getdoc(method) or "")
                yield f"| `{name}({arguments})` | {_cell(purpose)} | {_cell(called)} |"
                purpose = ""


def _package(package: str) -> str:
    """Return the page of a package: each public name with the first sentence of its docstring."""
    module = importlib.import_module(package)
    head = [f"# `{package}`", "", _summary(module), "", "| name | meaning |", "| --- | --- |"]
    names = sorted(module.__all__, key=str.lower)
    values = _value_docs(module)
    rows = [f"| `{name}` | {_cell(_summary(getattr(module, name), values.get(name)))} |" for name in names]
    return "\n".join([*head, *rows, ""])


def _summary(found: Any, value_doc: str | None = None) -> str:
    """Return the first paragraph of a docstring, or of the text after a value's assignment."""
    text = inspect.getdoc(found) or ""
    if not inspect.ismodule(found) and not inspect.isclass(found) and not inspect.isroutine(found):
        choices = ", ".join(f"`{getattr(each, '__name__', each)}`" for each in get_args(found))
        text = value_doc or (
            f"One of {choices}." if choices else f"A value of the type `{type(found).__name__}`."
        )
    return _markdown(text.partition("\n\n")[0])


def _value_docs(package: ModuleType) -> dict[str, str]:
    """Return the texts after the assignments of values, by name, in the modules that a package imports."""
    init = Path(str(package.__file__))
    stub = init.with_suffix(".pyi")
    imports = ast.parse((stub if stub.exists() else init).read_text(encoding="utf-8")).body
    docs: dict[str, str] = {}
    for module in {str(each.module) for each in imports if isinstance(each, ast.ImportFrom)}:
        body = ast.parse(inspect.getsource(importlib.import_module(module))).body
        for statement, text in pairwise(body):
            match statement, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(doc))),
                ):
                    docs[name] = inspect.cleandoc(doc)
    return docs


def _commands() -> str:
    """Return the page of all commands, with their options."""
    about = (
        "The program `headerware` has these commands; each prints the same with `--help`. [Configuration]"
        "(configuration.md#for-ci-and-for-people) explains exit codes, durations and `--json`."
    )
    # With its settings, because click keeps what it makes of them, such as -h.
    context = click.Context(main, info_name="headerware", **main.context_settings)
    below = _command(main, context, 2)
    return "\n".join(["# Commands", "", about, "", *_contents(main), *below])


def _contents(group: click.Group) -> Iterator[str]:
    yield "| command | purpose |"
    yield "| --- | --- |"
    for name, command in group.commands.items():
        yield f"| [`{name}`](#headerware-{name}) | {_cell(command.get_short_help_str(200))} |"
    yield ""


def _command(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    """Yield the commands of a group, and the commands below them."""
    for name, command in group.commands.items():
        below = click.Context(command, info_name=name, parent=context)
        path = below.command_path
        usage = " ".join(["Usage:", path, *command.collect_usage_pieces(below)])
        yield from (f"{'#' * level} `{path}`", "", "```text", usage, "```", "", *_help(command), "")
        options = [
            option for option in command.params if isinstance(option, click.Option) and not option.hidden
        ]
        if options:
            yield from ("| option | meaning |", "| --- | --- |")
        for option in options:
            names, meaning = option.get_help_record(below) or ("", "")
            yield f"| `{_cell(names)}` | {_cell(meaning)} |"
        if options:
            yield ""
        if isinstance(command, click.Group):
            yield from _command(command, below, level + 1)


def _help(command: click.Command) -> list[str]:
    """Return the text of a command; click keeps the lines of a paragraph that begins with a backspace."""
    paragraphs = inspect.cleandoc(command.help or "").partition("\f")[0].split("\n\n")
    lines: list[str] = []
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            lines += ["```text", *textwrap.dedent(paragraph.removeprefix("\b\n")).splitlines(), "```", ""]
        else:
            lines += [_markdown(paragraph), ""]
    return lines[:-1]


def _markdown(text: str) -> str:
    """Return a paragraph of a docstring as a line of Markdown."""
    return ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").strip()


if __name__ == "__main__":
    for path, page in written().items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(page, encoding="utf-8")
