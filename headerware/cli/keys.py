"""``headerware keys``: make, list, rotate, revoke, delete, publish, import and certify keys.

No command shows a secret. Exit codes: 0 done; 1 the keyring or the key does not allow it; 2 the command
was used wrongly.
"""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click
import msgspec

from headerware.cli.confirmation import confirm, yes_option
from headerware.cli.json_output import show_json
from headerware.cli.kafka import Cluster, cluster_options
from headerware.cli.options import json_option, keyring_option
from headerware.cli.times import Duration
from headerware.core.atomic_files import replace_file
from headerware.core.chain import Chain
from headerware.core.config import configured
from headerware.core.context import Context, wall_clock_ms
from headerware.core.errors import ConfigError, KeyringError
from headerware.core.files import read_sources
from headerware.core.plain_files import read_plain
from headerware.core.printable import counted
from headerware.core.toml import within_file
from headerware.keyring import (
    Algorithm,
    Key,
    Keyring,
    Permissions,
    Snapshot,
    certify,
    encode_jwks,
    encode_keyring,
    key_id_problem,
    public_part,
    read_certificate,
    read_keyring,
    sign_snapshot,
    verify_snapshot,
    with_deletion,
    with_imported,
    with_new_key,
    with_public_versions,
    with_revocation,
    with_rotation,
)
from headerware.keyring.certificate import CERTIFY_USE
from headerware.keyring.file import MAX_BYTES, naming_file
from headerware.keyring.jwks import jwks_problem
from headerware.keyring.keyring import Moment
from headerware.keyring.snapshot import SNAPSHOT_USE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COLUMNS: Final = (
    *("id", "version", "algorithm", "status", "holds", "created", "rotated", "revoked", "deleted"),
    *("topics", "use", "not_before", "not_after"),
)
_LOOK_S: Final = 5.0
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


permissions_option: Final = click.option(
    "--permissions",
    type=click.Choice(["owner", "kubernetes"]),
    default="owner",
    show_default=True,
    help="Who may read the file: the owner alone; kubernetes also allows links and the file's group.",
)


def _out_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    path = click.Path(path_type=Path, dir_okay=False)
    return click.option("--out", required=True, type=path, help=text)


def _keyring_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        json_option,
        permissions_option,
        keyring_option("The keyring file.", "path", required=True),
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
        raise click.BadParameter(f"{wanted}, found {text!r}") from None


_key_id = click.option(
    "--id", "key_id", required=True, callback=_checked_id, help="The key's name, which its versions share."
)


def _times(command: Callable[..., None]) -> Callable[..., None]:
    for name, helped in (
        ("--not-after", "The last moment at which the key may sign, such as 2026-12-31T23:59:59Z."),
        ("--not-before", "The first moment at which the key may sign."),
    ):
        command = click.option(name, callback=_moment, metavar="TIME", help=helped)(command)
    return command


@click.group()
def keys() -> None:
    """Make, rotate, revoke, delete, distribute and certify keys."""


@keys.command()
@_keyring_options
@_key_id
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

    made = _edit(path, permissions, change, create=True).keys[-1]
    text = f"made key {made.id!r}, version {made.version}, {algorithm}, in {path}"
    if not {"sign", "wrap"} & {*made.use}:
        text += f"\nit neither signs nor verifies records: its use is {', '.join(made.use)}"
    _show([made], as_json=as_json, text=text)


@keys.command("list")
@_keyring_options
def list_keys(path: Path, permissions: Permissions, *, as_json: bool) -> None:
    """List the keys, without their material."""
    found = read_keyring(path, permissions=permissions).keys
    _show(found, as_json=as_json, text=_table([_row(key) for key in found]))


_public_option: Final = click.option(
    "--public",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The readers' file of public halves, a keyring or a JWKS; it is changed first.",
)


@keys.command()
@_keyring_options
@_key_id
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
        _edit(path, permissions, change)
        if public is None
        else _edit_both(path, permissions, public, change_both)
    )
    made = ring.versions(key_id)[-1]
    begins = made.not_before if made.not_before and made.not_before > datetime.now(UTC) else None
    until_then = None if begins is None else _current_version(ring, made)
    wraps = made.algorithm == "aes-256"
    verb = "wraps" if wraps else "signs"
    lines = [f"key {made.id!r} {verb} with version {made.version} from {_time(begins) or 'now on'}"]
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
    _show(
        [made],
        as_json=as_json,
        text="\n".join(lines),
        begins=_time(begins),
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
@_keyring_options
@_key_id
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
        keyring = _edit(path, permissions, change)
    else:
        keyring = _edit_both(path, permissions, public, change_both)
    revoked = [key for key in keyring.versions(key_id) if version in {None, key.version}]
    numbers = ", ".join(str(key.version) for key in revoked)
    _show(revoked, as_json=as_json, text=f"revoked key {key_id!r}, version {numbers}")


@keys.command()
@_keyring_options
@_key_id
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
    keyring = _edit(
        path, permissions, lambda ring: with_deletion(ring, key_id, version=version, reason=reason)
    )
    deleted = [key for key in keyring.versions(key_id) if version in {None, key.version}]
    numbers = ", ".join(str(key.version) for key in deleted)
    text = f"deleted key {key_id!r}, version {numbers}; delete the copies of {path}, too"
    _show(deleted, as_json=as_json, text=text)


def _which(version: int | None) -> str:
    return "all its versions" if version is None else f"version {version}"


@keys.command("export-public")
@keyring_option(
    "The keyring file; repeatable: a reader's file has the keys of all producers.",
    "paths",
    required=True,
    multiple=True,
)
@permissions_option
@json_option
@_out_option("The file to write; an older one there is replaced.")
@click.option(
    "--jwks", is_flag=True, help="Write a JWKS (RFC 7517), for those who verify without Headerware."
)
@click.option(
    "--use",
    type=click.Choice(["sign", "certify"]),
    help="With --jwks: of keys that sign records (the default), or that certify those keys.",
)
def export_public(
    paths: tuple[Path, ...], permissions: Permissions, out: Path, *, jwks: bool, use: Any, as_json: bool
) -> None:
    """Write the public halves of keys.

    Give them to readers that only verify. For an issuer's policy files, use --jwks --use certify.
    """
    if use and not jwks:
        raise click.UsageError("--use chooses the keys of a JWKS; it needs --jwks")
    from headerware.keyring.writing import write_public_keyring  # noqa: PLC0415 - needs a POSIX system

    found = tuple(key for path in paths for key in read_keyring(path, permissions=permissions).keys)
    names = ", ".join(map(str, paths))
    try:
        public, without = public_part(Keyring(keys=found))
    except ValueError as error:
        raise KeyringError(f"{names}: {error}; each producer's key needs an id of its own") from error
    left_out = [(key, f"{key.algorithm} keys have no public half") for key in without]
    if jwks:
        use = use or "sign"
        left_out += [(key, problem) for key in public.keys if (problem := jwks_problem(key, use))]
        public = Keyring(keys=tuple(key for key in public.keys if jwks_problem(key, use) is None))
    if not public.keys:
        reasons = "; ".join(sorted({why for _, why in left_out})) or "it is empty"
        raise KeyringError(f"{names} has no key to export: {reasons}")
    write_public_keyring(out, public, encode=partial(encode_jwks, use=use) if jwks else encode_keyring)
    lines = [f"wrote {counted(len(public.keys), 'public key')} to {out}"]
    lines += [f"left out {key.id!r} version {key.version}: {why}" for key, why in left_out]
    _show(public.keys, as_json=as_json, text="\n".join(lines), left_out=[_row(key) for key, _ in left_out])


@keys.command("import-public")
@_keyring_options
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of public halves that the other services export.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, dir_okay=False),
    help="If the file is a snapshot: the keyring file with the root's public half.",
)
def import_public(
    path: Path, permissions: Permissions, source: Path, root: Path | None, *, as_json: bool
) -> None:
    """Add or update the public halves of others' keys.

    A service that reads signed records and signs its own has all its keys in one keyring. Run the command
    again after each rotation or revocation of the other services' keys. Keys whose secrets are in the keyring
    do not change, and no revoked version is trusted again. Limits of a key only become narrower; to widen
    them, edit the keyring. Who can write the file can add keys and versions: with --root, only the root can.
    """
    public = read_keyring(source, root=root, jwks=False)
    before: dict[tuple[str, int], Key] = {}

    def change(ring: Keyring) -> Keyring:
        before.update({(key.id, key.version): key for key in ring.keys})
        return with_imported(ring, public)

    ring = _edit(path, permissions, change)
    own_ids = {key.id for key in ring.keys if key.is_secret}
    own = [key for key in public.keys if key.id in own_ids]
    after = {(key.id, key.version): key for key in ring.keys}
    changes, lines = [], []
    others = [key for key in public.keys if key.id not in own_ids]
    for key in others:
        name, found = (key.id, key.version), after[key.id, key.version]
        fields, kept = _differences(before.get(name, found), found), _differences(key, found)
        what = "added" if name not in before else "changed" if fields else "unchanged"
        changes.append({"id": key.id, "version": key.version, "is": what, "fields": fields, "kept": kept})
        text = f"{what} {key.id!r} version {key.version}"
        text += f": {', '.join(fields)}" if fields else ""
        lines.append(text + (f"; kept narrower than in {source}: {', '.join(kept)}" if kept else ""))
    lines += [f"left out {key.id!r} version {key.version}: its secret is in {path}" for key in own]
    _show(
        [after[key.id, key.version] for key in others],
        as_json=as_json,
        text="\n".join(lines) or f"{source} has no keys",
        changes=changes,
        left_out=[_row(key) for key in own],
    )


def _differences(one: Key, other: Key) -> list[str]:
    """Return the names of the fields in which two versions differ."""
    return [name for name in Key.__struct_fields__ if getattr(one, name) != getattr(other, name)]


@keys.command("key-secret")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option(
    "--interceptor", metavar="NAME", help="The encrypt interceptor to use, if the chain has several."
)
def key_secret(config: str, interceptor: str | None) -> None:
    """Print a wrapped secret for encrypted record keys.

    It is the value of the option key_secret. The key service of the encrypt interceptor in CONFIG wraps it
    under the interceptor's key_id. If CONFIG has a key_secret already, the same secret is wrapped again, for
    instance under another key_id.
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
    """Load a chain; an ``encrypt`` that lacks its ``key_secret`` is made with plain record keys."""
    sources = read_sources(config)
    complete = {each.name for source in sources for each in source.declared if "key_secret" in each.settings}
    for source in sources:
        for each in source.declared:
            if each.type == "encrypt" and each.name not in complete:
                each.settings.pop("key", None)
    with within_file(config):
        return Chain.configured(configured(sources))


@keys.command("sign-snapshot")
@_keyring_options
@click.option(
    "--root",
    "root_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keyring file with the root's private half, which is kept offline.",
)
@click.option("--root-id", required=True, callback=_checked_id, help="The root key's id in that file.")
@click.option(
    "--counter",
    type=click.IntRange(min=1),
    help="The snapshot's number; without it, the number of the snapshot that --out replaces, plus one.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True, max=36_500),
    default=30,
    show_default=True,
    help="For how many days the snapshot is valid; sign the next snapshot before they end.",
)
@_out_option("The snapshot to write; an older one there is replaced.")
def sign_snapshot_command(
    path: Path,
    permissions: Permissions,
    root_path: Path,
    root_id: str,
    counter: int | None,
    days: float,
    out: Path,
    *,
    as_json: bool,
) -> None:
    """Sign a keyring with an offline root, to distribute it.

    Readers with the root's public half (keyring_root) notice if a snapshot was changed, if an older snapshot
    was put back, and if no snapshot comes any more. The snapshot has all that the keyring has: for readers
    that only verify, export the public halves first.
    """
    from headerware.keyring.writing import write_snapshot  # noqa: PLC0415 - needs a POSIX system

    keyring = read_keyring(path, permissions=permissions)
    roots = read_keyring(root_path, permissions=permissions)
    now = datetime.now(UTC)

    def make(before: bytes | None) -> Snapshot:
        number = counter
        if before is not None:
            last = verify_snapshot(before, roots, source=f"the snapshot in {out}")[0].counter
            number = last + 1 if number is None else number
            if number <= last:
                raise KeyringError(f"counter {number} goes back: the snapshot in {out} has {last}")
        root = roots.current_key(root_id, SNAPSHOT_USE, round(now.timestamp() * 1000))
        end = now + timedelta(days=days)
        return sign_snapshot(keyring, root, counter=number or 1, created=now, expires=end)

    made = write_snapshot(out, make, is_secret=keyring.is_secret)
    text = f"wrote snapshot {made.counter} to {out}; it expires at {_time(made.expires)}"
    _show_snapshot(made, keyring, as_json=as_json, text=text)


@keys.command("verify-snapshot")
@json_option
@click.option(
    "--snapshot",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The snapshot.",
)
@click.option(
    "--root",
    "root_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keyring file with the root's public half.",
)
@click.option("--after", type=click.IntRange(min=0), default=0, help="Require a higher counter than this.")
def verify_snapshot_command(path: Path, root_path: Path, *, after: int, as_json: bool) -> None:
    """Verify a snapshot, and show what is in it."""
    found, keyring = verify_snapshot(
        read_plain(path, MAX_BYTES)[0], read_keyring(root_path), source=str(path)
    )
    if found.counter <= after:
        raise KeyringError(f"{path} goes back: its counter is {found.counter}, expected more than {after}")
    if found.expires <= datetime.now(UTC):
        raise KeyringError(f"{path} expired at {_time(found.expires)}")
    text = (
        f"snapshot {found.counter}, signed by {found.root!r} version {found.root_version} at "
        f"{_time(found.created)}, expires at {_time(found.expires)}\n"
        + _table([_row(key) for key in keyring.keys])
    )
    _show_snapshot(found, keyring, as_json=as_json, text=text)


_TIMEOUT: Final = click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    default="10s",
    show_default=True,
    help="How long to wait for the brokers.",
)
_TOPIC: Final = click.option("--topic", required=True, help="The compacted topic, of one partition.")
_NAME: Final = click.option("--name", required=True, help="The snapshot's name in the topic.")
_PUBLIC_ROOT: Final = click.option(
    "--root",
    "root_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keyring file with the root's public half.",
)


@keys.command("publish-snapshot")
@click.option(
    "--snapshot",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The snapshot, without secrets.",
)
@_PUBLIC_ROOT
@_TOPIC
@_NAME
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
@_TIMEOUT
@cluster_options
def publish_snapshot_command(
    path: Path,
    root_path: Path,
    topic: str,
    name: str,
    timeout_s: float,
    cluster: Cluster,
    *,
    create: bool,
) -> None:
    """Write a snapshot to a compacted topic.

    Machines follow it from there: see follow-snapshot.
    """
    from headerware.keyring.snapshot_topic import publish_snapshot  # noqa: PLC0415 - needs a Kafka client
    from headerware.topic_table import Rows, TopicTable  # noqa: PLC0415 - likewise

    settings = cluster.settings_for("publish-snapshot")
    text, roots = read_plain(path, MAX_BYTES)[0], read_keyring(root_path)
    with TopicTable(settings, topic, rows=Rows, create=create) as table:
        made = publish_snapshot(table, name, text, roots, timeout_s=timeout_s)
    click.echo(f"published snapshot {made.counter} as {name!r} in topic {topic!r}")


@keys.command("follow-snapshot")
@_PUBLIC_ROOT
@_TOPIC
@_NAME
@_out_option("The file to keep up to date, which readers have as their keyring.")
@click.option("--once", is_flag=True, help="Read the topic once, and end.")
@_TIMEOUT
@cluster_options
def follow_snapshot_command(
    root_path: Path,
    topic: str,
    name: str,
    out: Path,
    timeout_s: float,
    cluster: Cluster,
    *,
    once: bool,
) -> None:
    """Follow a topic's snapshot into a file.

    The command runs until it is interrupted. A snapshot that the root did not sign, that is older than the
    last one, or that has expired never reaches the file.
    """
    from headerware.keyring.snapshot_topic import SnapshotFollower  # noqa: PLC0415 - needs a Kafka client
    from headerware.topic_table import Rows, TopicTable  # noqa: PLC0415 - likewise

    settings = cluster.settings_for("follow-snapshot")
    with TopicTable(settings, topic, rows=Rows) as table:
        follower = SnapshotFollower(table, name, read_keyring(root_path), out)
        changed = threading.Event()
        table.on_change(lambda _key, _value: changed.set())
        table.refresh(timeout_s)
        if not once:
            table.follow()
        told = ""
        while True:
            changed.clear()
            try:
                follower.trust(read_keyring(root_path))  # the root may be rotated or revoked meanwhile
                if (found := follower.look(wall_clock_ms())) is not None:
                    click.echo(f"snapshot {found.counter} is in {out}")
            except KeyringError as error:
                if once:
                    raise
                if str(error) != told:  # every look finds the error again
                    told = str(error)
                    click.echo(f"{told}; {out} is not changed", err=True)
            if once and not out.exists():
                raise KeyringError(f"topic {topic!r} has no snapshot {name!r}")
            if once:
                return
            changed.wait(_LOOK_S)


def _show_snapshot(snapshot: Snapshot, keyring: Keyring, *, as_json: bool, text: str) -> None:
    facts = {
        "counter": snapshot.counter,
        "root": snapshot.root,
        "root_version": snapshot.root_version,
        "created": _time(snapshot.created),
        "expires": _time(snapshot.expires),
    }
    _show(keyring.keys, as_json=as_json, text=text, snapshot=facts)


@keys.command("certify")
@_keyring_options
@click.option("--issuer-key", required=True, metavar="ID", help="The id of the key that certifies.")
@click.option("--issuer", required=True, help="The issuer's name, as in the readers' policies.")
@click.option(
    "--for",
    "holder",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keyring of the producer; the public halves are enough.",
)
@_key_id
@click.option("--subject", required=True, help="Who holds the key.")
@click.option(
    "--audience", multiple=True, required=True, help="An audience of the certificate, such as the cluster."
)
@click.option(
    "--topic",
    "topics",
    metavar="PATTERN",
    multiple=True,
    required=True,
    help="A topic for which the key may sign.",
)
@click.option(
    "--hours",
    type=click.IntRange(min=1),
    default=24,
    show_default=True,
    help="For how many hours it is valid.",
)
@_out_option("The file for the certificate; an older one there is replaced.")
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
    issuers = read_keyring(path, permissions=permissions)
    with naming_file(path):
        certifying = issuers.current_key(issuer_key, CERTIFY_USE, wall_clock_ms())
    # The newest version, even before it begins, because producers present the certificate from then on.
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


def _edit_both(
    path: Path,
    permissions: Permissions,
    public: Path,
    change: Callable[[Keyring, Keyring], tuple[Keyring, Keyring]],
) -> Keyring:
    from headerware.keyring.writing import edit_with_public  # noqa: PLC0415 - needs a POSIX system

    return edit_with_public(path, public, change, permissions=permissions)


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
        "deleted": _time(key.deleted),
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
    if key.status == "deleted":
        return "nothing"
    return "public half" if key.private is None else "private half"


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(rows: Sequence[dict[str, Any]]) -> str:
    cells = [_COLUMNS, *(tuple(_cell(row[column]) for column in _COLUMNS) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (zip(line, widths, strict=True) for line in cells)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in lines)


def _cell(shown: Any) -> str:
    return ",".join(shown) or "none" if isinstance(shown, tuple) else str(shown or "-")
