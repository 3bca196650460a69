"""Formats that are compressed already, told by their first bytes or by their content type."""

from __future__ import annotations

from typing import Final

COMPRESSED_CONTENT_TYPES: Final = (
    "image/*",
    "!image/svg+xml",
    "!image/bmp",
    "video/*",
    "audio/*",
    "font/woff*",
    "application/gzip",
    "application/x-gzip",
    "application/zip",
    "application/zstd",
    "application/x-bzip2",
    "application/x-xz",
    "application/x-lz4",
    "application/x-7z-compressed",
    "application/vnd.rar",
    "application/x-rar-compressed",
    "application/java-archive",
    "application/epub+zip",
    "application/vnd.android.package-archive",
    "application/vnd.openxmlformats-officedocument.*",
    "application/vnd.oasis.opendocument.*",
    "application/vnd.apache.parquet",
)

_Marks = tuple[tuple[int, bytes], ...]

_FORMATS: Final[dict[str, _Marks]] = {
    "gzip": ((0, b"\x1f\x8b\x08"),),
    "compress": ((0, b"\x1f\x9d"),),
    "zstd": ((0, b"\x28\xb5\x2f\xfd"),),
    "zip, jar, xlsx": ((0, b"PK\x03\x04"),),
    "empty zip": ((0, b"PK\x05\x06"),),
    "spanned zip": ((0, b"PK\x07\x08"),),
    "bzip2": ((0, b"BZh"), (4, b"1AY&SY")),
    "xz": ((0, b"\xfd7zXZ\x00"),),
    "lzip": ((0, b"LZIP\x01"),),
    "lz4 frame": ((0, b"\x04\x22\x4d\x18"),),
    "snappy framed": ((0, b"\xff\x06\x00\x00sNaPpY"),),
    "snappy, Java": ((0, b"\x82SNAPPY\x00"),),
    "7z": ((0, b"7z\xbc\xaf\x27\x1c"),),
    "rar": ((0, b"Rar!\x1a\x07"),),
    "cab": ((0, b"MSCF\x00\x00\x00\x00"),),
    "png": ((0, b"\x89PNG\r\n\x1a\n"),),
    "jpeg": ((0, b"\xff\xd8\xff"),),
    "gif 87": ((0, b"GIF87a"),),
    "gif 89": ((0, b"GIF89a"),),
    "webp": ((0, b"RIFF"), (8, b"WEBP")),
    "mp4, mov, heic, avif": ((0, b"\x00\x00"), (4, b"ftyp")),
    "matroska, webm": ((0, b"\x1a\x45\xdf\xa3"),),
    "ogg": ((0, b"OggS"),),
    "flac": ((0, b"fLaC"),),
    "mp3": ((0, b"ID3"),),
    "parquet": ((0, b"PAR1"),),
    "woff": ((0, b"wOFF"),),
    "woff2": ((0, b"wOF2"),),
}

_BY_FIRST_BYTE: Final[dict[int, list[_Marks]]] = {}
for _marks in _FORMATS.values():
    _BY_FIRST_BYTE.setdefault(_marks[0][1][0], []).append(_marks)

FIRST_BYTES: Final = frozenset(_BY_FIRST_BYTE)
"""What a compressed value may begin with: a look at one byte tells most others."""


def is_compressed(value: bytes) -> bool:
    """Return whether a value that is not empty begins as a compressed format does."""
    formats = _BY_FIRST_BYTE.get(value[0], ())
    return any(all(value.startswith(mark, at) for at, mark in marks) for marks in formats)
