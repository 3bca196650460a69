"""Copy a topic into another one by a worker of headerware.workers, until it is told to stop.

Arguments: the bootstrap servers, the topic that is read, the one that is written, how many records a second.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from headerware.workers import Outcome, Policy, Unit, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Copy(Policy):
    """Write each record as it is."""

    def __init__(self, target: str) -> None:
        self._target = target

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        for unit in units:
            yield Outcome(unit, "sent", [record.replace(topic=self._target) for record in unit.records])


def main(servers: str, source: str, target: str, rate: str) -> None:
    conf = {"bootstrap.servers": servers}
    with Worker(
        conf, source, Copy(target), name="copy", writes=[target], rate=float(rate), batch=50
    ) as worker:
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        sys.stdout.write("began\n")
        sys.stdout.flush()
        worker.run(follow=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
