"""A folder as an object store."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from headerware.core.errors import ConfigError, NoSuchObjectError, ObjectStoreError, PluginError
from headerware.object_store import FolderObjects, ObjectStore, open_object_store
from headerware.object_store.store import UNFINISHED
from headerware.testing import ObjectStoreConformance
from tests.forking import as_nobody

CONTENT = bytes(range(256)) * 10_000
Access = Literal["read", "write"]
ACCESS: tuple[Access, ...] = ("read", "write")
DIGEST = hashlib.sha256(CONTENT).digest()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return FolderObjects(path=str(tmp_path)).open()


def content_of(store: ObjectStore, name: str) -> bytes:
    with store.read(name, 1) as found:
        content = b"".join(found.chunks)
        assert found.size_bytes == len(content)
    return content


class TestConformance(ObjectStoreConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        (tmp_path / "mounted").mkdir()
        self.path = tmp_path / "mounted"

    def open_store(self) -> ObjectStore:
        return FolderObjects(path=str(self.path)).open()

    @contextmanager
    def outage(self) -> Iterator[None]:
        away = self.path.rename(self.path.with_name("away"))
        yield
        away.rename(self.path)


class TestCheck:
    """Whether the folder can be used, without a trace in it."""

    def checked(self, path: Path, access: Access) -> str:
        try:
            FolderObjects(path=str(path)).open().check(access)
        except ObjectStoreError as error:
            return str(error)
        return "ok"

    def test_a_folder_that_can_be_written(self, tmp_path: Path) -> None:
        assert self.checked(tmp_path, "write") == "ok"
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        assert "it is not there; make it, or mount its volume" in self.checked(tmp_path / "a", "read")
        (tmp_path / "file").write_bytes(b"")
        assert "it is not there" in self.checked(tmp_path / "file", "read")

    @pytest.mark.parametrize(
        ("mode", "reading", "writing"),
        [
            (0o500, "ok", "may not write in it"),
            (0o600, "may not reach objects in it", "may not reach objects in it"),
            (0o300, "it cannot be opened (Permission denied)", "it cannot be opened (Permission denied)"),
        ],
    )
    def test_a_folder_that_is_not_permitted(self, mode: int, reading: str, writing: str) -> None:
        def told(folder: Path) -> str:
            folder.chmod(mode)
            try:
                return "\n".join(self.checked(folder, access) for access in ACCESS)
            finally:
                folder.chmod(0o700)

        found = as_nobody(told).splitlines()
        assert [expected in said for expected, said in zip((reading, writing), found, strict=True)] == [
            True
        ] * 2


class TestFolderObjects:
    def test_lists_no_links(self, store: ObjectStore, tmp_path: Path) -> None:
        store.put("orders/1", CONTENT, DIGEST, 1)
        (tmp_path / "orders" / "2").symlink_to(tmp_path / "orders" / "1")
        assert [found.name for found in store.objects("orders")] == ["orders/1"]

    def test_lists_what_a_killed_process_left(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "orders").mkdir()
        program = (
            "import os, signal\n"
            "from headerware.object_store import FolderObjects\n"
            "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
            f"FolderObjects(path={str(tmp_path)!r}).open().put('orders/1', b'half', b'', 1)\n"
        )
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
        (left,) = store.objects("orders")
        assert left.name.startswith(f"orders/{UNFINISHED}")
        store.delete(left.name)
        assert list((tmp_path / "orders").iterdir()) == []

    def test_a_new_folder_is_on_the_disk_before_its_object(
        self, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
        store.put("orders/1", CONTENT, DIGEST, 1)
        places = [tmp_path, tmp_path / "orders" / "1", tmp_path / "orders"]
        assert synced == [path.stat().st_ino for path in places]

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
            with pytest.raises(ObjectStoreError, match="it is not there; make it, or mount") as caught:
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
