"""Connect's converters, between values and bytes (KIP-145); each is loaded when it is first asked for.

To add one: write its module, add it to the table here, and to the imports for type checkers. The catalogue,
the public names and the tables in docs/connect.md follow from the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.connect.converters.base import Converter as Converter
    from headerware.connect.converters.base import HeaderConverter as HeaderConverter
    from headerware.connect.converters.catalogue import converter_from as converter_from
    from headerware.connect.converters.catalogue import converter_type as converter_type
    from headerware.connect.converters.catalogue import header_converter_from as header_converter_from
    from headerware.connect.converters.catalogue import header_converter_type as header_converter_type
    from headerware.connect.converters.json.converter import JsonConverter as JsonConverter
    from headerware.connect.converters.primitives import BooleanConverter as BooleanConverter
    from headerware.connect.converters.primitives import ByteArrayConverter as ByteArrayConverter
    from headerware.connect.converters.primitives import DoubleConverter as DoubleConverter
    from headerware.connect.converters.primitives import FloatConverter as FloatConverter
    from headerware.connect.converters.primitives import IntegerConverter as IntegerConverter
    from headerware.connect.converters.primitives import LongConverter as LongConverter
    from headerware.connect.converters.primitives import ShortConverter as ShortConverter
    from headerware.connect.converters.simple import SimpleHeaderConverter as SimpleHeaderConverter
    from headerware.connect.converters.string import StringConverter as StringConverter

KAFKA_CONVERTERS: Final = {
    "converters.BooleanConverter": "primitives",
    "converters.ByteArrayConverter": "primitives",
    "converters.DoubleConverter": "primitives",
    "converters.FloatConverter": "primitives",
    "converters.IntegerConverter": "primitives",
    "converters.LongConverter": "primitives",
    "converters.ShortConverter": "primitives",
    "json.JsonConverter": "json.converter",
    "storage.SimpleHeaderConverter": "simple",
    "storage.StringConverter": "string",
}
"""The module of each converter, by its name below ``org.apache.kafka.connect``."""
_HOMES: Final = {
    **{name.rpartition(".")[2]: module for name, module in KAFKA_CONVERTERS.items()},
    "Converter": "base",
    "HeaderConverter": "base",
    "converter_from": "catalogue",
    "converter_type": "catalogue",
    "header_converter_from": "catalogue",
    "header_converter_type": "catalogue",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list, made of the table

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
