"""The framework of all workers: read a topic, decide about units, write and commit exactly once.

class Mask(Policy):
    def decide(self, units): ...

with Worker(conf, "orders", Mask(), name="mask", writes=["orders.masked"]) as worker:
    worker.run(follow=True)

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.workers.loop import Policy, Worker
from headerware.workers.outcomes import Disposition, Outcome
from headerware.workers.units import Unit

__all__ = ["Disposition", "Outcome", "Policy", "Unit", "Worker"]
