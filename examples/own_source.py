"""Send the members of a zip archive to Kafka: your own source and extractor.

    python examples/own_source.py

It packs real tables into an archive, and reads the archive twice: the second run finds no new members.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO
from zipfile import ZipFile, ZipInfo

import vega_datasets

from headerware.core.options import PATH
from headerware.sources import (
    Extracted,
    Extractor,
    Input,
    ItemContext,
    NativeItem,
    ObjectError,
    Source,
    TextKeys,
)
from headerware.sources.runtime import RunConfig, SourceRunner
from headerware.testing import EmbeddedCluster


class Member(NativeItem):
    length_is_exact = True

    def __init__(self, archive: str, info: ZipInfo) -> None:
        super().__init__(ItemContext(key=info.filename, version=f"{info.CRC:08x}"), info.file_size)
        self.archive = archive

    def open_stream(self) -> BinaryIO:
        with ZipFile(self.archive) as opened:
            try:
                return opened.open(self.context.key)
            except KeyError as error:
                raise ObjectError("it is no longer in the archive") from error


class Zip(Source[str], frozen=True, kw_only=True):
    type = "zip"
    keys = TextKeys()

    path: Annotated[str, PATH]

    def items(self, start: str | None) -> Iterator[Member]:
        with ZipFile(self.path) as opened:
            members = sorted(opened.infolist(), key=lambda info: info.filename)
        for info in members:
            if start is None or info.filename >= start:
                yield Member(self.path, info)


class CsvRows(Extractor, frozen=True, kw_only=True):
    type = "csv_rows"
    gives = dict

    def extract(self, given: Input) -> Iterator[Extracted]:
        for row in csv.DictReader(io.TextIOWrapper(given.open_stream(), "utf-8", newline="")):
            yield Extracted(row)


def main() -> None:
    tables = Path(vega_datasets.__file__).parent / "_data"
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(topics={"tables": 1, "headerware-offsets": 1}) as cluster,
    ):
        archive = str(Path(folder) / "tables.zip")
        with ZipFile(archive, "w") as packing:
            for name in ("airports.csv", "seattle-weather.csv", "stocks.csv"):
                packing.write(tables / name, name)
        config = RunConfig(
            name="tables",
            source=Zip(path=archive),
            extractor=CsvRows(),
            topic="tables",
            kafka={
                "bootstrap.servers": cluster.bootstrap_servers,
                "interceptors": "serialize, trail",
                "interceptors.serialize.value": "json",
                "interceptors.trail.service": "tables",
            },
        )
        for attempt in ("first", "second"):
            runner = SourceRunner(config, once=True)
            runner.run()
            counts = runner.statistics[0]
            print(f"{attempt} run: {counts.acknowledged} records of {counts.objects} objects")


if __name__ == "__main__":
    main()
