"""Run a source of files until it is killed: the configuration comes as JSON in the first argument."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

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
SourceRunner(config, once="once" in sys.argv).run()
