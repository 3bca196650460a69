"""Errors of Headerware in click's kinds of errors."""

from __future__ import annotations

from typing import IO, Any

import click

from headerware.core.errors import ConfigError, HeaderwareError


class _LocatedError(click.ClickException):
    """An error in a file, shown as compilers show errors, so that editors find its line."""

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))
        self._line = f"{error.file}:{error.line}:{error.column}: error: {error.problem}"

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error on standard error."""
        click.echo(self._line, file=file, err=True)


def click_error(error: HeaderwareError) -> click.ClickException:
    """Return the error that click shows for an error of Headerware."""
    if isinstance(error, ConfigError) and error.file is not None:
        return _LocatedError(error)
    return click.ClickException(str(error))
