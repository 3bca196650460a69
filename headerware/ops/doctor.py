"""The doctor: check versions, a chain, its keys, the cluster and topics, and give advice.

The doctor changes nothing. It writes neither to the cluster nor to a file, joins no consumer group, and does
not open a chain whose stores would create their topic. It asks key services to wrap and unwrap a probe key,
which encrypts nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from math import inf
from typing import Any, Final, Literal, TypeVar

import msgspec

from headerware.core.chain import Chain, load_chain
from headerware.core.client_chain import CONFIG_VARIABLE
from headerware.core.context import Context, wall_clock_ms
from headerware.core.errors import (
    ConfigError,
    HeaderwareError,
    HeldBackError,
    KeyDeletedError,
    KeyDeniedError,
    KeyringError,
    KeyServiceError,
    KeyServiceUnavailableError,
    MissingPartError,
    UnknownSchemaError,
)
from headerware.core.extras import install_command
from headerware.core.hooks import Interceptor
from headerware.core.native import native_module
from headerware.core.order import idle_on, weaknesses
from headerware.core.printable import counted
from headerware.core.topics import topics_of, works_on
from headerware.dictionaries.store import Dictionaries
from headerware.interceptors.audit import Audit
from headerware.interceptors.claim_check import ClaimCheck
from headerware.interceptors.encrypt import Encrypt
from headerware.interceptors.encrypt.options import EncryptionOptions
from headerware.interceptors.encrypt.record_keys import RECORD_KEY_SCOPE, decode_key_secret
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from headerware.kafka.admin import (
    TO_RUN_KAFKA,
    Admin,
    TopicDescription,
    embedded_text,
    is_embedded,
    operations,
)
from headerware.kafka.first_answer import TO_REACH_A_CLUSTER
from headerware.kafka.settings import bootstrap_servers, number
from headerware.keyring import Key, Keyring, read_keyring
from headerware.keyring.file import naming_file, naming_key
from headerware.keyring.services import DataKeys, open_key_service
from headerware.keyring.subjects.topic import MAX_COMPACTION_LAG_MS
from headerware.object_store import open_object_store
from headerware.serdes.avro.schema import Fingerprint
from headerware.serdes.stores.store import SchemaStore, Store

Status = Literal["ok", "warn", "fail", "unknown"]
Side = Literal["producer", "consumer"]
_Answer = TypeVar("_Answer")
_Kind = TypeVar("_Kind")

_SIDES: Final[tuple[Side, Side]] = ("producer", "consumer")
_MAY: Final[Mapping[Side, str]] = {"producer": "WRITE", "consumer": "READ"}
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*([<>=!~,0-9.\s]*)")
_BOUND: Final = re.compile(r"(>=|<)\s*([0-9.]+)")
_CLIENT_MAX_BYTES: Final = 1_000_000
"""librdkafka's default of message.max.bytes."""
_SLICE_MAX_BYTES: Final = 900_000
_METADATA_BYTES: Final = 24
"""The size of the metadata of a commit of slices, by spec/commit-metadata.md."""
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
ABSENT: Final = "does not exist, or this user may not see it"
"""What is found of a topic that is not there."""
_SOON_MS: Final = 14 * 86_400_000
_CLOCK_TOLERANCE_MS: Final = 1_000
_NEVER_MS: Final = (1 << 63) - 1
"""Kafka's default of max.compaction.lag.ms."""
_NOT_TOLD: Final = "the cluster does not report this user's permissions"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check.

    Args:
        check: the name of the check, such as ``topic orders: size``.
        status: ``ok``; ``warn`` if something may go wrong; ``fail`` if something cannot work; ``unknown`` if
            the check could not be made.
        found: the state that was found.
        advice: what the user should do; None if there is nothing to do.
    """

    check: str
    status: Status
    found: str
    advice: str | None = None


def examine(
    config: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    topics: Sequence[str] = (),
    *,
    group: str | None = None,
    side: Side | None = None,
    timeout_s: float = 10.0,
) -> list[Finding]:
    """Check everything that can be checked without a change to the cluster or a file.

    Args:
        config: the path of the chain's TOML file; None checks no chain, and a finding says so.
        settings: a client's settings; without ``bootstrap.servers``, no cluster is checked.
        topics: the topics that the application writes or reads.
        group: the application's consumer group, or None.
        side: whether the application is a producer or a consumer; None means both.
        timeout_s: how long to wait for each answer of the cluster, in seconds.

    Returns:
        The findings, in the order of the checks. A check that fails does not stop the others.
    """
    found = list(_versions())
    loaded: Chain | None = None
    if config is None:
        advice = "if the application has a chain, name its file with --config or HEADERWARE_CONFIG"
        found.append(Finding(check="chain", status="unknown", found="no file names it", advice=advice))
    else:
        found += _environment(config)
        found += _reload(config, settings or {})
        try:
            loaded = load_chain(config)
        except HeaderwareError as error:
            found.append(_fail("chain", str(error), "correct the file (see `headerware check`)"))
        else:
            found.append(_ok("chain", " -> ".join(loaded.names) or "an empty chain"))
            found += _files(loaded, side)
            found += [
                Finding(check=f"chain: {name}", status="warn", found=text)
                for name, text in weaknesses(tuple(loaded))
            ]
            found += _opens(loaded, side, settings or {})
            found += _reached(loaded)
            found += _dictionaries(loaded)
            found += object_stores(loaded, side)
            found += _keys(loaded, topics, side)
            found += [finding for _, finding in key_services(loaded, side, timeout_s)]
    if settings is not None and bootstrap_servers(settings):
        found += _Cluster(settings, loaded or Chain(), topics, group, side, timeout_s).findings()
    return found


# Versions


def _versions() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield _ok("python", python)
    for requirement in requires("headerware") or ():
        # Opening the chain checks the requirements of extras; build tools add requirements without a bound.
        matched = _REQUIREMENT.fullmatch(requirement)
        bounds = _BOUND.findall(matched[2]) if matched else []
        if matched is None or not bounds:
            continue
        name = matched[1]
        wanted = ",".join(f"{relation}{bound}" for relation, bound in bounds)
        try:
            installed = version(name)
        except PackageNotFoundError:
            yield _fail(name, "is not installed", f"pip install '{name}{wanted}'")
            continue
        if all(_holds(installed, relation, bound) for relation, bound in bounds):
            yield _ok(name, installed)
        else:
            yield _fail(name, f"{installed}, expected {wanted}", f"pip install '{name}{wanted}'")
    import confluent_kafka  # noqa: PLC0415 - slow to import

    yield _ok("librdkafka", str(confluent_kafka.libversion()[0]))
    _, found = native_module()
    if found.startswith("not used"):
        yield Finding(check="native", status="warn", found=found, advice=install_command("native"))
    else:
        yield _ok("native", found)


def _holds(installed: str, relation: str, bound: str) -> bool:
    at_least = _numbers(installed) >= _numbers(bound)
    return at_least if relation == ">=" else not at_least


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(int(number) for number in re.findall(r"\d+", text)[:3])
    return (*found, *(0,) * (3 - len(found)))


# The chain and its keys


def _environment(config: str | os.PathLike[str]) -> Iterator[Finding]:
    """Tell which clients use the file that the environment variable names; nothing else tells the user."""
    if os.environ.get(CONFIG_VARIABLE) == os.fspath(config) and not os.environ.get("HEADERWARE_RUN"):
        yield Finding(
            check=CONFIG_VARIABLE,
            status="ok",
            found="Headerware's own clients use this chain; confluent-kafka's clients do not by themselves",
            advice="if the application makes confluent-kafka's clients, start it with `headerware run`, or "
            "let it call headerware.instrument()",
        )


def _reload(config: str | os.PathLike[str], settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Check whether a client with this chain can reload its file, if the file asks for it."""
    from headerware.clients.live_chain import reload_of  # noqa: PLC0415 - it imports a client

    try:
        reload = reload_of(config, settings)
    except ConfigError as error:
        yield _fail("reload", str(error), "name a known mode; until then no client with this chain starts")
    except MissingPartError as error:
        yield _fail("reload", str(error), "install it; until then no client with this chain starts")
    else:
        if reload != "off":
            yield _ok("reload", reload)


def _files(loaded: Chain, side: Side | None) -> Iterator[Finding]:
    """Check the files of a chain that may serve both sides; a client of one side may need fewer of them."""
    if side is not None:
        return
    try:
        loaded.check_files()
    except HeaderwareError as error:
        advice = "correct the file (see `headerware check`), or name the application's side with --side"
        yield _fail("files of the chain", str(error), advice)


def _opens(loaded: Chain, side: Side | None, settings: Mapping[str, Any]) -> Iterator[Finding]:
    servers = bootstrap_servers(settings)
    max_bytes = number(settings, "message.max.bytes", _CLIENT_MAX_BYTES)
    for each in _SIDES if side is None else (side,):
        check = f"chain as a {each}"
        if any(_creates(step) for step in loaded):
            yield Finding(check=check, status="unknown", found="not opened: a store has create = true")
            continue
        try:
            context = Context(side=each, bootstrap_servers=servers, max_message_bytes=max_bytes, dry_run=True)
            loaded.open(context).close()
        except HeaderwareError as error:
            # One chain often serves both sides, but only producers have the id of a key and its private half.
            status: Status = "fail" if side else "warn"
            fits = not isinstance(error, KeyringError) or error.public_only
            name_side = f"if this application is not a {each}, name its side with --side"
            advice = name_side if side is None and fits else None
            yield Finding(check=check, status=status, found=str(error), advice=advice)
        else:
            yield _ok(check, "opens")


def _creates(option: object) -> bool:
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


def _reached(loaded: Chain) -> Iterator[Finding]:
    """Ask each schema store for a schema that does not exist, to see whether the store answers."""
    for store in _among(loaded, Store):
        check = f"schema store {store.type}"
        if _creates(store):
            yield Finding(check=check, status="unknown", found="not asked: it has create = true")
            continue
        try:
            opened: SchemaStore = store.open()
            try:
                opened.get(_NO_SCHEMA)
            finally:
                opened.close()
        except UnknownSchemaError:
            yield _ok(check, "answers")
        except HeaderwareError as error:
            advice = "without the store, consumers hold back records whose schema is not in their cache"
            yield _fail(check, str(error), advice)
        else:
            yield _ok(check, "answers")


def _dictionaries(loaded: Chain) -> Iterator[Finding]:
    """Read each store of dictionaries."""
    for settings in _among(loaded, Dictionaries):
        check = "store of dictionaries"
        if _creates(settings):
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
            yield _fail(check, str(error), advice)
            continue
        missing = sorted({use.topic for use in uses if use.current.dictionary not in ids})
        if missing:
            advice = "publish them again (headerware dictionaries publish)"
            yield _fail(check, f"the store lacks the dictionaries of {', '.join(missing)}", advice)
        elif not uses:
            advice = "publish a dictionary (headerware dictionaries publish), or remove the option"
            yield Finding(check=check, status="warn", found="no topic has a dictionary", advice=advice)
        else:
            count = counted(len(ids), "dictionary", "dictionaries")
            yield _ok(check, f"{count} for {counted(len({use.topic for use in uses}), 'topic')}")


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
                yield _fail(name, str(error), advice)
            else:
                listed = "can be listed, so a missing object can be told from a forbidden one"
                yield _ok(name, listed if check is None else "can be used")


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
            yield f"interceptors.{name}.key_service", _fail(check, str(error), advice)
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
            yield _fail(check, str(error), _WHILE_DOWN)
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
                yield _fail(own, str(error), "rotate the key, or name another key in key_id")
            continue
        except KeyServiceError as error:
            yield _fail(own, str(error), "correct key_id, or create the key in the service")
            continue
        if side == "producer":
            yield _ok(own, "wraps")
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
        return _fail(check, str(cause), advice)
    return _ok(check, does)


def _denied(check: str, right: str, error: KeyServiceError, *, needed: bool) -> Finding:
    """Return the finding for a missing permission, which only the other side's application may need."""
    operation, who = ("encrypt", "producer") if right == "wrap" else ("decrypt", "consumer")
    advice = (
        f"grant {operation} on the key (if its policy names encryption contexts, for {_PROBE!r} too)"
        f"{'' if needed else f', or name the side with --side if this application is not a {who}'}"
    )
    found = f"permission to {right} is refused: {error}"
    return Finding(check=check, status="fail" if needed else "warn", found=found, advice=advice)


def _keys(loaded: Chain, topics: Sequence[str], side: Side | None) -> Iterator[Finding]:
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
            yield _fail(check, str(error), "without the keyring, no client with this chain starts")
            continue
        usable, now_ms = [key.id for key in keyring.keys if "sign" in key.use], wall_clock_ms()
        yield _ok(check, f"{counted(len(usable), 'version')} of {counted(len({*usable}), 'key')}")
        signing: Key | None = None
        signer = None if side == "consumer" else step.key_id
        try:
            with naming_file(step.keyring):
                signing = None if signer is None else keyring.current_key(signer, "sign", now_ms)
        except KeyringError as error:
            yield _fail(check, str(error), _to_sign_again(step, keyring))
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
                yield _fail(f"{check} for {topic}", refusal, "sign with a key that may sign for this topic")


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
            yield _ok(check, f"{found}, and version {before[-1].version} signs until then")
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


# The cluster


class _Cluster:
    """The checks that ask the cluster; if the cluster refuses an answer, only that check is unknown."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        loaded: Chain,
        topics: Sequence[str],
        group: str | None,
        side: Side | None,
        timeout_s: float,
    ) -> None:
        self._settings = settings
        self._chain = loaded
        self._topics = tuple(dict.fromkeys(topics))
        self._group = group
        self._side = side
        self._timeout_s = timeout_s
        self._admin: Admin
        self._known: frozenset[str] = frozenset()
        self._broker_configs: dict[str, str] = {}
        self._topic_configs: dict[str, dict[str, str] | None] = {}

    def findings(self) -> Iterator[Finding]:
        """Yield the findings; if the cluster cannot be reached, yield only one finding that says so."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        try:
            self._admin = Admin(self._settings, timeout_s=self._timeout_s)
            metadata = self._admin.first_metadata()
        except KafkaException as error:
            found = error.args[0].str().removesuffix(f"; {TO_REACH_A_CLUSTER}")
            yield _fail("cluster", found, TO_REACH_A_CLUSTER)
            return
        self._known = frozenset(metadata.topics)
        yield _ok("cluster", f"{metadata.cluster_id}, {counted(len(metadata.brokers), 'broker')}")
        embedded = is_embedded(metadata.cluster_id)
        if len(metadata.brokers) == 1 and not embedded:
            yield Finding(
                check="cluster",
                status="warn",
                found="one broker: while it restarts, librdkafka may forget the cluster (its issue 5301)",
                advice="make new clients if they find no broker after a restart, or run several brokers",
            )
        for name, found in idle_on(tuple(self._chain), {*self._topics, *self._known}):
            yield Finding(
                check=f"chain: {name}",
                status="warn",
                found=f"{found}: neither a topic that was named nor a topic of the cluster",
                advice="correct the topics of that step or rule, or name the topic that will be created",
            )
        if embedded:
            yield from self._of_embedded()
            return
        yield from self._of_cluster()
        yield from self._of_group()
        for topic in self._topics:
            yield from self._of_topic(topic)

    def _ask(
        self, check: str, right: str, ask: Callable[[], _Answer]
    ) -> Generator[Finding, None, _Answer | None]:
        """Return the cluster's answer; if the cluster refuses it, yield a finding and return None."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        try:
            return ask()
        except KafkaException as error:
            found = f"the cluster does not answer this: {error.args[0].str()}"
            yield Finding(
                check=check, status="unknown", found=found, advice=f"{right} lets the doctor see it"
            )
            return None

    def _of_embedded(self) -> Iterator[Finding]:
        """Yield what can be said of a cluster that answers no admin requests."""
        what = embedded_text(self._settings.get("bootstrap.servers"))
        yield Finding(
            check="cluster",
            status="unknown",
            found=f"{what}: it tells no settings, rights or groups, so topics are only looked for",
            advice=TO_RUN_KAFKA,
        )
        for topic in self._topics:
            there = topic in self._known
            yield _ok(f"topic {topic}", "it is there") if there else _absent(topic)

    def _of_cluster(self) -> Iterator[Finding]:
        found = yield from self._ask("cluster", "DESCRIBE on the cluster", self._admin.describe_cluster)
        may_create = "CREATE" in operations(found)
        if found is not None and found.controller is not None:
            ask = partial(self._admin.broker_settings, found.controller.id)
            right = "DESCRIBE_CONFIGS on the cluster"
            configs = yield from self._ask("cluster: settings", right, ask)
            self._broker_configs = configs or {}
        metadata_bytes = int(self._broker_configs.get("offset.metadata.max.bytes", 4096))
        if metadata_bytes < _METADATA_BYTES:
            yield _fail(
                "commits",
                f"offset.metadata.max.bytes is {metadata_bytes}, so commits of slices are refused",
                f"raise it to {_METADATA_BYTES} or more; Kafka's default is 4096",
            )
        yield from self._dead_letters(may_create=may_create)
        yield from self._audit_topics()
        yield from self._subject_keys()

    def _subject_keys(self) -> Iterator[Finding]:
        for name, step in zip(self._chain.names, self._chain, strict=True):
            place = step.subject_keys if isinstance(step, EncryptionOptions) else None
            if place is None or place.servers is not None:  # other brokers are not asked here
                continue
            check = f"keys of subjects of {name}"
            if place.topic not in self._known:
                status: Status = "warn" if place.create else "fail"
                found = f"topic {place.topic} {ABSENT}"
                advice = "create it with one partition, or grant READ on it: without it, records wait"
                yield Finding(check=check, status=status, found=found, advice=advice)
                continue
            configs = yield from self._settings_of(place.topic)
            if configs is None:
                continue
            lag_ms = int(configs.get("max.compaction.lag.ms", _NEVER_MS))
            if configs["cleanup.policy"] != "compact":
                found = f"cleanup.policy of {place.topic} is {configs['cleanup.policy']}"
                yield _fail(check, found, "set it to compact: otherwise brokers delete keys that are in use")
            elif lag_ms >= _NEVER_MS:
                yield Finding(
                    check=check,
                    status="warn",
                    found=f"max.compaction.lag.ms of {place.topic} is not set, so the brokers may keep "
                    "erased keys for ever",
                    advice="set it to the time that you promise for erasures, such as "
                    f"{MAX_COMPACTION_LAG_MS}, a day",
                )
            else:
                yield _ok(check, f"{place.topic}, compacted within {lag_ms} ms")

    def _audit_topics(self) -> Iterator[Finding]:
        for name, step in zip(self._chain.names, self._chain, strict=True):
            if not isinstance(step, Audit) or step.audit_topic is None:
                continue
            check = f"reports of {name}"
            if step.audit_topic not in self._known:
                found = f"topic {step.audit_topic} {ABSENT}"
                yield _fail(check, found, "create it, or grant WRITE on it: otherwise reports are lost")
                continue
            description = yield from self._description(check, step.audit_topic)
            if description is None:
                continue
            if not description.operations:
                yield Finding(check=check, status="unknown", found=_NOT_TOLD)
            elif "WRITE" in description.operations:
                yield _ok(check, f"this user may write to {step.audit_topic}")
            else:
                found = f"this user may not write to {step.audit_topic}"
                yield _fail(check, found, "grant WRITE: otherwise reports are lost")

    def _description(self, check: str, topic: str) -> Generator[Finding, None, TopicDescription | None]:
        """Return the cluster's description of a topic, including this user's permissions."""
        ask = partial(self._admin.describe_topic, topic)
        return (yield from self._ask(check, f"DESCRIBE on {topic}", ask))

    def _dead_letters(self, *, may_create: bool) -> Iterator[Finding]:
        if self._broker_configs.get("auto.create.topics.enable") == "true":
            may_create = True
        for name, step in zip(self._chain.names, self._chain, strict=True):
            if not isinstance(step, Interceptor) or step.on_error != "dead_letter":
                continue
            for topic in filter(topics_of(step).matches, self._topics):
                dead = step.dead_letter_topic.replace("{topic}", topic)
                check = f"dead letters of {name} from {topic}"
                if dead in self._known:
                    yield _ok(check, dead)
                    yield from self._dead_letter_topic(check, topic, dead)
                else:
                    yield Finding(
                        check=check,
                        status="warn" if may_create else "fail",
                        found=f"topic {dead} does not exist",
                        advice="create the topic, before the broker creates it with default settings"
                        if may_create
                        else "create the topic: otherwise a refused record stops its partition",
                    )

    def _dead_letter_topic(self, check: str, topic: str, dead: str) -> Iterator[Finding]:
        if topic not in self._known:
            return
        settings = []
        for one in (topic, dead):
            configs = yield from self._settings_of(one)
            if configs is None:
                return
            settings.append(configs)
        own_ms, other_ms = map(_retention_ms, settings)
        if other_ms <= own_ms and settings[1]["message.timestamp.type"] == "CreateTime" and other_ms < inf:
            yield Finding(
                check=check,
                status="warn",
                found=f"{dead} keeps dead letters no longer than {topic} keeps records",
                advice="set retention.ms=-1, or message.timestamp.type=LogAppendTime: a dead letter has the "
                "timestamp of its record, so the dead letter of an old record is soon deleted",
            )
        own, other = (int(configs["max.message.bytes"]) for configs in settings)
        if other < own:
            yield Finding(
                check=check,
                status="warn",
                found=f"max.message.bytes is {other}, less than the {own} of {topic}",
                advice=f"raise it above {own}: a dead letter has more headers than its record",
            )

    def _of_group(self) -> Iterator[Finding]:
        if self._group is None:
            return
        check = f"group {self._group}"
        ask = partial(self._admin.describe_group, self._group)
        group = yield from self._ask(check, "DESCRIBE on the group", ask)
        if group is None:
            return
        allowed = operations(group)
        state = "not there yet" if group.state.name == "DEAD" else str(group.state.name).lower()
        if not allowed:
            yield Finding(check=check, status="unknown", found=f"{state}; {_NOT_TOLD}")
        elif "READ" not in allowed:
            advice = "grant READ on the group: otherwise its consumers can neither join nor commit"
            yield _fail(check, "this user may not read in the group", advice)
        else:
            yield _ok(check, f"{state}; this user may read in it")

    def _of_topic(self, topic: str) -> Iterator[Finding]:
        check = f"topic {topic}"
        if topic not in self._known:
            yield _absent(topic)
            return
        description = yield from self._description(check, topic)
        configs = yield from self._settings_of(topic)
        if description is not None:
            yield from self._rights(check, description.operations)
        if configs is not None:
            if description is not None:
                yield from _replication(check, description.replicas, int(configs["min.insync.replicas"]))
            yield from self._sizes(topic, int(configs["max.message.bytes"]))
            yield from self._compaction(topic, configs["cleanup.policy"])
        if description is not None:
            kind = "" if configs is None else configs["message.timestamp.type"]
            yield from self._clock(topic, description.partitions, kind)

    def _rights(self, check: str, allowed: frozenset[str]) -> Iterator[Finding]:
        wanted = {_MAY[side] for side in (_SIDES if self._side is None else (self._side,))}
        missing = sorted(wanted - allowed)
        if not allowed:
            yield Finding(check=check, status="unknown", found=_NOT_TOLD)
        elif not missing:
            yield _ok(check, f"this user may {' and '.join(sorted(wanted)).lower()}")
        else:
            status: Status = "fail" if len(missing) == len(wanted) else "warn"
            words = " or ".join(missing)
            yield Finding(
                check=check,
                status=status,
                found=f"this user may not {words.lower()}",
                advice=f"grant {words}, or name the application's side with --side if it does not need that",
            )

    def _slicing(self, topic: str) -> Iterator[Slice]:
        return (step for step in self._chain if isinstance(step, Slice) and works_on(step, topic))

    def _sizes(self, topic: str, limit: int) -> Iterator[Finding]:
        check = f"topic {topic}: size"
        client = int(self._settings.get("message.max.bytes", _CLIENT_MAX_BYTES))
        slicing = next(self._slicing(topic), None)
        if slicing is None:
            if limit < client:
                yield Finding(
                    check=check,
                    status="warn",
                    found=f"the topic takes {limit} bytes, and the client sends up to {client}",
                    advice="raise max.message.bytes of the topic, lower message.max.bytes of the client, or "
                    "add slice to the chain",
                )
            else:
                yield _ok(check, f"the topic takes {limit} bytes, the client sends up to {client}")
            return
        largest = min(_SLICE_MAX_BYTES, client) if slicing.max_bytes is None else slicing.max_bytes
        if largest > limit:
            yield _fail(
                check,
                f"slices are up to {largest} bytes, and the topic takes {limit}",
                f"set max_bytes of slice to {limit} or less, or raise max.message.bytes of the topic",
            )
        elif largest > client:
            yield _fail(
                check,
                f"slices are up to {largest} bytes, and the client takes {client}",
                f"set max_bytes of slice to {client} or less, or raise message.max.bytes of the client",
            )
        else:
            yield _ok(check, f"slices are up to {largest} bytes, and the topic takes {limit}")

    def _compaction(self, topic: str, policy: str) -> Iterator[Finding]:
        check = f"topic {topic}: compaction"
        if "compact" not in policy:
            return
        if next(self._slicing(topic), None) is not None:
            yield _fail(
                check,
                "the topic is compacted and slice applies to it: all slices of a message have the same key, "
                "so compaction would keep only the last slice",
                f"exclude the topic from slice (topics = ['*', '!{topic}']) and add claim_check to the chain "
                "for large values, or set cleanup.policy=delete",
            )
        else:
            yield _ok(check, f"cleanup.policy is {policy}")

    def _clock(self, topic: str, partitions: int, kind: str) -> Iterator[Finding]:
        """Compare the topic's latest timestamps with this machine's clock: Kafka does not tell its time."""
        check, now_ms = f"topic {topic}: clocks", wall_clock_ms()
        latest_ms = yield from self._ask(
            check,
            f"DESCRIBE on {topic}",
            lambda: max(self._admin.latest_timestamps(topic, partitions).values(), default=-1),
        )
        if latest_ms is None:
            return
        owners = {"LogAppendTime": "the brokers'", "CreateTime": "a producer's"}
        owner = owners.get(kind, "a producer's or the brokers'")
        if latest_ms < 0:
            yield Finding(
                check=check,
                status="unknown",
                found="the topic has no record whose time could be compared; Kafka does not tell its time",
                advice="compare the machines by NTP, with `chronyc tracking` for instance",
            )
        elif latest_ms > now_ms + _CLOCK_TOLERANCE_MS:
            yield Finding(
                check=check,
                status="warn",
                found=f"the latest record is {latest_ms - now_ms} ms in the future: {owner} clock is fast, "
                "or this machine's clock is slow",
                advice="synchronize the clocks with NTP; signatures, expiry and trails compare times",
            )
        else:
            yield _ok(check, f"no record is in the future{f' ({kind})' if kind else ''}")

    def _settings_of(self, topic: str) -> Generator[Finding, None, dict[str, str] | None]:
        """Return a topic's settings; ask once for each topic, and yield only one finding for a refusal."""
        if topic not in self._topic_configs:
            ask = partial(self._admin.topic_settings, topic)
            self._topic_configs[topic] = yield from self._ask(
                f"topic {topic}: settings", f"DESCRIBE_CONFIGS on {topic}", ask
            )
        return self._topic_configs[topic]


def _replication(check: str, replicas: int, in_sync: int) -> Iterator[Finding]:
    check = f"{check}: replicas"
    found = f"{counted(replicas, 'replica')}, min.insync.replicas {in_sync}"
    if in_sync > replicas:
        advice = "lower min.insync.replicas or add replicas: as it is, the topic refuses acks=all"
        yield _fail(check, found, advice)
    elif replicas == 1:
        advice = "use three replicas: with one, records are lost when the broker is lost"
        yield Finding(check=check, status="warn", found=found, advice=advice)
    elif in_sync == replicas:
        advice = "add one replica: as it is, the topic refuses records with acks=all while a broker is down"
        yield Finding(check=check, status="warn", found=found, advice=advice)
    else:
        yield _ok(check, found)


def _ok(check: str, found: str) -> Finding:
    return Finding(check=check, status="ok", found=found)


def _absent(topic: str) -> Finding:
    return _fail(f"topic {topic}", ABSENT, "create the topic, or grant DESCRIBE on it")


def _fail(check: str, found: str, advice: str | None = None) -> Finding:
    return Finding(check=check, status="fail", found=found, advice=advice)


def _retention_ms(configs: Mapping[str, str]) -> float:
    """Return how long a topic keeps records by their time; infinity if age deletes no record."""
    ms = int(configs["retention.ms"])
    return float(ms) if "delete" in configs["cleanup.policy"] and ms >= 0 else inf
