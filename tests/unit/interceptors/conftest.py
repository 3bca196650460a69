"""Fixtures of the interceptors' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """Return the path of a keyring with one key, ``k``."""
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keyring: with_new_key(keyring, "k", "hmac-sha256"), create=True)
    return str(path)
