"""The command's root: one line on stderr for every error of ours, and an exit code that means something.

Exit codes: 0 all is well; 1 what was asked about is wrong; 2 the command was used wrongly.
"""

from __future__ import annotations

from typing import Any

import click

from headerware import __version__
from headerware.cli.chains import check, explain
from headerware.cli.keys import keys
from headerware.cli.registry import registry
from headerware.cli.trail import trail
from headerware.core.errors import HeaderwareError


class _Root(click.Group):
    """Show errors that were raised on purpose as one line, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it raises on purpose becomes click's kind of error."""
        try:
            return super().invoke(ctx)
        except HeaderwareError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headerware")
def main() -> None:
    """Work with Headerware chains, keys, header ids and trails."""


main.add_command(check)
main.add_command(explain)
main.add_command(keys)
main.add_command(registry)
main.add_command(trail)
