"""The doctor's checks of the stores and key services that a chain names: whether each answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final, TypeVar

import msgspec

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import (
    HeaderwareError,
    HeldBackError,
    KeyDeletedError,
    KeyDeniedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    UnknownSchemaError,
)
from headerware.core.printable import counted
from headerware.dictionaries.store import Dictionaries
from headerware.interceptors.claim_check import ClaimCheck
from headerware.interceptors.encrypt import Encrypt
from headerware.interceptors.encrypt.options import EncryptionOptions
from headerware.interceptors.encrypt.record_keys import RECORD_KEY_SCOPE, decode_key_secret
from headerware.keyring.file import naming_key
from headerware.keyring.services import DataKeys, open_key_service
from headerware.object_store import open_object_store
from headerware.ops.doctor.finding import Finding, Side, fail, ok
from headerware.serdes.avro.schema import Fingerprint
from headerware.serdes.stores.store import SchemaStore, Store

_Kind = TypeVar("_Kind")

_NO_SCHEMA: Final = Fingerprint("sha256", bytes(32))
"""A fingerprint that no schema has; the doctor asks for it to see whether a store answers."""
_NO_FOLDER: Final = "headerware-doctor"
"""The folder that is listed to see whether an object store answers."""
_PROBE: Final = "headerware doctor"
"""The scope of the probe keys that key services are asked to wrap."""
_WHILE_DOWN: Final = (
    "while the key service does not answer, producers raise an error once their data key has expired, and "
    "consumers hold back records whose data key is not in their cache"
)


def creates_topic(option: object) -> bool:
    """Return whether one of the stores in these options creates its topic when it is opened."""
    stores = (*_among(option, Store), *_among(option, Dictionaries))
    return any(getattr(store, "create", False) is True for store in stores)


def _among(option: object, kind: type[_Kind]) -> Iterator[_Kind]:
    """Yield the objects of a type in a chain's options, at any depth."""
    if isinstance(option, kind):
        yield option
    elif isinstance(option, msgspec.Struct):
        for name in option.__struct_fields__:
            yield from _among(getattr(option, name), kind)
    elif isinstance(option, Mapping):
        for value in option.values():
            yield from _among(value, kind)
    elif isinstance(option, tuple | list | Chain):
        for value in option:
            yield from _among(value, kind)


def schema_stores(loaded: Chain) -> Iterator[Finding]:
    """Ask each schema store for a schema that does not exist, to see whether the store answers."""
    for store in _among(loaded, Store):
        check = f"schema store {store.type}"
        if creates_topic(store):
            yield Finding(check=check, status="unknown", found="not asked: it has create = true")
            continue
        try:
            opened: SchemaStore = store.open()
            try:
                opened.get(_NO_SCHEMA)
            finally:
                opened.close()
        except UnknownSchemaError:
            yield ok(check, "answers")
        except HeaderwareError as error:
            advice = "without the store, consumers hold back records whose schema is not in their cache"
            yield fail(check, str(error), advice)
        else:
            yield ok(check, "answers")


def dictionaries(loaded: Chain) -> Iterator[Finding]:
    """Read each store of dictionaries."""
    for settings in _among(loaded, Dictionaries):
        check = "store of dictionaries"
        if creates_topic(settings):
            yield Finding(check=check, status="unknown", found="not asked: it has create = true")
            continue
        try:
            with closing(settings.open()) as store:
                store.read()
                ids, uses = store.ids(), store.uses()
        except HeaderwareError as error:
            advice = (
                "without the store, producers compress less, and consumers hold back records that were "
                "compressed with a dictionary"
            )
            yield fail(check, str(error), advice)
            continue
        missing = sorted({use.topic for use in uses if use.current.dictionary not in ids})
        if missing:
            advice = "publish them again (headerware dictionaries publish)"
            yield fail(check, f"the store lacks the dictionaries of {', '.join(missing)}", advice)
        elif not uses:
            advice = "publish a dictionary (headerware dictionaries publish), or remove the option"
            yield Finding(check=check, status="warn", found="no topic has a dictionary", advice=advice)
        else:
            count = counted(len(ids), "dictionary", "dictionaries")
            yield ok(check, f"{count} for {counted(len({use.topic for use in uses}), 'topic')}")


def object_stores(loaded: Chain, side: Side | None, *, remote: bool = True) -> Iterator[Finding]:
    """Check whether each object store can be used; write nothing to it.

    A store on this machine checks itself. For any other store, a folder is listed that most likely does not
    exist.

    Args:
        loaded: the chain.
        side: the side whose permissions are needed; None means both.
        remote: whether stores over a network are checked too.
    """
    for claims in _among(loaded, ClaimCheck):
        for alias, options in claims.stores.items():
            name = f"object store {alias}"
            try:
                with closing(open_object_store(options, path=f"stores.{alias}")) as store:
                    check = getattr(store, "check", None)
                    if check is not None:
                        check("write" if side != "consumer" and alias == claims.store else "read")
                    elif remote:
                        next(iter(store.objects(_NO_FOLDER)), None)
                    else:
                        continue
            except HeaderwareError as error:
                advice = "without the store, consumers wait, and producers cannot send large values"
                yield fail(name, str(error), advice)
            else:
                listed = "can be listed, so a missing object can be told from a forbidden one"
                yield ok(name, listed if check is None else "can be used")


def key_services(
    loaded: Chain, side: Side | None, timeout_s: float, *, remote: bool = True
) -> Iterator[tuple[str, Finding]]:
    """Wrap and unwrap a probe under each key-encryption key that a chain names.

    Each finding comes after the path of the option that it is about, such as ``interceptors.encrypt.key_id``.

    Args:
        loaded: the chain.
        side: the side whose permissions are needed; None means both.
        timeout_s: how long to wait for a service, in seconds; the step's own timeout applies if it is
            shorter.
        remote: whether services over a network are asked too.
    """
    for name, step in zip(loaded.names, loaded, strict=True):
        if not isinstance(step, EncryptionOptions):
            continue
        check = f"key service of {name}"
        try:
            with naming_key(step.key_id, "aes-256", side):
                service = open_key_service(step.key_service, Context(dry_run=True), path="key_service")
        except HeaderwareError as error:
            advice = "without the service, no client with this chain starts"
            yield f"interceptors.{name}.key_service", fail(check, str(error), advice)
            continue
        timeout_ms = min(step.key_service_timeout_ms, int(timeout_s * 1000))
        with closing(DataKeys(service, key_ids=step.accepted_ids, timeout_ms=timeout_ms)) as keys:
            if remote or getattr(service, "is_local", False):
                for finding in _probed(check, keys, step, side):
                    yield f"interceptors.{name}.key_id", finding


def _probed(check: str, keys: DataKeys, step: EncryptionOptions, side: Side | None) -> Iterator[Finding]:
    for key_id in sorted(step.accepted_ids):
        if side == "producer" and key_id != step.key_id:
            continue
        own = f"{check}, {key_id!r}"
        try:
            wrapped = keys.to_send(key_id, _PROBE, 0).wrapped
        except KeyServiceUnavailableError as error:
            yield fail(check, str(error), _WHILE_DOWN)
            return  # the service would not answer for the next key either
        except KeyDeniedError as error:
            if key_id != step.key_id or side == "consumer":
                found = f"permission to wrap is refused, so unwrapping cannot be tried: {error}"
                yield Finding(check=own, status="unknown", found=found)
            else:
                yield _denied(own, "wrap", error, needed=side == "producer")
            continue
        except KeyDeletedError as error:
            if key_id != step.key_id or side == "consumer":  # crypto-shredding: its records shall be refused
                advice = f"remove {key_id!r} from the chain once no record uses it any more"
                yield Finding(check=own, status="warn", found=str(error), advice=advice)
            else:
                yield fail(own, str(error), "rotate the key, or name another key in key_id")
            continue
        except KeyServiceError as error:
            yield fail(own, str(error), "correct key_id, or create the key in the service")
            continue
        if side == "producer":
            yield ok(own, "wraps")
        else:
            yield _unwrapped(own, "wraps and unwraps", keys, (key_id, wrapped, _PROBE), side)
    if isinstance(step, Encrypt) and step.key_secret is not None:
        secret = decode_key_secret(step.key_secret)
        asked = secret.key_id, secret.wrapped, RECORD_KEY_SCOPE
        yield _unwrapped(f"{check}, key_secret", "unwraps", keys, asked, "consumer")  # both sides need it


def _unwrapped(
    check: str, does: str, keys: DataKeys, asked: tuple[str, bytes, str], side: Side | None
) -> Finding:
    try:
        keys.to_read(*asked)
    except (KeyServiceError, HeldBackError) as error:
        cause = error.__cause__ if isinstance(error, HeldBackError) else error
        if isinstance(cause, KeyDeniedError):
            return _denied(check, "unwrap", cause, needed=side == "consumer")
        advice = _WHILE_DOWN if isinstance(cause, KeyServiceUnavailableError) else None
        return fail(check, str(cause), advice)
    return ok(check, does)


def _denied(check: str, right: str, error: KeyServiceError, *, needed: bool) -> Finding:
    """Return the finding for a missing permission, which only the other side's application may need."""
    operation, who = ("encrypt", "producer") if right == "wrap" else ("decrypt", "consumer")
    advice = (
        f"grant {operation} on the key (if its policy names encryption contexts, for {_PROBE!r} too)"
        f"{'' if needed else f', or name the side with --side if this application is not a {who}'}"
    )
    found = f"permission to {right} is refused: {error}"
    return Finding(check=check, status="fail" if needed else "warn", found=found, advice=advice)
