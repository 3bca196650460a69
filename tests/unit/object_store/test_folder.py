"""A folder as an object store."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from headerware.core.errors import ConfigError, NoSuchObjectError, ObjectStoreError, PluginError
from headerware.object_store import FolderObjects, ObjectStore, open_object_store

CONTENT = bytes(range(256)) * 10_000
DIGEST = hashlib.sha256(CONTENT).digest()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return FolderObjects(path=str(tmp_path)).open()


def content_of(store: ObjectStore, name: str) -> bytes:
    with store.read(name, 1) as found:
        content = b"".join(found.chunks)
        assert found.size_bytes == len(content)
    return content


class TestFolderObjects:
    @pytest.mark.parametrize("content", [b"", b"x", CONTENT])
    def test_gives_back_what_was_put(self, store: ObjectStore, content: bytes) -> None:
        store.put("orders/1", content, hashlib.sha256(content).digest(), 1)
        assert content_of(store, "orders/1") == content

    def test_lists_the_objects_of_a_folder_with_size_and_time(self, store: ObjectStore) -> None:
        store.put("orders/1", CONTENT, DIGEST, 1)
        store.put("bills/2", CONTENT, DIGEST, 1)
        (found,) = store.objects("orders")
        assert (found.name, found.size_bytes) == ("orders/1", len(CONTENT))
        assert abs(found.modified_ms / 1000 - time.time()) < 60

    def test_has_nothing_in_a_folder_that_is_not_there(self, store: ObjectStore) -> None:
        assert list(store.objects("orders")) == []

    def test_lists_no_links_and_nothing_that_is_being_written(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        store.put("orders/1", CONTENT, DIGEST, 1)
        (tmp_path / "orders" / ".tmp-0011").write_bytes(b"half")
        (tmp_path / "orders" / "2").symlink_to(tmp_path / "orders" / "1")
        assert [found.name for found in store.objects("orders")] == ["orders/1"]

    def test_deletes_objects_and_accepts_that_they_are_gone(self, store: ObjectStore) -> None:
        store.put("orders/1", CONTENT, DIGEST, 1)
        for _ in range(2):
            store.delete("orders/1")
        store.delete("bills/1")
        with pytest.raises(NoSuchObjectError):
            content_of(store, "orders/1")

    def test_leaves_nothing_behind_if_the_disk_is_full(
        self, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ObjectStoreError, match="No space left"):
            store.put("orders/1", CONTENT, DIGEST, 1)
        assert list((tmp_path / "orders").iterdir()) == []

    def test_does_not_make_a_folder_that_is_not_mounted(self, tmp_path: Path) -> None:
        store = FolderObjects(path=str(tmp_path / "volume")).open()
        for call in (
            lambda: store.put("orders/1", CONTENT, DIGEST, 1),
            lambda: content_of(store, "orders/1"),
            lambda: list(store.objects("orders")),
        ):
            with pytest.raises(ObjectStoreError) as caught:
                call()
            assert not isinstance(caught.value, NoSuchObjectError)
        assert not (tmp_path / "volume").exists()

    def test_shows_objects_to_owner_and_group_alone(self, store: ObjectStore, tmp_path: Path) -> None:
        store.put("orders/1", CONTENT, DIGEST, 1)
        assert (tmp_path / "orders" / "1").stat().st_mode & 0o007 == 0


class TestOpening:
    def test_takes_a_table_options_or_a_store(self, store: ObjectStore, tmp_path: Path) -> None:
        assert open_object_store(store, path="store") is store
        for options in ({"type": "folder", "path": str(tmp_path)}, FolderObjects(path=str(tmp_path))):
            open_object_store(options, path="store").put("orders/1", b"", b"", 1)

    def test_refuses_an_unknown_type_and_something_else(self) -> None:
        with pytest.raises(ConfigError, match="known: folder, s3"):
            open_object_store({"type": "ftp"}, path="store")
        with pytest.raises(PluginError, match="expected an object store"):
            open_object_store(object(), path="store")
