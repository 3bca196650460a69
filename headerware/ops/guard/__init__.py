"""The admission guard: forward the records that a chain and a policy admit to other topics, exactly once."""

from headerware.ops.guard.rules import QuotaError, Routes
from headerware.ops.guard.worker import Guard, Status

__all__ = ["Guard", "QuotaError", "Routes", "Status"]
