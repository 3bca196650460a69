"""Make converters by their names in a configuration, with a worker's defaults.

``key.converter``, ``value.converter`` and ``header.converter`` name a class, and its options follow the name:
``value.converter.schemas.enable=false``. A connector that names a converter has to give all of its options; a
connector that names none gets the worker's converter with the worker's options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from headerware.connect.catalogue import Catalogue
from headerware.connect.config import Configured
from headerware.connect.converters import KAFKA_CONVERTERS
from headerware.connect.converters.base import TYPE_KEY, Converter, HeaderConverter
from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.records import Part

_GROUP: Final = "headerware.converters"
_KAFKA: Final = "org.apache.kafka.connect"
_SIMPLE: Final = f"{_KAFKA}.storage.SimpleHeaderConverter"
_BUILT_IN: Final = {
    f"{_KAFKA}.{name}": f"headerware.connect.converters.{module}:{name.rpartition('.')[2]}"
    for name, module in KAFKA_CONVERTERS.items()
}
_Kind = TypeVar("_Kind", bound=Configured)

converter_type: Final[Catalogue[Converter]] = Catalogue(
    "converter", Converter, {name: home for name, home in _BUILT_IN.items() if name != _SIMPLE}, _GROUP
)
"""The converters of keys and values."""
header_converter_type: Final[Catalogue[HeaderConverter]] = Catalogue(
    "header converter", HeaderConverter, _BUILT_IN, _GROUP
)
"""The converters of headers."""


def converter_from(
    config: Mapping[str, Any], part: Part, *, worker: Mapping[str, Any] | None = None, mode: Mode = STRICT
) -> Converter:
    """Make the converter of keys or values.

    Args:
        config: a connector's configuration.
        part: ``key`` or ``value``.
        worker: the configuration of the worker, which has the defaults.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: neither configuration names a converter, the name is unknown, or the converter
            refuses its options.
    """
    key = f"{part}.converter"
    naming = _naming(key, config, worker, mode)
    if naming is None:
        raise ConnectConfigError("name a converter, such as StringConverter", path=key)
    return _made(converter_type, key, naming, part, mode)


def header_converter_from(
    config: Mapping[str, Any], *, worker: Mapping[str, Any] | None = None, mode: Mode = STRICT
) -> HeaderConverter:
    """Make the converter of headers, by default a SimpleHeaderConverter.

    Args:
        config: a connector's configuration.
        worker: the configuration of the worker, which has the defaults.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: the name is unknown, or the converter refuses its options.
    """
    key = "header.converter"
    naming = _naming(key, config, worker, mode)
    if naming is None:
        naming = {key: _SIMPLE, **_with_prefix(key, worker or {})}
    return _made(header_converter_type, key, naming, "header", mode)


def _naming(
    key: str, config: Mapping[str, Any], worker: Mapping[str, Any] | None, mode: Mode
) -> Mapping[str, Any] | None:
    """Return the configuration that names the converter: the connector's or the worker's."""
    if key in config:
        return config
    options = _with_prefix(key, config)
    if mode == STRICT and options:
        raise ConnectConfigError(
            f"this is an option of {key}, which is missing; name the converter there", path=min(options)
        )
    return worker if worker is not None and key in worker else None


def _with_prefix(key: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name.startswith(f"{key}.")}


def _made(catalogue: Catalogue[_Kind], key: str, config: Mapping[str, Any], use: str, mode: Mode) -> _Kind:
    name = config[key]
    if not isinstance(name, str):
        raise ConnectConfigError(f"expected the name of a converter, found {type(name).__name__}", path=key)
    kind = catalogue(name.strip(), path=key, mode=mode)
    options = {option.removeprefix(f"{key}."): value for option, value in _with_prefix(key, config).items()}
    if any(known.name == TYPE_KEY for known in kind.config(mode)):
        options[TYPE_KEY] = use
    try:
        return kind(options, mode=mode)
    except ConnectConfigError as error:
        problem = str(error).removeprefix(f"{error.path}: ")
        raise type(error)(problem, path=f"{key}.{error.path}" if error.path else key) from error
