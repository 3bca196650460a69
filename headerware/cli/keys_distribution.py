"""``headerware keys``: the commands that distribute keys: public halves, signed snapshots and certificates.

No command shows a secret. Exit codes are those of :mod:`headerware.cli.keys`.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from headerware.cli.json_output import show_json
from headerware.cli.kafka import Cluster, cluster_options
from headerware.cli.key_options import (
    checked_id,
    edit,
    key_id_option,
    key_row,
    key_table,
    keyring_options,
    permissions_option,
    show_keys,
    time_text,
)
from headerware.cli.options import json_option, keyring_option
from headerware.cli.times import Duration
from headerware.core.atomic_files import replace_file
from headerware.core.context import wall_clock_ms
from headerware.core.errors import KeyringError
from headerware.core.plain_files import read_plain
from headerware.core.printable import counted
from headerware.keyring import (
    Key,
    Keyring,
    Permissions,
    Snapshot,
    certify,
    encode_jwks,
    encode_keyring,
    public_part,
    read_certificate,
    read_keyring,
    sign_snapshot,
    verify_snapshot,
    with_imported,
)
from headerware.keyring.certificate import CERTIFY_USE
from headerware.keyring.file import MAX_BYTES, naming_file
from headerware.keyring.jwks import jwks_problem
from headerware.keyring.snapshot import SNAPSHOT_USE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOOK_S: Final = 5.0


def _out_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    path = click.Path(path_type=Path, dir_okay=False)
    return click.option("--out", required=True, type=path, help=text)


@click.command("export-public")
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
        advice = ""
        if without:
            advice = "; to verify without a secret, sign with a key of ed25519 (headerware keys generate)"
        raise KeyringError(f"{names} has no key to export: {reasons}{advice}")
    write_public_keyring(out, public, encode=partial(encode_jwks, use=use) if jwks else encode_keyring)
    lines = [f"wrote {counted(len(public.keys), 'public key')} to {out}"]
    lines += [f"left out {key.id!r} version {key.version}: {why}" for key, why in left_out]
    show_keys(
        public.keys, as_json=as_json, text="\n".join(lines), left_out=[key_row(key) for key, _ in left_out]
    )


@click.command("import-public")
@keyring_options
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

    ring = edit(path, permissions, change)
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
    show_keys(
        [after[key.id, key.version] for key in others],
        as_json=as_json,
        text="\n".join(lines) or f"{source} has no keys",
        changes=changes,
        left_out=[key_row(key) for key in own],
    )


def _differences(one: Key, other: Key) -> list[str]:
    """Return the names of the fields in which two versions differ."""
    return [name for name in Key.__struct_fields__ if getattr(one, name) != getattr(other, name)]


@click.command("sign-snapshot")
@keyring_options
@click.option(
    "--root",
    "root_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keyring file with the root's private half, which is kept offline.",
)
@click.option("--root-id", required=True, callback=checked_id, help="The root key's id in that file.")
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
    text = f"wrote snapshot {made.counter} to {out}; it expires at {time_text(made.expires)}"
    _show_snapshot(made, keyring, as_json=as_json, text=text)


@click.command("verify-snapshot")
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
        raise KeyringError(f"{path} expired at {time_text(found.expires)}")
    text = (
        f"snapshot {found.counter}, signed by {found.root!r} version {found.root_version} at "
        f"{time_text(found.created)}, expires at {time_text(found.expires)}\n"
        + key_table([key_row(key) for key in keyring.keys])
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


@click.command("publish-snapshot")
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


@click.command("follow-snapshot")
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
        "created": time_text(snapshot.created),
        "expires": time_text(snapshot.expires),
    }
    show_keys(keyring.keys, as_json=as_json, text=text, snapshot=facts)


@click.command("certify")
@keyring_options
@click.option("--issuer-key", required=True, metavar="ID", help="The id of the key that certifies.")
@click.option("--issuer", required=True, help="The issuer's name, as in the readers' policies.")
@click.option(
    "--for",
    "holder",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keyring of the producer; the public halves are enough.",
)
@key_id_option
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
    expires = time_text(datetime.fromtimestamp(certificate.expires_ms / 1000, UTC))
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
