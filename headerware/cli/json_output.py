"""Print a command's answer; with ``--json`` it is one object a line, in one shape for all commands.

    {"ok": true,  "result": <what the command answers>, "error": null}
    {"ok": false, "result": null, "error": {"type": "ConfigError", "message": "...", "path": "..."}}

``ok`` is true exactly if the exit code is 0; in the lines of ``trail``, ``ok`` is about the record of the
line. A command that answers no, such as a check of a registry with problems, has a result and no error.
``type`` is the class of an error of ours, ``UsageError`` if the command was used wrongly, else ``Error``.
``path`` says where in a configuration the error is, else it is null.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headerware.core.errors import HeaderwareError

if TYPE_CHECKING:
    from collections.abc import Callable


def answer(result: Any, show: Callable[[], object], *, as_json: bool, ok: bool = True, code: int = 1) -> None:
    """Print a command's answer, as JSON or by ``show``; exit with ``code`` unless ``ok``."""
    if as_json:
        show_json(result, ok=ok)
    else:
        show()
    if not ok:
        sys.exit(code)


def show_json(result: Any, *, ok: bool = True) -> None:
    """Print the answer of a command."""
    _print(ok, result, None)


def show_error(error: Exception, result: Any = None) -> None:
    """Print an error, with the facts about its subject."""
    ours = error if isinstance(error, HeaderwareError) else error.__cause__
    if isinstance(ours, HeaderwareError):
        kind = type(ours).__name__
    else:
        kind = "UsageError" if isinstance(error, click.UsageError) else "Error"
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    found = {"type": kind, "message": message, "path": getattr(ours, "path", None) or None}
    _print(False, result, found)  # noqa: FBT003 - the value of the key ok


def _print(ok: bool, result: Any, error: dict[str, Any] | None) -> None:  # noqa: FBT001 - likewise
    found = msgspec.to_builtins({"ok": ok, "result": result, "error": error})
    # All but ASCII is escaped: a record's text may move a terminal's cursor or turn text around.
    click.echo(json.dumps(found, separators=(",", ":")))
