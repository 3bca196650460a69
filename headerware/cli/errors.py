"""Errors of Headerware in click's kinds of errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import click

from headerware.core.client_chain import CONFIG_VARIABLE
from headerware.core.errors import HeaderwareError
from headerware.core.options import from_home
from headerware.core.plain_files import is_content


class _LocatedError(click.ClickException):
    """An error in a file, shown as compilers show errors, so that editors find its line."""

    def __init__(self, error: HeaderwareError, problem: str) -> None:
        place = f"{error.file}:{error.line}:{error.column}:"
        super().__init__(f"{place} {problem}")
        self._line = f"{place} error: {problem}"

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error on standard error."""
        click.echo(self._line, file=file, err=True)


def click_error(
    error: HeaderwareError, config: str = "", *, before: str = "", after: str = ""
) -> click.ClickException:
    """Return the error that click shows for an error of Headerware.

    Args:
        error: the error.
        config: the file to name if the error does not say in which file it is.
        before: a text before the problem.
        after: a text after the problem.
    """
    after += _of_environment(error)
    if error.file is not None:
        return _LocatedError(error, f"{before}{error.problem}{after}")
    problem = f"{before}{error}{after}"
    return click.ClickException(f"{config}: {problem}" if config else problem)


def _of_environment(error: HeaderwareError) -> str:
    """Return a text if the error is about the whole file that the environment names; else an empty text."""
    named = os.environ.get(CONFIG_VARIABLE)
    if not named or is_content(named) or error.path != str(Path(from_home(named))):
        return ""
    return f"; {CONFIG_VARIABLE} names it"
