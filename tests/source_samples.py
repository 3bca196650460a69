"""Objects in the formats that extractors read, and what reads them, to be changed by tests."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from typing import Final

import cramjam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from headerware.sources import Extractor
from headerware.sources.extractors import (
    AvroExtractor,
    BytesExtractor,
    CsvExtractor,
    JsonLinesExtractor,
    ParquetExtractor,
)

RECORDS: Final = [{"id": number, "name": f"name {number}"} for number in range(20)]
SCHEMA: Final = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


def avro(codec: str) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMA, RECORDS, codec, sync_interval=60, sync_marker=b"s" * 16)
    return stream.getvalue()


def parquet() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS), stream, row_group_size=6)
    return stream.getvalue()


LINES: Final = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)
SAMPLES: Final[dict[str, tuple[Extractor, bytes]]] = {
    "avro": (AvroExtractor(), avro("null")),
    "avro deflate": (AvroExtractor(schemas=True), avro("deflate")),
    "avro snappy": (AvroExtractor(), avro("snappy")),
    "csv": (CsvExtractor(max_record_bytes=200), b'id,name\n1,"a\nb"\n2,"c""d"\n3,e\n' * 5),
    "csv escaped": (
        CsvExtractor(max_record_bytes=30, escape="\\", schemas=True),
        b'id,name\n1,"a\nb"\n2,c\\\nd\n' + b"3," + b"e" * 40 + b'\n4,"f"\n',
    ),
    "csv lines escaped": (
        CsvExtractor(max_record_bytes=30, escape="\\", quoted_newlines=False, quote=None),
        b"id,name\n1,a\n2,c\\\nd\n" + b"3," + b"e" * 40 + b'\n4,"f"\n',
    ),
    "csv lines": (CsvExtractor(quoted_newlines=False), b"id,name\n1,a\n2,b\n" * 5),
    "csv fit": (CsvExtractor(ragged="fit", schemas=True, header=False), b"1,a\n2\n3,c,d\n"),
    "jsonl": (JsonLinesExtractor(max_record_bytes=100), LINES),
    "jsonl bytes": (JsonLinesExtractor(values="bytes"), LINES),
    "parquet": (ParquetExtractor(), parquet()),
    "parquet schemas": (ParquetExtractor(schemas=True), parquet()),
    "gzip": (JsonLinesExtractor(), gzip.compress(LINES, mtime=0) * 2),
    "bzip2": (JsonLinesExtractor(), bz2.compress(LINES)),
    "xz": (JsonLinesExtractor(), lzma.compress(LINES)),
    "zstd": (JsonLinesExtractor(), zstandard.ZstdCompressor(write_checksum=True).compress(LINES) * 2),
    "snappy": (JsonLinesExtractor(), bytes(cramjam.snappy.compress(LINES)) * 2),
    "bytes": (BytesExtractor(compression="auto", piece_bytes=7), gzip.compress(LINES, mtime=0)),
}
