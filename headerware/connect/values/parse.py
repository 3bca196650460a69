"""Read values from text (KIP-145's ``Values.parseString``), in either mode."""

from __future__ import annotations

from headerware.connect.data.schema import STRING_SCHEMA
from headerware.connect.data.schema_and_value import NULL, SchemaAndValue
from headerware.connect.modes import KAFKA_4_3, Mode
from headerware.connect.values.lenient import parse_lenient


def parse_string(text: str | None, *, mode: Mode = "strict") -> SchemaAndValue | None:
    if text is None:
        return NULL
    if not text:
        return SchemaAndValue(STRING_SCHEMA, text)
    return parse_lenient(text)
