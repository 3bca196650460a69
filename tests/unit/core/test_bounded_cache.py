from __future__ import annotations

import pickle

import pytest

from headerware.core.bounded_cache import BoundedCache


class _Forgetful:
    """A key that clears the cache while it is looked up a second time, as another thread may."""

    def __init__(self, cache: BoundedCache[object, int]) -> None:
        self.cache = cache
        self.lookups = 0

    def __hash__(self) -> int:
        self.lookups += 1
        if self.lookups == 3:  # the first one was the insertion
            self.cache.clear()
        return 1


class TestBoundedCache:
    def test_makes_each_value_once(self) -> None:
        made: list[int] = []

        def make(key: int) -> int:
            made.append(key)
            return key * 2

        cache = BoundedCache(8, make)
        assert [cache[3], cache[3], cache[4]] == [6, 6, 8]
        assert made == [3, 4]

    def test_keeps_no_more_than_it_may(self) -> None:
        cache = BoundedCache[int, int](100, lambda key: key)
        for key in range(10_000):
            assert cache[key] == key
            assert cache.total() <= 100

    def test_keeps_what_is_used_while_others_flood_it(self) -> None:
        made: list[int] = []

        def make(key: int) -> int:
            made.append(key)
            return key

        cache = BoundedCache(10, make)
        for key in range(1, 1_000):
            assert cache[0] == 0
            assert cache[key] == key
        assert made.count(0) == 1

    def test_without_make_what_is_not_there_is_missing(self) -> None:
        cache = BoundedCache[str, int](4)
        with pytest.raises(KeyError):
            cache["a"]
        assert cache.get("a") is None
        cache["a"] = 1
        assert cache.get("a") == cache["a"] == 1

    def test_an_old_entry_is_young_again_when_it_is_asked_for(self) -> None:
        cache = BoundedCache[int, int](4)
        cache[1], cache[2], cache[3] = 1, 2, 3
        assert cache.get(1) == 1
        assert cache.get(1) == 1
        cache[4] = cache[5] = 5
        assert cache.get(1) == 1
        assert cache.get(2) is None

    def test_entries_together_cost_no_more_than_they_may(self) -> None:
        cache = BoundedCache[int, bytes](1_000, max_cost=100, cost=lambda _, value: len(value))
        cache[0] = bytes(51)
        assert cache.get(0) is None, "one that costs more than half is not kept"
        for key in range(1, 100):
            cache[key] = bytes(20)
            assert cache.total() * 20 <= 100

    def test_forgets_everything(self) -> None:
        cache = BoundedCache[int, int](4)
        cache[1], cache[2], cache[3] = 1, 2, 3
        cache.clear()
        assert [cache.get(key) for key in (1, 2, 3)] == [None, None, None]
        assert cache.total() == 0

    def test_get_returns_what_was_there_though_another_thread_clears_the_cache(self) -> None:
        cache: BoundedCache[object, int] = BoundedCache(8)
        key = _Forgetful(cache)
        cache[key] = 1
        assert cache.get(key) == 1
        assert cache.get(key, 2) == 2


def _value(_key: object, value: int) -> int:
    return value


class TestCosts:
    def test_what_is_asked_for_stays_and_the_rest_is_forgotten(self) -> None:
        cache: BoundedCache[str, int] = BoundedCache(10, max_cost=100, cost=lambda _key, _value: 0)
        cache["mine"] = 1
        for index in range(100):
            cache[f"other {index}"] = index
            assert cache.get("mine") == 1
            assert cache.total() <= 10
        assert cache.get("other 0") is None

    def test_stay_below_the_maximum(self) -> None:
        cache: BoundedCache[int, int] = BoundedCache(1000, max_cost=100, cost=_value)
        for index in range(100):
            cache[index] = 20
            assert cache.total() <= 5
        assert cache.get(99) == 20

    def test_an_entry_that_costs_too_much_is_not_kept(self) -> None:
        cache: BoundedCache[str, int] = BoundedCache(10, max_cost=100, cost=_value)
        cache["small"] = 50
        cache["large"] = 51
        assert cache.get("large") is None
        assert cache.get("small") == 50

    def test_without_a_maximum_only_what_costs_nothing_is_kept(self) -> None:
        cache: BoundedCache[str, int] = BoundedCache(10, cost=_value)
        cache["free"] = 0
        cache["dear"] = 1
        assert cache.get("dear") is None
        assert cache.get("free") == 0

    def test_pickles_as_an_empty_cache(self) -> None:
        cache = BoundedCache(8, str, max_cost=100, cost=_length)
        assert cache[1] == "1"
        again = pickle.loads(pickle.dumps(cache))  # noqa: S301 - our own
        assert len(again) == 0
        assert again[2] == "2"
        again[3] = "x" * 51
        assert again.get(3) is None, "it has the same bounds"


def _length(_: int, value: str) -> int:
    return len(value)
