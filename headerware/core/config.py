"""Configuration: the flat client form, TOML files, and both together, all into one chain.

The flat form is KIP-66's manner: ``interceptors`` lists aliases in the order of sending, and
``interceptors.<alias>.<option>`` their options; the alias is the type where ``.type`` is absent.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from headerware.core.chain import Chain
from headerware.core.errors import ConfigError
from headerware.core.files import read_sources
from headerware.core.hooks import Interceptor
from headerware.core.options import Declared, build, setting
from headerware.core.order import in_order

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "headerware.config"
ALIASES: Final = "interceptors"
DEAD_LETTER: Final = "headerware.dead_letter."
"""Prefix of a consumer's overrides for the producer that publishes its dead letters."""
_PREFIX: Final = "interceptors."
_ON: Final = frozenset({"1", "true", "yes", "on"})


def from_flat(config: Mapping[str, Any]) -> Chain:
    """Make a chain from a flat configuration.

    Raises:
        ConfigError: an unknown key, alias or option, or a value of a wrong type, with its full path.
    """
    for key in config:
        if not is_ours(key):
            raise ConfigError(
                f"unknown key; a chain's configuration has '{ALIASES}', '{_PREFIX}<alias>.<option>' and "
                f"'{FILE}'",
                path=key,
            )
    return chain_of(flat_sources(config))


def from_file(path: str | os.PathLike[str]) -> Chain:
    """Make a chain from a TOML file and what it includes.

    Raises:
        ConfigError: what is wrong, in which file and where.
    """
    return chain_of(read_sources(path))


def client_chain(config: Mapping[str, Any], chain: Chain | None = None) -> tuple[Chain, dict[str, Any]]:
    """Find a client's chain, and the configuration that remains for the client itself.

    The chain is the one given; else what the configuration says; else what the file named by
    ``HEADERWARE_CONFIG`` says; else empty. ``HEADERWARE_DISABLED=1`` makes it empty in any case.

    Args:
        config: the client's configuration, ours and confluent-kafka's keys together.
        chain: a chain made in code.

    Raises:
        ConfigError: a chain in code and one in configuration, one in code that is no Chain, or whatever is
            wrong in the configuration.
    """
    ours = {key: value for key, value in config.items() if is_ours(key)}
    rest = {key: value for key, value in config.items() if key not in ours}
    for key in rest:
        if key.startswith("headerware.") and not key.startswith(DEAD_LETTER):
            raise ConfigError(f"unknown key; known: {FILE}, {DEAD_LETTER}<producer key>", path=key)
    if os.environ.get("HEADERWARE_DISABLED", "").lower() in _ON:
        return Chain(), rest
    if chain is not None:
        _require_chain(chain)
        if ours:
            raise ConfigError(
                f"the client was given a chain in code and {', '.join(sorted(ours))} in its configuration; "
                f"use one of the two"
            )
        return chain, rest
    if ours:
        return from_flat(ours), rest
    path = os.environ.get("HEADERWARE_CONFIG", "")
    return (from_file(path) if path else Chain()), rest


def _require_chain(chain: object) -> None:
    # A list of interceptors would fail late, and an empty one would pass for no chain.
    if not isinstance(chain, Chain):
        raise ConfigError(f"expected a Chain, found {type(chain).__name__}; write Chain([...])", path="chain")


def is_ours(key: object) -> bool:
    """Whether a client's configuration key belongs to a chain."""
    return isinstance(key, str) and (key in (ALIASES, FILE) or key.startswith(_PREFIX))


def flat_sources(config: Mapping[str, Any]) -> list[list[Declared]]:
    """Read a flat configuration, after the file that it names."""
    sources = read_sources(str(config[FILE])) if FILE in config else []
    earlier = dict.fromkeys(declared.name for source in sources for declared in source)
    aliases = _aliases(config.get(ALIASES, ()))
    options: dict[str, dict[str, Any]] = {alias: {} for alias in aliases}
    for key, value in config.items():
        if key.startswith(_PREFIX):
            alias, dot, option = key.removeprefix(_PREFIX).partition(".")
            if not dot or not option:
                raise ConfigError(f"expected {_PREFIX}<alias>.<option>", path=key)
            if alias not in options and alias not in earlier:
                raise _unknown_alias(key, alias, [*aliases, *earlier])
            options.setdefault(alias, {})[option] = value
    return [*sources, [_declared(alias, given, sources) for alias, given in options.items()]]


def merged(sources: list[list[Declared]]) -> list[list[Declared]]:
    """Lay later declarations of a name over the earlier one, where that stands."""
    found: dict[str, Declared] = {}
    places: list[list[str]] = []
    for source in sources:
        own: list[str] = []
        mine: set[str] = set()
        for declared in source:
            if declared.name in mine:
                raise ConfigError(
                    f"{declared.name!r} is declared twice; give one of them a name of its own",
                    path=declared.path,
                )
            mine.add(declared.name)
            if declared.name in found:
                found[declared.name] = found[declared.name].overridden_by(declared)
            else:
                found[declared.name] = declared
                own.append(declared.name)
        places.append(own)
    return [[found[name] for name in own] for own in places]


def chain_of(sources: list[list[Declared]]) -> Chain:
    """Build the chain; one source keeps its order, several are put into their places."""
    return Chain([interceptor for _, interceptor in built(sources)])


def built(sources: list[list[Declared]]) -> list[tuple[Declared, Interceptor]]:
    """Build every interceptor, in the order of the chain, beside its declaration."""
    groups = [[(declared, build(declared)) for declared in source] for source in merged(sources)]
    groups = [group for group in groups if group]
    if len(groups) <= 1:
        return groups[0] if groups else []
    declarations = {id(interceptor): declared for group in groups for declared, interceptor in group}
    ordered = in_order([[interceptor for _, interceptor in group] for group in groups])
    return [(declarations[id(item)], item) for item in ordered if isinstance(item, Interceptor)]


def _declared(alias: str, given: Mapping[str, Any], sources: list[list[Declared]]) -> Declared:
    path = _PREFIX + alias
    inherited = next((d.type for source in sources for d in source if d.name == alias), alias)
    kind = given.get("type", inherited)
    if not isinstance(kind, str):
        raise ConfigError(f"expected the name of a type, found {type(kind).__name__}", path=f"{path}.type")
    settings = {
        option: setting(value, "client configuration", path=f"{path}.{option}", loose=isinstance(value, str))
        for option, value in given.items()
        if option != "type"
    }
    return Declared(alias, kind, path, settings)


def _aliases(value: Any) -> list[str]:
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(alias, str) for alias in found):
        raise ConfigError(f"expected aliases, comma-separated, found {type(value).__name__}", path=ALIASES)
    aliases = [alias.strip() for alias in found if alias.strip()]
    for alias in aliases:
        if aliases.count(alias) > 1:
            raise ConfigError(f"{alias!r} stands there twice; aliases are unique", path=ALIASES)
    return aliases


def _unknown_alias(key: str, alias: str, known: list[str]) -> ConfigError:
    near = get_close_matches(alias, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(known) or "none"
    return ConfigError(f"'{ALIASES}' does not list the alias {alias!r} (listed: {listed}){hint}", path=key)
