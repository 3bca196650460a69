"""Ask before what cannot be taken back: one option, one question, one refusal for all commands that do so.

A command that can show first what it would do asks nothing: ``--execute`` or ``--delete`` does it.
"""

from __future__ import annotations

import sys
from typing import Final

import click

yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal whether to go on, unless ``--yes`` was given.

    The question goes to standard error, so that ``--json`` prints nothing but JSON.

    Raises:
        click.UsageError: standard input is no terminal, so nobody can answer.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # None: whoever started this has closed it
        raise click.UsageError("this cannot be taken back, and there is no terminal to ask on: give --yes")
    click.confirm(question, abort=True, err=True)
