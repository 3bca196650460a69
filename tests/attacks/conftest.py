"""Fixtures of the parts that are attacked."""

from __future__ import annotations

from tests.unit.connect.conftest import mode
from tests.unit.interceptors.conftest import keys

__all__ = ["keys", "mode"]
