"""Micro-batches of ``foreachBatch``: the ledger beside the checkpoint, and the sinks."""
