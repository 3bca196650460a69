"""Collect these tests only where headerware-native is installed, unless HEADERWARE_REQUIRE_NATIVE is set."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from headerware.core import native
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.store import publish
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from tests.airports import trained

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "airports"

collect_ignore_glob = (
    [] if find_spec("headerware_native") or os.environ.get("HEADERWARE_REQUIRE_NATIVE") else ["test_*.py"]
)


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "hmac", "hmac-sha256"), create=True)
    edit_keyring(path, lambda keys: with_new_key(keys, "aes", "aes-256"))
    edit_keyring(path, lambda keys: with_new_key(keys, "ed25519", "ed25519"))
    edit_keyring(path, lambda keys: with_new_key(keys, "ecdsa-p256", "ecdsa-p256"))
    return str(path)


@pytest.fixture
def dictionaries(tmp_path: Path) -> FolderDictionaries:
    folder = FolderDictionaries(path=str(tmp_path / "dictionaries"), rescan_s=0)
    publish(folder.open(), trained(), TOPIC)
    return folder


@pytest.fixture(autouse=True)
def _no_pause() -> Iterator[None]:
    """Let native code try each batch, also after one that it did not take."""
    module, found = native.native_module()
    assert module is not None, found
    with patch.object(native, "_PAUSE", 0):
        yield
