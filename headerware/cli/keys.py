"""``headerware keys``: make, list, rotate, revoke and publish the keys of a keyring file, and certify them.

Nothing here shows a secret. Exit codes: 0 done; 1 the keyring or the key does not allow it; 2 the command
was used wrongly.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from headerware.cli.json_output import show_json
from headerware.core.atomic_files import replace_file
from headerware.core.errors import KeyringError
from headerware.core.printable import counted
from headerware.keyring import (
    Algorithm,
    Key,
    Keyring,
    Permissions,
    certify,
    issuer_jwks,
    key_id_problem,
    public_part,
    read_certificate,
    read_keyring,
    with_new_key,
    with_revocation,
    with_rotation,
)
from headerware.keyring.keyring import SIGN_USE, Moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COLUMNS: Final = (
    *("id", "version", "algorithm", "status", "holds", "created", "rotated", "revoked"),
    *("topics", "use", "not_before", "not_after"),
)
_REVOKED_FROM: Final = re.compile(r"([^:\s]+):(\d+):(\d+)")


def _positions(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Read ``TOPIC:PARTITION:OFFSET`` options into the form of the keyring."""
    positions: dict[str, int] = {}
    for text in given:
        found = _REVOKED_FROM.fullmatch(text)
        if found is None:
            raise click.BadParameter(f"{text!r} is no TOPIC:PARTITION:OFFSET, such as orders:3:1042")
        positions[f"{found[1]}[{int(found[2])}]"] = int(found[3])
    return positions


def _keyring_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON for machines."),
        click.option(
            "--permissions",
            type=click.Choice(["owner", "kubernetes"]),
            default="owner",
            show_default=True,
            help="Who may read the file; kubernetes also takes links and readers in its group.",
        ),
        click.option(
            "--keyring",
            "path",
            required=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="The keyring file.",
        ),
    ):
        command = option(command)
    return command


def _checked_id(_: click.Context, __: click.Parameter, key_id: str) -> str:
    if problem := key_id_problem(key_id):
        raise click.BadParameter(problem)
    return key_id


def _moment(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    try:
        return None if text is None else msgspec.convert(text, Moment)
    except msgspec.ValidationError:
        wanted = "expected a date and time with a zone, such as 2026-12-31T23:59:59Z"
        raise click.BadParameter(f"{wanted}, not {text!r}") from None


_key_id = click.option(
    "--id", "key_id", required=True, callback=_checked_id, help="The key's name, which its versions share."
)


def _times(command: Callable[..., None]) -> Callable[..., None]:
    for name, helped in (
        ("--not-after", "The last moment at which it may sign, such as 2026-12-31T23:59:59Z."),
        ("--not-before", "The first moment at which it may sign."),
    ):
        command = click.option(name, callback=_moment, metavar="TIME", help=helped)(command)
    return command


@click.group()
def keys() -> None:
    """Make, list, rotate, revoke, publish and certify keys, in a keyring file."""


@keys.command()
@_keyring_options
@_key_id
@click.option(
    "--algorithm",
    type=click.Choice(["hmac-sha256", "ed25519"]),
    default="hmac-sha256",
    show_default=True,
    help="HMAC is fast, and who verifies can also sign; Ed25519 has a public half.",
)
@click.option(
    "--topic",
    "topics",
    metavar="PATTERN",
    multiple=True,
    help="A topic or pattern that it may sign for, or with ! may not; may be given several times. "
    "Every topic without it.",
)
@click.option(
    "--use",
    default=SIGN_USE,
    metavar="WORD",
    multiple=True,
    show_default=True,
    help="What it is for; without sign it neither signs nor verifies records.",
)
@_times
def generate(
    path: Path,
    permissions: Permissions,
    key_id: str,
    algorithm: Algorithm,
    *,
    topics: tuple[str, ...],
    use: tuple[str, ...],
    not_before: datetime | None,
    not_after: datetime | None,
    as_json: bool,
) -> None:
    """Make a new key, and the file if there is none."""

    def change(ring: Keyring) -> Keyring:
        return with_new_key(
            ring, key_id, algorithm, topics=topics, use=use, not_before=not_before, not_after=not_after
        )

    made = _edit(path, permissions, change, create=True).keys[-1]
    text = f"made key {made.id!r}, version {made.version}, {algorithm}, in {path}"
    if "sign" not in use:
        text += f"\nit neither signs nor verifies records: its use is {', '.join(use)}"
    _show([made], as_json=as_json, text=text)


@keys.command("list")
@_keyring_options
def list_keys(path: Path, permissions: Permissions, *, as_json: bool) -> None:
    """List the keys, without their material."""
    found = read_keyring(path, permissions=permissions).keys
    _show(found, as_json=as_json, text=_table([_row(key) for key in found]))


@keys.command()
@_keyring_options
@_key_id
@_times
def rotate(
    path: Path,
    permissions: Permissions,
    key_id: str,
    *,
    not_before: datetime | None,
    not_after: datetime | None,
    as_json: bool,
) -> None:
    """Let a new version of a key sign; the old ones still verify.

    It has the topics and the use of the version before, and also its times unless they are given.
    """
    made = _edit(
        path,
        permissions,
        lambda ring: with_rotation(ring, key_id, not_before=not_before, not_after=not_after),
    ).versions(key_id)[-1]
    _show([made], as_json=as_json, text=f"key {made.id!r} signs with version {made.version} from now on")


@keys.command()
@_keyring_options
@_key_id
@click.option("--version", type=click.IntRange(min=1), help="The version to revoke; all of them without it.")
@click.option(
    "--from",
    "positions",
    callback=_positions,
    metavar="TOPIC:PARTITION:OFFSET",
    multiple=True,
    help="Records of that partition below the offset still verify; may be given several times.",
)
@click.option("--reason", help="Why, for people; it stands in the file.")
def revoke(
    path: Path,
    permissions: Permissions,
    key_id: str,
    version: int | None,
    positions: dict[str, int],
    reason: str | None,
    *,
    as_json: bool,
) -> None:
    """Trust a key no more."""
    keyring = _edit(
        path,
        permissions,
        lambda ring: with_revocation(
            ring, key_id, version=version, revoked_from=positions or None, reason=reason
        ),
    )
    revoked = [key for key in keyring.versions(key_id) if version in {None, key.version}]
    numbers = ", ".join(str(key.version) for key in revoked)
    _show(revoked, as_json=as_json, text=f"revoked key {key_id!r}, version {numbers}")


@keys.command("export-public")
@_keyring_options
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The public keyring to write; an older one there is replaced.",
)
def export_public(path: Path, permissions: Permissions, out: Path, *, as_json: bool) -> None:
    """Write the public halves of Ed25519 keys.

    They are for those who only verify.
    """
    from headerware.keyring.writing import write_public_keyring  # noqa: PLC0415 - needs a POSIX system

    public, left_out = public_part(read_keyring(path, permissions=permissions))
    if not public.keys:
        raise KeyringError(f"{path} has no Ed25519 key, and HMAC keys have no public half to export")
    write_public_keyring(out, public)
    lines = [f"wrote {counted(len(public.keys), 'public key')} to {out}"]
    lines += [f"left out {key.id!r} version {key.version}: HMAC keys have no public half" for key in left_out]
    _show(public.keys, as_json=as_json, text="\n".join(lines), left_out=[_row(key) for key in left_out])


@keys.command("certify")
@_keyring_options
@click.option("--issuer-key", required=True, metavar="ID", help="The key of the keyring that certifies.")
@click.option("--issuer", required=True, help="The issuer's name, as readers' policies have it.")
@click.option(
    "--for",
    "holder",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keyring of the producer; the public halves are enough.",
)
@_key_id
@click.option("--subject", required=True, help="Who holds the key.")
@click.option("--audience", multiple=True, required=True, help="Whom it is for, such as the cluster.")
@click.option(
    "--topic", "topics", metavar="PATTERN", multiple=True, required=True, help="A topic that it is for."
)
@click.option(
    "--hours", type=click.IntRange(min=1), default=24, show_default=True, help="How long it is valid."
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file for the certificate; an older one there is replaced.",
)
def certify_key(
    path: Path,
    permissions: Permissions,
    issuer_key: str,
    issuer: str,
    holder: Path,
    key_id: str,
    *,
    subject: str,
    audience: tuple[str, ...],
    topics: tuple[str, ...],
    hours: int,
    out: Path,
    as_json: bool,
) -> None:
    """Issue a certificate for the signing key of a producer.

    The keyring is the issuer's; its key is an Ed25519 key that was made with --use certify. Nothing secret of
    the producer is needed, and nothing in the certificate is secret.
    """
    certifying = _active(read_keyring(path, permissions=permissions), issuer_key)
    key = _active(read_keyring(holder, permissions=permissions), key_id)
    text = certify(
        certifying,
        key,
        issuer=issuer,
        subject=subject,
        audience=audience,
        topics=topics,
        valid_for_s=hours * 3_600,
    )
    _write_public(out, f"{text}\n".encode(), not_over=(path, holder))
    certificate = read_certificate(text)
    if as_json:
        show_json({"certificate": msgspec.to_builtins(certificate)})
        return
    expires = _time(datetime.fromtimestamp(certificate.expires_ms / 1000, UTC))
    click.echo(f"wrote the certificate of key {key.id!r} version {key.version} to {out}, until {expires}")


@keys.command("jwks")
@_keyring_options
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The key set to write; an older one there is replaced.",
)
def export_jwks(path: Path, permissions: Permissions, out: Path, *, as_json: bool) -> None:
    """Write the public halves of an issuer's keys as a JSON Web Key Set, for readers' policies."""
    found = issuer_jwks(read_keyring(path, permissions=permissions))
    _write_public(out, msgspec.json.encode(found) + b"\n", not_over=(path,))
    if as_json:
        show_json(found)
    else:
        click.echo(f"wrote {counted(len(found['keys']), 'public key')} to {out}")


def _active(keyring: Keyring, key_id: str) -> Key:
    active = [key for key in keyring.versions(key_id) if key.status == "active"]
    if not active:
        raise KeyringError(f"key {key_id!r} has no active version")
    return active[0]


def _write_public(path: Path, content: bytes, *, not_over: Sequence[Path]) -> None:
    if path.resolve() in {keyring.resolve() for keyring in not_over}:
        raise KeyringError(f"{path} is the keyring, and is not overwritten")
    try:
        replace_file(path, content, mode=0o644)
    except OSError as error:
        raise KeyringError(f"{path} cannot be written: {error.strerror or type(error).__name__}") from error


def _edit(
    path: Path, permissions: Permissions, change: Callable[[Keyring], Keyring], *, create: bool = False
) -> Keyring:
    from headerware.keyring.writing import edit_keyring  # noqa: PLC0415 - needs a POSIX system

    return edit_keyring(path, change, permissions=permissions, create=create)


def _show(found: Sequence[Key], *, as_json: bool, text: str, **more: Any) -> None:
    if as_json:
        show_json({"keys": [_row(key) for key in found], **more})
    else:
        click.echo(text)


def _row(key: Key) -> dict[str, Any]:
    """Return the public facts of a key."""
    return {
        "id": key.id,
        "version": key.version,
        "algorithm": key.algorithm,
        "status": key.status,
        "holds": _holds(key),
        "created": _time(key.created),
        "rotated": _time(key.rotated),
        "revoked": _time(key.revoked),
        "revoked_from": key.revoked_from,
        "reason": key.reason,
        "topics": key.topics,
        "use": key.use,
        "not_before": _time(key.not_before),
        "not_after": _time(key.not_after),
    }


def _holds(key: Key) -> str:
    if key.secret is not None:
        return "secret"
    return "public half" if key.private is None else "private half"


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(rows: Sequence[dict[str, Any]]) -> str:
    cells = [_COLUMNS, *(tuple(_cell(row[column]) for column in _COLUMNS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (zip(line, widths, strict=True) for line in cells)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in lines)


def _cell(shown: Any) -> str:
    return ",".join(shown) or "-" if isinstance(shown, tuple) else str(shown or "-")
