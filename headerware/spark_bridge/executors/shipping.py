"""Send a task to the executors as a function that says clearly which package is missing there.

The function is pickled by value, since an executor without Headerware could not unpickle a reference to it.
"""

from __future__ import annotations

import gc
import re
import sys
from typing import TYPE_CHECKING, Any, Final
from zipimport import zipimporter

from pyspark import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    Batches = Iterable["pa.RecordBatch"]

# The last frame of a traceback is this file's, and after it come the class, the message and its notes.
_REASON: Final = re.compile(
    r'executors/shipping\.py", line \d+, in (?:run|require)\n(?: {4}.*\n)*(?:\w+\.)*(\w+: .*(?:\n\S.*)*)'
)


def shipped(entry: str, *arguments: Any) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that calls ``module:function`` with pickled arguments.

    It is called once a task, and returns the function that maps the task's batches. The arguments are plain
    values, and are never unpickled on the driver.
    """
    return _shipped(entry, tuple(_pickled(argument) for argument in arguments))


def spare_next_task() -> None:
    """Save the next tasks of this worker some work that Spark would repeat for each task.

    - Spark calls ``importlib.invalidate_caches`` before each task, and Python 3.10 to 3.12 then reads the
      directory of each archive that has an importer: Spark's jars and pyspark.zip, some 0.2 s of CPU. An
      importer that is needed later is made anew, from the directory that zipimport keeps.
    - Spark calls ``gc.collect`` after each task, which looks at all objects of pyarrow, pandas and the chain,
      some 0.05 s. Objects that exist after a worker's first task remain, so the collector may leave them out.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            sys.path_importer_cache.pop(path, None)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def reason_of(error: BaseException) -> str | None:
    """Return why a task failed if it said so in one line, from the error that Spark raises on the driver."""
    found = _REASON.search(str(error))
    return None if found is None else "; ".join(found[1].split("\n"))


def _pickled(argument: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(argument)  # type: ignore[no-untyped-call]  # as pyspark has it
    return pickled


class _CallThere:
    """Call a function where this object is unpickled."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return self._function, ()


def _shipped(entry: str, pickled: tuple[bytes, ...]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def lacking(module: str) -> RuntimeError:
        import sys  # noqa: PLC0415 - inside, because the function is pickled by value

        name = module.partition(".")[0]
        advice = (
            "spark.sparkContext.addPyFile(its wheel), or --py-files"
            if name == "headerware"
            else "--archives with a packed environment, or an installation on every node; addPyFile "
            "carries pure Python only"
        )
        return RuntimeError(
            f"the executor's Python ({sys.executable}, {sys.version.split()[0]}) has no module "
            f"{name!r}, which this chain needs. Ship it by {advice}."
        )

    def require() -> None:
        try:
            import pyarrow as pa  # noqa: F401, PLC0415 - as above
        except ModuleNotFoundError as error:
            raise lacking(error.name or "?") from error

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        import importlib  # noqa: PLC0415 - as above
        import sys  # noqa: PLC0415 - as above
        from pathlib import Path  # noqa: PLC0415 - as above

        from pyspark import SparkFiles  # noqa: PLC0415 - as above

        # addPyFile brings a wheel here, but pyspark puts only .zip, .egg and .jar on the path.
        wheels = map(str, Path(SparkFiles.getRootDirectory()).glob("headerware-*.whl"))
        sys.path[1:1] = [wheel for wheel in wheels if wheel not in sys.path]

        module, _, name = entry.partition(":")
        try:
            begin = getattr(importlib.import_module(module), name)
            from headerware.core.errors import HeaderwareError  # noqa: PLC0415 - as above
            from headerware.spark_bridge.executors.shipping import spare_next_task  # noqa: PLC0415 - as above

            try:
                yield from begin(*pickled)(batches)
            finally:
                spare_next_task()
        except ModuleNotFoundError as error:
            raise lacking(error.name or "?") from error
        except HeaderwareError as error:
            # Its message says all. Spark prints a traceback four times before the driver shows its last line.
            raise error.with_traceback(None)  # noqa: B904 - it keeps its own cause

    # pyspark imports pyarrow before it calls the function, but after it has unpickled it.
    vars(run)["require"] = _CallThere(require)
    return run
