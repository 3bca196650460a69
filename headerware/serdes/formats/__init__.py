"""Serdes of a single format, which need no schema store."""
