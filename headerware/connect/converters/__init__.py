"""Connect's converters, between values and bytes (KIP-145); each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.connect.catalogue import exports
from headerware.connect.converters.catalogue import CLASSES
from headerware.core.lazy import lazy

_HOMES: Final = {
    **exports(CLASSES),
    "Converter": "base",
    "HeaderConverter": "base",
    "converter_from": "catalogue",
    "converter_type": "catalogue",
    "header_converter_from": "catalogue",
    "header_converter_type": "catalogue",
}

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
else:
    __all__ = list(_HOMES)

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
