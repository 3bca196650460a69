"""Header ids on the wire: compact keys, the packed block, and the codec over both (spec/header-ids.md)."""
