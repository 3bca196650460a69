"""Send the files of a folder to Kafka by configuration only, and only new lines the next time.

    python examples/files_source.py

The folder has real tables. Between two runs a table is added, and another table gets more lines.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import vega_datasets
from confluent_kafka import Consumer

from headerware.testing import EmbeddedCluster

TABLES = Path(vega_datasets.__file__).parent / "_data"
CONFIG = """
name = "tables"
topic = "tables"
extractor = "csv"

[source]
type = "files"
folder = "tables"
include = ["*.csv"]
grows = true

[kafka]
"bootstrap.servers" = "{servers}"
interceptors = "serialize, trail"
"interceptors.serialize.value" = "json"
"interceptors.trail.service" = "tables"
"""


def command(folder: Path, *words: str) -> None:
    print("$ headerware source", *words, flush=True)
    subprocess.run([sys.executable, "-m", "headerware", "source", *words], cwd=folder, check=True)
    print()


def show(servers: str) -> None:
    """Print how many records of each file are in the topic, and how many of these are different."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "show", "auto.offset.reset": "earliest"})
    consumer.subscribe(["tables"])
    found: Counter[tuple[str, str]] = Counter()
    while messages := consumer.consume(5_000, 3.0):
        for message in messages:
            headers = {name: value.decode() for name, value in message.headers() or [] if value is not None}
            found[headers["hw.source.key"], headers["hw.source.record"]] += 1
    consumer.close()
    for file in sorted({file for file, _ in found}):
        counts = [count for (each, _), count in found.items() if each == file]
        print(f"{file:>20}  {sum(counts):>6,} records, {len(counts):>6,} different ones")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        EmbeddedCluster(topics={"tables": 1, "headerware-offsets": 1}) as cluster,
    ):
        folder = Path(place)
        tables = folder / "tables"
        tables.mkdir()
        (folder / "tables.toml").write_text(CONFIG.format(servers=cluster.bootstrap_servers))
        shutil.copy(TABLES / "seattle-weather.csv", tables)
        lines = (TABLES / "stocks.csv").read_text().splitlines(keepends=True)
        (tables / "stocks.csv").write_text("".join(lines[:400]))
        command(folder, "plan", "tables.toml")
        command(folder, "run", "tables.toml", "--once")

        shutil.copy(TABLES / "airports.csv", tables)
        with (tables / "stocks.csv").open("a") as growing:
            growing.writelines(lines[400:])
        command(folder, "plan", "tables.toml")
        command(folder, "run", "tables.toml", "--once")
        show(cluster.bootstrap_servers)


if __name__ == "__main__":
    main()
