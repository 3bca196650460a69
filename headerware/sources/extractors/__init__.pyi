from headerware.sources.extractors.avro import AvroExtractor as AvroExtractor
from headerware.sources.extractors.bytes import BytesExtractor as BytesExtractor
from headerware.sources.extractors.csv import CsvExtractor as CsvExtractor
from headerware.sources.extractors.json_lines import JsonLinesExtractor as JsonLinesExtractor
from headerware.sources.extractors.parquet import ParquetExtractor as ParquetExtractor
from headerware.sources.extractors.streams import StreamExtractor as StreamExtractor
