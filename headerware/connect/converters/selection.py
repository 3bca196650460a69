"""Converters by configuration, with a worker's defaults and a connector's own.

``key.converter``, ``value.converter`` and ``header.converter`` name a class, and their options follow the
name: ``value.converter.schemas.enable=false``. A connector that names a converter has all of its options to
itself; one that names none has the worker's, with the worker's options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from headerware.connect.catalogue import Catalogue
from headerware.connect.config import Configured
from headerware.connect.converters.base import Converter, HeaderConverter
from headerware.connect.converters.catalogue import converter_type, header_converter_type
from headerware.connect.converters.dual import TYPE_KEY
from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.records import Part

HEADER_CONVERTER: Final = "header.converter"
DEFAULT_HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
Kind = TypeVar("Kind", bound=Configured)


def converter_from(
    config: Mapping[str, Any], part: Part, *, worker: Mapping[str, Any] | None = None, mode: Mode = STRICT
) -> Converter:
    """Make the converter of keys or values.

    Args:
        config: a connector's configuration.
        part: keys or values.
        worker: the configuration of the worker, which has the defaults.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: neither names a converter, there is none of this name, or it refuses its options.
    """
    key = f"{part}.converter"
    given = _giving(key, config, worker, mode)
    if given is None:
        raise ConnectConfigError("name a converter, such as StringConverter", path=key)
    return _made(converter_type, given[key], key, given, part, mode)


def header_converter_from(
    config: Mapping[str, Any], *, worker: Mapping[str, Any] | None = None, mode: Mode = STRICT
) -> HeaderConverter:
    """Make the converter of headers: a SimpleHeaderConverter where none is named.

    Args:
        config: a connector's configuration.
        worker: the configuration of the worker, which has the defaults.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: there is no converter of the name, or it refuses its options.
    """
    key = HEADER_CONVERTER
    given = _giving(key, config, worker, mode)
    if given is None:
        given = {key: DEFAULT_HEADER_CONVERTER, **_with_prefix(key, worker or {})}
    return _made(header_converter_type, given[key], key, given, "header", mode)


def _giving(
    key: str, config: Mapping[str, Any], worker: Mapping[str, Any] | None, mode: Mode
) -> Mapping[str, Any] | None:
    """Return the configuration that names the converter: the connector's, else the worker's."""
    if key in config:
        return config
    options = _with_prefix(key, config)
    if mode == STRICT and options:
        raise ConnectConfigError(
            f"this is an option of {key}, which is not given beside it", path=min(options)
        )
    return worker if worker is not None and key in worker else None


def _with_prefix(key: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name.startswith(f"{key}.")}


def _made(
    catalogue: Catalogue[Kind], name: Any, key: str, given: Mapping[str, Any], use: str, mode: Mode
) -> Kind:
    if not isinstance(name, str):
        raise ConnectConfigError(f"expected the name of a converter, found {type(name).__name__}", path=key)
    kind = catalogue(name.strip(), path=key, mode=mode)
    options = {option.removeprefix(f"{key}."): value for option, value in _with_prefix(key, given).items()}
    if any(known.name == TYPE_KEY for known in kind.config(mode)):
        options[TYPE_KEY] = use
    try:
        return kind(options, mode=mode)
    except ConnectConfigError as error:
        problem = str(error).removeprefix(f"{error.path}: ")
        raise type(error)(problem, path=f"{key}.{error.path}" if error.path else key) from error
