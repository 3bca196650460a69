"""Headers against the simplest model there is: a list of pairs."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headerware import HeaderError, Headers

if TYPE_CHECKING:
    from headerware.core.headers import HeadersBuilder

Pair = tuple[str, bytes | None]

# Few names, so that they meet; and now and then any.
names = st.sampled_from(["", "a", "b", "hw.trail", "\u00e9"]) | st.text(max_size=3)
values = st.none() | st.binary(max_size=4)
pairs = st.tuples(names, values)
lists = st.lists(pairs, max_size=8)


def last(model: list[Pair], name: str) -> bytes | None:
    found = [value for key, value in model if key == name]
    return found[-1] if found else None


class HeadersAgainstList(RuleBasedStateMachine):
    """Do the same to headers and to a list, and compare all answers; earlier headers never change."""

    def __init__(self) -> None:
        super().__init__()
        self.headers = Headers()
        self.model: list[Pair] = []
        self.past: list[tuple[Headers, list[Pair]]] = []

    def become(self, headers: Headers, model: list[Pair]) -> None:
        self.past.append((self.headers, list(self.model)))
        self.headers, self.model = headers, model

    @rule(pair=pairs)
    def add(self, pair: Pair) -> None:
        self.become(self.headers.add(*pair), [*self.model, pair])

    @rule(name=names, value=st.binary(max_size=4))
    def add_a_buffer(self, name: str, value: bytes) -> None:
        buffer = bytearray(value)
        self.become(self.headers.add(name, buffer), [*self.model, (name, value)])
        buffer.extend(b"changed later")

    @rule(pair=pairs)
    def append(self, pair: Pair) -> None:
        self.become(self.headers.append(pair), [*self.model, pair])

    @rule(pair=pairs)
    def put(self, pair: Pair) -> None:
        kept = [other for other in self.model if other[0] != pair[0]]
        self.become(self.headers.put(*pair), [*kept, pair])

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.become(self.headers.remove(name), [pair for pair in self.model if pair[0] != name])

    @rule(others=lists)
    def extend(self, others: list[Pair]) -> None:
        self.become(self.headers + others, self.model + others)

    @rule(wanted=st.sets(names))
    def keep(self, wanted: set[str]) -> None:
        kept = [pair for pair in self.model if pair[0] in wanted]
        self.become(self.headers.keep(wanted.__contains__), kept)

    @rule()
    def retain_latest(self) -> None:
        kept = [
            pair
            for index, pair in enumerate(self.model)
            if pair[0] not in {name for name, _ in self.model[index + 1 :]}
        ]
        self.become(self.headers.retain_latest(), kept)

    @rule(name=names)
    def build_anew(self, name: str) -> None:
        builder = Headers.builder(self.headers).remove(name).add(name, b"built")
        kept = [pair for pair in self.model if pair[0] != name]
        self.become(builder.build(), [*kept, (name, b"built")])
        with pytest.raises(HeaderError):
            builder.add(name, b"")

    @rule(name=names, value=values)
    def ask(self, name: str, value: bytes | None) -> None:
        assert self.headers.all(name) == tuple(found for key, found in self.model if key == name)
        assert self.headers.last(name) == last(self.model, name)
        assert (name in self.headers) == any(key == name for key, _ in self.model)
        assert ((name, value) in self.headers) == ((name, value) in self.model)

    @precondition(lambda self: self.model)
    @rule(index=st.integers(0, 7))
    def look(self, index: int) -> None:
        index %= len(self.model)
        assert self.headers[index] == self.model[index]

    @invariant()
    def same_pairs_in_the_same_order(self) -> None:
        assert list(self.headers) == self.model
        assert self.headers == Headers(self.model)
        assert type(self.headers) is Headers
        assert self.headers.names() == tuple(name for name, _ in self.model)

    def teardown(self) -> None:
        for headers, model in self.past:
            assert list(headers) == model


TestHeadersAgainstList = HeadersAgainstList.TestCase


@given(lists)
def test_every_form_of_the_same_pairs_gives_the_same_headers(given_pairs: list[Pair]) -> None:
    expected = Headers(given_pairs)
    forms = [tuple(given_pairs), [list(pair) for pair in given_pairs], iter(given_pairs), expected]
    assert all(Headers(form) == expected for form in forms)  # type: ignore[arg-type]
    assert Headers(dict(given_pairs)) == Headers(list(dict(given_pairs).items()))


@given(lists)
def test_pickling_gives_the_same_headers(given_pairs: list[Pair]) -> None:
    headers = Headers(given_pairs)
    assert pickle.loads(pickle.dumps(headers)) == headers  # noqa: S301 - our own bytes


@given(lists, st.lists(st.tuples(st.booleans(), pairs)))
def test_a_builder_is_a_list_too(start: list[Pair], changes: list[tuple[bool, Pair]]) -> None:
    builder: HeadersBuilder = Headers.builder(start)
    model = list(start)
    for adds, pair in changes:
        if adds:
            builder.add(*pair)
            model.append(pair)
        else:
            builder.remove(pair[0])
            model = [other for other in model if other[0] != pair[0]]
        assert list(builder) == model
    assert list(builder.build()) == model


@given(lists, names)
def test_repr_never_shows_a_value(given_pairs: list[Pair], name: str) -> None:
    secret = b"hunter2-hunter2"
    assert "hunter2" not in repr(Headers([*given_pairs, (name, secret)]))
