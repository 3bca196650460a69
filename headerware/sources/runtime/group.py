"""Several sources in one process: each has its own runner and threads, and can fail without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

from headerware.core.errors import HeaderwareError, SourceError, described
from headerware.sources.runtime.runner import SourceRunner

if TYPE_CHECKING:
    from headerware.sources.runtime.config import RunConfig


class RunnerGroup:
    """Run several sources at the same time.

    Args:
        configs: the sources, each with a different name.
        once: whether to read the objects that exist now, and end.
        fail_fast: whether a source that fails stops the others.
        on_failure: called as soon as a source fails, with its name and the error.

    A group runs once.
    """

    def __init__(
        self,
        configs: Iterable[RunConfig],
        *,
        once: bool = False,
        fail_fast: bool = False,
        on_failure: Callable[[str, HeaderwareError], object] | None = None,
    ) -> None:
        self.runners: Final[list[SourceRunner]] = [SourceRunner(config, once=once) for config in configs]
        self.failures: Final[dict[str, HeaderwareError]] = {}
        """The errors of the failed sources, by name."""
        self._fail_fast: Final = fail_fast
        self._on_failure: Final = on_failure

    def run(self) -> None:
        """Run until every source has ended: after :meth:`stop`, after the last record, or by a failure."""
        ended: SimpleQueue[tuple[str, HeaderwareError | None]] = SimpleQueue()
        for runner in self.runners:
            name = runner.config.name
            Thread(target=_run, args=(runner, ended), name=f"headerware-source-{name}", daemon=True).start()
        for _ in self.runners:
            name, error = ended.get()
            if error is None:
                continue
            self.failures[name] = error
            if self._on_failure is not None:
                self._on_failure(name, error)
            if self._fail_fast:
                self.stop()

    def stop(self) -> None:
        """Stop all sources, as :meth:`SourceRunner.stop` does; a signal handler may call this."""
        for runner in self.runners:
            runner.stop()


def _run(runner: SourceRunner, ended: SimpleQueue[tuple[str, HeaderwareError | None]]) -> None:
    error: HeaderwareError | None = None
    try:
        runner.run()
    except HeaderwareError as failure:
        error = failure
    except BaseException as failure:  # noqa: BLE001 - the other sources continue
        error = SourceError(f"source {runner.config.name!r} stopped: {described(failure)}")
    ended.put((runner.config.name, error))
