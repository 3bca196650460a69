"""Read values from text (KIP-145's ``Values.parseString``).

The first character tells nearly everything: most texts are no more than text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headerware.connect.data.schema import NULL, STRING_SCHEMA, SchemaAndValue
from headerware.connect.java.numbers import BLANKS
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode, require_mode
from headerware.connect.values.exact import parse_exact
from headerware.connect.values.exact_scalars import literal_of
from headerware.connect.values.lenient import parse_lenient
from headerware.connect.values.lenient_scalars import WORDS, usual_of

# What SchemaAndValue(...) calls, without a call in between.
_new: Final = tuple.__new__


def parse_string(text: str | None, *, mode: Mode = "strict") -> SchemaAndValue | None:
    """Read a value from text, with its schema.

    Args:
        text: the text; None gives null without a schema.
        mode: ``strict`` takes the text for something else than text only where all of it is one value, and
            writing that back gives the same text, but for blanks within arrays and maps, and for integers
            among floats. ``kafka_4_3`` reads what Apache Kafka 4.3 reads.

    Returns:
        The schema and the value; for ``null`` neither in ``strict``, and no more than None in ``kafka_4_3``.
    """
    if not text:
        return NULL if text is None else SchemaAndValue(STRING_SCHEMA, text)
    if mode not in _READERS:
        require_mode(mode)
    read = _READERS[mode].get(text[0])
    if read is None:
        return _new(SchemaAndValue, (STRING_SCHEMA, text))
    return read(text)


def _strict_literal(text: str) -> SchemaAndValue:
    return literal_of(text) or SchemaAndValue(STRING_SCHEMA, text)


def _strict_nested(text: str) -> SchemaAndValue:
    return parse_exact(text) or SchemaAndValue(STRING_SCHEMA, text)


def _kafka_word(text: str) -> SchemaAndValue | None:
    word = text.strip(BLANKS)
    return WORDS[word] if word in WORDS else SchemaAndValue(STRING_SCHEMA, text)


def _kafka_number(text: str) -> SchemaAndValue | None:
    return usual_of(text) or parse_lenient(text)


_Read = Callable[[str], SchemaAndValue | None]
_DIGITS: Final = "0123456789"
_STRICT: Final[dict[str, _Read]] = {
    **dict.fromkeys(_DIGITS + "-ntf", _strict_literal),
    **dict.fromkeys("[{", _strict_nested),
}
_KAFKA: Final[dict[str, _Read]] = {
    **dict.fromkeys(BLANKS + "[{+-", parse_lenient),
    # The digits of all scripts, of the basic plane.
    **dict.fromkeys(filter(str.isdecimal, map(chr, range(0x10000))), parse_lenient),
    **dict.fromkeys(_DIGITS, _kafka_number),
    **dict.fromkeys("ntf", _kafka_word),
}
_READERS: Final = {STRICT: _STRICT, KAFKA_4_3: _KAFKA}
