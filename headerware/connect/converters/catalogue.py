"""The converters, by the names that configuration has for them."""

from __future__ import annotations

from typing import Final

from headerware.connect.catalogue import Catalogue
from headerware.connect.converters.base import Converter, HeaderConverter

GROUP: Final = "headerware.converters"
_KAFKA: Final = "org.apache.kafka.connect"
_OURS: Final = "headerware.connect.converters"
_DUAL: Final = {
    f"{_KAFKA}.converters.BooleanConverter": f"{_OURS}.boolean:BooleanConverter",
    f"{_KAFKA}.converters.ByteArrayConverter": f"{_OURS}.byte_array:ByteArrayConverter",
    f"{_KAFKA}.converters.DoubleConverter": f"{_OURS}.numbers:DoubleConverter",
    f"{_KAFKA}.converters.FloatConverter": f"{_OURS}.numbers:FloatConverter",
    f"{_KAFKA}.converters.IntegerConverter": f"{_OURS}.numbers:IntegerConverter",
    f"{_KAFKA}.converters.LongConverter": f"{_OURS}.numbers:LongConverter",
    f"{_KAFKA}.converters.ShortConverter": f"{_OURS}.numbers:ShortConverter",
    f"{_KAFKA}.json.JsonConverter": f"{_OURS}.json.converter:JsonConverter",
    f"{_KAFKA}.storage.StringConverter": f"{_OURS}.string:StringConverter",
}

converter_type: Final[Catalogue[Converter]] = Catalogue("converter", Converter, _DUAL, GROUP)
"""The converters of keys and values."""
header_converter_type: Final[Catalogue[HeaderConverter]] = Catalogue(
    "header converter",
    HeaderConverter,
    {**_DUAL, f"{_KAFKA}.storage.SimpleHeaderConverter": f"{_OURS}.simple:SimpleHeaderConverter"},
    GROUP,
)
"""The converters of headers."""
