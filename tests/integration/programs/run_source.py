"""Run a source of files until it is killed: the configuration comes as JSON in the first argument."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from threading import Thread

sys.path.insert(0, str(Path(__file__).parents[3]))

from headerware.sources.runtime import RunConfig, SourceRunner, SqliteOffsets, TopicOffsets
from tests.spool import Lines, Spool

options = json.loads(sys.argv[1])
store = options.pop("store")
offsets = TopicOffsets(topic=store) if "/" not in store else SqliteOffsets(path=store)
config = RunConfig(
    source=Spool(folder=options.pop("folder")), extractor=Lines(seeks=True), offsets=offsets, **options
)
print("started", os.getpid(), flush=True)  # noqa: T201 - for the test
runner = SourceRunner(config, once="once" in sys.argv)


def tell() -> None:
    """Say when it has begun to read, and when something is stored."""
    for line, name in (("reads", "listed"), ("sent", "acknowledged")):
        while not any(getattr(each, name) for each in runner.statistics.values()):
            time.sleep(0.001)
        print(line, flush=True)  # noqa: T201 - for the test


Thread(target=tell, daemon=True).start()
runner.run()
