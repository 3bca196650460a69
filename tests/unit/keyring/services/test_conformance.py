"""The services that run on this machine do what every key service must do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import pytest

from headerware import Context
from headerware.keyring import with_deletion, with_new_key
from headerware.keyring.services import FileKeys, KeyService, Vault
from headerware.keyring.writing import edit_keyring
from headerware.testing import KeyServiceConformance
from tests.vault_server import TOKEN, VaultServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class TestFile(KeyServiceConformance):
    @pytest.fixture(autouse=True)
    def _keys(self, tmp_path: Path) -> None:
        self.path = tmp_path / "keys.json"
        for name in (self.key_id, self.other_key_id):
            edit_keyring(self.path, lambda ring, name=name: with_new_key(ring, name, "aes-256"), create=True)  # type: ignore[misc]
        self.now_ms = 0

    def open_service(self) -> KeyService:
        return FileKeys(keyring=str(self.path), max_stale_ms=0).open(Context(now_ms=self._clock))

    def delete_key(self, key_id: str) -> None:
        edit_keyring(self.path, lambda ring: with_deletion(ring, key_id))

    @contextmanager
    def outage(self) -> Iterator[None]:
        away = self.path.rename(self.path.with_suffix(".away"))
        yield
        away.rename(self.path)

    def _clock(self) -> int:
        """Return a time at which the file is looked at again."""
        self.now_ms += 2_000
        return self.now_ms


class TestVault(KeyServiceConformance):
    bind: Literal["associated_data", "context"] = "associated_data"
    deleted: tuple[str, ...] = ()

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with VaultServer(derived=self.bind == "context") as self.vault:
            yield

    def open_service(self) -> KeyService:
        options = Vault(url=self.vault.url, token=TOKEN, bind=self.bind, deleted_keys=self.deleted)
        return options.open(Context())

    def delete_key(self, key_id: str) -> None:
        del self.vault.keys[key_id]
        self.deleted = (key_id,)

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.vault.stop()
        yield
        self.vault.start()


class TestVaultWithDerivedKeys(TestVault):
    bind = "context"
