from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

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


def needing(_: bytes) -> Any:
    """Need what is nowhere."""
    import hw_not_there.at_all  # type: ignore[import-not-found]  # noqa: PLC0415

    return hw_not_there


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Spark's files where they are in a worker."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)


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
            shipped(f"{__name__}:needing", 1)(iter(()))

    @pytest.mark.parametrize(("missing", "advice"), [("headerware", "addPyFile"), ("msgspec", "--archives")])
    def test_comes_to_a_python_that_lacks_it(self, missing: str, advice: str, tmp_path: Path) -> None:
        run = shipped("headerware.spark_bridge.executors.decoding:decode_alone", 1, None, 2)
        done = subprocess.run(
            [sys.executable, "-c", BARE, str(tmp_path), missing],
            input=cloudpickle.dumps(run),  # type: ignore[no-untyped-call]
            capture_output=True,
            check=True,
        )
        said = done.stdout.decode()
        assert f"has no module {missing!r}, which this chain needs. Ship it by" in said
        assert advice in said
