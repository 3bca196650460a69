"""Connect's values: read from text, written as text, converted, and their schemas inferred (KIP-145)."""

from headerware.connect.java.text import float32_text, float64_text, java_text
from headerware.connect.values.convert import (
    convert_to_boolean,
    convert_to_byte,
    convert_to_date,
    convert_to_decimal,
    convert_to_double,
    convert_to_float,
    convert_to_integer,
    convert_to_list,
    convert_to_long,
    convert_to_map,
    convert_to_short,
    convert_to_struct,
    convert_to_time,
    convert_to_timestamp,
)
from headerware.connect.values.infer import infer_schema
from headerware.connect.values.parse import parse_string
from headerware.connect.values.text import convert_to_string

__all__ = [
    "convert_to_boolean",
    "convert_to_byte",
    "convert_to_date",
    "convert_to_decimal",
    "convert_to_double",
    "convert_to_float",
    "convert_to_integer",
    "convert_to_list",
    "convert_to_long",
    "convert_to_map",
    "convert_to_short",
    "convert_to_string",
    "convert_to_struct",
    "convert_to_time",
    "convert_to_timestamp",
    "float32_text",
    "float64_text",
    "infer_schema",
    "java_text",
    "parse_string",
]
