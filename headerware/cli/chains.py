"""``headerware check`` and ``headerware explain``: check and show a configuration before it runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
import msgspec
from rich.markup import escape
from rich.table import Table

from headerware.cli.errors import click_error
from headerware.cli.json_output import show_error, show_json
from headerware.cli.options import json_option
from headerware.cli.tables import output_console
from headerware.core.chain import Chain, load_chain
from headerware.core.client_chain import CONFIG_VARIABLE, config_of_environment, followed_file
from headerware.core.config import FILE
from headerware.core.context import Context
from headerware.core.errors import HeaderwareError, KeyringError
from headerware.core.explanation import (
    PROBE_BYTES,
    ExplainedInterceptor,
    ExplainedOption,
    Growth,
    NotMeasured,
    explain_carry,
    growth,
)
from headerware.core.explanation import explain as explanation_of
from headerware.core.hooks import label
from headerware.core.order import (
    CLIENT_TAKES_BYTES,
    TOPIC_TAKES_BYTES,
    Sizes,
    idle_on,
    notes,
    sizes,
    weaknesses,
)
from headerware.core.services import CarriesOn, offered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

_Found = TypeVar("_Found")
_SERVERS: Final = "localhost:9092"
SIDES: Final[tuple[Literal["producer", "consumer"], ...]] = ("producer", "consumer")


class _TakesFile(click.Command):
    """A command that also takes its file as ``-c FILE`` or ``--config FILE``, as other commands do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the files of ``-c`` and ``--config`` to the front, and parse the arguments."""
        rest = list(args)
        files: list[str] = []
        for index, arg in reversed(list(enumerate(args))):
            if arg in ("-c", "--config") and index + 1 < len(rest):
                files = [*rest[index + 1 : index + 2], *files]
                del rest[index : index + 2]
            elif joined := re.match(r"--config=|-c", arg):
                files = [arg[joined.end() :], *files]
                del rest[index]
        return super().parse_args(ctx, [*files, *rest])


_file = click.Path(dir_okay=False)


@click.command(cls=_TakesFile)
@click.argument("configs", metavar="[CONFIG]...", nargs=-1, type=_file)
@click.option(
    "--open/--no-open",
    "opens",
    default=False,
    help="Also open the chain, as a producer and as a consumer: keyrings, folders of claim checks and other "
    "local parts must exist.",
)
@click.option("--side", type=click.Choice(SIDES), help="With --open: open the chain as this client only.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="A topic of the chain; repeatable. Patterns that match none of these topics are shown.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 also if there is a warning.")
@json_option
def check(
    configs: tuple[str, ...],
    opens: bool,  # noqa: FBT001 - click passes flags by name
    side: Any,
    topics: tuple[str, ...],
    strict: bool,  # noqa: FBT001 - likewise
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Check a chain's CONFIG file, or several, for CI.

    If something is wrong, the exit code is 1, and one line says what and where; a warning changes the exit
    code only with --strict. All files are checked, also if one of them is wrong. Without CONFIG, the command
    checks the file that HEADERWARE_CONFIG names.
    """
    if side and not opens:
        raise click.UsageError("--side needs --open: it chooses the client as which the chain is opened")
    files = configs or (_config_file(None),)
    warned, ok = check_each(
        files, lambda config: _check(config, side, topics, opens=opens, as_json=as_json), as_json=as_json
    )
    if not ok or (strict and any(warned)):
        sys.exit(1)


def check_each(
    files: Iterable[str], check: Callable[[str], _Found], *, as_json: bool
) -> tuple[list[_Found], bool]:
    """Check all files, also if one of them is wrong, and show each error.

    Return what was found in the files that are right, and whether all files are right.
    """
    found: list[_Found] = []
    ok = True
    for file in files:
        try:
            try:
                found.append(check(file))
            except HeaderwareError as error:
                raise click_error(error) from error
        except click.ClickException as error:
            ok = False
            if as_json:
                show_error(error)
            else:
                error.show()
    return found, ok


def _check(config: str, side: Any, topics: tuple[str, ...], *, opens: bool, as_json: bool) -> bool:
    """Check one file, print the answer, and return whether it has a warning; raise if something is wrong."""
    # This also checks HEADERWARE_RELOAD, which says when clients read the file again.
    followed_file({FILE: config})
    chain = load_chain(config)
    if side is None:  # a client of one side may need fewer files, and opening reads these
        chain.check_files()
    sides = ([side] if side else list(SIDES)) if opens else []
    if opens:
        from headerware.clients.live_chain import reload_of  # noqa: PLC0415 - it imports a Kafka client

        reload_of(config, {})
    for each in sides:
        _open(config, chain, each, alone=bool(side))
    if opens:
        require_local_parts(config, chain, side)
    found = [*weaknesses(tuple(chain)), *idle_on(tuple(chain), topics)]
    if as_json:
        warnings = [{"interceptor": name, "warning": text} for name, text in found]
        noted = [{"interceptor": name, "note": text} for name, text in notes(tuple(chain))]
        facts = {"config": config, "chain": chain.names, "opened": sides}
        show_json({**facts, "warnings": warnings, "notes": noted})
    else:
        opened = f"opens as {' and '.join(sides)}" if sides else "not opened; --open opens it, too"
        click.echo(f"{config}: ok ({' -> '.join(chain.names) or 'an empty chain'}; {opened})")
        for name, text in found:
            click.echo(f"warning: {name}: {text}")
        for name, text in notes(tuple(chain)):
            click.echo(f"note: {name}: {text}")
        if not chain:
            click.echo("warning: it declares no [[interceptors]], so records pass as they are")
    return bool(found) or not chain


@click.command(cls=_TakesFile)
@click.argument("config", metavar="[CONFIG]", required=False, type=_file)
@click.argument("topic", required=False)
@click.option(
    "--open/--no-open",
    "opens",
    default=False,
    help="Also open the chain as a producer, and measure the bytes that it adds to a record of TOPIC and the "
    "time that it takes; nothing is sent.",
)
@json_option
def explain(config: str | None, topic: str | None, opens: bool, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Show the chain that TOPIC gets from CONFIG.

    This shows the order in both directions, how large records may be, and every option with its origin; a
    long default is cut, unless --json is given. Without TOPIC, the command shows the complete chain; without
    CONFIG, it reads the file that HEADERWARE_CONFIG names.
    """
    if config and topic is None and os.environ.get(CONFIG_VARIABLE) and _is_topic(config):
        config, topic = None, config
    if config and topic and not Path(config).exists() and Path(topic).is_file():
        raise click.UsageError(f"the file comes before the topic: headerware explain {topic} {config}")
    if opens and topic is None:
        raise click.UsageError("--open needs TOPIC: it measures what the chain adds to a record of the topic")
    config = _config_file(config)
    interceptors = explanation_of(config, topic)
    chosen = {interceptor.name for interceptor in interceptors}
    chain = load_chain(config)
    working = [each for name, each in zip(chain.names, chain, strict=True) if name in chosen]
    by_size = sizes(working)
    carry = explain_carry(config)
    added, left_out = _growth(config, chain, topic) if opens and topic else (None, None)
    if as_json:
        carried = [each._asdict() for each in by_size]
        limits = {"client_bytes": CLIENT_TAKES_BYTES, "topic_bytes": TOPIC_TAKES_BYTES}
        shown = {"config": config, "topic": topic, "send": interceptors, "sizes": carried}
        show_json({**shown, "carry": carry, "limits": limits, "growth": added, "not_measured": left_out})
        return
    console = output_console()
    names = [interceptor.name for interceptor in interceptors]
    console.print(f"[bold]{escape(config)}[/]{f', topic [bold]{escape(topic)}[/]' if topic else ''}")
    if not names:
        console.print("No interceptor works here: records pass as they are.")
        if chain.carry:
            console.print(f"  carry:   {_carried(chain, working, carry)}", markup=False)
        return
    console.print(f"  send:    application -> {' -> '.join(names)} -> Kafka", markup=False)
    console.print(f"  consume: Kafka -> {' -> '.join(reversed(names))} -> application", markup=False)
    if by_size or not any(getattr(each, "carries_bytes", None) for each in working):
        console.print(f"  values:  {_by_size(by_size)}", markup=False)
    console.print(f"  limits:  {_LIMITS}", markup=False)
    console.print(f"  carry:   {_carried(chain, working, carry)}", markup=False)
    for line in _measured(added or (), left_out or ()):
        console.print(line, markup=False)
    console.print()
    for number, interceptor in enumerate(interceptors, 1):
        _print(console, number, interceptor)


_LIMITS: Final = (
    f"a record, with key, headers and what the chain adds, may have {CLIENT_TAKES_BYTES:,} bytes for the "
    f"client (message.max.bytes) and {TOPIC_TAKES_BYTES:,} for the topic (max.message.bytes), unless they "
    "are set"
)


def _growth(config: str, chain: Chain, topic: str) -> tuple[tuple[Growth, ...], tuple[NotMeasured, ...]]:
    """Return the cost of each interceptor that works on a topic, and which were not measured."""
    try:
        return growth(chain, topic)
    except HeaderwareError as error:
        raise click.ClickException(f"{config}: the growth of a record cannot be measured: {error}") from error


def _measured(added: tuple[Growth, ...], left_out: tuple[NotMeasured, ...]) -> Iterator[str]:
    if added:
        total = sum(each.size_bytes for each in added)
        parts = ", ".join(f"{each.name} {each.size_bytes:+,}" for each in added)
        yield f"  growth:  {total:+,} bytes for a value of {PROBE_BYTES:,}: {parts}"
        total_us = sum(each.microseconds for each in added)
        parts = ", ".join(f"{each.name} {each.microseconds:,.1f}" for each in added)
        yield f"  time:    {total_us:,.1f} microseconds a record, measured here now: {parts}"
    by_reason: dict[str, list[str]] = {}
    for each in left_out:
        by_reason.setdefault(each.reason, []).append(each.name)
    for reason, names in by_reason.items():
        yield f"  not measured: {', '.join(names)} ({reason})"


def _carried(chain: Chain, working: list[object], option: ExplainedOption) -> str:
    """Return a line about what a record at work passes on to the records that are sent meanwhile."""
    if chain.carry is False:
        return f"nothing ({option.origin})"
    what = [f"what {label(each)} continues" for each in working if offered(each, CarriesOn)]
    if chain.carry:
        given = msgspec.json.encode(option.value).decode()
        what.append(f"the headers {given} ({option.origin})")
    return (
        f"{' and '.join(what) or 'nothing'}, from the record at work to the records that are sent meanwhile"
    )


def _by_size(found: list[Sizes]) -> str:
    if not found:
        return "in one record; larger ones are refused"
    carried = [f"by {each.name} up to {each.up_to_bytes:,}" for each in found]
    smallest = f"in one record up to about {found[0].above_bytes:,} bytes"
    return f"{', '.join([smallest, *carried])}; larger ones are refused"


def _config_file(given: str | None) -> str:
    config = given or config_of_environment()
    if not config:
        raise click.UsageError(f"expected a CONFIG file, or {CONFIG_VARIABLE} set to the path of one")
    return config


def _is_topic(text: str) -> bool:
    """Return whether the only argument is a topic: it is neither a file nor named like a file."""
    return not (Path(text).exists() or os.sep in text or text.endswith(".toml"))


def _open(config: str, chain: Chain, side: Literal["producer", "consumer"], *, alone: bool) -> None:
    error = refusal(chain, side)
    if error is None:
        return
    other = SIDES[SIDES.index(side) - 1]
    # An error that both sides have does not depend on the side.
    hint = "" if alone or refusal(chain, other) else f"; --side {other} checks the other side alone"
    raise click_error(error, config, before=f"opened as a {side}: ", after=hint) from error


def refusal(
    chain: Chain, side: Literal["producer", "consumer"], *, dry_run: bool = False
) -> HeaderwareError | None:
    """Return the error of opening a chain as a client does, or None if it opens."""
    try:
        # The context has nothing to publish with, so interceptors that report to topics need no cluster.
        context = Context(side=side, bootstrap_servers=_SERVERS, warns=False, dry_run=dry_run)
        chain.open(context).close()
    except HeaderwareError as error:
        return error
    return None


def require_local_parts(config: str, chain: Chain, side: Any) -> None:
    """Raise if keys or object stores on this machine are missing; only doctor also asks remote ones."""
    from headerware.ops.doctor import key_services, object_stores  # noqa: PLC0415 - slow to import

    for option, finding in key_services(chain, side, 1.0, remote=False):
        if finding.status == "fail":
            error = KeyringError(finding.found)
            error.path = option
            raise click_error(chain.located(error), config, before=f"{finding.check}: ")
    for finding in object_stores(chain, side, remote=False):
        if finding.status == "fail":
            raise click.ClickException(f"{config}: {finding.check}: {finding.found}")


_LONGEST_DEFAULT: Final = 24
"""How much of a default is shown: rows have 80 columns then."""


def _print(console: Console, number: int, interceptor: ExplainedInterceptor) -> None:
    console.print(
        f"[bold]{number}. {escape(interceptor.name)}[/]  {interceptor.role}, {interceptor.stage}, "
        f"on_error={interceptor.on_error}  [dim]{interceptor.implementation}[/]"
    )
    table = Table(box=None, padding=(0, 2), show_header=False)
    for _ in ("option", "value", "origin"):
        table.add_column(overflow="fold")
    for option in interceptor.options:
        style = "dim" if option.origin == "default" else ""
        shown = msgspec.json.encode(option.value).decode()
        if option.origin == "default" and len(shown) > _LONGEST_DEFAULT:  # it would widen all rows
            shown = f"{shown[: _LONGEST_DEFAULT - 3]}..."
        table.add_row(f"   {option.name}", escape(shown), escape(option.origin), style=style)
    console.print(table)
