"""Find the chain of a client: in code, in its configuration, or in the environment."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

from headerware.core.chain import Chain, load_chain
from headerware.core.config import FILE, is_ours
from headerware.core.errors import ConfigError
from headerware.core.hooks import Place
from headerware.core.order import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

DEAD_LETTER: Final = "headerware.dead_letter."
"""Prefix of a consumer's overrides for the producer that publishes its dead letters."""
PROCESSING: Final = "headerware.processing"
"""The key that says how a consumer knows that the application processes a record."""
_log: Final = logging.getLogger("headerware")
_ON: Final = frozenset({"1", "true", "yes", "on"})


def client_chain(config: Mapping[str, Any], chain: Chain | None = None) -> tuple[Chain, dict[str, Any]]:
    """Return a client's chain, and the configuration that remains for the client itself.

    The chain is the one given, else the one that the configuration declares, else that of the file named by
    ``HEADERWARE_CONFIG``, else empty. A chain in code and one in configuration are refused together.
    ``HEADERWARE_DISABLED=1`` leaves only the steps that serialize, because an application's objects cannot be
    sent without them, and logs what is off; errors in the configuration are then only logged.
    """
    ours = {key: value for key, value in config.items() if is_ours(key)}
    rest = {key: value for key, value in config.items() if key not in ours}
    for key in rest:
        if key.startswith("headerware.") and key != PROCESSING and not key.startswith(DEAD_LETTER):
            known = f"{FILE}, {PROCESSING}, {DEAD_LETTER}<producer key>"
            raise ConfigError(f"unknown key; known: {known}", path=key)
    if not is_disabled():
        return _configured(ours, chain), rest
    try:
        configured = _configured(ours, chain)
    except ConfigError as error:
        _log.warning("HEADERWARE_DISABLED is set, so this is passed over: %s", error)
        return Chain(), rest
    left = what_is_left(configured)
    off = [name for name in configured.names if name not in left.names]
    if off:
        _log.warning("HEADERWARE_DISABLED is set, so these are off: %s", ", ".join(off))
    return left, rest


def is_disabled() -> bool:
    """Return whether ``HEADERWARE_DISABLED`` switches everything off."""
    return os.environ.get("HEADERWARE_DISABLED", "").lower() in _ON


def what_is_left(chain: Chain) -> Chain:
    """Return a chain of the steps that serialize: what is left if everything is switched off."""
    return Chain([step for step in chain if place_of(step) is Place.SERIALIZE])


def _configured(ours: Mapping[str, Any], chain: Chain | None) -> Chain:
    """Return the chain from code, from the client's configuration or from the environment."""
    if chain is not None:
        _require_chain(chain)
        if ours:
            raise ConfigError(
                f"the client was given a chain in code and {', '.join(sorted(ours))} in its configuration; "
                f"use one of the two"
            )
        return chain
    if ours:
        return Chain.from_config(ours)
    path = os.environ.get("HEADERWARE_CONFIG", "")
    if not path:
        return Chain()
    try:
        return load_chain(path)
    except ConfigError as error:
        error.add_note(f"HEADERWARE_CONFIG names {path}")
        raise


def _require_chain(chain: object) -> None:
    # A list of interceptors would fail late, and an empty one would pass for no chain.
    if not isinstance(chain, Chain):
        raise ConfigError(f"expected a Chain, found {type(chain).__name__}; write Chain([...])", path="chain")
