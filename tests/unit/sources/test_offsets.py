from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headerware.core.errors import SourceError
from headerware.sources import MemoryOffsets, OffsetEntry, OffsetKey

SCALARS = st.text() | st.binary() | st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=5)


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(NAMES, values, max_size=4)


PROPERTIES = nested(SCALARS | st.floats(allow_nan=False, allow_infinity=False))
PARTITIONS = nested(SCALARS).filter(bool)
BAD = ["\udc80", None, True, math.nan, math.inf, 2**63, -(2**63) - 1, {1, 2}, Ellipsis, {1: "number"}]


def typed(value: Any) -> Any:
    """Return a value with its types, for 1 == 1.0."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return type(value), value


class TestEntry:
    @given(PROPERTIES, st.integers(0, 2**63 - 1), st.booleans(), st.none() | st.text())
    def test_survives_a_store(
        self,
        properties: dict[str, Any],
        number: int,
        complete: bool,  # noqa: FBT001 - Hypothesis gives it
        version: str | None,
    ) -> None:
        entry = OffsetEntry(record_number=number, complete=complete, version=version, properties=properties)
        back = OffsetEntry.from_bytes(entry.to_bytes())
        assert back == entry
        assert typed(dict(back.properties)) == typed(properties)

    @pytest.mark.parametrize("bad", BAD, ids=repr)
    @pytest.mark.parametrize("where", ["top", "list", "map"])
    def test_refuses_what_no_store_keeps(self, bad: Any, where: str) -> None:
        value = {"top": bad, "list": [1, bad], "map": {"inner": bad}}[where]
        with pytest.raises(SourceError, match=r"^place"):
            OffsetEntry(properties={"place": value})

    def test_keeps_nothing_of_what_it_was_given(self) -> None:
        given = {"list": [1]}
        entry = OffsetEntry(properties=given)
        given["list"].append(2)
        assert entry.get("list") == [1]

    def test_gives_copies(self) -> None:
        entry = OffsetEntry(properties={"list": [1]})
        entry.get("list").append(2)
        entry.properties["list"].append(2)
        entry.properties["other"] = 1
        assert (entry.get("list"), entry.properties) == ([1], {"list": [1]})

    def test_is_not_changed(self) -> None:
        entry = OffsetEntry(record_number=1)
        for name in ("record_number", "complete", "version", "properties"):
            with pytest.raises(AttributeError):
                setattr(entry, name, 2)
        assert entry.replace(complete=True) == OffsetEntry(record_number=1, complete=True)
        assert entry == OffsetEntry(record_number=1)

    @pytest.mark.parametrize("name", [None, 1, b"byte"])
    def test_asks_for_a_name(self, name: Any) -> None:
        with pytest.raises(SourceError, match=f"expected the name .* as text, found {type(name).__name__}"):
            OffsetEntry(properties={"byte": 1}).get(name)

    def test_names_a_missing_property(self) -> None:
        with pytest.raises(SourceError, match=r"no property 'bytes'; did you mean 'byte'\?"):
            OffsetEntry(properties={"byte": 1}).get("bytes")

    def test_refuses_a_negative_number(self) -> None:
        with pytest.raises(SourceError, match="from 0"):
            OffsetEntry(record_number=-1)

    def test_names_what_a_stored_entry_misses(self) -> None:
        with pytest.raises(SourceError, match=r"expected 'n' \(record number\) in a stored offset"):
            OffsetEntry.from_bytes(b"\x81\xa1p\x80")

    @given(st.binary(max_size=40))
    @example(b"\xde\x00\x01\xa1\x80")
    def test_refuses_other_bytes(self, data: bytes) -> None:
        with contextlib.suppress(SourceError):
            OffsetEntry.from_bytes(data)


class TestKey:
    @given(PARTITIONS)
    def test_survives_a_store(self, partition: dict[str, Any]) -> None:
        key = OffsetKey(partition)
        back = OffsetKey.from_bytes(key.encoded)
        assert back == key
        assert hash(back) == hash(key)
        assert typed(back.partition) == typed(partition)

    @given(PARTITIONS, PARTITIONS)
    def test_is_equal_by_its_partition_map(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        assert (OffsetKey(one) == OffsetKey(other)) == (typed(one) == typed(other))

    def test_does_not_depend_on_the_order_of_names(self) -> None:
        assert OffsetKey({"a": 1, "b": 2}).encoded == OffsetKey({"b": 2, "a": 1}).encoded

    def test_gives_copies(self) -> None:
        key = OffsetKey({"list": [1]})
        key.partition["list"].append(2)
        assert key.partition == {"list": [1]}

    @pytest.mark.parametrize("bad", [*BAD, 1.5], ids=repr)
    def test_refuses_what_cannot_name_an_object(self, bad: Any) -> None:
        with pytest.raises(SourceError, match=r"^place"):
            OffsetKey({"place": bad})

    def test_refuses_an_empty_map(self) -> None:
        with pytest.raises(SourceError, match="expected a partition map that identifies the object"):
            OffsetKey({})


class TestMemoryOffsets:
    def test_keeps_and_removes(self) -> None:
        offsets = MemoryOffsets()
        key, other = OffsetKey({"key": "a"}), OffsetKey({"key": "b"})
        entry = OffsetEntry(record_number=3, version="x", properties={"byte": 10})
        offsets.put({key: entry, other: entry})
        offsets.put({other: None})
        assert offsets.get(key) == entry
        assert offsets.get(other) is None
        assert offsets.items() == [(key, entry)]
