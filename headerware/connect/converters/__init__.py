"""Connect's converters, between values and bytes (KIP-145); each is loaded when it is first used.

To add one, write its module, add it to the table here, and add its name to ``__init__.pyi``. The catalogue
and the tables in docs/connect.md follow from the table here.
"""

from typing import Final

from headerware.core.lazy import lazy

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

__getattr__, __dir__, __all__ = lazy(__name__)
