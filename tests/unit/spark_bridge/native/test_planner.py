"""The planning of micro-batches, as pyspark's processes call it, without Spark."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.errors import ConfigError, ObjectError, SourceError
from headerware.sources import ItemContext, NativeItem, Source, SourceConfig
from headerware.sources.extractors.json_lines import JsonLinesExtractor
from headerware.sources.ready.files import Files
from headerware.spark_bridge.native.data_source import SourceStreamReader
from headerware.spark_bridge.native.definition import SourceDefinition
from headerware.spark_bridge.native.manifests import KEPT_BATCHES, ManifestFolder
from headerware.spark_bridge.native.planner import INITIAL, Limits, Planner, all_tasks
from headerware.spark_bridge.native.reading import rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Offset = dict[str, Any]
Values = list[bytes]


class Query:
    """What a query's processes do with the source, in this process."""

    def __init__(self, folder: Path, *, grows: bool = False, **settings: Any) -> None:
        self.spool = folder / "spool"
        self.spool.mkdir()
        self._location = str(folder / "manifests")
        self.grows, self.settings = grows, settings
        self.reader = self.restarted()

    def restarted(
        self,
        *,
        name: str = "spool",
        on_object_error: Any = "raise",
        on_record_error: Any = "raise",
        **limits: Any,
    ) -> SourceStreamReader:
        """Return the reader of a process that starts."""
        config = SourceConfig(
            name=name,
            source=Files(folder=str(self.spool), grows=self.grows),
            extractor=JsonLinesExtractor(values="bytes"),
            topic="t",
            listing_pause_s=0.01,
            retry_pause_s=0.001,
            on_object_error=on_object_error,
            on_record_error=on_record_error,
        )
        self.definition = SourceDefinition.of(config)
        self.folder = ManifestFolder(self._location)
        limits = {**self.settings, **limits}
        self.reader = SourceStreamReader(self.definition, Limits(**limits), self.folder)
        return self.reader

    def write(self, **contents: bytes) -> None:
        for name, content in contents.items():
            temporary = self.spool / f".{name}"
            temporary.write_bytes(content)
            temporary.rename(self.spool / f"{name}.jsonl")

    def values(self, start: Offset, end: Offset) -> Values:
        tasks = self.reader.partitions(start, end)
        batches = [batch for task in tasks for batch in rows(self.definition, task.parts, self.folder)]
        return [value for batch in batches for value in batch.column("value").to_pylist()]

    def next(self, start: Offset = INITIAL) -> tuple[Offset, Values]:
        """Plan and read a batch, and commit it."""
        end = self.reader.latestOffset()
        found = self.values(start, end)
        self.reader.commit(end)
        return end, found


@pytest.fixture
def query(tmp_path: Path) -> Callable[..., Query]:
    """Return a function that begins a query."""

    def begin(**settings: Any) -> Query:
        return Query(tmp_path, **settings)

    return begin


class TestBatches:
    def test_reads_each_object_once(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n2\n", b=b"3\n")
        end, found = spool.next()
        assert found == [b"1", b"2", b"3"]
        spool.write(c=b"4\n")
        end, found = spool.next(end)
        assert found == [b"4"]
        assert spool.reader.latestOffset() == end

    def test_nothing_to_read_is_the_initial_offset(self, query: Callable[..., Query]) -> None:
        spool = query()
        assert spool.reader.latestOffset() == INITIAL
        assert spool.reader.partitions(INITIAL, INITIAL) == []

    def test_an_offset_whose_tasks_nobody_asked_for_stays(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n")
        end = spool.reader.latestOffset()
        spool.write(b=b"2\n")
        assert spool.reader.latestOffset() == end

    def test_tasks_that_are_asked_for_again_are_the_same(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n")
        end = spool.reader.latestOffset()
        assert spool.reader.partitions(INITIAL, end) is spool.reader.partitions(INITIAL, end)

    def test_reads_a_changed_object_from_its_first_record(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n")
        end, _ = spool.next()
        spool.write(a=b"10\n20\n")
        assert spool.next(end)[1] == [b"10", b"20"]

    def test_finds_a_key_that_comes_late(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n", c=b"3\n")
        end, _ = spool.next()
        spool.write(b=b"2\n")
        assert spool.next(end)[1] == [b"2"]

    def test_two_queries_share_a_folder(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n")
        first, _ = spool.next()
        spool.restarted()
        second, found = spool.next()
        assert found == [b"1"]
        assert first["run"] != second["run"]


class TestLimits:
    def test_of_objects(self, query: Callable[..., Query]) -> None:
        spool = query(objects=2)
        spool.write(a=b"1\n", b=b"2\n", c=b"3\n")
        end, found = spool.next()
        assert found == [b"1", b"2"]
        assert spool.next(end)[1] == [b"3"]

    def test_of_bytes_let_a_larger_object_through(self, query: Callable[..., Query]) -> None:
        spool = query(size_bytes=5)
        spool.write(a=b"1\n", b=b"2\n", c=b"33333333\n", d=b"4\n")
        end, first = spool.next()
        end, second = spool.next(end)
        _, third = spool.next(end)
        assert [first, second, third] == [[b"1", b"2"], [b"33333333"], [b"4"]]

    def test_end_with_one_listing_where_the_query_does(self, query: Callable[..., Query]) -> None:
        # As pyspark 4.2 and later call it, with a start and a limit.
        spool = query(objects=2)
        spool.write(a=b"1\n", b=b"2\n", c=b"3\n")
        spool.reader.prepareForTriggerAvailableNow()
        end = spool.reader.latestOffset(INITIAL, None)
        assert spool.values(INITIAL, end) == [b"1", b"2"]
        after = spool.reader.latestOffset(end, None)
        assert spool.values(end, after) == [b"3"]
        spool.write(d=b"4\n")
        assert spool.reader.latestOffset(after, None) == after

    def test_pack_objects_into_tasks(self, query: Callable[..., Query]) -> None:
        spool = query(partitions=2)
        spool.write(**{f"f{number}": b"1\n" for number in range(10)})
        tasks = spool.reader.partitions(INITIAL, spool.reader.latestOffset())
        assert [len(task.parts) for task in tasks] == [5, 5]


class TestSplits:
    def test_large_objects(self, query: Callable[..., Query]) -> None:
        spool = query(partition_bytes=1_000)
        lines = [b"%d" % number for number in range(10_000, 11_000)]
        spool.write(a=b"\n".join(lines))
        end = spool.reader.latestOffset()
        tasks = spool.reader.partitions(INITIAL, end)
        assert [len(task.parts) for task in tasks] == [1] * 6
        batches = [batch for task in tasks for batch in rows(spool.definition, task.parts, spool.folder)]
        assert [value for batch in batches for value in batch.column("value").to_pylist()] == lines
        numbers = [
            {pair["key"]: pair["value"] for pair in headers}["hw.source.record"]
            for batch in batches
            for headers in batch.column("headers").to_pylist()
        ]
        assert (numbers[0], numbers[-1]) == (b"1", b"5000+166")
        assert len(set(numbers)) == len(lines)

    def test_are_the_same_in_a_replay_with_other_options(self, query: Callable[..., Query]) -> None:
        spool = query(partition_bytes=1_000)
        spool.write(a=b"1234\n" * 1_000)
        end = spool.reader.latestOffset()
        before = [task.parts[0].split for task in spool.reader.partitions(INITIAL, end)]
        again = spool.restarted(partition_bytes=3_000)
        assert [task.parts[0].split for task in again.partitions(INITIAL, end)] == before


class TestReplays:
    def test_read_what_the_manifest_has(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(b=b"2\n")
        end = spool.reader.latestOffset()
        spool.write(a=b"1\n", c=b"3\n")
        spool.restarted()
        assert spool.reader.partitions(end, end) == []  # how pyspark 4.0 says where it was
        assert spool.values(INITIAL, end) == [b"2"]
        assert spool.next(end)[1] == [b"1", b"3"]

    def test_forget_what_spark_has_never_heard_of(self, query: Callable[..., Query]) -> None:
        spool = query(objects=1)
        spool.write(a=b"1\n", b=b"2\n")
        end, _ = spool.next()
        spool.reader.latestOffset()  # killed before the checkpoint has it
        spool.restarted()
        spool.reader.partitions(end, end)
        assert spool.next(end)[1] == [b"2"]

    @pytest.mark.parametrize("becomes", [None, b"10\n"])
    def test_stop_at_an_object_that_is_gone_or_changed(
        self, query: Callable[..., Query], becomes: bytes | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        spool = query()
        spool.write(a=b"1\n", b=b"2\n")
        end = spool.reader.latestOffset()
        if becomes is None:
            (spool.spool / "a.jsonl").unlink()
        else:
            spool.write(a=becomes)
        spool.restarted()
        with pytest.raises(ObjectError, match=r'"a\.jsonl".*batch 1'):
            spool.reader.partitions(INITIAL, end)
        spool.restarted(on_object_error="skip")
        with caplog.at_level(logging.WARNING):
            assert spool.values(INITIAL, end) == [b"2"]
        assert "a.jsonl" in caplog.text
        assert spool.next(end)[1] == ([] if becomes is None else [b"10"])

    def test_that_left_an_object_out_read_it_when_it_is_back(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n", b=b"2\n")
        end = spool.reader.latestOffset()
        (spool.spool / "a.jsonl").rename(spool.spool / ".aside")
        spool.restarted(on_object_error="skip")
        assert spool.values(INITIAL, end) == [b"2"]
        (spool.spool / ".aside").rename(spool.spool / "a.jsonl")
        spool.restarted()
        assert spool.values(INITIAL, end) == [b"2"]
        assert spool.next(end)[1] == [b"1"]

    def test_keep_the_plan_of_another_process_that_still_runs(self, query: Callable[..., Query]) -> None:
        """A driver that was given up for dead goes on, and the batch that it has planned is the batch."""
        spool = query()
        spool.write(a=b"1\n")
        start, _ = spool.next()
        spool.write(c=b"3\n")
        slow = spool.reader
        planned = slow.latestOffset(start, None)
        spool.write(b=b"2\n")
        assert spool.restarted().latestOffset(start, None) == planned
        assert spool.values(start, planned) == [b"3"]
        spool.restarted()
        assert spool.values(start, planned) == [b"3"]
        assert spool.next(planned)[1] == [b"2"]

    def test_plan_on_without_what_has_changed_since_a_plan_that_spark_never_had(
        self, query: Callable[..., Query], caplog: pytest.LogCaptureFixture
    ) -> None:
        spool = query()
        spool.write(a=b"1\n")
        start, _ = spool.next()
        spool.write(b=b"2\n", c=b"3\n")
        spool.reader.latestOffset(start, None)  # killed before the checkpoint has it
        spool.write(b=b"20\n")
        spool.restarted()
        end = spool.reader.latestOffset(start, None)
        assert spool.values(start, end) == [b"3"]
        assert "b.jsonl" in caplog.text
        assert spool.next(end)[1] == [b"20"]

    def test_need_the_manifest(self, query: Callable[..., Query], tmp_path: Path) -> None:
        spool = query()
        spool.write(a=b"1\n")
        end, _ = spool.next()
        for path in (tmp_path / "manifests").rglob("0000*"):
            path.unlink()
        with pytest.raises(SourceError, match=r"there is no .*manifests/000000000001"):
            spool.restarted().partitions(INITIAL, end)

    def test_go_back_as_far_as_sparks_checkpoint(
        self, query: Callable[..., Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.core.atomic_files.os.fsync", lambda _: None)
        spool = query(objects=1)
        count = 2 * KEPT_BATCHES + 10
        spool.write(**{f"f{number:03d}": b"%d\n" % number for number in range(count)})
        ends = [INITIAL]
        for _ in range(count):
            ends.append(spool.reader.latestOffset())
            spool.reader.partitions(ends[-2], ends[-1])
            spool.reader.commit(ends[-1])
        (run,) = (tmp_path / "manifests").iterdir()
        assert len(list((run / "manifests").iterdir())) == KEPT_BATCHES + 10
        assert len(list((run / "snapshots").iterdir())) == 1
        spool.restarted()
        assert spool.reader.latestOffset(ends[-1], None) == ends[-1]
        spool.restarted()
        assert spool.values(ends[KEPT_BATCHES], ends[KEPT_BATCHES + 1]) == [b"%d" % KEPT_BATCHES]
        with pytest.raises(SourceError, match="can no longer be repeated"):
            spool.restarted().partitions(ends[KEPT_BATCHES - 2], ends[KEPT_BATCHES - 1])


class TestOffsets:
    @pytest.mark.parametrize("offset", [{"offset": 5}, {"run": "x"}, 7])
    def test_of_another_format_are_refused(self, query: Callable[..., Query], offset: Any) -> None:
        spool = query()
        for call in (
            lambda: spool.reader.latestOffset(offset, None),
            lambda: spool.reader.partitions(offset, offset),
        ):
            with pytest.raises(SourceError, match="does not belong to a query of headerware-objects"):
                call()

    def test_of_another_source_are_refused(self, query: Callable[..., Query]) -> None:
        spool = query()
        spool.write(a=b"1\n")
        end, _ = spool.next()
        with pytest.raises(
            SourceError, match="the checkpoint belongs to source 'spool', and this is source 'other'"
        ):
            spool.restarted(name="other").partitions(end, end)

    def test_need_their_folder(self, query: Callable[..., Query], tmp_path: Path) -> None:
        spool = query()
        spool.write(a=b"1\n")
        end, _ = spool.next()
        (tmp_path / "manifests").rename(tmp_path / "elsewhere")
        with pytest.raises(SourceError, match=r"with the manifests of this query; .*manifestLocation"):
            spool.restarted().partitions(end, end)


class TestStarts:
    def test_show_that_nothing_can_be_written(self, query: Callable[..., Query], tmp_path: Path) -> None:
        spool = query()
        (tmp_path / "manifests").touch()
        with pytest.raises(SourceError, match=r"cannot write .* in .*manifests"):
            spool.reader.latestOffset()

    def test_that_found_nothing_leave_nothing(self, query: Callable[..., Query], tmp_path: Path) -> None:
        spool = query()
        assert spool.reader.latestOffset() == INITIAL
        assert list((tmp_path / "manifests").iterdir()) == []


class _Named(Source[str], frozen=True, kw_only=True):
    """A source of which one object has a key that no store keeps."""

    def items(self, start: str | None) -> Iterator[NativeItem]:
        for key in ("a", "b\ud800", "c"):
            if key >= (start or ""):
                yield NativeItem(ItemContext(key=key))


class TestKeys:
    @pytest.mark.parametrize("policy", ["raise", "skip"])
    def test_that_no_manifest_can_hold(
        self, policy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = SourceConfig(
            name="named",
            source=_Named(),
            extractor=JsonLinesExtractor(),
            topic="t",
            on_object_error=policy,
        )
        folder = ManifestFolder(os.fspath(tmp_path))
        planner = Planner(config, folder, Limits())
        if policy == "raise":
            for plan in (lambda: planner.latest(None), lambda: all_tasks(config, Limits())):
                with pytest.raises(ObjectError, match=r"the offset of object .* cannot be stored"):
                    plan()
            return
        (task,) = planner.partitions(INITIAL, planner.latest(None))
        assert [part.item.context.key for part in task.parts] == ["a", "c"]
        assert "cannot be stored" in caplog.text


class TestGrowingObjects:
    def test_go_on_behind_the_last_record(self, query: Callable[..., Query]) -> None:
        spool = query(grows=True)
        spool.write(a=b"1\n2\n3")
        end, found = spool.next()
        assert found == [b"1", b"2"]
        with (spool.spool / "a.jsonl").open("ab") as file:
            file.write(b"3\n4\n")
        assert spool.next(end)[1] == [b"33", b"4"]

    @pytest.mark.parametrize("grows", [False, True])
    @pytest.mark.parametrize("is_address", [False, True])
    def test_are_refused_with_speculation_where_no_file_is_exclusive(
        self, query: Callable[..., Query], tmp_path: Path, *, grows: bool, is_address: bool
    ) -> None:
        spool = query(grows=grows)
        spool.write(a=b"1\n2\n")
        folder = ManifestFolder(tmp_path.as_uri() if is_address else str(tmp_path))
        reader = SourceStreamReader(spool.definition, Limits(), folder, speculates=True)
        if grows and is_address:
            with pytest.raises(ConfigError, match=r"spark\.speculation is true"):
                reader.latestOffset()
        else:
            assert reader.latestOffset()["batch"] == 1

    def test_end_where_the_first_attempt_has_ended(self, query: Callable[..., Query]) -> None:
        spool = query(grows=True)
        spool.write(a=b"1\n2\n")
        end = spool.reader.latestOffset()
        assert spool.values(INITIAL, end) == [b"1", b"2"]
        with (spool.spool / "a.jsonl").open("ab") as file:
            file.write(b"3\n")
        spool.restarted()
        spool.reader.partitions(end, end)
        assert spool.values(INITIAL, end) == [b"1", b"2"]
        assert spool.next(end)[1] == [b"3"]

    def test_that_cannot_be_read_wait_for_their_change(self, query: Callable[..., Query]) -> None:
        spool = query(grows=True)
        spool.write(a=b"1\nno JSON\n2\n")
        spool.restarted(on_record_error="raise", on_object_error="skip")
        gone = spool.reader.latestOffset()
        (spool.spool / "a.jsonl").rename(spool.spool / "aside")
        assert spool.values(INITIAL, gone) == []
        (spool.spool / "aside").rename(spool.spool / "a.jsonl")
        assert spool.reader.latestOffset() == gone
        with (spool.spool / "a.jsonl").open("ab") as file:
            file.write(b"3\n")
        until(lambda: spool.reader.latestOffset() != gone)  # after a pause between two listings
        with pytest.raises(SourceError, match="record 2"):
            spool.values(gone, spool.reader.latestOffset())

    def test_whose_ends_are_missing_are_read_again_with_a_warning(
        self, query: Callable[..., Query], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As where each node has a folder of its own by that path."""
        spool = query(grows=True)
        spool.write(a=b"1\n")
        end, _ = spool.next()
        (run,) = (tmp_path / "manifests").iterdir()
        shutil.rmtree(run / "ends")
        assert spool.next(end)[1] == [b"1"]
        assert "1 of the objects of batch 1 have no end in" in caplog.text

    def test_an_attempt_that_reads_on_beside_another_fails(self, query: Callable[..., Query]) -> None:
        spool = query(grows=True)
        spool.write(a=b"1\n")
        (task,) = spool.reader.partitions(INITIAL, spool.reader.latestOffset())
        slow = rows(spool.definition, task.parts, _Late(spool.folder.location))
        with (spool.spool / "a.jsonl").open("ab") as file:
            file.write(b"2\n")
        quick = rows(spool.definition, task.parts, spool.folder)
        assert sum(batch.num_rows for batch in quick) == 2
        with (spool.spool / "a.jsonl").open("ab") as file:
            file.write(b"3\n")
        with pytest.raises(SourceError, match="another attempt"):
            list(slow)


class _Late(ManifestFolder):
    """A folder in which the other attempt's end is seen only when one's own is written."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._is_first = True

    def read(self, name: str) -> bytes | None:
        is_first, self._is_first = self._is_first, False
        return None if is_first else super().read(name)


class TestFolders:
    def test_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        folder = ManifestFolder(os.fspath(tmp_path / "file"))
        with pytest.raises(SourceError, match=r"cannot write a/b in .*file"):
            folder.write("a/b", b"")

    def test_without_hard_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr("headerware.core.atomic_files.os.link", refuse)
        folder = ManifestFolder(os.fspath(tmp_path))
        assert folder.write_once("a/b", b"1") == b"1"
        assert folder.write_once("a/b", b"2") == b"1"
        (tmp_path / "a" / ".nfs0001").touch()
        assert folder.names("a") == ["b"]

    def test_stay_where_they_are_in_tasks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        folder = ManifestFolder("here")
        folder.write("a", b"1")
        sent = pickle.dumps(folder)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert pickle.loads(sent).read("a") == b"1"  # noqa: S301 - what was pickled here

    @pytest.mark.parametrize("location", ["nosuch://me:secret@there/is?key=secret", "dbfs:/there/is"])
    def test_of_an_unknown_kind(self, location: str) -> None:
        with pytest.raises(ConfigError, match=r"manifestLocation.*//there/is|dbfs:/there/is") as caught:
            ManifestFolder(location)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("scheme", ["file://", "file:"])
    def test_by_an_address(self, scheme: str, tmp_path: Path) -> None:
        folder = ManifestFolder(f"{scheme}{tmp_path}/x")
        assert folder.read("a/b") is None
        assert folder.names("a") == []
        folder.write("a/b", b"1")
        assert folder.write_once("a/b", b"2") == b"1"
        assert folder.write_once("a/c", b"3") == b"3"
        assert folder.names("a") == ["b", "c"]
        folder.delete("a/b")
        folder.delete("a")
        folder.delete("a")
        assert folder.names("a") == []
