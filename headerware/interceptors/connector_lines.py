"""Read a connector's lines, which a client's configuration can contain unchanged.

    transforms, transforms.<alias>.*, predicates, predicates.<alias>.*, header.converter, header.converter.*
                                        an interceptor named ``transforms``, of that type
    key.converter, key.converter.*, value.converter, value.converter.*
                                        a ``serialize`` step named ``converters``

Both steps run in the client's direction: a producer's on send, a consumer's on consume. Further options, such
as the mode, are set under ``interceptors.transforms.*``, as for any alias.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import ConfigError
from headerware.core.options import Declared, Setting, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSFORMS: Final = "transforms"
CONVERTERS: Final = "converters"
_LISTS: Final = ("transforms", "predicates")
_OF_TRANSFORMS: Final = (*_LISTS, "header.converter")
_OF_CONVERTERS: Final = {"key": "key.converter", "value": "value.converter"}
_HEADS: Final = (*_OF_TRANSFORMS, *_OF_CONVERTERS.values())


def is_connector_line(key: str) -> bool:
    """Return whether a key of a client's configuration belongs to a connector."""
    return _under(key, _HEADS)


def connector_source(config: Mapping[str, Any]) -> list[Declared]:
    """Return the interceptors that a connector's lines declare, in the order of sending."""
    declared = []
    lines = {key: value for key, value in config.items() if _under(key, _OF_TRANSFORMS)}
    if any(_under(key, _LISTS) for key in lines):
        settings = {"config": _setting(lines, TRANSFORMS), "on": _setting("both", TRANSFORMS)}
        # An error names the complete key of a line.
        declared.append(Declared(TRANSFORMS, "transforms", "", settings))
    serdes = {part: _serde(head, config) for part, head in _OF_CONVERTERS.items()}
    found = {part: serde for part, serde in serdes.items() if serde is not None}
    if found:
        declared.append(Declared(CONVERTERS, "serialize", CONVERTERS, found))
    if lines and not declared:
        raise ConfigError(
            "found a header converter and no transforms; without transforms, headers keep their bytes. Name "
            "transforms under 'transforms', or remove this line",
            path=min(lines),
        )
    return declared


def _serde(head: str, config: Mapping[str, Any]) -> Setting | None:
    prefix = f"{head}."
    options = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    if head in config:
        return _setting({"type": "connect", "converter": config[head], "options": options}, head)
    if options:
        raise ConfigError(f"found options of a converter and no converter; set {head}", path=head)
    return None


def _setting(value: Any, path: str) -> Setting:
    return setting(value, "client configuration", path=path)


def _under(key: str, heads: tuple[str, ...]) -> bool:
    return any(key == head or key.startswith(f"{head}.") for head in heads)
