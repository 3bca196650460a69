"""The doctor's checks of the keys that a chain signs with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from headerware.core.chain import Chain
from headerware.core.context import wall_clock_ms
from headerware.core.errors import HeaderwareError, KeyringError
from headerware.core.printable import counted
from headerware.core.topics import topics_of
from headerware.interceptors.sign import Sign
from headerware.keyring import Key, Keyring, read_keyring
from headerware.keyring.file import naming_file, naming_key
from headerware.ops.doctor.finding import Finding, Side, fail, ok

_SOON_MS: Final = 14 * 86_400_000


def signing_keys(loaded: Chain, topics: Sequence[str], side: Side | None) -> Iterator[Finding]:
    for name, step in zip(loaded.names, loaded, strict=True):
        if not isinstance(step, Sign):
            continue
        check = f"keys of {name}"
        try:
            with naming_key(step.key_id, side=side):
                keyring = read_keyring(
                    step.keyring, permissions=step.keyring_permissions, root=step.keyring_root
                )
        except HeaderwareError as error:
            yield fail(check, str(error), "without the keyring, no client with this chain starts")
            continue
        usable, now_ms = [key.id for key in keyring.keys if "sign" in key.use], wall_clock_ms()
        yield ok(check, f"{counted(len(usable), 'version')} of {counted(len({*usable}), 'key')}")
        signing: Key | None = None
        signer = None if side == "consumer" else step.key_id
        try:
            with naming_file(step.keyring):
                signing = None if signer is None else keyring.current_key(signer, "sign", now_ms)
        except KeyringError as error:
            yield fail(check, str(error), _to_sign_again(step, keyring))
        for key in keyring.keys:
            if key.status == "active" and (signing is not None or key.id != signer):
                yield from _term(check, key, keyring, step)
        if signing is None:
            continue
        if signing.status == "retired" and signing.not_after is not None:
            yield from _gap(check, signing, keyring, step)
        for topic in filter(topics_of(step).matches, topics):
            refusal = signing.refusal(topic, now_ms)
            if refusal is not None:
                yield fail(f"{check} for {topic}", refusal, "sign with a key that may sign for this topic")


def _rotate(step: Sign, key_id: str) -> str:
    return f"headerware keys rotate --keyring {shlex.quote(step.keyring)} --id {shlex.quote(key_id)}"


def _to_sign_again(step: Sign, keyring: Keyring) -> str:
    """Return advice for a key that cannot sign now."""
    key_id = step.key_id or ""
    versions = [key for key in keyring.keys if key.id == key_id]
    if not versions:
        generate = f"headerware keys generate --keyring {step.keyring} --id {key_id}"
        return f"create the key ({generate}), or name another key in key_id"
    if not any(key.is_secret for key in versions):
        return "give this application the keyring with the private key, or name another key in key_id"
    active = next((key for key in versions if key.status == "active"), None)
    if active is not None and active.not_before is not None and active.not_before > datetime.now(UTC):
        return (
            "check this machine's clock; use the former keyring, or make a version that is valid at once: "
            f"{_rotate(step, key_id)}"
        )
    limit = "" if active is None or active.not_after is None else " --not-after TIME"
    return f"{_rotate(step, key_id)}{limit}, or name another key in key_id"


def _term(check: str, key: Key, keyring: Keyring, step: Sign) -> Iterator[Finding]:
    """Yield findings about the start and the end of an active version's validity."""
    now = datetime.now(UTC)
    name = f"key {key.id!r} version {key.version}"
    if key.not_before is not None and key.not_before > now:
        found = f"{name} is valid only from {_minute(key.not_before)}"
        now_ms = now.timestamp() * 1000
        before = [
            each
            for each in keyring.versions(key.id)
            if each.status == "retired" and each.limits_ms[0] <= now_ms
        ]
        if before:
            yield ok(check, f"{found}, and version {before[-1].version} signs until then")
        else:
            advice = "until then neither this version nor an earlier one signs; check this machine's clock"
            yield Finding(check=check, status="warn", found=found, advice=advice)
    if key.not_after is None:
        return
    rotate = f"{_rotate(step, key.id)} --not-after TIME"
    if key.not_after < now:
        found = f"{name} expired on {_minute(key.not_after)}"
        yield Finding(check=check, status="warn", found=found, advice=rotate)
    elif (key.not_after - now).total_seconds() * 1000 < _SOON_MS:
        found = f"{name} expires on {_minute(key.not_after)}"
        advice = f"{rotate}, with --lead, so that consumers have the new version before it signs"
        yield Finding(check=check, status="warn", found=found, advice=advice)


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}Z"


def _gap(check: str, signing: Key, keyring: Keyring, step: Sign) -> Iterator[Finding]:
    """Yield a finding if a version expires before the next version becomes valid."""
    _, ends_ms = keyring.term_ms(signing)
    if signing.not_after is not None and signing.not_after.timestamp() * 1000 == ends_ms:
        yield Finding(
            check=check,
            status="warn",
            found=(
                f"key {signing.id!r} version {signing.version} expires on "
                f"{_minute(signing.not_after)}, before the next version is valid: no version signs "
                "in between"
            ),
            advice=f"{_rotate(step, signing.id)} --not-before TIME --not-after TIME, with a --not-before "
            "earlier than that",
        )
