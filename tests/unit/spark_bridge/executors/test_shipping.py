from __future__ import annotations

import gc
import importlib
import pickle
import subprocess
import sys
import zipimport
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
from pyspark import SparkFiles, cloudpickle

from headerware.spark_bridge.executors.shipping import shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


# A Python that has no headerware, whatever is installed.
BARE = """
import pickle, sys
from pyspark import SparkFiles
SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[1], True

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[2]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
try:
    list(pickle.load(sys.stdin.buffer)(iter(())))
except RuntimeError as error:
    print(error)
"""


def begun(first: bytes, second: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Begin a task, as the executors' functions do."""
    told = pickle.loads(first), pickle.loads(second)  # noqa: S301 - our own

    def mapped(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield (*told, batch)

    return mapped


def importing(name: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Begin a task that imports a module for each batch."""

    def mapped(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield importlib.import_module(pickle.loads(name) + batch).__name__  # noqa: S301 - our own

    return mapped


def needing(_: bytes) -> Any:
    """Need what is nowhere."""
    import hw_not_there.at_all  # type: ignore[import-not-found]  # noqa: PLC0415

    return hw_not_there


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have Spark's files where they are in a worker."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    yield
    gc.unfreeze()


class TestShipped:
    def test_calls_what_it_names_with_its_arguments(self) -> None:
        run = shipped(f"{__name__}:begun", {"a": 1}, None)
        assert list(run(iter([1, 2]))) == [({"a": 1}, None, 1), ({"a": 1}, None, 2)]

    def test_begins_anew_for_each_task(self) -> None:
        run = shipped(f"{__name__}:begun", [], 0)
        (first, *_), *_ = run(iter([1]))
        first.append("changed")
        assert list(run(iter([1]))) == [([], 0, 1)]

    def test_names_a_module_that_is_missing_and_how_to_ship_it(self) -> None:
        with pytest.raises(RuntimeError, match=r"has no module 'hw_not_there', which .* --archives"):
            list(shipped(f"{__name__}:needing", 1)(iter(())))

    @pytest.mark.parametrize(("missing", "advice"), [("headerware", "addPyFile"), ("msgspec", "--archives")])
    def test_comes_to_a_python_that_lacks_it(self, missing: str, advice: str, tmp_path: Path) -> None:
        run = shipped("headerware.spark_bridge.executors.decoding:decode_rows", 1, None, 2)
        done = subprocess.run(
            [sys.executable, "-c", BARE, str(tmp_path), missing],
            input=cloudpickle.dumps(run),  # type: ignore[no-untyped-call]
            capture_output=True,
            check=True,
        )
        said = done.stdout.decode()
        assert f"has no module {missing!r}, which this chain needs. Ship it by" in said
        assert advice in said


class TestSpareNextTask:
    """Spark invalidates the caches of imports before each task, and collects garbage after it."""

    @pytest.fixture
    def archive(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        """Return an archive on the path with two modules."""
        path = tmp_path / "packages.zip"
        with ZipFile(path, "w") as archive:
            archive.writestr("hw_in_zip_a.py", "")
            archive.writestr("hw_in_zip_b.py", "")
        monkeypatch.syspath_prepend(str(path))
        yield str(path)
        for name in ("hw_in_zip_a", "hw_in_zip_b"):
            sys.modules.pop(name, None)

    def test_the_next_task_reads_no_directory(self, archive: str, monkeypatch: pytest.MonkeyPatch) -> None:
        run = shipped(f"{__name__}:importing", "hw_in_zip_")
        assert list(run(iter(["a"]))) == ["hw_in_zip_a"]

        read: list[str] = []
        monkeypatch.setattr(zipimport, "_read_directory", read.append)
        importlib.invalidate_caches()
        assert archive not in read

    def test_a_task_that_is_cut_off_leaves_none_either(self, archive: str) -> None:
        mapped = shipped(f"{__name__}:importing", "hw_in_zip_")(iter(["a", "b"]))
        next(mapped)
        mapped.close()  # type: ignore[attr-defined]  # a generator
        assert archive not in sys.path_importer_cache

    def test_modules_are_found_after_it(self, archive: str) -> None:
        run = shipped(f"{__name__}:importing", "hw_in_zip_")
        assert list(run(iter(["a"]))) == ["hw_in_zip_a"]
        assert list(run(iter(["b"]))) == ["hw_in_zip_b"]
        assert sys.modules["hw_in_zip_b"].__file__.startswith(archive)  # type: ignore[union-attr]

    def test_the_collector_looks_at_nothing_that_stays(self) -> None:
        run = shipped(f"{__name__}:begun", 1, 2)
        before = len(gc.get_objects())
        assert list(run(iter([1]))) == [(1, 2, 1)]
        assert len(gc.get_objects()) < before / 10

    def test_the_collector_still_finds_what_comes_later(self) -> None:
        list(shipped(f"{__name__}:begun", 1, 2)(iter([1])))
        frozen = gc.get_freeze_count()
        cycle: list[Any] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1
        list(shipped(f"{__name__}:begun", 1, 2)(iter([1])))
        assert gc.get_freeze_count() <= frozen, "frozen objects may die, but none was added"
