"""Micro-batches of ``foreachBatch``: what is written down beside the checkpoint, and what is done once."""
