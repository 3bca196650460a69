"""Read interceptors from configuration: the flat form of clients, TOML files, or both.

The flat form follows KIP-66: ``interceptors`` lists aliases in the order of sending, and
``interceptors.<alias>.<option>`` sets their options; the alias is the type if ``.type`` is absent.
``headerware.carry`` names headers that are carried on (:mod:`headerware.core.carry`). The lines of a Kafka
connector are read, too, by functions that :func:`use_connector_lines` sets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.carry import Carry, carry_option
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.files import Read, Source, read_sources, read_text, texts_of
from headerware.core.hooks import Interceptor
from headerware.core.options import Declared, build, setting
from headerware.core.order import in_order
from headerware.core.plain_files import require_path
from headerware.core.suggestions import did_you_mean
from headerware.core.toml import locate, locate_naming, naming_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FILE: Final = "headerware.config"
RELOAD: Final = "headerware.reload"
"""When a client reads the file of its chain again; the chain itself does not depend on it."""
CARRY: Final = "headerware.carry"
"""The names and patterns of headers that are carried on, as ``carry`` in a file."""
_ALIASES: Final = "interceptors"
_PREFIX: Final = "interceptors."


def _no_line(key: str) -> bool:  # noqa: ARG001 - a reader's signature
    return False


def _no_source(config: Mapping[str, Any]) -> list[Declared]:  # noqa: ARG001 - a reader's signature
    return []


_is_connector_line: Callable[[str], bool] = _no_line
_connector_source: Callable[[Mapping[str, Any]], list[Declared]] = _no_source


def use_connector_lines(
    is_connector_line: Callable[[str], bool], connector_source: Callable[[Mapping[str, Any]], list[Declared]]
) -> None:
    """Set the reader of a Kafka connector's lines in a client's configuration."""
    global _is_connector_line, _connector_source
    _is_connector_line, _connector_source = is_connector_line, connector_source


class Configured(NamedTuple):
    """What a configuration declares: the interceptors in the order of sending, and what they carry on."""

    interceptors: list[Interceptor]
    carry: Carry
    sources: Sequence[Source] = ()
    """Where they are declared, for the lines of errors."""


def from_flat(config: Mapping[str, Any], read: Read = read_text) -> Configured:
    """Read a flat configuration."""
    for key in config:
        if not is_ours(key):
            raise ConfigError(
                f"unknown key; a chain's configuration has '{_ALIASES}', '{_PREFIX}<alias>.<option>', "
                f"'{CARRY}', '{FILE}', and a connector's lines of transforms, predicates and converters",
                path=key,
            )
    return configured(_flat_sources(config, read))


def from_file(path: str | os.PathLike[str], read: Read = read_text) -> Configured:
    """Read a TOML file and its includes."""
    return configured(read_sources(path, read))


def configured(sources: list[Source]) -> Configured:
    """Return what sources declare together."""
    return Configured([interceptor for _, interceptor in built(sources)], carried(sources), sources)


@contextmanager
def naming_steps(sources: Sequence[Source]) -> Iterator[None]:
    """Add the line and the column to an error of the block about a step, if a file declares the step."""
    try:
        yield
    except HeaderwareError as error:
        found = at_step(error, sources)
        if found is error:
            raise
        raise found from error


def at_step(error: HeaderwareError, sources: Sequence[Source]) -> HeaderwareError:
    """Return an error about a step of a chain with the line and the column, if a file declares the step.

    The path of the error is ``interceptors.NAME`` or ``NAME``, and an option. An error at a line of another
    file keeps its place, and gets the line of the option that names this file.
    """
    of_option = error.path if error.file is None else error.named_by
    path = _place_of(sources, of_option.removeprefix(_PREFIX))
    if path is None:
        return error
    if error.file is not None:
        error.named_by = path
        locate_naming(error, texts_of(sources))
        return error
    found = error.with_path(path) if isinstance(error, ConfigError) else error
    locate(found, path, texts_of(sources))
    return found


def _place_of(sources: Sequence[Source], path: str) -> str | None:
    """Return where an option of a step is declared, or the step if the option has its default."""
    declared = [each for source in sources for each in source.declared if _is_below(path, each.name)]
    if not declared:
        return None
    name = max((each.name for each in declared), key=len)
    option = path.removeprefix(f"{name}.").partition(".")[0]
    declared = [each for each in declared if each.name == name]
    found = next((each for each in reversed(declared) if option in each.settings), declared[0])
    return found.path + path.removeprefix(name)


def _is_below(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def carried(sources: list[Source]) -> Carry:
    """Return the option ``carry`` of the last source that has it."""
    source = carry_source(sources)
    with naming_lines(texts_of(sources)):
        return () if source.carry is None else carry_option(source.carry.value, path=source.carry_path)


def carry_source(sources: list[Source]) -> Source:
    """Return the last source that has the option ``carry``, or an empty one."""
    return next((source for source in reversed(sources) if source.carry is not None), Source([]))


def is_ours(key: object) -> bool:
    """Return whether a client's configuration key belongs to a chain."""
    if not isinstance(key, str):
        return False
    return key in (_ALIASES, CARRY, FILE, RELOAD) or key.startswith(_PREFIX) or _is_connector_line(key)


def _flat_sources(config: Mapping[str, Any], read: Read = read_text) -> list[Source]:
    """Read the file that a flat configuration names, if any, and then the configuration itself."""
    sources = read_sources(_path(config[FILE]), read) if FILE in config else []
    sources.append(Source(_connector_source(config)))
    earlier = dict.fromkeys(declared.name for source in sources for declared in source.declared)
    aliases = _aliases(config.get(_ALIASES, ()))
    options: dict[str, dict[str, Any]] = {alias: {} for alias in aliases}
    for key, value in config.items():
        if key.startswith(_PREFIX):
            alias, dot, option = key.removeprefix(_PREFIX).partition(".")
            if not dot or not option:
                raise ConfigError(f"expected {_PREFIX}<alias>.<option>", path=key)
            if alias not in options and alias not in earlier:
                raise _unknown_alias(key, alias, [*aliases, *earlier])
            options.setdefault(alias, {})[option] = value
    declared = [_declared(alias, given, sources) for alias, given in options.items()]
    given = config.get(CARRY)
    carry = None if given is None else setting(given, "client configuration", path=CARRY)
    return [*sources, Source(declared, carry, CARRY)]


def _path(given: object) -> str:
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(f"expected the path of a file, found {type(given).__name__}", path=FILE)
    require_path(given, FILE)
    return str(given)


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Put dotted options into tables: ``value`` names a type, ``value.schema`` is an option of this type."""
    tables: dict[str, Any] = {}
    for option, value in sorted(options.items()):
        head, dot, rest = option.partition(".")
        if not dot:
            tables[head] = value
            continue
        table = tables.get(head, {})
        if isinstance(table, str):
            table = {"type": table}
        if not isinstance(table, dict):
            raise ConfigError(
                f"{head!r} is given as an object, which already has its options; put names that contain "
                "dots, such as content types, into a dict or a table",
                path=option,
            )
        tables[head] = {**table, rest: value}
    return {
        head: nested(value) if isinstance(value, dict) and any("." in name for name in value) else value
        for head, value in tables.items()
    }


def _merged(sources: list[Source]) -> list[list[Declared]]:
    """Merge later declarations of a name into the earliest one, which keeps its position."""
    found: dict[str, Declared] = {}
    names_by_source: list[list[str]] = []
    for source in sources:
        own: list[str] = []
        mine: set[str] = set()
        for declared in source.declared:
            if declared.name in mine:
                first = next(each for each in source.declared if each.name == declared.name)
                raise ConfigError(
                    f"{declared.name!r} is declared twice, first {_place(first, sources)}; remove "
                    f'one of them, or give it a name of its own, such as name = "{declared.name}-2"',
                    path=declared.path,
                )
            mine.add(declared.name)
            if declared.name in found:
                found[declared.name] = found[declared.name].overridden_by(declared)
            else:
                found[declared.name] = declared
                own.append(declared.name)
        names_by_source.append(own)
    return [[found[name] for name in own] for own in names_by_source]


def _place(declared: Declared, sources: list[Source]) -> str:
    """Return where an interceptor is declared: the file and the line if it is in a file."""
    found = ConfigError("", path=declared.path)
    locate(found, declared.path, texts_of(sources))
    return f"as {declared.path}" if found.line is None else f"in {found.file}:{found.line}"


def built(sources: list[Source]) -> list[tuple[Declared, Interceptor]]:
    """Build all interceptors; return each with its declaration, in the order of the chain."""
    with naming_lines(texts_of(sources)):
        groups = [[(declared, build(declared)) for declared in source] for source in _merged(sources)]
    groups = [group for group in groups if group]
    if len(groups) <= 1:
        return groups[0] if groups else []
    declarations = {id(interceptor): declared for group in groups for declared, interceptor in group}
    ordered = in_order([[interceptor for _, interceptor in group] for group in groups])
    return [(declarations[id(item)], item) for item in ordered if isinstance(item, Interceptor)]


def _declared(alias: str, given: Mapping[str, Any], sources: list[Source]) -> Declared:
    path = _PREFIX + alias
    inherited = next((d.type for source in sources for d in source.declared if d.name == alias), alias)
    kind = given.get("type", inherited)
    if not isinstance(kind, str):
        raise ConfigError(f"expected the name of a type, found {type(kind).__name__}", path=f"{path}.type")
    settings = {
        option: setting(
            value, "client configuration", path=f"{path}.{option}", loose=isinstance(value, str | dict)
        )
        for option, value in nested(given).items()
        if option != "type"
    }
    return Declared(alias, kind, path, settings)


def _aliases(value: Any) -> list[str]:
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(alias, str) for alias in found):
        raise ConfigError(
            f"expected aliases, comma-separated, found {type(value).__name__}; interceptors of code are "
            f"passed by chain=Chain([...])",
            path=_ALIASES,
        )
    aliases = [alias.strip() for alias in found if alias.strip()]
    for alias in aliases:
        if aliases.count(alias) > 1:
            raise ConfigError(
                f"{alias!r} is listed twice; remove one of them, or give it an alias of its own, such as "
                f"{alias}-2 with {_PREFIX}{alias}-2.type = {alias}",
                path=_ALIASES,
            )
    return aliases


def _unknown_alias(key: str, alias: str, known: list[str]) -> ConfigError:
    listed = f"listed: {', '.join(known)}" if known else f'write "{_ALIASES}": "{alias}"'
    hint = did_you_mean(alias, known, then=listed)
    return ConfigError(f"'{_ALIASES}' does not list the alias {alias!r}{hint}", path=key)
