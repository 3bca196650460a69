"""Both modes, and records, for the tests of Connect's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.records import ConnectRecord, SourceRecord

if TYPE_CHECKING:
    from headerware.connect.data import Schema


@pytest.fixture(scope="session", params=[STRICT, KAFKA_4_3])
def mode(request: pytest.FixtureRequest) -> Mode:
    """Run a test in each mode."""
    chosen: Mode = request.param
    return chosen


def record(schema: Schema | None, value: Any) -> SourceRecord:
    return SourceRecord(topic="t", value_schema=schema, value=value)


def record_with_headers() -> SourceRecord:
    """Return a record with two headers named h, and one named x between them."""
    made = SourceRecord(topic="t", key=1, value={"a": 1}, timestamp=5)
    made.headers.add_string("h", "old").add_int("x", 1).add_string("h", "again")
    return made


def header_names(record: ConnectRecord) -> list[str]:
    return [header.key for header in record.headers]
