from typing import Final

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

KAFKA_CONVERTERS: Final[dict[str, str]]
