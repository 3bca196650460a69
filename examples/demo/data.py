"""Yield real input: data files of the vega_datasets package, and one real binary from this environment."""

from __future__ import annotations

import csv
import json
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

# Its files are enough: importing the package would need pandas.
if (_package := find_spec("vega_datasets")) is None or _package.origin is None:
    sys.exit("this needs data to send: run python -m pip install -e '.[demo]' in the repository")

TABLES = Path(_package.origin).parent / "_data"
TOPICS = ("airports", "us-employment", "seattle-weather", "stocks", "files")
MEBIBYTE = 2**20


def records() -> Iterator[tuple[str, str, bytes]]:
    """Yield (topic, key, value): a record for each airport, and documents for the rest."""
    for row in _rows("airports"):
        yield "airports", row["iata"], _json(row)
    for topic, dataset, width in (
        ("us-employment", "us-employment", 4),  # a year
        ("seattle-weather", "seattle-weather", 7),  # a month
    ):
        for period, rows in groupby(_rows(dataset), key=lambda row: _date(row)[:width]):
            yield topic, period, _json(list(rows))
    for symbol, rows in groupby(_rows("stocks"), key=lambda row: row["symbol"]):
        yield "stocks", symbol, _json(list(rows))


def large_file(size: str) -> Path:
    """Return a shared library of 2 to 3 MB, or the largest shared library if ``size`` is "largest"."""
    libraries = Path(sysconfig.get_path("purelib")).rglob("*.so*")
    found = sorted(
        (path for path in libraries if path.is_file() and not path.is_symlink()),
        key=lambda path: (path.stat().st_size, path.name),
    )
    fitting = [path for path in found if 2 * MEBIBYTE <= path.stat().st_size <= 3 * MEBIBYTE]
    below = [path for path in found if path.stat().st_size <= 3 * MEBIBYTE]
    return found[-1] if size == "largest" else (fitting or below)[-1]


def _rows(dataset: str) -> Iterator[dict[str, str]]:
    with (TABLES / f"{dataset}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _date(row: dict[str, str]) -> str:
    return row.get("month") or row["date"]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
