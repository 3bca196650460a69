"""Character sets by Java's names, and text as Java reads and writes it.

Java reads U+FFFD for bytes that are malformed, and writes a question mark for characters that a set lacks.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from headerware.connect.errors import ConnectDataError, ConversionError


class Charset:
    """A character set: Java's name for it, and Python's."""

    def __init__(self, name: str, codec: str) -> None:
        self.name: Final[str] = name
        self.codec: Final[str] = codec

    def encode(self, text: str) -> bytes:
        """Return the bytes of text; refuse characters that the character set does not have."""
        try:
            return self._encoded(text, "strict")
        except UnicodeEncodeError:
            raise ConnectDataError(f"the text holds characters that {self.name} does not have") from None

    def decode(self, data: bytes) -> str:
        """Return the text of bytes; refuse malformed bytes."""
        try:
            return self._decoded(data, "strict")
        except UnicodeDecodeError:
            raise ConnectDataError(f"the {len(data)} bytes are not text in {self.name}") from None

    def encode_as_java(self, text: str) -> bytes:
        """Return the bytes of text, with replacements for characters that the character set does not have."""
        try:
            return self._encoded(text, "strict")
        except UnicodeEncodeError:
            unicode = self.codec.startswith(("utf-16", "utf-32"))
            return self._encoded(_SURROGATE.sub("\ufffd", text) if unicode else text, "replace")

    def decode_as_java(self, data: bytes) -> str:
        """Return the text of bytes, with U+FFFD for malformed ones."""
        if self.codec == "utf-8":
            return utf_8_as_java(data)
        return self._decoded(data, "utf-16" if self.codec.startswith("utf-16") else "replace")

    def _encoded(self, text: str, errors: str) -> bytes:
        return text.encode(self.codec, errors)

    def _decoded(self, data: bytes, errors: str) -> str:
        return _decoded(data, self.codec, errors)


class _MarkedUtf16(Charset):
    """UTF-16 with a byte-order mark, big-endian by default."""

    def _encoded(self, text: str, errors: str) -> bytes:
        return codecs.BOM_UTF16_BE + text.encode("utf-16-be", errors) if text else b""

    def _decoded(self, data: bytes, errors: str) -> str:
        codec = "utf-16-le" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
        marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return _decoded(data[2:] if marked else data, codec, errors)


def _decoded(data: bytes, codec: str, errors: str) -> str:
    return _utf_16_as_java(data, codec) if errors == "utf-16" else data.decode(codec, errors)


def _utf_16_as_java(data: bytes, codec: str) -> str:
    """Return the text of UTF-16 without a mark, with U+FFFD for malformed bytes."""
    even = len(data) // 2 * 2
    text = data[:even].decode(codec, "surrogatepass") + ("\ufffd" if len(data) > even else "")
    # Java counts the first half of a pair and a wrong character after it as one error.
    return _UTF_16_ERROR.sub(lambda found: "\ufffd\ufffd" if found[1] else "\ufffd", text)


def utf_8_as_java(data: bytes) -> str:
    """Return the text of UTF-8, with U+FFFD for malformed bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java counts the three bytes of a surrogate as one error, Python as three.
        return _UTF_8_SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def charset_of(name: str) -> Charset:
    """Return the character set of one of Java's names, in any case."""
    codec = _CODECS.get(name.lower())
    if codec is None:
        raise ConversionError(f"there is no character set {name!r}; there are: {', '.join(_NAMES)}")
    return (_MarkedUtf16 if codec == "utf-16" else Charset)(name, codec)


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UTF_16_ERROR: Final = re.compile(
    "[\ud800-\udbff](?:([\U00010000-\U0010ffff])|.)?|[\udc00-\udfff]", re.DOTALL
)
_UTF_8_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_ISO_8859: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15)
_NAMES: Final = {
    "UTF-8": ("utf-8", "utf8"),
    "UTF-16": ("utf-16", "utf16", "utf_16"),
    "UTF-16BE": ("utf-16-be", "utf_16be"),
    "UTF-16LE": ("utf-16-le", "utf_16le"),
    "UTF-32": ("utf-32-be", "utf32", "utf_32", "utf-32be", "utf_32be"),
    "UTF-32LE": ("utf-32-le", "utf_32le"),
    "US-ASCII": ("ascii", "ascii", "ascii7", "iso646-us", "646", "us", "cp367", "ibm367"),
    **{
        f"ISO-8859-{part}": (f"iso8859-{part}", f"iso8859_{part}", f"iso8859-{part}", f"iso_8859-{part}")
        for part in _ISO_8859
    },
    "LATIN1": ("iso8859-1", "l1", "ibm819", "cp819", "819"),
    **{f"windows-{page}": (f"cp{page}", f"cp{page}") for page in range(1250, 1259)},
    "KOI8-R": ("koi8-r", "koi8_r", "koi8"),
    "KOI8-U": ("koi8-u", "koi8_u"),
    "Shift_JIS": ("shift_jis", "sjis", "shift-jis", "ms_kanji"),
    "EUC-JP": ("euc_jp", "euc_jp", "eucjp", "eucjis"),
    "EUC-KR": ("euc_kr", "euc_kr", "euckr", "ksc5601"),
    "GB2312": ("gb2312", "euc-cn", "euc_cn", "euccn"),
    "GBK": ("gbk", "cp936", "windows-936"),
    "GB18030": ("gb18030", "gb18030-2022"),
    "Big5": ("big5", "csbig5"),
}
"""For each of Java's names, Python's name and Java's other names."""
_CODECS: Final = {
    alias: codec for name, (codec, *aliases) in _NAMES.items() for alias in (name.lower(), *aliases)
}
