"""Numbers, words, dates and times as the ``strict`` mode reads them: exactly as they are written."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal as DecimalNumber
from typing import Final

from headerware.connect.data.logical import Date, Time, Timestamp
from headerware.connect.data.schema import BOOLEAN_SCHEMA, FLOAT64_SCHEMA, INT64_SCHEMA, NULL, SchemaAndValue
from headerware.connect.java.text import float64_text
from headerware.connect.values.shapes import decimal_of

DECIMAL_SCHEMA: Final = decimal_of(0)
"""What integers beyond 64 bits are."""
# Longer ones stay text: to compute with millions of digits takes minutes.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,9999}")
_FLOAT: Final = re.compile(r"-?[0-9]{1,7}\.[0-9]{1,20}(?:E-?[1-9][0-9]{0,2})?")
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
_WORDS: Final = {
    "null": NULL,
    "true": SchemaAndValue(BOOLEAN_SCHEMA, value=True),
    "false": SchemaAndValue(BOOLEAN_SCHEMA, value=False),
}


def literal_of(text: str) -> SchemaAndValue | None:
    """Read a word, a number or a point in time; None where the text is not exactly what we write for one."""
    if len(text) < 19 and text.isascii() and text.isdecimal():
        return SchemaAndValue(INT64_SCHEMA, int(text)) if text[0] != "0" or text == "0" else None
    if text in _WORDS:
        return _WORDS[text]
    return time_of(text) or _number(text)


def _number(text: str) -> SchemaAndValue | None:
    if _INTEGER.fullmatch(text) is not None:
        number = DecimalNumber(text)
        if -(1 << 63) <= number < 1 << 63:
            return SchemaAndValue(INT64_SCHEMA, int(number))
        return SchemaAndValue(DECIMAL_SCHEMA, number)
    if _FLOAT.fullmatch(text) is not None and float64_text(value := float(text)) == text:
        return SchemaAndValue(FLOAT64_SCHEMA, value)
    return None


def time_of(text: str) -> SchemaAndValue | None:
    """Read a date, a time or a timestamp; None where the text is not exactly one."""
    known = _TIMES.get(len(text))
    if known is None:
        return None
    schema, pattern, before, after = known
    if pattern.fullmatch(text) is None:
        return None
    try:
        return SchemaAndValue(schema, datetime.fromisoformat(f"{before}{text}{after}"))
    except ValueError:
        return None


_TIMES: Final = {
    len("2017-05-21"): (Date.SCHEMA, re.compile(_DAY), "", "T00:00:00Z"),
    len("16:31:05.387Z"): (Time.SCHEMA, re.compile(_CLOCK), "1970-01-01T", ""),
    len("2017-05-21T16:31:05.387Z"): (Timestamp.SCHEMA, re.compile(f"{_DAY}T{_CLOCK}"), "", ""),
}
"""By length: the schema, the pattern, and what makes a point in time of it before and after."""
