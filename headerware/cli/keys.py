"""``headerware keys``: make, list, rotate, revoke and delete keys.

:mod:`headerware.cli.keys_distribution` has the commands that distribute them,
:mod:`headerware.cli.keys_subjects` those for keys of subjects. No command shows a secret. Exit
codes: 0 done; 1 the keyring or the key does not allow it; 2 the command was used wrongly.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click
import msgspec

from headerware.cli.confirmation import confirm, yes_option
from headerware.cli.key_options import (
    edit,
    key_id_option,
    key_row,
    key_table,
    keyring_options,
    show_keys,
    time_text,
)
from headerware.cli.keys_distribution import (
    certify_key,
    export_public,
    follow_snapshot_command,
    import_public,
    publish_snapshot_command,
    sign_snapshot_command,
    verify_snapshot_command,
)
from headerware.cli.keys_subjects import (
    erase_command,
    erased_command,
    readmit_command,
    rewrap_command,
)
from headerware.cli.times import Duration
from headerware.core.chain import Chain
from headerware.core.config import configured
from headerware.core.context import Context, wall_clock_ms
from headerware.core.errors import ConfigError, KeyringError
from headerware.core.files import read_sources
from headerware.core.printable import counted
from headerware.core.toml import within_file
from headerware.keyring import (
    Algorithm,
    Key,
    Keyring,
    Permissions,
    read_keyring,
    with_deletion,
    with_new_key,
    with_public_versions,
    with_revocation,
    with_rotation,
)
from headerware.keyring.keyring import Moment

if TYPE_CHECKING:
    from collections.abc import Callable

_REVOKED_FROM: Final = re.compile(r"([^/\s]+/[^/:\s]+):([0-9]+):([0-9]+)")


def _positions(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Parse ``CLUSTER/TOPIC:PARTITION:OFFSET`` options into the form of the keyring."""
    positions: dict[str, int] = {}
    for text in given:
        found = _REVOKED_FROM.fullmatch(text)
        if found is None:
            raise click.BadParameter(
                f"expected CLUSTER/TOPIC:PARTITION:OFFSET, such as lkc-1/orders:3:1042, found {text!r}"
            )
        positions[f"{found[1]}[{int(found[2])}]"] = int(found[3])
    return positions


def _moment(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    try:
        return None if text is None else msgspec.convert(text, Moment)
    except msgspec.ValidationError:
        wanted = "expected a date and time with a zone, such as 2026-12-31T23:59:59Z"
        raise click.BadParameter(f"{wanted}, found {text!r}") from None


def _times(command: Callable[..., None]) -> Callable[..., None]:
    for name, helped in (
        ("--not-after", "The last moment at which the key may sign, such as 2026-12-31T23:59:59Z."),
        ("--not-before", "The first moment at which the key may sign."),
    ):
        command = click.option(name, callback=_moment, metavar="TIME", help=helped)(command)
    return command


@click.group()
def keys() -> None:
    """Make, rotate, revoke, delete and certify keys; erase subjects."""


@keys.command()
@keyring_options
@key_id_option
@click.option(
    "--algorithm",
    type=click.Choice(get_args(Algorithm)),
    default="hmac-sha256",
    show_default=True,
    help="HMAC is fast, but every verifier can also sign; Ed25519, ECDSA and RSA-PSS have a public half for "
    "verifiers; AES-256 wraps data keys.",
)
@click.option(
    "--topic",
    "topics",
    metavar="PATTERN",
    multiple=True,
    help="A topic or pattern for which the key may sign, or with ! may not; repeatable. Without it, the key "
    "may sign for every topic.",
)
@click.option(
    "--use",
    metavar="WORD",
    multiple=True,
    help="The key's use; by default sign, or wrap for AES-256. Without sign, the key neither signs nor "
    "verifies records; without wrap, it wraps no data keys.",
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
    """Create a key, and the file if it does not exist."""

    def change(ring: Keyring) -> Keyring:
        return with_new_key(
            ring,
            key_id,
            algorithm,
            topics=topics or None,
            use=use,
            not_before=not_before,
            not_after=not_after,
        )

    made = edit(path, permissions, change, create=True).keys[-1]
    text = f"made key {made.id!r}, version {made.version}, {algorithm}, in {path}"
    if not {"sign", "wrap"} & {*made.use}:
        text += f"\nit neither signs nor verifies records: its use is {', '.join(made.use)}"
    show_keys([made], as_json=as_json, text=text)


@keys.command("list")
@keyring_options
def list_keys(path: Path, permissions: Permissions, *, as_json: bool) -> None:
    """List the keys, without their material."""
    found = read_keyring(path, permissions=permissions).keys
    show_keys(found, as_json=as_json, text=key_table([key_row(key) for key in found]))


_public_option: Final = click.option(
    "--public",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The readers' file of public halves, a keyring or a JWKS; it is changed first.",
)


@keys.command()
@keyring_options
@key_id_option
@_times
@click.option(
    "--lead",
    "lead_s",
    type=Duration(),
    metavar="DURATION",
    help="How long the present version is still used, such as 10m: the time to bring the new version to all "
    "readers. Instead of --not-before.",
)
@_public_option
def rotate(
    path: Path,
    permissions: Permissions,
    key_id: str,
    *,
    not_before: datetime | None,
    not_after: datetime | None,
    lead_s: float | None,
    public: Path | None,
    as_json: bool,
) -> None:
    """Let a new version of a key sign or wrap.

    Old versions still verify or unwrap. With --lead, the present version signs until the new version begins.
    With --public, the new public half is in the readers' file before anything is signed with it; versions
    that are revoked in the keyring are revoked in this file, too. The new version has the topics and the use
    of the present version, and also its end, unless an end is given. If the command was interrupted, run it
    again.
    """
    if lead_s is not None:
        if not_before is not None:
            raise click.UsageError("--lead and --not-before both say when the new version begins: give one")
        not_before = _in_whole_seconds(datetime.now(UTC) + timedelta(seconds=lead_s))

    def change(ring: Keyring, above: int = 0) -> Keyring:
        return with_rotation(ring, key_id, not_before=not_before, not_after=not_after, above=above)

    def change_both(ring: Keyring, there: Keyring) -> tuple[Keyring, Keyring]:
        above = max((key.version for key in there.keys if key.id == key_id), default=0)
        after = change(ring, above)
        return after, with_public_versions(there, after, key_id)

    ring = (
        edit(path, permissions, change)
        if public is None
        else _edit_both(path, permissions, public, change_both)
    )
    made = ring.versions(key_id)[-1]
    begins = made.not_before if made.not_before and made.not_before > datetime.now(UTC) else None
    until_then = None if begins is None else _current_version(ring, made)
    wraps = made.algorithm == "aes-256"
    verb = "wraps" if wraps else "signs"
    lines = [f"key {made.id!r} {verb} with version {made.version} from {time_text(begins) or 'now on'}"]
    if begins is not None:
        before = f"version {until_then} does" if until_then else f"nothing {verb}: no version before it may"
        lines[0] += f"; until then {before}"
    if public is not None:
        lines.append(f"its public half is in {public}, which was written first")
    elif made.public is not None:
        lines.append(
            "readers with a file of public halves need the new half: export-public, or --public next time"
        )
    if wraps:
        lines.append(
            "running producers wrap their next data keys with it: within data_key_max_age_ms from then, an "
            "hour by default"
        )
    if begins is not None:
        lines.append(f"bring {public or path} to all readers before then")
    show_keys(
        [made],
        as_json=as_json,
        text="\n".join(lines),
        begins=time_text(begins),
        until_then=until_then,
        public=None if public is None else str(public),
    )


def _in_whole_seconds(moment: datetime) -> datetime:
    """Return the next whole second, as keyrings have them."""
    return (moment + timedelta(seconds=1, microseconds=-1)).replace(microsecond=0)


def _current_version(ring: Keyring, made: Key) -> int | None:
    """Return the version that is used until another version begins; None if there is none."""
    try:
        return ring.current_key(made.id, made.use[0], wall_clock_ms()).version
    except KeyringError:
        return None


@keys.command()
@keyring_options
@key_id_option
@click.option(
    "--version", type=click.IntRange(min=1), help="The version to revoke; without it, all versions."
)
@click.option(
    "--from",
    "positions",
    callback=_positions,
    metavar="CLUSTER/TOPIC:PARTITION:OFFSET",
    multiple=True,
    help="Records of this partition, in the cluster of this id, below the offset still verify; repeatable.",
)
@click.option("--reason", help="The reason, for people; it is written to the file.")
@_public_option
@yes_option
def revoke(
    path: Path,
    permissions: Permissions,
    key_id: str,
    version: int | None,
    positions: dict[str, int],
    reason: str | None,
    public: Path | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Revoke a key, for good.

    Records that it signed are refused from now on, and values that it wrapped cannot be read. To have a
    version that signs, rotate the key first.
    """
    confirm(f"Revoke key {key_id!r}, {_which(version)}? This cannot be undone", yes=yes)

    def change(ring: Keyring) -> Keyring:
        return with_revocation(ring, key_id, version=version, revoked_from=positions or None, reason=reason)

    def change_both(ring: Keyring, there: Keyring) -> tuple[Keyring, Keyring]:
        # If an earlier revocation was interrupted, a JWKS may already lack the key.
        is_there = any(key.id == key_id and version in {None, key.version} for key in there.keys)
        return change(ring), change(there) if is_there else there

    if public is None:
        keyring = edit(path, permissions, change)
    else:
        keyring = _edit_both(path, permissions, public, change_both)
    revoked = [key for key in keyring.versions(key_id) if version in {None, key.version}]
    numbers = ", ".join(str(key.version) for key in revoked)
    show_keys(revoked, as_json=as_json, text=f"revoked key {key_id!r}, version {numbers}")


@keys.command()
@keyring_options
@key_id_option
@click.option(
    "--version", type=click.IntRange(min=1), help="The version to delete; without it, all versions."
)
@click.option("--reason", help="The reason, for people; it is written to the file.")
@yes_option
def delete(
    path: Path,
    permissions: Permissions,
    key_id: str,
    version: int | None,
    reason: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a key that wraps data keys, for good.

    Once no copy of the file is left, nothing that was encrypted under the key can be read any more
    (crypto-shredding).
    """
    question = f"Delete key {key_id!r}, {_which(version)}? What it encrypted can then never be read again"
    confirm(question, yes=yes)
    keyring = edit(
        path, permissions, lambda ring: with_deletion(ring, key_id, version=version, reason=reason)
    )
    deleted = [key for key in keyring.versions(key_id) if version in {None, key.version}]
    numbers = ", ".join(str(key.version) for key in deleted)
    text = f"deleted key {key_id!r}, version {numbers}; delete the copies of {path}, too"
    show_keys(deleted, as_json=as_json, text=text)


def _which(version: int | None) -> str:
    return "all its versions" if version is None else f"version {version}"


@keys.command("key-secret")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option(
    "--interceptor", metavar="NAME", help="The encrypt interceptor to use, if the chain has several."
)
def key_secret(config: str, interceptor: str | None) -> None:
    """Print a wrapped secret for encrypted record keys.

    It is the value of the option key_secret, also for deterministic_headers. The key service of the encrypt
    interceptor in CONFIG wraps it under the interceptor's key_id. If CONFIG has a key_secret already, the
    same secret is wrapped again, for instance under another key_id.
    """
    from headerware.interceptors.encrypt import (  # noqa: PLC0415 - it imports cryptography
        Encrypt,
        new_key_secret,
        rewrapped_key_secret,
    )
    from headerware.keyring.services import open_key_service  # noqa: PLC0415 - only this needs services

    chain = _chain_with_plain_keys(config)
    found = {
        name: step
        for name, step in zip(chain.names, chain, strict=True)
        if isinstance(step, Encrypt) and interceptor in {None, name}
    }
    if len(found) != 1:
        wanted = (
            "an encrypt interceptor" if interceptor is None else f"an encrypt interceptor {interceptor!r}"
        )
        raise ConfigError(f"expected {wanted} in {config}, found {counted(len(found), 'interceptor')}")
    [encrypt] = found.values()
    if encrypt.key_id is None:
        raise ConfigError("expected a key_id, under which the secret is wrapped; found none", path="key_id")
    service = open_key_service(encrypt.key_service, Context(side="producer"), path="key_service")
    try:
        if encrypt.key_secret is None:
            text = new_key_secret(service, encrypt.key_id)
        else:
            text = rewrapped_key_secret(service, encrypt.key_secret, encrypt.key_id)
    finally:
        service.close()
    click.echo(text)


def _chain_with_plain_keys(config: str) -> Chain:
    """Load a chain; an ``encrypt`` that lacks its ``key_secret`` is made without what needs one."""
    sources = read_sources(config)
    complete = {each.name for source in sources for each in source.declared if "key_secret" in each.settings}
    for source in sources:
        for each in source.declared:
            if each.type == "encrypt" and each.name not in complete:
                each.settings.pop("key", None)
                each.settings.pop("deterministic_headers", None)
    with within_file(config):
        return Chain.configured(configured(sources))


def _edit_both(
    path: Path,
    permissions: Permissions,
    public: Path,
    change: Callable[[Keyring, Keyring], tuple[Keyring, Keyring]],
) -> Keyring:
    from headerware.keyring.writing import edit_with_public  # noqa: PLC0415 - needs a POSIX system

    return edit_with_public(path, public, change, permissions=permissions)


keys.add_command(export_public)
keys.add_command(import_public)
keys.add_command(sign_snapshot_command)
keys.add_command(verify_snapshot_command)
keys.add_command(publish_snapshot_command)
keys.add_command(follow_snapshot_command)
keys.add_command(certify_key)
keys.add_command(erase_command)
keys.add_command(erased_command)
keys.add_command(readmit_command)
keys.add_command(rewrap_command)
