from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypedDict

import pytest

from headerware.core.errors import ConfigError, PluginError
from headerware.core.hooks import DROP
from headerware.sources import Transformer, Transformers


class Parse(Transformer[bytes, int], frozen=True, kw_only=True):
    def transform(self, given: bytes) -> int:
        return int(given)


class Double(Transformer[int, int], frozen=True, kw_only=True):
    def transform(self, given: int) -> int:
        return 2 * given


class Show(Transformer[int, str], frozen=True, kw_only=True):
    def transform(self, given: int | None) -> str:
        return str(given)


class Anything(Transformer[Any, Any], frozen=True, kw_only=True):
    def transform(self, given: Any) -> Any:
        return given


class Counting(Transformer[int, int], frozen=True, kw_only=True):
    """Has state, which is made once and closed once."""

    log: list[str]

    def initialize(self) -> Callable[[int], int]:
        self.log.append("made")
        return _Sum(self.log).add


class _Sum:
    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.sum = 0

    def add(self, given: int) -> int:
        self.sum += given
        return self.sum

    def close(self) -> None:
        self.log.append("closed")


class Chosen(Transformer[Any, Any], frozen=True, kw_only=True):
    """Returns what it is told to."""

    gives: Any

    def transform(self, given: Any) -> Any:
        return self.gives(given)


class Split(Transformer[bytes, list[bytes]], frozen=True, kw_only=True):
    def transform(self, given: bytes) -> list[bytes]:
        return given.split(b",")


class Sorted(Transformer[list[int], list[int]], frozen=True, kw_only=True):
    """Takes a list as a whole."""

    def transform(self, given: list[int]) -> list[int]:
        return sorted(given)


class Total(Transformer[list[int], int], frozen=True, kw_only=True):
    def transform(self, given: list[int]) -> int:
        return sum(given)


class Broken(Transformer[int, int], frozen=True, kw_only=True):
    def initialize(self) -> Callable[[int], int]:
        raise RuntimeError("as this test wants it")


def test_are_called_in_the_listed_order() -> None:
    with Transformers([Parse(), Double(), Show()], given=bytes) as transformers:
        assert transformers(b"21") == ["42"]
        assert transformers.gives is str


def test_are_initialized_and_closed_once() -> None:
    log: list[str] = []
    with Transformers([Counting(log=log)]) as transformers:
        assert [transformers(number) for number in (1, 2, 3)] == [[1], [3], [6]]
    transformers.__exit__()
    assert log == ["made", "closed"]


def test_close_what_was_made_if_one_cannot_be() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError), Transformers([Counting(log=log), Broken()]):
        pass
    assert log == ["made", "closed"]


@pytest.mark.parametrize("listed", [[Double(), Parse()], [Parse(), Show(), Double()]])
def test_are_refused_if_types_do_not_meet(listed: list[Any]) -> None:
    with pytest.raises(ConfigError, match=rf"transformers\[{len(listed) - 1}\]: \w+ takes"):
        Transformers(listed)


def test_are_refused_if_the_extractor_gives_something_else() -> None:
    with pytest.raises(ConfigError, match="Parse takes bytes, but the type of the input is dict"):
        Transformers([Parse()], given=dict)


@pytest.mark.parametrize("listed", [[Anything(), Parse()], [Parse(), Anything(), Show()], [Parse(), Show()]])
def test_fit_where_types_say_nothing_or_meet(listed: list[Any]) -> None:
    assert len(Transformers(listed)) == len(listed)


class Order(TypedDict):
    id: str


class HasId(Protocol):
    id: str


class OfOrders(Transformer[Order, Order], frozen=True, kw_only=True):
    def transform(self, given: Order) -> Order:
        return given


class OfIds(Transformer[HasId, HasId], frozen=True, kw_only=True):
    def transform(self, given: HasId) -> HasId:
        return given


@pytest.mark.parametrize("listed", [[OfOrders()], [OfOrders(), OfOrders()], [OfIds()], [OfOrders(), OfIds()]])
def test_fit_a_typed_dict_and_a_protocol(listed: list[Any]) -> None:
    assert len(Transformers(listed, given=dict | list | None)) == len(listed)


def test_of_a_typed_dict_are_refused_if_no_dict_is_given() -> None:
    with pytest.raises(ConfigError, match="OfOrders takes Order, but the type of the input is bytes"):
        Transformers([OfOrders()], given=bytes)


def test_must_be_initialized() -> None:
    with pytest.raises(PluginError, match="with statement"):
        Transformers([Double()])(1)


def test_refuse_other_objects() -> None:
    with pytest.raises(ConfigError, match=r"transformers\[0\]: expected a Transformer"):
        Transformers([int])


class TestDropAndSplit:
    def test_drop_takes_an_object_out(self) -> None:
        with Transformers([Chosen(gives=lambda n: DROP if n == 2 else n), Double()]) as transformers:
            assert [transformers(number) for number in (1, 2, 3)] == [[2], [], [6]]

    def test_a_list_goes_on_one_by_one(self) -> None:
        with Transformers([Split(), Parse(), Double()], given=bytes) as transformers:
            assert transformers(b"1,2,3") == [2, 4, 6]
            assert transformers.gives is int

    def test_a_list_goes_on_whole_to_one_that_takes_lists(self) -> None:
        with Transformers([Split(), Parse(), Sorted(), Total(), Double()]) as transformers:
            assert transformers(b"3,1,2") == [12]
        with Transformers([Split(), Parse(), Sorted()]) as transformers:
            assert transformers(b"3,1,2") == [1, 2, 3]

    def test_what_is_read_is_not_split(self) -> None:
        with Transformers([Anything()]) as transformers:
            assert transformers((1, 2)) == [(1, 2)]
        with Transformers([Total()], given=list) as transformers:
            assert transformers([1, 2]) == [3]

    def test_a_list_in_a_list_is_an_object(self) -> None:
        with Transformers([Chosen(gives=lambda given: [given])]) as transformers:
            assert transformers([1, 2]) == [[1, 2]]

    def test_an_empty_list_is_nothing(self) -> None:
        with Transformers([Chosen(gives=lambda _: []), Double()]) as transformers:
            assert transformers(1) == []

    def test_a_forgotten_return_is_an_error(self) -> None:
        with (
            Transformers([Anything(), Chosen(gives=lambda _: None)]) as transformers,
            pytest.raises(PluginError, match=r"Chosen returned None; expected an object, .* or DROP"),
        ):
            transformers(1)

    def test_a_null_value_is_returned_in_a_list(self) -> None:
        with Transformers([Chosen(gives=lambda _: [None])]) as transformers:
            assert transformers(1) == [None]

    def test_types_of_a_list_are_those_of_its_objects(self) -> None:
        with pytest.raises(ConfigError, match="Double takes int, but the type that Split returns is bytes"):
            Transformers([Split(), Double()])
