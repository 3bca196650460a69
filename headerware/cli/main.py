"""The root command: it shows every error of ours as one line, and sets the exit code.

The line goes to standard error, and begins with the file, line and column of an error in a file. With
``--json``, it is an object on standard output, as all answers are.
Exit codes: 0 all is well; 1 something is wrong, or the answer is no; 2 the command was used wrongly;
3 nothing failed, but another process is at work on the topic, or some records were not handled.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from headerware import __version__
from headerware.cli.audit import audit
from headerware.cli.chains import check, explain
from headerware.cli.chargeback import chargeback
from headerware.cli.claims import claims
from headerware.cli.compact import compact
from headerware.cli.contract import contract
from headerware.cli.dev import dev
from headerware.cli.dictionaries import dictionaries
from headerware.cli.docs import docs
from headerware.cli.doctor import doctor
from headerware.cli.errors import click_error
from headerware.cli.guard import guard
from headerware.cli.header_ids import header_ids
from headerware.cli.init import init
from headerware.cli.json_output import answer, show_error
from headerware.cli.keys import keys
from headerware.cli.lineage import lineage
from headerware.cli.options import json_option
from headerware.cli.redrive import redrive
from headerware.cli.retain import retain
from headerware.cli.run import run
from headerware.cli.schema import schema
from headerware.cli.send import send
from headerware.cli.source import source
from headerware.cli.tail import tail
from headerware.cli.trail import trail
from headerware.cli.verify import verify
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.options import from_home
from headerware.core.plain_files import like_file
from headerware.core.printable import printable
from headerware.core.variables import misspelt

if TYPE_CHECKING:
    from collections.abc import Sequence


REMOVED: Final = {
    "slices": "slices of messages on compacted topics have no keys of their own any more; claim_check stores "
    "large values of compacted topics beside Kafka",
}
"""Commands of earlier versions, each with the advice that its error gives."""


class _PathFromHome(click.Path):
    """A path that may begin with ``~``, which the shell does not expand in ``--config=~/chain.toml``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Expand the ``~`` and check the path; fail if it is one of the command's options.

        The error of a missing file names the file that may be meant.
        """
        options = [] if ctx is None else [name for each in ctx.command.params for name in each.opts]
        if isinstance(value, str) and value.partition("=")[0] in options:
            self.fail(f"expected a path, found the option {value!r}; write the path before it", param, ctx)
        try:
            path = self._from_home(value, param, ctx)
            if self.exists and self.file_okay and not os.path.exists(path):  # noqa: PTH110 - any text
                near = like_file(path) or "."
                self.fail(
                    f"{self.name.title()} {click.format_filename(path)!r} does not exist{near}", param, ctx
                )
            return super().convert(path, param, ctx)
        except click.BadParameter as error:
            if ctx is None or param is None or param.name is None:
                raise
            if ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
                error.param_hint = str(param.envvar)
            raise

    def _from_home(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return from_home(value) if isinstance(value, str) else value
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def _expand_homes(command: click.Command) -> None:
    """Let every path of a command and its subcommands begin with ``~``."""
    for param in command.params:
        if isinstance(param.type, click.Path):
            param.type.__class__ = _PathFromHome
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _expand_homes(below)


_RENAMED: Final = {"registry": "header-ids"}
"""Former names of commands, and their names now."""


class _Root(click.Group):
    """Show commands in groups, and errors that were raised on purpose in one line, or as JSON."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sections: dict[str, tuple[click.Command, ...]] = {}

    def add_section(self, title: str, *commands: click.Command) -> None:
        """Add commands, which the help shows under a title."""
        self._sections[title] = commands
        for command in commands:
            self.add_command(command)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command line; with ``--json``, errors are JSON, too."""
        given = sys.argv[1:] if args is None else list(args)
        for sentence in misspelt(os.environ):
            click.echo(f"Warning: {printable(sentence)}", err=True)
        if "--json" not in given or not options.get("standalone_mode", True):
            return super().main(given, *rest, **options)
        try:
            code = super().main(given, *rest, **{**options, "standalone_mode": False})
        except click.ClickException as error:
            show_error(error)
            code = error.exit_code
        except click.Abort:  # no was answered, or Ctrl-C was pressed
            show_error(click.ClickException("aborted"))
            code = 1
        sys.exit(code)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order of the sections."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write each section with its commands; the texts of all sections begin in one column."""
        width = max(map(len, self.commands))
        room = formatter.width - width - 6  # click's indentation and spacing
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(str(each.name).ljust(width), each.get_short_help_str(room)) for each in commands]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; the error for a former name says the present name."""
        if args[0] in _RENAMED:
            now = _RENAMED[args[0]]
            ctx.fail(f"No such command {args[0]!r}: `headerware {args[0]}` is `headerware {now}` now.")
        if args[0] in REMOVED:
            ctx.fail(f"No such command {args[0]!r}: {REMOVED[args[0]]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a HeaderwareError becomes click's kind of error."""
        try:
            return super().invoke(ctx)
        except HeaderwareError as error:
            raise click_error(error) from error


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headerware")
def main() -> None:
    """Run applications with a chain, look at what it does, and manage its keys and header ids."""


@click.command("help")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of COMMAND, as its --help does."""
    found = ctx.find_root()
    for name in names:
        if not isinstance(found.command, click.Group):
            raise click.UsageError(f"{found.command_path} has no commands, found {name!r}")
        _, command, _ = found.command.resolve_command(found, [name])
        assert command is not None  # noqa: S101 - resolve_command raises otherwise
        found = click.Context(command, info_name=command.name, parent=found)
    click.echo(found.get_help())


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Show the version, as --version does."""
    answer(
        {"version": __version__}, lambda: click.echo(f"headerware, version {__version__}"), as_json=as_json
    )


main.add_section("Begin", init, dev, send)
main.add_section("Develop", run, check, explain, doctor, contract, schema, docs, dictionaries, header_ids)
main.add_section("Look", tail, trail, lineage, verify, audit)
main.add_section("Keys", keys)
main.add_section("Operate", source, guard, redrive, retain, compact, claims, chargeback)
main.add_section("Help", help_command, version)
_expand_homes(main)
