"""Find the chain of a client: in code, in its configuration, or in the environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

from headerware.core.chain import Chain
from headerware.core.config import CARRY, FILE, RELOAD, from_flat, is_ours
from headerware.core.errors import ConfigError
from headerware.core.files import Read, read_text
from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.core.plain_files import require_path
from headerware.core.suggestions import did_you_mean
from headerware.core.toml import within_file
from headerware.core.variables import warn_of_misspelt

DEAD_LETTER: Final = "headerware.dead_letter."
"""Prefix of a consumer's overrides for the producer that publishes its dead letters."""
PROCESSING: Final = "headerware.processing"
"""The key that says how a consumer knows that the application processes a record."""
HIDE_HEADERS: Final = "headerware.hide_headers"
"""The key that says whether a consumer's messages show no headers of Headerware."""
Reload = Literal["off", "watch", "signal"]
"""When a client reads the file of its chain again: when asked, when it changes, or on SIGHUP."""
CLIENT_KEYS: Final = (FILE, RELOAD, CARRY, PROCESSING, HIDE_HEADERS)
"""The keys of all clients that have this prefix; :data:`DEAD_LETTER` begins others."""
_DECLARE_NO_CHAIN: Final = frozenset({RELOAD, CARRY})
"""The keys that change a chain, but declare none."""
_log: Final = logging.getLogger("headerware")
Side = Literal["producer", "consumer"]
"""Which half of a chain a client uses."""
_DISABLED: Final = "HEADERWARE_DISABLED"
_NO: Final = ("0", "false", "no", "off")
_YES: Final = ("1", "true", "yes", "on")
_SWITCHED_OFF: Final[Mapping[str, tuple[Side, ...]]] = {
    **dict.fromkeys(("", *_NO), ()),
    **dict.fromkeys(_YES, get_args(Side)),
    "send": ("producer",),
}
"""The sides that each value of ``HEADERWARE_DISABLED`` switches off."""
_ENFORCES: Final = ("enforce", "true", True)
_WHAT_CONSUMERS_GET: Final = (
    "; the consumer gets records as they are on the wire (slices, compressed and encrypted values) and "
    "commits past them; HEADERWARE_DISABLED=send switches producers off, and consumers still decode"
)
CONFIG_VARIABLE: Final = "HEADERWARE_CONFIG"
"""The environment variable that names the chain's file."""
USUAL_FILE: Final = "headerware.toml"
"""The name of a chain's file, as ``headerware init`` gives it."""

HOW_TO_GIVE_A_CHAIN: Final = (
    f"give the client a chain with chain=load_chain(path), with the key {FILE}, or with the variable "
    f"{CONFIG_VARIABLE}"
)
"""Advice for an application whose client has no chain."""


def config_of_environment() -> str:
    """Return the path of the file that ``HEADERWARE_CONFIG`` names, or an empty text."""
    path = os.environ.get(CONFIG_VARIABLE, "")
    require_path(path, CONFIG_VARIABLE)
    return path


def client_chain(
    config: Mapping[str, Any],
    chain: Chain | None = None,
    read: Read = read_text,
    *,
    side: Side = "consumer",
) -> tuple[Chain, dict[str, Any]]:
    """Return a client's chain, and the configuration that remains for the client itself.

    The chain is ``chain`` if it is given, else the chain that the configuration declares, else the chain of
    the file that ``HEADERWARE_CONFIG`` names, else empty. A chain in code and a chain in configuration are
    refused together.
    ``headerware.carry`` alone declares no chain: it overrides ``carry`` of the chain of
    ``HEADERWARE_CONFIG``. ``HEADERWARE_DISABLED=1`` leaves only the steps that serialize, because an
    application's objects cannot be sent without them, and logs what is off; errors in the configuration are
    then only logged. ``HEADERWARE_DISABLED=send`` does the same, but only for producers. ``read`` returns the
    text of a file.
    """
    warn_of_misspelt()
    ours = {key: value for key, value in config.items() if is_ours(key)}
    rest = {key: value for key, value in config.items() if key not in ours}
    for key in rest:
        is_a_consumers = key in {PROCESSING, HIDE_HEADERS} or key.startswith(DEAD_LETTER)
        if key.startswith("headerware.") and not is_a_consumers:
            known = f"known: {', '.join(CLIENT_KEYS)}, {DEAD_LETTER}<producer key>"
            raise ConfigError(f"unknown key{did_you_mean(key, CLIENT_KEYS, then=known)}", path=key)
    if not is_disabled(side):
        return _configured(ours, chain, read), rest
    try:
        configured = _configured(ours, chain, read)
    except ConfigError as error:
        _log.warning("HEADERWARE_DISABLED is set, so this is ignored: %s", error)
        return Chain(), rest
    left = what_is_left(configured)
    off = [name for name in configured.names if name not in left.names]
    off += ["carry"] if configured.carry else []
    if off:
        follows = _WHAT_CONSUMERS_GET if side == "consumer" else _refusal_advice(configured)
        _log.warning("HEADERWARE_DISABLED is set, so these are off: %s%s", ", ".join(off), follows)
    return left, rest


def _refusal_advice(configured: Chain) -> str:
    """Return advice about consumers that require a protection that is off now; empty if there are none."""
    requiring = [
        name
        for name, each in zip(configured.names, configured, strict=True)
        if getattr(each, "require", None) in _ENFORCES
    ]
    if not requiring:
        return ""
    return (
        f"; consumers with this chain refuse the records that are sent now, because of "
        f'require = "enforce" in {", ".join(requiring)}; set it to "warn" there as long as '
        f"HEADERWARE_DISABLED is set here"
    )


def is_disabled(side: Side = "consumer") -> bool:
    """Return whether ``HEADERWARE_DISABLED`` switches the chains of a side off.

    The chains of consumers are off only if all chains are.

    Raises:
        ConfigError: the variable has an unknown value.
    """
    found = os.environ.get(_DISABLED, "")
    sides = _SWITCHED_OFF.get(found.strip().lower())
    if sides is None:
        raise ConfigError(
            f"expected 1 (everything is off), send (nothing is encoded, and consumers still decode) or 0, "
            f"found {found!r}",
            path=_DISABLED,
        )
    return side in sides


def truth(found: object, path: str) -> bool:
    """Return a value of a client's configuration or of the environment as a boolean."""
    word = str(found).strip().lower()
    if word not in (*_YES, *_NO):
        raise ConfigError(f"expected true or false, found {found!r}", path=path)
    return word in _YES


def what_is_left(chain: Chain) -> Chain:
    """Return a chain of the steps that serialize, which remain if everything is switched off."""
    return Chain([step for step in chain if place_of(step) is Place.SERIALIZE])


def declares_chain(config: Mapping[str, Any]) -> bool:
    """Return whether a client's configuration declares its chain, or names the file of it."""
    return any(is_ours(key) for key in config if key not in _DECLARE_NO_CHAIN)


def followed_file(
    config: Mapping[str, Any], chain: Chain | None = None, *, side: Side = "consumer"
) -> tuple[str, Reload] | None:
    """Return the file that a client's chain comes from, and when the client reads it again; None without one.

    ``headerware.reload`` says when, or else ``HEADERWARE_RELOAD``.
    """
    if is_disabled(side):
        return None
    stated = config.get(RELOAD)
    reload = os.environ.get("HEADERWARE_RELOAD") or "off" if stated is None else stated
    if reload not in get_args(Reload):
        variable_or_key = "HEADERWARE_RELOAD" if stated is None else RELOAD
        raise ConfigError(f"expected {', '.join(get_args(Reload))}, found {reload!r}", path=variable_or_key)
    path = config.get(FILE)
    if path is None and not declares_chain(config):
        path = config_of_environment()
    if chain is not None:
        return None
    if path:
        return str(path), cast("Reload", reload)
    if stated not in {None, "off"}:
        raise ConfigError(
            f"there is no file to read again: {FILE} or HEADERWARE_CONFIG names one (found {reload!r})",
            path=RELOAD,
        )
    return None


def _configured(ours: Mapping[str, Any], chain: Chain | None, read: Read) -> Chain:
    """Return the chain from code, from the client's configuration or from the environment."""
    if chain is not None:
        _require_chain(chain)
        if ours:
            raise ConfigError(
                f"the client was given a chain in code and {', '.join(sorted(ours))} in its configuration; "
                f"use one of the two"
            )
        return chain
    ours = {key: value for key, value in ours.items() if key != RELOAD}
    path = config_of_environment()
    if ours and not (path and _DECLARE_NO_CHAIN.issuperset(ours)):
        found = from_flat(ours, read)
        if FILE not in ours:
            return Chain.configured(found)
        with within_file(ours[FILE]):
            return Chain.configured(found)
    if not path:
        return Chain()
    try:
        found = from_flat({**ours, FILE: path}, read)
        with within_file(path):
            return Chain.configured(found)
    except ConfigError as error:
        error.add_note(f"{CONFIG_VARIABLE} names {path}")
        raise


def _require_chain(chain: object) -> None:
    # A list of interceptors would fail late, and an empty list would be taken for no chain.
    if not isinstance(chain, Chain):
        for_file = f", or for a file load_chain(path) or the client's key {FILE}"
        hint = f"write Chain([...]){for_file if isinstance(chain, str | os.PathLike) else ''}"
        raise ConfigError(f"expected a Chain, found {type(chain).__name__}; {hint}", path="chain")
