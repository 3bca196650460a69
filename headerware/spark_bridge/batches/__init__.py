"""Micro-batches of ``foreachBatch``: their ledger and their sinks."""
