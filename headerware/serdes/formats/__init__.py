"""Serdes of one format each, that need no schema store."""
