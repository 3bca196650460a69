"""Options that name a keyring and a key, and the rows of keys in answers, for ``headerware keys``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headerware.cli.json_output import show_json
from headerware.cli.options import json_option, keyring_option
from headerware.keyring import Key, Keyring, Permissions, key_fingerprint, key_id_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COLUMNS: Final = (
    *(
        "id",
        "version",
        "algorithm",
        "status",
        "holds",
        "fingerprint",
        "created",
        "rotated",
        "revoked",
        "deleted",
    ),
    *("topics", "use", "not_before", "not_after"),
)
permissions_option: Final = click.option(
    "--permissions",
    type=click.Choice(["owner", "kubernetes"]),
    default="owner",
    show_default=True,
    help="Who may read the file: the owner alone; kubernetes also allows links and the file's group.",
)


def keyring_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        json_option,
        permissions_option,
        keyring_option("The keyring file.", "path", required=True),
    ):
        command = option(command)
    return command


def checked_id(_: click.Context, __: click.Parameter, key_id: str) -> str:
    if problem := key_id_problem(key_id):
        raise click.BadParameter(problem)
    return key_id


def key_id_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--id", "key_id", required=True, callback=checked_id, help="The key's name, which its versions share."
    )(command)


def edit(
    path: Path, permissions: Permissions, change: Callable[[Keyring], Keyring], *, create: bool = False
) -> Keyring:
    from headerware.keyring.writing import edit_keyring  # noqa: PLC0415 - needs a POSIX system

    return edit_keyring(path, change, permissions=permissions, create=create)


def show_keys(found: Sequence[Key], *, as_json: bool, text: str, **more: Any) -> None:
    if as_json:
        show_json({"keys": [key_row(key) for key in found], **more})
    else:
        click.echo(text)


def key_row(key: Key) -> dict[str, Any]:
    """Return the public facts of a key."""
    return {
        "id": key.id,
        "version": key.version,
        "algorithm": key.algorithm,
        "status": key.status,
        "holds": _holds(key),
        "fingerprint": key_fingerprint(key) or None,
        "created": time_text(key.created),
        "rotated": time_text(key.rotated),
        "revoked": time_text(key.revoked),
        "deleted": time_text(key.deleted),
        "revoked_from": key.revoked_from,
        "reason": key.reason,
        "topics": key.topics,
        "use": key.use,
        "not_before": time_text(key.not_before),
        "not_after": time_text(key.not_after),
    }


def _holds(key: Key) -> str:
    if key.secret is not None:
        return "secret"
    if key.status == "deleted":
        return "nothing"
    return "public half" if key.private is None else "private half"


def time_text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_table(rows: Sequence[dict[str, Any]]) -> str:
    cells = [_COLUMNS, *(tuple(_cell(row[column]) for column in _COLUMNS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (zip(line, widths, strict=True) for line in cells)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in lines)


def _cell(shown: Any) -> str:
    return ",".join(shown) or "none" if isinstance(shown, tuple) else str(shown or "-")
