from __future__ import annotations

import errno
import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from headerware.core.errors import KeyringError
from headerware.keyring import (
    Keyring,
    KeyringFile,
    Permissions,
    encode_keyring,
    public_part,
    read_keyring,
    with_new_key,
    with_rotation,
)
from headerware.keyring.writing import edit_keyring, write_public_keyring
from tests.forking import succeeds_in_a_child_made_within

MS = 1_000_000


def secret_ring() -> Keyring:
    return with_new_key(Keyring(), "orders", "hmac-sha256")


def public_ring() -> Keyring:
    return public_part(with_new_key(Keyring(), "audit", "ed25519"))[0]


def written(path: Path, keyring: Keyring, mode: int = 0o600) -> Path:
    path.write_bytes(encode_keyring(keyring))
    path.chmod(mode)
    return path


def rotate(path: Path) -> None:
    edit_keyring(path, lambda ring: with_rotation(ring, "orders"))


def damaged(path: Path, damage: str) -> None:
    if damage == "deleted":
        path.unlink()
    elif damage == "corrupt":
        path.write_bytes(b"{")
    elif damage == "open":
        path.chmod(0o644)
    elif damage == "later":
        path.write_bytes(b'{"format": "headerware-keyring", "version": 3, "keys": {}}')


class Calls:
    """Count the calls of a function by its first argument."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._counts = Counter[str]()

    def __call__(self, path: Any, *arguments: Any, **options: Any) -> Any:
        self._counts[str(path)] += 1
        return self._function(path, *arguments, **options)

    def of(self, path: Path) -> int:
        return self._counts[str(path)]


def out_of_descriptors(*_: Any, **__: Any) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "keys.json", secret_ring())


class TestPermissions:
    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o660, 0o610])
    def test_secrets_that_others_can_reach_are_refused_with_the_remedy(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        with pytest.raises(KeyringError, match=rf"\(mode 0{mode:o}\): run chmod 600 "):
            read_keyring(path)

    @pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
    def test_kubernetes_lets_the_group_read(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        assert read_keyring(path, permissions="kubernetes").versions("orders")

    @pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o444])
    def test_kubernetes_lets_nobody_else_read(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        with pytest.raises(KeyringError, match="run chmod 440 "):
            read_keyring(path, permissions="kubernetes")

    def test_a_link_to_secrets_is_for_kubernetes_only(self, path: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.json"
        link.symlink_to(path)
        with pytest.raises(KeyringError, match="symbolic link"):
            read_keyring(link)
        assert read_keyring(link, permissions="kubernetes").versions("orders")

    def test_a_link_to_public_halves_is_followed(self, tmp_path: Path) -> None:
        link = tmp_path / "link.json"
        link.symlink_to(written(tmp_path / "public.json", public_ring()))
        assert read_keyring(link).versions("audit")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    @pytest.mark.parametrize("permissions", ["owner", "kubernetes"])
    @pytest.mark.parametrize("keyring", [secret_ring(), public_ring()])
    def test_another_user_does_not_decide_who_is_trusted(
        self, tmp_path: Path, keyring: Keyring, permissions: Permissions
    ) -> None:
        path = written(tmp_path / "foreign.json", keyring)
        os.chown(path, 12345, 0)
        with pytest.raises(KeyringError, match=r"belongs to user 12345, .*: run chown 0 "):
            KeyringFile(path, permissions=permissions)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root administers the files of others")
    def test_root_administers_the_files_of_others(self, path: Path) -> None:
        os.chown(path, 12345, 12345)
        assert read_keyring(path).versions("orders")

    @pytest.mark.parametrize("permissions", ["owner", "kubernetes"])
    def test_public_halves_may_be_read_by_everyone(self, tmp_path: Path, permissions: Permissions) -> None:
        path = written(tmp_path / "public.json", public_ring(), 0o644)
        assert read_keyring(path, permissions=permissions).versions("audit")

    def test_public_halves_may_not_be_written_by_others(self, tmp_path: Path) -> None:
        path = written(tmp_path / "public.json", public_ring(), 0o666)
        with pytest.raises(KeyringError, match=r"can be written by others .*chmod go-w"):
            read_keyring(path)


class TestWhatIsNoPlainFile:
    """A keyring's name may lead anywhere; reading it must neither wait nor take memory without bound."""

    @pytest.mark.parametrize("permissions", ["owner", "kubernetes"])
    def test_a_pipe_without_a_writer(self, tmp_path: Path, permissions: Permissions) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(
            KeyringError, match="pipe cannot be read: expected a plain file, found a folder, pipe or device"
        ):
            read_keyring(tmp_path / "pipe", permissions=permissions)

    @pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "/"])
    def test_a_device_or_folder(self, name: str) -> None:
        with pytest.raises(KeyringError, match="expected a plain file"):
            read_keyring(name)

    def test_a_pipe_behind_a_mounted_link(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "keys.json").symlink_to(tmp_path / "pipe")
        with pytest.raises(KeyringError, match="expected a plain file"):
            read_keyring(tmp_path / "keys.json", permissions="kubernetes")

    def test_a_huge_file(self, path: Path) -> None:
        os.truncate(path, 1 << 40)
        with pytest.raises(KeyringError, match="larger than 4,194,304 bytes"):
            read_keyring(path)

    @pytest.mark.parametrize("name", ["keys\0.json", "x" * 300, "keys.json/more", "a/../keys.json/"])
    def test_a_name_that_no_file_can_have(self, path: Path, name: str) -> None:
        with pytest.raises(KeyringError, match="cannot be read: "):
            read_keyring(f"{path.parent}/{name}")

    def test_links_that_go_round(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to(tmp_path / "b")
        (tmp_path / "b").symlink_to(tmp_path / "a")
        with pytest.raises(KeyringError, match="cannot be read: Too many levels"):
            read_keyring(tmp_path / "a", permissions="kubernetes")

    def test_a_running_reader_meets_a_pipe(self, path: Path) -> None:
        file = KeyringFile(path)
        path.unlink()
        os.mkfifo(path)
        assert file.current(1000).versions("orders")
        with pytest.raises(
            KeyringError, match=r"expected a plain file, found .*; the last good keyring is older than 300 s"
        ):
            file.current(300_000)


class TestKeyringFile:
    def test_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(KeyringError, match=r"none\.json cannot be read: No such file") as raised:
            KeyringFile(tmp_path / "none.json")
        assert f"headerware keys generate --keyring {tmp_path}/none.json --id NAME" in str(raised.value)

    def test_missing_file_is_named_in_a_folder_that_was_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "removed"
        folder.mkdir()
        monkeypatch.chdir(folder)
        folder.rmdir()
        with pytest.raises(KeyringError, match=r"keyring none\.json cannot be read: No such file"):
            KeyringFile("none.json")

    def test_corrupt_file_is_named(self, tmp_path: Path) -> None:
        bad = tmp_path / "bad.json"
        bad.write_bytes(b"{")
        with pytest.raises(KeyringError, match=r"bad\.json is no keyring"):
            KeyringFile(bad)

    def test_gives_the_same_keyring_while_nothing_changes(self, path: Path) -> None:
        file = KeyringFile(path)
        assert file.current(5000) is file.current(0)
        assert file.reloads == 0

    def test_takes_up_a_change_when_the_time_has_come(self, path: Path) -> None:
        file = KeyringFile(path, refresh_ms=1000, now_ms=0)
        rotate(path)
        assert file.current(999).current_key("orders", "sign", 0).version == 1
        assert file.current(1000).current_key("orders", "sign", 0).version == 2

    def test_looks_when_the_clock_runs_backwards(self, path: Path) -> None:
        file = KeyringFile(path, now_ms=10 * MS)
        rotate(path)
        assert file.current(5).current_key("orders", "sign", 0).version == 2

    def test_follows_swapped_links_as_kubernetes_makes_them(self, tmp_path: Path) -> None:
        for number, ring in enumerate((secret_ring(), with_rotation(secret_ring(), "orders"))):
            (tmp_path / f"..v{number}").mkdir()
            written(tmp_path / f"..v{number}" / "keys.json", ring, 0o440)
        (tmp_path / "..data").symlink_to("..v0")
        (tmp_path / "keys.json").symlink_to("..data/keys.json")
        file = KeyringFile(tmp_path / "keys.json", permissions="kubernetes")
        (tmp_path / "..swap").symlink_to("..v1")
        (tmp_path / "..swap").replace(tmp_path / "..data")
        assert file.current(1000).current_key("orders", "sign", 0).version == 2

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            ("deleted", r"cannot be read: No such file"),
            ("corrupt", r"is no keyring: .*truncated"),
            ("open", r"others can reach"),
            ("later", r"its version is 3, expected 2"),
        ],
    )
    def test_last_good_keyring_goes_on_for_a_while_and_then_nothing_is_trusted(
        self, path: Path, damage: str, said: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = KeyringFile(path, max_stale_ms=4000)
        before = file.current(0)
        damaged(path, damage)
        with caplog.at_level(logging.WARNING):
            kept = [file.current(now_ms) for now_ms in (1000, 2000, 3000)]
        assert all(ring is before for ring in kept)
        assert file.failures == 3
        (logged,) = caplog.records
        assert logged.levelname == "ERROR"
        assert re.search(rf"{said}.*is used for at most 4 s, then nothing is signed", logged.getMessage())
        for ask in (lambda: file.current(4000), lambda: file.find("orders", 1, 4001)):
            with pytest.raises(
                KeyringError, match=rf"keys\.json .*{said}.*is older than 4 s.*: repair the file"
            ):
                ask()

    def test_a_stale_keyring_comes_back_when_the_file_is_mended(self, path: Path) -> None:
        file, good = KeyringFile(path, max_stale_ms=2000), path.read_bytes()
        path.write_bytes(b"{")
        with pytest.raises(KeyringError, match="older than 2 s"):
            file.current(2000)
        path.write_bytes(good)
        assert file.current(3000).versions("orders")

    def test_a_keyring_is_fresh_as_long_as_the_file_is_good(self, path: Path) -> None:
        file = KeyringFile(path, max_stale_ms=2000)
        assert all(file.current(now_ms).versions("orders") for now_ms in (1000, 10_000, 1_000_000))
        path.write_bytes(b"{")
        assert file.current(1_001_000).versions("orders")

    def test_a_clock_that_was_set_back_does_not_keep_an_old_keyring(self, path: Path) -> None:
        file = KeyringFile(path, max_stale_ms=2000, now_ms=10 * MS)
        path.write_bytes(b"{")
        file.current(5)
        with pytest.raises(KeyringError, match="older than 2 s"):
            file.current(2005)

    def test_recovers_after_a_failure(self, path: Path) -> None:
        file = KeyringFile(path)
        good = path.read_bytes()
        path.write_bytes(b"{")
        file.current(1000)
        path.write_bytes(good)
        rotate(path)
        assert file.current(2000).current_key("orders", "sign", 0).version == 2
        assert (file.failures, file.reloads) == (1, 1)

    def test_the_same_failure_is_logged_again_after_a_recovery(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = KeyringFile(path)
        with caplog.at_level(logging.WARNING):
            for now_ms, mode in enumerate((0o644, 0o600, 0o644), 1):
                path.chmod(mode)
                file.current(now_ms * 1000)
        assert len(caplog.records) == 2

    def test_unknown_version_is_looked_for_at_once(self, path: Path) -> None:
        file = KeyringFile(path, refresh_ms=60_000)
        rotate(path)
        assert file.find("orders", 2, 1).version == 2

    def test_one_unknown_key_does_not_hide_another(self, path: Path) -> None:
        file = KeyringFile(path, refresh_ms=10 * MS)
        with pytest.raises(KeyringError):
            file.find("nobody", 1, 0)
        rotate(path)
        assert file.find("orders", 2, 0).version == 2

    @pytest.mark.parametrize("damage", ["none", "deleted", "corrupt", "open"])
    def test_a_flood_of_unknown_keys_is_no_flood_of_looks(
        self, path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, looks, opened = KeyringFile(path, refresh_ms=10 * MS), Calls(os.stat), Calls(os.open)
        damaged(path, damage)
        monkeypatch.setattr(os, "stat", looks)
        monkeypatch.setattr(os, "open", opened)
        for number in range(10_000):
            with pytest.raises(KeyringError):
                file.find(f"nobody-{number}", number, number // 5)
        assert looks.of(path) == 10 + 19
        assert opened.of(path) == {"none": 0, "deleted": 0, "corrupt": 1, "open": 1}[damage]

    def test_a_new_key_is_found_soon_in_spite_of_a_flood(self, path: Path) -> None:
        file = KeyringFile(path, refresh_ms=10 * MS)
        for number in range(1000):
            with pytest.raises(KeyringError):
                file.find("nobody", number, 0)
        rotate(path)
        with pytest.raises(KeyringError):
            file.find("orders", 2, 99)
        assert file.find("orders", 2, 100).version == 2

    def test_looks_for_unknown_keys_when_the_clock_runs_backwards(self, path: Path) -> None:
        file = KeyringFile(path, now_ms=10 * MS)
        with pytest.raises(KeyringError):
            file.find("nobody", 1, 10 * MS)
        file.current(0)
        rotate(path)
        assert file.find("orders", 2, 1).version == 2

    def test_what_could_not_be_read_is_tried_again(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = KeyringFile(path)
        rotate(path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", out_of_descriptors)
            assert file.current(1000).current_key("orders", "sign", 0).version == 1
        assert file.current(2000).current_key("orders", "sign", 0).version == 2

    def test_is_followed_by_many_threads(self, path: Path) -> None:
        file, barrier, seen = KeyringFile(path), Barrier(8), list[int]()
        rotate(path)

        def look() -> None:
            barrier.wait()
            seen.extend(
                file.current(now_ms).current_key("orders", "sign", 0).version for now_ms in range(1000, 1500)
            )

        threads = [Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 4000
        assert file.current(1500).current_key("orders", "sign", 0).version == 2
        assert file.reloads == 1


class TestEditKeyring:
    def test_makes_the_file_for_its_owner_only(self, tmp_path: Path) -> None:
        path = tmp_path / "new.json"
        edit_keyring(path, lambda ring: with_new_key(ring, "orders", "hmac-sha256"), create=True)
        assert path.stat().st_mode & 0o777 == 0o600

    def test_missing_file_is_refused_unless_it_is_to_be_made(self, tmp_path: Path) -> None:
        with pytest.raises(KeyringError, match="cannot be read"):
            rotate(tmp_path / "none.json")

    def test_missing_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(KeyringError, match="cannot be written: No such file"):
            rotate(tmp_path / "nowhere" / "keys.json")

    def test_keeps_the_mode(self, path: Path) -> None:
        path.chmod(0o640)
        edit_keyring(path, lambda ring: with_rotation(ring, "orders"), permissions="kubernetes")
        assert path.stat().st_mode & 0o777 == 0o640

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    def test_keeps_the_owner(self, path: Path) -> None:
        os.chown(path, 12345, 12346)
        rotate(path)
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)

    def test_a_secret_closes_a_file_that_everyone_could_read(self, tmp_path: Path) -> None:
        path = written(tmp_path / "public.json", public_ring(), 0o644)
        edit_keyring(path, lambda ring: with_new_key(ring, "orders", "hmac-sha256"))
        assert path.stat().st_mode & 0o777 == 0o600

    def test_changes_the_target_of_a_link(self, path: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.json"
        link.symlink_to(path)
        edit_keyring(link, lambda ring: with_rotation(ring, "orders"), permissions="kubernetes")
        assert link.is_symlink()
        assert read_keyring(path).current_key("orders", "sign", 0).version == 2

    def test_a_refused_change_leaves_the_file_and_no_litter(self, path: Path) -> None:
        before = path.read_bytes()
        with pytest.raises(KeyringError):
            edit_keyring(path, lambda ring: with_rotation(ring, "nobody"))
        assert path.read_bytes() == before
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["keys.json", "keys.json.lock"]

    def test_concurrent_writers_lose_nothing(self, path: Path) -> None:
        threads = [Thread(target=rotate, args=(path,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert read_keyring(path).current_key("orders", "sign", 0).version == 9

    def test_a_reader_never_sees_half_a_file(self, path: Path) -> None:
        def rotate_often() -> None:
            for _ in range(30):
                rotate(path)

        writer = Thread(target=rotate_often)
        writer.start()
        read = 0
        while writer.is_alive() or read == 0:
            assert read_keyring(path).current_key("orders", "sign", 0).version >= 1
            read += 1
        writer.join()
        assert read_keyring(path).current_key("orders", "sign", 0).version == 31


class TestWritePublicKeyring:
    def test_everyone_may_read_it(self, tmp_path: Path) -> None:
        path = tmp_path / "public.json"
        write_public_keyring(path, public_ring())
        assert path.stat().st_mode & 0o777 == 0o644

    def test_secrets_are_not_written_there(self, tmp_path: Path) -> None:
        with pytest.raises(KeyringError, match="not written"):
            write_public_keyring(tmp_path / "public.json", secret_ring())
        assert not (tmp_path / "public.json").exists()

    def test_a_keyring_with_secrets_is_not_overwritten(self, path: Path) -> None:
        with pytest.raises(KeyringError, match="not overwritten"):
            write_public_keyring(path, public_ring())
        assert read_keyring(path).versions("orders")


def test_a_child_that_is_forked_during_a_look_looks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "keys.json", secret_ring())
    file = KeyringFile(path, now_ms=0)
    rotate(path)
    assert succeeds_in_a_child_made_within(
        monkeypatch,
        "headerware.keyring.file._read",
        lambda: file.current(2_000),
        lambda: file.find("orders", 2, 2_001) == file.current(9_000).keys[1],
    )
