"""The doctor's examination: check versions, the chain with its files, and all that the chain names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Final

from headerware.core.chain import Chain, load_chain
from headerware.core.client_chain import CONFIG_VARIABLE
from headerware.core.context import Context
from headerware.core.errors import ConfigError, HeaderwareError, KeyringError, MissingPartError
from headerware.core.extras import install_command
from headerware.core.native import native_module
from headerware.core.order import weaknesses
from headerware.kafka.settings import bootstrap_servers, number
from headerware.ops.doctor.cluster import CLIENT_MAX_BYTES, ClusterChecks
from headerware.ops.doctor.finding import SIDES, Finding, Side, Status, fail, ok
from headerware.ops.doctor.keys import signing_keys
from headerware.ops.doctor.services import (
    creates_topic,
    dictionaries,
    key_services,
    object_stores,
    schema_stores,
)

_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*([<>=!~,0-9.\s]*)")
_BOUND: Final = re.compile(r"(>=|<)\s*([0-9.]+)")


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
            found.append(fail("chain", str(error), "correct the file (see `headerware check`)"))
        else:
            found.append(ok("chain", " -> ".join(loaded.names) or "an empty chain"))
            found += _files(loaded, side)
            found += [
                Finding(check=f"chain: {name}", status="warn", found=text)
                for name, text in weaknesses(tuple(loaded))
            ]
            found += _opens(loaded, side, settings or {})
            found += schema_stores(loaded)
            found += dictionaries(loaded)
            found += object_stores(loaded, side)
            found += signing_keys(loaded, topics, side)
            found += [finding for _, finding in key_services(loaded, side, timeout_s)]
    if settings is not None and bootstrap_servers(settings):
        found += ClusterChecks(settings, loaded or Chain(), topics, group, side, timeout_s).findings()
    return found


# Versions


def _versions() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield ok("python", python)
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
            yield fail(name, "is not installed", f"pip install '{name}{wanted}'")
            continue
        if all(_holds(installed, relation, bound) for relation, bound in bounds):
            yield ok(name, installed)
        else:
            yield fail(name, f"{installed}, expected {wanted}", f"pip install '{name}{wanted}'")
    import confluent_kafka  # noqa: PLC0415 - slow to import

    yield ok("librdkafka", str(confluent_kafka.libversion()[0]))
    _, found = native_module()
    if found.startswith("not used"):
        yield Finding(check="native", status="warn", found=found, advice=install_command("native"))
    else:
        yield ok("native", found)


def _holds(installed: str, relation: str, bound: str) -> bool:
    at_least = _numbers(installed) >= _numbers(bound)
    return at_least if relation == ">=" else not at_least


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(int(number) for number in re.findall(r"\d+", text)[:3])
    return (*found, *(0,) * (3 - len(found)))


# The chain


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
        yield fail("reload", str(error), "name a known mode; until then no client with this chain starts")
    except MissingPartError as error:
        yield fail("reload", str(error), "install it; until then no client with this chain starts")
    else:
        if reload != "off":
            yield ok("reload", reload)


def _files(loaded: Chain, side: Side | None) -> Iterator[Finding]:
    """Check the files of a chain that may serve both sides; a client of one side may need fewer of them."""
    if side is not None:
        return
    try:
        loaded.check_files()
    except HeaderwareError as error:
        advice = "correct the file (see `headerware check`), or name the application's side with --side"
        yield fail("files of the chain", str(error), advice)


def _opens(loaded: Chain, side: Side | None, settings: Mapping[str, Any]) -> Iterator[Finding]:
    servers = bootstrap_servers(settings)
    max_bytes = number(settings, "message.max.bytes", CLIENT_MAX_BYTES)
    for each in SIDES if side is None else (side,):
        check = f"chain as a {each}"
        if any(creates_topic(step) for step in loaded):
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
            yield ok(check, "opens")
