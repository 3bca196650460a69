"""Ask for confirmation of a change that cannot be undone, in the same way in all commands.

A command that only shows what it would do, until ``--execute`` or ``--delete`` is given, does not ask.
"""

from __future__ import annotations

import sys
from typing import Final

import click

yes_option: Final = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask; needed if there is no terminal."
)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal whether to go on, unless ``--yes`` was given.

    The question goes to standard error, so that ``--json`` prints nothing but JSON.

    Raises:
        click.UsageError: standard input is no terminal, so nobody can answer.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # None if the parent process closed it
        raise click.UsageError("this cannot be undone, and there is no terminal to ask on: give --yes")
    click.confirm(question, abort=True, err=True)
