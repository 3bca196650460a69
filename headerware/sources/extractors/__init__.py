"""Extractors of the usual formats; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.sources.extractors.avro import AvroExtractor as AvroExtractor
    from headerware.sources.extractors.bytes import BytesExtractor as BytesExtractor
    from headerware.sources.extractors.csv import CsvExtractor as CsvExtractor
    from headerware.sources.extractors.json_lines import JsonLinesExtractor as JsonLinesExtractor
    from headerware.sources.extractors.parquet import ParquetExtractor as ParquetExtractor
    from headerware.sources.extractors.streams import StreamExtractor as StreamExtractor

_HOMES: Final = {
    "AvroExtractor": "avro",
    "BytesExtractor": "bytes",
    "CsvExtractor": "csv",
    "JsonLinesExtractor": "json_lines",
    "ParquetExtractor": "parquet",
    "StreamExtractor": "streams",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - made of the table

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
