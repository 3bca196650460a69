"""Arrays and maps without others in them, as most are: found by one pattern, and read as Kafka 4.3 does.

What the pattern leaves aside, such as backslashes and points in time without quotes, is read token by token.
"""

from __future__ import annotations

import re
from typing import Final

from headerware.connect.data.schema import STRING_SCHEMA
from headerware.connect.data.schema_and_value import SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.values.java_numbers import BLANKS
from headerware.connect.values.lenient_nested import array_value, map_value
from headerware.connect.values.lenient_scalars import WORDS, integer, number_of, temporal_of

_BARE: Final = r"true|false|null|[+-]?[0-9][0-9.]*"
_ITEM: Final = rf' *(?:"[^"\\:,{{}}\[\]]*"|{_BARE}) *'
_ARRAY: Final = re.compile(rf"\[(?:{_ITEM},)*{_ITEM}\]")
_MAP: Final = re.compile(rf"\{{(?:{_ITEM}:{_ITEM},)*{_ITEM}:{_ITEM}\}}")
_PARTS: Final = re.compile(rf'"([^"]*)"|({_BARE})')


def parse_flat(text: str) -> SchemaAndValue | None:
    """Read an array or map of words, numbers and strings; None where the text is none that is simple.

    Args:
        text: the text, which begins with a bracket or a brace.
    """
    is_array = text[0] == "["
    if (_ARRAY if is_array else _MAP).fullmatch(text) is None:
        return None
    found: list[SchemaAndValue | None] = []
    for quoted, bare in _PARTS.findall(text):
        if bare in WORDS:
            found.append(WORDS[bare])
            continue
        value = _number(bare) if bare else _string(quoted)
        if value is None:
            return None
        found.append(value)
    try:
        return array_value(found) if is_array else _map(found)
    except ConnectDataError:
        return SchemaAndValue(STRING_SCHEMA, text)


def _number(bare: str) -> SchemaAndValue | None:
    return integer(int(bare)) if len(bare) < 19 and bare.isdecimal() else number_of(bare)


def _string(quoted: str) -> SchemaAndValue | None:
    if quoted and not quoted.strip(BLANKS):
        return None
    return temporal_of(quoted) or SchemaAndValue(STRING_SCHEMA, quoted)


def _map(found: list[SchemaAndValue | None]) -> SchemaAndValue:
    keys = [key for key in found[::2] if key is not None]
    if len(keys) * 2 != len(found):
        raise ConnectDataError("expected a key, found null")
    return map_value(keys, found[1::2])
