"""Arrays and maps without others in them, as most are, read as Kafka 4.3 does, but at once.

What is left aside, such as backslashes and points in time without quotes, is read token by token.
"""

from __future__ import annotations

from typing import Final

from headerware.connect.data.schema import STRING_SCHEMA, SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.numbers import BLANKS
from headerware.connect.values.flat import FlatText
from headerware.connect.values.lenient_nested import array_value, map_value
from headerware.connect.values.lenient_scalars import WORDS, number_of, temporal_of, usual_of

_FLAT: Final = FlatText(r'[^"\\:,{}\[\]]*+', r"(?:true|false|null|[+-]?[0-9][0-9.]*+)")
# What SchemaAndValue(...) calls, without a call in between.
_new: Final = tuple.__new__


def parse_flat(text: str) -> SchemaAndValue | None:
    """Read an array or map of words, numbers and strings; None where the text is none that is simple.

    Args:
        text: the text, which begins with a bracket or a brace.
    """
    items = _FLAT.items(text)
    if items is None:
        return None
    found: list[SchemaAndValue | None] = []
    for quoted, bare in items:
        if not bare:
            value = _string(quoted)
        elif bare in WORDS:
            found.append(WORDS[bare])
            continue
        else:
            value = usual_of(bare) or number_of(bare)
        if value is None:
            return None
        found.append(value)
    try:
        return array_value(found) if text[0] == "[" else _map(found)
    except ConnectDataError:
        return SchemaAndValue(STRING_SCHEMA, text)


def _string(quoted: str) -> SchemaAndValue | None:
    """Return a string or a point in time; None for blanks, which Kafka leaves out."""
    if quoted and not quoted.strip(BLANKS):
        return None
    if len(quoted) < 10 and quoted.isascii():
        return _new(SchemaAndValue, (STRING_SCHEMA, quoted))
    return temporal_of(quoted) or SchemaAndValue(STRING_SCHEMA, quoted)


def _map(found: list[SchemaAndValue | None]) -> SchemaAndValue:
    keys = [key for key in found[::2] if key is not None]
    if len(keys) * 2 != len(found):
        raise ConnectDataError("expected a key, found null")
    return map_value(keys, found[1::2])
