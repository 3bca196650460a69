from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headerware.sources.engine.ring_buffer import RingBuffer


def test_holds_each_key_once() -> None:
    ring = RingBuffer(3)
    for key in "aba":
        ring.add(key)
    assert len(ring) == 2


def test_adding_evicts_the_oldest() -> None:
    ring = RingBuffer(2)
    for key in "abc":
        ring.add(key)
    assert not ring.holds("a", None)
    assert ring.oldest == "b"


def test_zero_disables_it() -> None:
    ring = RingBuffer(0)
    ring.add("a")
    assert not ring.holds("a", None)
    assert ring.oldest is None


def test_another_version_is_another_object() -> None:
    ring = RingBuffer(2)
    ring.add("a", "1")
    assert not ring.holds("a", "2")
    ring.add("a", "2")
    assert ring.holds("a", "2")
    assert len(ring) == 1


@given(st.lists(st.integers(0, 9)), st.integers(0, 5))
def test_is_a_list_of_the_last_distinct_keys(keys: list[int], size: int) -> None:
    ring = RingBuffer(size)
    model: list[int] = []
    for key in keys:
        ring.add(key)
        if key not in model:
            model = [*model, key][-size:] if size else []
    assert [key for key in range(10) if ring.holds(key, None)] == sorted(model)
    assert ring.oldest == (model[0] if model else None)
