"""Connect's single message transforms (KIP-66)."""
