"""The source ``files``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from headerware.core.errors import ConfigError
from headerware.sources import (
    Input,
    MemoryOffsets,
    Source,
    SourceConfig,
    SourceContext,
    SourceTask,
    SourceUnavailableError,
    open_source,
)
from headerware.sources.conformance import SourceConformance
from headerware.sources.engine.decision import offset_key
from headerware.sources.ready import Files, files
from headerware.sources.source import ObjectMovedError

NAMES = ["a", "a-b", "a/b", "a/c/d", "a0", "b.csv", "ü"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        if name != "a":
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("1\n2\n")
    return tmp_path


def keys(source: Source[Any], start: str | None = None) -> list[str]:
    opened = open_source(source, SourceContext())
    return [item.context.key for item in opened.items(start)]


class TestConformance(SourceConformance):
    extractor = "jsonl"

    @pytest.fixture(autouse=True)
    def filled(self, folder: Path) -> None:
        self.folder = folder

    def make_source(self) -> Source[Any]:
        return Files(folder=str(self.folder))

    def add_late(self) -> None:
        (self.folder / "a/bb").write_text("3\n")

    def change(self, key: Any) -> None:
        (self.folder / key).write_text("changed\n")

    def remove(self, key: Any) -> None:
        (self.folder / key).unlink()


class TestListing:
    def test_has_the_order_of_whole_paths(self, folder: Path) -> None:
        found = keys(Files(folder=str(folder)))
        assert found == sorted(found) == ["a-b", "a/b", "a/c/d", "a0", "b.csv", "ü"]

    @pytest.mark.parametrize("start", ["", "a", "a/", "a/b", "a/bb", "a/c", "a/c/d", "a/z", "a0", "zz"])
    def test_begins_anywhere(self, folder: Path, start: str) -> None:
        source = Files(folder=str(folder))
        assert keys(source, start) == [key for key in keys(source) if key >= start]

    def test_of_a_large_folder_holds_a_page(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = keys(Files(folder=str(folder)))
        for page in (1, 2, 3):
            monkeypatch.setattr(files, "_PAGE", page)
            assert keys(Files(folder=str(folder))) == whole

    def test_may_have_some_paths(self, folder: Path) -> None:
        (folder / ".hidden").mkdir()
        (folder / ".hidden" / "x.csv").touch()
        assert keys(Files(folder=str(folder), include=["*.csv", "a/*"], exclude=["*/d", ".*"])) == [
            "a/b",
            "b.csv",
        ]

    def test_leaves_out_links_and_hidden_files(self, tmp_path: Path) -> None:
        (tmp_path / "real").touch()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        (tmp_path / "loop").symlink_to(tmp_path)
        (tmp_path / ".hidden").touch()
        os.mkfifo(tmp_path / "pipe")
        assert keys(Files(folder=str(tmp_path))) == ["real"]

    def test_has_names_that_are_no_text(self, tmp_path: Path) -> None:  # the engine tells of them, by policy
        for name in (b"a", b"\xff", b"\xfe/b"):
            path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
            path.parent.mkdir(exist_ok=True)
            path.touch()
        assert keys(Files(folder=str(tmp_path))) == ["a", "\udcfe/b", "\udcff"]

    @pytest.mark.parametrize(("name", "problem"), [("none", "No such file"), ("file", "Not a directory")])
    def test_of_a_folder_that_is_not_there_is_an_error_at_the_start(
        self, tmp_path: Path, name: str, problem: str
    ) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match=rf"source\.folder: folder '.*{name}': {problem}"):
            keys(Files(folder=str(tmp_path / name)))

    def test_of_a_folder_that_goes_later_is_tried_again(self, tmp_path: Path) -> None:
        place = tmp_path / "place"
        place.mkdir()
        opened = open_source(Files(folder=str(place)), SourceContext())
        place.rmdir()
        with pytest.raises(SourceUnavailableError, match=r"place/?': No such file"):
            list(opened.items(None))

    def test_goes_on_if_files_and_folders_vanish(self, folder: Path) -> None:
        listing = open_source(Files(folder=str(folder)), SourceContext()).items(None)
        assert next(listing).context.key == "a-b"
        (folder / "a/c/d").unlink()
        (folder / "a/c").rmdir()
        (folder / "b.csv").unlink()
        assert [item.context.key for item in listing] == ["a/b", "a0", "ü"]


class TestShrunkFile:
    def test_is_left_to_a_later_listing(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1\n2\n")
        (item,) = Files(folder=str(tmp_path)).items(None)
        (tmp_path / "a").write_text("3\n")
        with pytest.raises(ObjectMovedError):
            item.open_stream()

    @pytest.mark.parametrize("grows", [False, True])
    def test_is_not_read_to_its_end_while_it_shrinks(self, tmp_path: Path, grows: bool) -> None:  # noqa: FBT001
        (tmp_path / "a").write_bytes(b"1\n" * (1 << 20))
        (item,) = Files(folder=str(tmp_path), grows=grows).items(None)
        with Input(item) as given:
            stream = given.open_stream()
            stream.read(100)
            (tmp_path / "a").write_text("3\n")
            with pytest.raises(SourceUnavailableError, match=f"expected {2 << 20} bytes"):
                stream.read()


class TestGrowing:
    def test_file_extends_its_earlier_version(self, tmp_path: Path) -> None:
        path, source = tmp_path / "log", Files(folder=str(tmp_path), grows=True)
        path.write_text("1\n")
        version = self._item(source).context.version
        with path.open("a") as file:
            file.write("2\n")
        assert self._item(source).context.version != version
        assert self._item(source).extends(version)
        path.write_text("")
        assert not self._item(source).extends(version)
        path.unlink()
        (tmp_path / "keeps the inode").touch()
        path.write_text("1\n2\n3\n")
        assert self._item(source).extends(version)
        path.write_text("2\n2\n3\n")
        assert not self._item(source).extends(version)

    def test_file_is_not_the_one_that_was_listed_once_it_is_replaced(self, tmp_path: Path) -> None:
        path, source = tmp_path / "log", Files(folder=str(tmp_path), grows=True)
        path.write_text("1\n")
        item = self._item(source)
        path.write_text("2\n")
        with pytest.raises(ObjectMovedError):
            item.open_stream()
        path.unlink()
        with pytest.raises(ObjectMovedError):
            item.open_stream()

    def test_is_only_told_of_where_the_options_say_so(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("1\n")
        item = self._item(Files(folder=str(tmp_path)))
        assert not item.context.grows
        (tmp_path / "log").write_text("1\n2\n")
        assert not self._item(Files(folder=str(tmp_path))).extends(item.context.version)

    def test_another_inode_makes_no_other_file(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("1\n")
        before = self._item(Files(folder=str(tmp_path)))
        shutil.copy2(tmp_path / "log", tmp_path / "copy")
        (tmp_path / "copy").rename(tmp_path / "log")
        after = self._item(Files(folder=str(tmp_path)))
        assert after.context.version != before.context.version
        assert after.extends(before.context.version)

    def _item(self, source: Files) -> Any:
        return next(item for item in source.items(None) if item.context.key == "log")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs the /proc of Linux")
def test_growing_file_that_cannot_be_read_leaves_the_others_alone() -> None:
    """The memory of this process has no first byte, not even for root."""
    source = Files(folder="/proc/self", include=["mem", "status"], grows=True)
    config = SourceConfig(
        name="s",
        topic="t",
        source=source,
        extractor="csv",
        on_object_error="skip",
        on_record_error="drop",
        retry_deadline_s=0,
    )
    offsets = MemoryOffsets()
    with SourceTask(config, offsets, once=True) as task:
        while not task.is_done:
            for batch in task.poll():
                task.acknowledge(batch)
            task.store_offsets()
    assert task.statistics.failed
    read = offsets.get(offset_key(config, "status"))
    assert read is not None
    assert read.record_number > 10


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs the /proc of Linux")
def test_growing_file_that_cannot_be_read_for_a_while_keeps_its_place() -> None:
    item = next(iter(Files(folder="/proc/self", include=["mem"], grows=True).items(None)))
    assert item.context.version is None
    assert item.extends("1024:a.2000:b")
    assert not item.continues("other", "1024:a.2000:b")
