"""Connect's predicates, which say when a transform applies (KIP-585)."""
