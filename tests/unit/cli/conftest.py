"""Helpers of the command line's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from headerware.cli import main

if TYPE_CHECKING:
    from click.testing import Result


def run_header_ids(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["header-ids", *arguments], input=stdin)
