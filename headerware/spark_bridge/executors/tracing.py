"""The trace context of a batch, on the executors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.context import attach, detach
from opentelemetry.propagate import extract

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """Make a context current that the driver wrote into a carrier."""
    if not carrier:
        yield
        return
    token = attach(extract(carrier))
    try:
        yield
    finally:
        detach(token)
