"""Fixtures and helpers of the interceptors' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Context, Headers, Record
from headerware.interceptors import Sign
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from pathlib import Path

RECORD = Record("orders", b'{"id":1}', b"k-1", Headers([("tenant", b"blue")]), partition=3, offset=1042)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """Return the path of a keyring with one key, ``k``."""
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keyring: with_new_key(keyring, "k", "hmac-sha256"), create=True)
    return str(path)


def sent(keys: str, *left: Any, record: Record = RECORD) -> list[Record]:
    """Return what a producer with these steps and ``sign`` sends, at positions from 1042 on."""
    with Chain([*left, Sign(keyring=keys, key_id="k")]).open(Context(side="producer")) as session:
        return [
            made.replace(partition=3, offset=1042 + index)
            for index, made in enumerate(session.send([record.replace(offset=None)]))
        ]
