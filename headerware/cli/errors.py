"""Errors of Headerware in click's kinds of errors."""

from __future__ import annotations

from typing import IO, Any

import click

from headerware.core.errors import HeaderwareError


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
    if error.file is not None:
        return _LocatedError(error, f"{before}{error.problem}{after}")
    problem = f"{before}{error}{after}"
    return click.ClickException(f"{config}: {problem}" if config else problem)
