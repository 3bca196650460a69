"""``headerware keys``: the commands for keys of subjects: erase, verify, readmit, wrap again.

A chain's file says where the keys are and which key service protects them. No command shows a subject's name.
Exit codes are those of :mod:`headerware.cli.keys`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from headerware.cli.confirmation import confirm, yes_option
from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options, kafka_errors
from headerware.cli.options import json_option, keyring_option
from headerware.cli.times import Duration
from headerware.core.atomic_files import replace_file
from headerware.core.chain import load_chain
from headerware.core.context import Context, wall_clock_ms
from headerware.core.errors import ConfigError, KeyringError
from headerware.core.plain_files import read_plain
from headerware.core.printable import counted
from headerware.keyring import read_keyring
from headerware.keyring.file import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.keyring.services.service import KeyService
    from headerware.keyring.subjects.topic import SubjectKeys

_CONFIG: Final = click.argument("config", type=click.Path(dir_okay=False))
_SUBJECT: Final = click.argument("subject")


class _Opened(msgspec.Struct, frozen=True):
    """The keys of subjects that a chain uses, opened, with their key service."""

    keys: SubjectKeys
    service: KeyService
    topic: str
    settings: dict[str, Any]
    timeout_s: float

    def cluster_id(self) -> str:
        from headerware.kafka.admin import Admin  # noqa: PLC0415 - needs a Kafka client

        with kafka_errors(self.topic):
            return str(Admin(self.settings, timeout_s=self.timeout_s).metadata(self.topic).cluster_id)


class _Chain(NamedTuple):
    """The options that say which keys of subjects are meant."""

    config: str
    interceptor: str | None
    file: str | None
    timeout_s: float
    cluster: Cluster

    @contextmanager
    def opened(self) -> Iterator[_Opened]:
        from headerware.interceptors.encrypt.options import EncryptionOptions  # noqa: PLC0415 - heavy
        from headerware.keyring.services import open_key_service  # noqa: PLC0415 - likewise
        from headerware.keyring.subjects.service import SubjectKeyService  # noqa: PLC0415 - likewise

        chain = load_chain(self.config)
        found = [
            step
            for name, step in zip(chain.names, chain, strict=True)
            if isinstance(step, EncryptionOptions)
            and step.subject_keys is not None
            and self.interceptor in {None, name}
        ]
        places = {(step.subject_keys.topic, step.key_id) for step in found}
        if len(places) != 1:
            raise ConfigError(
                f"expected an interceptor with subject_keys in {self.config}, found "
                f"{counted(len(found), 'interceptor')}"
                + (" with different ones: choose with --interceptor" if found else "")
            )
        step = found[0]
        given = {**self.cluster.settings(), **step.subject_keys.config}
        servers = given.pop("bootstrap.servers", None) or step.subject_keys.servers
        place = msgspec.structs.replace(step.subject_keys, servers=servers, config=given, file=self.file)
        if servers is None:
            self.cluster.settings_for("this command")
        service = open_key_service(step.key_service, Context(side="producer"), path="key_service")
        subjects = SubjectKeyService(
            place,
            service,
            key_id=step.key_id,
            key_ids=step.accepted_ids,
            servers=None,
            timeout_ms=round(self.timeout_s * 1000),
        )
        try:
            yield _Opened(
                subjects.keys, service, place.topic, {**given, "bootstrap.servers": servers}, self.timeout_s
            )
        finally:
            subjects.close()


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all commands; the command gets them, and CONFIG, as its first argument."""

    @wraps(command)
    def with_chain(**given: Any) -> None:
        chain = _Chain(**{name: given.pop(name) for name in _Chain._fields})
        command(chain, **given)

    for option in (
        click.option(
            "--timeout",
            "timeout_s",
            type=Duration(),
            default="5m",
            show_default=True,
            help="How long reading the topic of keys, and each call of the key service, may take.",
        ),
        click.option(
            "--file",
            type=click.Path(dir_okay=False),
            help="A file of this command's own that keeps the topic's rows, so that its next run starts in "
            "seconds.",
        ),
        click.option(
            "--interceptor", metavar="NAME", help="The interceptor to use, if several have subject_keys."
        ),
        json_option,
    ):
        option(with_chain)
    return cluster_options(with_chain)


@click.command("erase")
@_CONFIG
@_SUBJECT
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The file for the receipt.")
@click.option(
    "--sign-with",
    "signer_id",
    metavar="ID",
    help="The key of --keyring that signs the receipt; its use is erasures (keys generate --use erasures).",
)
@keyring_option("The keyring file of the key that signs the receipt.")
@yes_option
@_common
def erase_command(
    chain: _Chain,
    subject: str,
    out: Path | None,
    signer_id: str | None,
    keyring: Path | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase a subject, such as a person.

    Nobody can read what was encrypted for it any more. CONFIG is a chain whose encrypt or encrypt_fields
    has subject_keys. SUBJECT is the subject as key_of finds it, or - to read it from standard input, so
    that no shell keeps it. The answer is a receipt, which headerware keys erased verifies. An erased
    subject gets no new key until it is readmitted.
    """
    from headerware.keyring.subjects.receipt import (  # noqa: PLC0415 - only this needs them
        RECEIPT_USE,
        encode_receipt,
        receipt_of,
        sign_receipt,
    )

    signer = None
    if signer_id is not None:
        if keyring is None:
            raise click.UsageError("--sign-with needs --keyring, which has the key")
        signer = read_keyring(keyring).current_key(signer_id, RECEIPT_USE, wall_clock_ms())
    confirm("Erase this subject? What was encrypted for it can then never be read again", yes=yes)
    with chain.opened() as opened:
        cluster_id = opened.cluster_id()
        erased = opened.keys.erase(_named(subject))
    receipt = receipt_of(erased, cluster=cluster_id, topic=opened.topic)
    if signer is not None:
        receipt = sign_receipt(receipt, signer)
    text = encode_receipt(receipt)
    if out is not None:
        replace_file(out, text)
    if not receipt.keys:
        click.echo("it had no key: check that SUBJECT is spelled as key_of finds it", err=True)
    removed = counted(len(erased.key_ids), "key")
    before = "" if erased.offset is not None else "it had been erased before; "

    def show() -> None:
        if out is None:
            click.echo(text.decode(), nl=False)
        else:
            click.echo(
                f"erased subject {receipt.pseudonym} in topic {opened.topic}: {before}{removed} removed"
            )
            click.echo(f"wrote the receipt to {out}")

    answer({"receipt": receipt, "removed": len(erased.key_ids)}, show, as_json=as_json)


@click.command("erased")
@_CONFIG
@click.argument(
    "receipt_file", metavar="RECEIPT", type=click.Path(path_type=Path, dir_okay=False, exists=True)
)
@click.option(
    "--subject", help="Also require that the receipt is about this subject; - reads standard input."
)
@keyring_option("A trusted keyring that must have signed the receipt; the public half is enough.")
@_common
def erased_command(
    chain: _Chain,
    receipt_file: Path,
    subject: str | None,
    keyring: Path | None,
    *,
    as_json: bool,
) -> None:
    """Verify the receipt of an erasure.

    The topic of keys must still have the erasure, and none of the erased keys. The exit code is 1 if the
    receipt is not true.
    """
    from headerware.keyring.subjects.receipt import (  # noqa: PLC0415 - only this needs them
        contradiction,
        decode_receipt,
        verify_receipt,
    )

    receipt = decode_receipt(read_plain(receipt_file, MAX_BYTES)[0], source=str(receipt_file))
    if keyring is not None:
        verify_receipt(receipt, read_keyring(keyring))
    with chain.opened() as opened:
        if (cluster_id := opened.cluster_id()) != receipt.cluster or opened.topic != receipt.topic:
            raise KeyringError(
                f"the receipt is about topic {receipt.topic!r} of cluster {receipt.cluster!r}; this is topic "
                f"{opened.topic!r} of cluster {cluster_id!r}"
            )
        if subject is not None and opened.keys.pseudonym(_named(subject)).hex() != receipt.pseudonym:
            raise KeyringError("the receipt is about another subject")
        found = opened.keys.look_up(bytes.fromhex(receipt.pseudonym))
    problem = contradiction(receipt, found)
    erasure = found.erasure
    since = "" if erasure is None or not erasure.readmitted else "; it was readmitted, and may have a new key"
    signed = "not verified" if keyring is None else f"by key {receipt.key_id!r} version {receipt.key_version}"
    text = (
        f"subject {receipt.pseudonym} was erased at {receipt.erased:%Y-%m-%d %H:%M:%S} UTC, and the topic "
        f"has none of its erased keys{since}\nsignature: {signed}"
    )
    answer(
        {"receipt": receipt, "signature": keyring is not None, "problem": problem},
        lambda: click.echo(text if problem is None else f"the receipt is not true: {problem}"),
        as_json=as_json,
        ok=problem is None,
    )


@click.command("readmit")
@_CONFIG
@_SUBJECT
@_common
def readmit_command(chain: _Chain, subject: str, *, as_json: bool) -> None:
    """Let an erased subject have a new key.

    A person may be a customer again, for instance. What was erased stays erased. SUBJECT is the subject
    as key_of finds it, or - to read it from standard input.
    """
    with chain.opened() as opened:
        row = opened.keys.readmit(_named(subject))
    pseudonym = row.pseudonym.hex()
    answer(
        {"topic": opened.topic, "pseudonym": pseudonym, "generation": row.generation},
        lambda: click.echo(
            f"subject {pseudonym} in topic {opened.topic} gets a new key when a record needs it"
        ),
        as_json=as_json,
    )


@click.command("rewrap-subjects")
@_CONFIG
@_common
def rewrap_command(chain: _Chain, *, as_json: bool) -> None:
    """Wrap the secrets of subjects' keys again.

    Run it after the rotation of key_id. Two small rows are written; keys of subjects and records do not
    change. Then the old version of the key-encryption key may be deleted, once every process has read the
    rows.
    """
    with chain.opened() as opened:
        count = opened.keys.rewrap(opened.service)
    answer(
        {"topic": opened.topic, "secrets": count},
        lambda: click.echo(f"wrapped {counted(count, 'secret')} of topic {opened.topic} again"),
        as_json=as_json,
    )


def _named(subject: str) -> str:
    from headerware.keyring.subjects.rows import MAX_SUBJECT_BYTES  # noqa: PLC0415 - as above

    name = sys.stdin.readline().rstrip("\r\n") if subject == "-" else subject
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        raise click.UsageError("expected a subject in UTF-8") from None
    if not 1 <= size_bytes <= MAX_SUBJECT_BYTES:
        raise click.UsageError(f"expected a subject of 1 to {MAX_SUBJECT_BYTES:,} bytes")
    return name
