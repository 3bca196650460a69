"""Write a worker's log to standard error, as lines with their time."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headerware.core.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class _Lines(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def time_now() -> str:
    """Return the present time in the form of log lines: ISO 8601, in UTC."""
    return time.strftime(_TIME, time.gmtime())


def log_nothing() -> None:
    """Discard the package's log, because the command's answer says the same."""
    logging.getLogger("headerware").addHandler(logging.NullHandler())


@contextmanager
def log_lines() -> Iterator[None]:
    """Write the package's log, from INFO on, to standard error, each line with its time."""
    log, handler = logging.getLogger("headerware"), logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s", _TIME))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
