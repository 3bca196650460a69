"""Retention by header: find the records of a topic that have expired, and remove them."""
