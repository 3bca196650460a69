from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from headerware.core.atomic_files import created_file, replace_file

if TYPE_CHECKING:
    from pathlib import Path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestReplaceFile:
    def test_keeps_the_mode_of_the_file_that_is_there(self, tmp_path: Path) -> None:
        target = tmp_path / "file"
        target.write_bytes(b"old")
        target.chmod(0o640)
        replace_file(target, b"new")
        assert target.read_bytes() == b"new"
        assert stat.S_IMODE(target.stat().st_mode) == 0o640

    def test_a_new_file_is_its_owners_alone(self, tmp_path: Path) -> None:
        replace_file(tmp_path / "file", b"new")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600

    def test_a_new_file_may_follow_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            replace_file(tmp_path / "file", b"new", new_mode=0o666)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640

    def test_what_fails_leaves_the_old_content_and_nothing_else(self, tmp_path: Path) -> None:
        target = tmp_path / "file"
        target.write_bytes(b"old")

        def fail(_: int) -> None:
            raise OSError("no owner")

        with pytest.raises(OSError, match="no owner"):
            replace_file(target, b"new", prepare=fail)
        assert target.read_bytes() == b"old"
        assert names_in(tmp_path) == ["file"]

    def test_the_descriptor_is_that_of_the_new_file(self, tmp_path: Path) -> None:
        seen: list[int] = []
        replace_file(tmp_path / "file", b"new", mode=0o644, prepare=seen.append)
        assert seen
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


class TestCreatedFile:
    def test_appears_when_it_is_whole(self, tmp_path: Path) -> None:
        target = tmp_path / "file"
        with created_file(target) as temporary:
            temporary.write_bytes(b"new")
            assert not target.exists()
        assert target.read_bytes() == b"new"
        assert names_in(tmp_path) == ["file"]

    def test_never_takes_the_place_of_another(self, tmp_path: Path) -> None:
        target = tmp_path / "file"
        target.write_bytes(b"old")
        with pytest.raises(FileExistsError), created_file(target) as temporary:
            temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"
        assert names_in(tmp_path) == ["file"]


class TestSync:
    """What the folder answers when it is synced, once the file is in place."""

    def fail(self, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(code, os.strerror(code))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM])
    def test_a_file_system_that_syncs_no_folders_is_no_failure(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        self.fail(monkeypatch, code)
        replace_file(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"new"

    def test_a_disk_that_fails_is_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fail(monkeypatch, errno.EIO)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            replace_file(tmp_path / "file", b"new")
