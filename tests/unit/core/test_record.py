"""A record never changes, travels whole, and shows nothing secret."""

from __future__ import annotations

import pickle

import pytest

from headerware import Headers, Record
from headerware.core.record import TimestampType

WHOLE = Record(
    topic="orders",
    value=b"value",
    key=b"key",
    headers=Headers({"a": b"1"}),
    partition=3,
    timestamp_ms=1_700_000_000_000,
    timestamp_type=TimestampType.CREATE_TIME,
    offset=42,
    leader_epoch=7,
    local={"span": 1},
)


class TestRecord:
    def test_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            WHOLE.value = b"other"  # type: ignore[misc]

    def test_replace_changes_only_what_it_names(self) -> None:
        assert WHOLE.replace(value=None) == Record(
            "orders", None, b"key", WHOLE.headers, 3, 1_700_000_000_000, 1, 42, 7, {"span": 1}
        )

    def test_replace_refuses_an_unknown_field(self) -> None:
        with pytest.raises(TypeError):
            WHOLE.replace(vlaue=b"")

    def test_with_headers_changes_the_headers_alone(self) -> None:
        other = Headers({"b": b"2"})
        assert WHOLE.with_headers(other) == WHOLE.replace(headers=other)

    def test_with_value_changes_value_and_headers_alone(self) -> None:
        other = Headers({"b": b"2"})
        assert WHOLE.with_value(b"v", other) == WHOLE.replace(value=b"v", headers=other)

    def test_with_value_alone_keeps_the_headers(self) -> None:
        assert WHOLE.with_value(b"v") == WHOLE.replace(value=b"v")
        assert WHOLE.with_value(b"v", Headers()).headers == Headers()

    def test_local_state_is_kept_by_name_and_survives_changes(self) -> None:
        record = WHOLE.with_local("timer", 2).with_value(b"v", WHOLE.headers).replace(topic="t")
        assert record.local == {"span": 1, "timer": 2}
        assert WHOLE.local == {"span": 1}

    def test_repr_shows_place_and_sizes_only(self) -> None:
        shown = repr(WHOLE.replace(value=b"hunter2", key="secret", headers=Headers({"a": b"token"})))
        assert shown == (
            "Record(topic='orders', partition=3, offset=42, key=6 bytes, value=7 bytes, "
            "headers=Headers('a': 5))"
        )

    def test_repr_names_the_type_of_an_object(self) -> None:
        assert "value=dict" in repr(Record("t", {"password": "hunter2"}))

    def test_survives_pickling(self) -> None:
        loaded = pickle.loads(pickle.dumps(WHOLE))  # noqa: S301 - our own bytes
        assert loaded == WHOLE
        assert type(loaded.headers) is Headers
