"""Stamp records with a text and the time, as a Headerware interceptor of one's own."""

from headerware_stamp.stamp import Stamp, StampStep

__all__ = ["Stamp", "StampStep"]
