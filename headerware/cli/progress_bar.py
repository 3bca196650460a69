"""The bar of a command that reads a topic, or a file, to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from headerware.core.printable import printable

if TYPE_CHECKING:
    from headerware.kafka.reader import Progress


class ReadingBar(ProgressBar):
    """A bar on standard error, if that is a terminal."""

    def __init__(self, subject: str) -> None:
        console = Console(stderr=True)
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.add_task(printable(subject), total=None)

    def show(self, progress: Progress) -> None:
        """Show the progress, in offsets of a topic or bytes of a file."""
        self.update(self._task, completed=progress.done, total=progress.total)
