"""A dictionary, its id, and the document that says which dictionary a topic is written with.

A dictionary has the format of zstd (RFC 8878, section 5): it begins with zstd's magic number. Its id is the
first 16 bytes of the SHA-256 of all its bytes. The header ``hw.compress`` of a record that was compressed
with it is the base64 of:

    0      1                17
    +------+----------------+
    | 0x01 | the id         |
    +------+----------------+

The id depends on the bytes. So a user who may write to a store can withhold a dictionary from readers, but
cannot replace it by another.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Final, Literal, Self

import msgspec

from headerware.core.errors import DictionaryError, WireFormatError
from headerware.core.header_text import decode_text, encode_text
from headerware.core.printable import without_values
from headerware.core.topics import TOPIC_PATTERN

MAX_DICTIONARY_BYTES: Final = 256 << 10
"""The largest dictionary that is published or read. 16 KiB are usual; more seldom pays."""
MAX_VERSIONS: Final = 100
"""How many versions a use remembers; dictionaries of earlier versions stay readable."""
MAX_USE_BYTES: Final = 64 << 10

COMPRESS_HEADER: Final = "hw.compress"
_MAGIC: Final = b"\x37\xa4\x30\xec"
_FRAME_ID: Final = slice(4, 8)
"""The position of the id by which zstd's frames name a dictionary."""
_ID_BYTES: Final = 16
_LAYOUT: Final = 1
_ID: Final = r"^[0-9a-f]{32}\Z"
_TOPIC: Final = rf"^{TOPIC_PATTERN}\Z"
_CONTENT_TYPE: Final = r"^[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+\Z"

DictionaryId = Annotated[str, msgspec.Meta(pattern=_ID)]
"""An id as text: 32 digits of lower-case hexadecimal."""


class Dictionary(msgspec.Struct, frozen=True):
    """A trained dictionary of zstd.

    Args:
        content: its bytes, as zstd's trainer returns them.

    Raises:
        DictionaryError: the content is not a dictionary of zstd, or is larger than 256 KiB.
    """

    content: bytes

    def __post_init__(self) -> None:
        """Refuse content that is not a dictionary."""
        if problem := dictionary_problem(self.content):
            raise DictionaryError(problem)

    @property
    def id(self) -> str:
        """The id: the first 16 bytes of its SHA-256, in hexadecimal."""
        return id_of(self.content)

    def __repr__(self) -> str:
        """Show the id and the size only, because the content is made of samples."""
        return f"Dictionary({self.id}, {len(self.content)} bytes)"


def id_of(content: bytes) -> str:
    """Return the id of a dictionary with this content."""
    return hashlib.sha256(content).digest()[:_ID_BYTES].hex()


def is_dictionary(content: bytes, dictionary_id: str) -> bool:
    """Return whether these bytes are the dictionary of an id."""
    return dictionary_problem(content) is None and id_of(content) == dictionary_id


def dictionary_problem(content: bytes) -> str | None:
    """Return why bytes are not a dictionary, or None if they may be one."""
    if len(content) > MAX_DICTIONARY_BYTES:
        return f"expected a dictionary of at most {MAX_DICTIONARY_BYTES:,} bytes, found {len(content):,}"
    if not content.startswith(_MAGIC):
        return "expected a dictionary of zstd, which begins with its magic number; found other bytes"
    if not any(content[_FRAME_ID]):
        return "expected a dictionary with zstd's id, by which frames name it; found no id"
    return None


def checked_id(text: str) -> str:
    """Return an id; raise DictionaryError if the text is not an id."""
    if not re.match(_ID, text):
        raise DictionaryError(
            f"expected a dictionary's id, 32 digits of lower-case hexadecimal; found {text!r}"
        )
    return text


def encode_mark(dictionary_id: str) -> bytes:
    """Return the value of ``hw.compress`` that names a dictionary."""
    return encode_text(bytes([_LAYOUT]) + bytes.fromhex(dictionary_id))


def decode_mark(value: bytes | None) -> str:
    """Return the id of the dictionary that a value of ``hw.compress`` names, or raise WireFormatError."""
    layout = decode_text(value, COMPRESS_HEADER)
    if layout[0] != _LAYOUT:
        raise WireFormatError(f"header {COMPRESS_HEADER!r}: expected layout {_LAYOUT}, found {layout[0]}")
    if len(layout) != 1 + _ID_BYTES:
        raise WireFormatError(
            f"header {COMPRESS_HEADER!r}: expected {1 + _ID_BYTES} bytes, found {len(layout)}"
        )
    return layout[1:].hex()


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a use: its number, the dictionary's id, and its beginning, in ISO 8601."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    dictionary: DictionaryId
    since: Annotated[str, msgspec.Meta(max_length=40)]


class Use(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dictionary with which a topic's values of a content type are written, and its predecessors.

    Args:
        topic: the topic.
        content_type: the content type, in lower case and without parameters; None for all other values.
        versions: the versions by rising numbers, the last one counts.
        version: the version of this document's layout.
    """

    topic: Annotated[str, msgspec.Meta(pattern=_TOPIC)]
    content_type: Annotated[str, msgspec.Meta(pattern=_CONTENT_TYPE, max_length=255)] | None
    versions: Annotated[tuple[Version, ...], msgspec.Meta(min_length=1, max_length=MAX_VERSIONS)]
    version: Literal[1] = 1

    @property
    def current(self) -> Version:
        """The present version."""
        return self.versions[-1]

    @property
    def key(self) -> bytes:
        """The key of its record: ``use/TOPIC``, or ``use/TOPIC/CONTENT-TYPE``."""
        return use_key(self.topic, self.content_type)

    @classmethod
    def first(cls, topic: str, content_type: str | None, dictionary_id: str, since: str) -> Self:
        """Return a new use, with its first version."""
        try:
            return msgspec.convert(
                {
                    "topic": topic,
                    "content_type": None if content_type is None else essence(content_type.encode()),
                    "versions": [{"number": 1, "dictionary": dictionary_id, "since": since}],
                },
                cls,
            )
        except msgspec.ValidationError as error:
            raise DictionaryError(f"no such use can be published: {error}") from None

    def next(self, dictionary_id: str, since: str) -> Self:
        """Return the use with one more version, unless the dictionary is the current one."""
        if self.current.dictionary == dictionary_id:
            return self
        made = Version(self.current.number + 1, dictionary_id, since)
        return msgspec.structs.replace(self, versions=(*self.versions, made)[-MAX_VERSIONS:])


USE_PREFIX: Final = b"use/"
DICTIONARY_PREFIX: Final = b"dictionary/"
_decode_use: Final = msgspec.json.Decoder(Use).decode
_encode: Final = msgspec.json.Encoder().encode


def use_key(topic: str, content_type: str | None) -> bytes:
    """Return the key under which a use is kept."""
    return USE_PREFIX + (topic if content_type is None else f"{topic}/{content_type}").encode()


def dictionary_key(dictionary_id: str) -> bytes:
    """Return the key under which a dictionary is kept."""
    return DICTIONARY_PREFIX + dictionary_id.encode()


def encode_use(use: Use) -> bytes:
    """Write a use as JSON."""
    return _encode(use)


def decode_use(key: bytes, value: bytes) -> Use:
    """Read a use; raise WireFormatError if it is invalid, or belongs to another key."""
    if len(value) > MAX_USE_BYTES:
        raise WireFormatError(f"a use of {len(value):,} bytes, expected at most {MAX_USE_BYTES:,}")
    try:
        use = _decode_use(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireFormatError(f"the use of a dictionary is invalid: {without_values(error)}") from None
    if use.key != key:
        raise WireFormatError("the use of a dictionary has another key than its own")
    if any(later.number <= earlier.number for earlier, later in zip(use.versions, use.versions[1:])):  # noqa: B905 - pairs
        raise WireFormatError("the use of a dictionary has versions whose numbers do not rise")
    return use


def essence(content_type: bytes) -> str:
    """Return a content type in lower case, without parameters."""
    return content_type.partition(b";")[0].strip().lower().decode("utf-8", "replace")
