"""Split the rows that a chain refused from the others; and the error of a query whose task failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headerware.core.errors import ConfigError, HeaderwareError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TaskError(HeaderwareError):
    """A micro-batch of which a task failed, with the task's error in one line.

    :func:`foreach_batch` raises it in place of Spark's error, which holds the tracebacks of all processes.
    """


def split_failures(frame: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the good rows, and the dead letters of the others.

    Both are computed from the frame, so cache it if that is expensive. The dead letters are ready to be
    written to Kafka: topic, key and value as the row came, and its headers followed by the reason. They also
    have the columns ``step``, ``error`` and ``reason``.

    Args:
        frame: the result of ``decode`` or ``encode`` with ``failures="route"``.

    Raises:
        ConfigError: the frame has no column ``failure``.
    """
    if "failure" not in frame.columns:
        raise ConfigError('there is none; decode or encode with failures="route"', path="column failure")
    good = frame.where("failure is null").drop("failure")
    dead_letters = frame.where("failure is not null").select(
        "failure.topic",
        "failure.key",
        "failure.value",
        "failure.headers",
        "failure.step",
        "failure.error",
        "failure.reason",
    )
    return good, dead_letters
