"""Texts that Connect's parsers take for numbers, points in time, arrays and maps, or nearly so."""

from __future__ import annotations

import json
from typing import Final

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]

_TOKENS: Final = (
    *("{", "}", "[", "]", ",", ":", '"', "\\", " ", "\t", "\n", "T", "Z", "-", ".", "+", "e", "E", "/", "'"),
    *("null", "true", "false", "True", "NaN", "Infinity", "nil", "abc", "a", "é", "😀", "0x1p3", "1_0", "1d"),
    *("0", "1", "-1", "007", "+5", "127", "128", "-129", "32768", "2147483648", "9223372036854775808"),
    *(
        "1.0",
        "1.5",
        "-.5",
        ".5",
        "5.",
        "1e5",
        "1E400",
        "3.4028236E38",
        "0.1",
        "1.10",
        "1,000",
        "123456789.125",
    ),
    *("2019-08-23", "14:34:54.346Z", "2019-08-23T14:34:54.346Z", '"a"', '"1"', '\\"', "\\u0041", "192:168"),
)
joined: Final[Texts] = st.lists(st.sampled_from(_TOKENS), max_size=9).map("".join)
"""Tokens in any order."""
plain: Final[Texts] = st.text(st.sampled_from("abcxyz 019.-+:,\\\"'[]{}TZé\x00\t"), max_size=12)
integers: Final[Texts] = st.one_of(
    st.integers(-300, 300),
    st.integers(-(1 << 16), 1 << 16),
    st.integers(-(1 << 33), 1 << 33),
    st.integers(-(1 << 65), 1 << 65),
).map(str)
_digits: Final = st.text("0123456789", max_size=20)
numbers: Final[Texts] = st.one_of(
    integers,
    st.floats(width=32).map(repr),
    st.floats().map(repr),
    st.tuples(
        st.sampled_from(["", "-", "+"]),
        _digits,
        st.sampled_from(["", "."]),
        _digits,
        st.one_of(
            st.just(""), st.integers(-400, 400).map("E{}".format), st.integers(-50, 50).map("e{}".format)
        ),
        st.sampled_from(["", "", "", "f", "d", " ", "L"]),
    ).map("".join),
)


def _number(low: int, high: int, width: int) -> Texts:
    """Return a number, mostly in its range and as wide as it should be."""
    usual = st.integers(low, high).map(lambda number: f"{number:0{width}d}")
    return st.one_of(usual, usual, usual, st.integers(0, 99).map(str))


_date: Final = st.tuples(_number(1, 9999, 4), _number(1, 12, 2), _number(1, 31, 2)).map("-".join)
_millis: Final = st.one_of(st.just(""), _number(0, 999, 3).map(".{}".format))
_zone: Final = st.sampled_from(["Z", "Z", "Z", "", "+01:00", "+0100", "-08", "z", "GMT", "Zx"])
_clock: Final = st.tuples(_number(0, 23, 2), _number(0, 59, 2), _number(0, 59, 2)).map(":".join)
_time: Final = st.tuples(_clock, _millis, _zone).map("".join)
times: Final[Texts] = st.one_of(
    _date,
    _time,
    st.tuples(_date, st.sampled_from(["T", " ", "t"]), _time).map("".join),
    st.tuples(_date, st.just("T"), _clock, _number(0, 999, 3).map(".{}Z".format)).map("".join),
)
_element: Final = st.one_of(
    integers,
    numbers,
    times,
    times.map('"{}"'.format),
    st.sampled_from(["null", "true", "false", '""', '"a"', '"b c"', "a", '"\\""', "[]", "{}"]),
)
_space: Final = st.sampled_from(["", "", "", " ", "\t"])


def _lists(elements: Texts) -> Texts:
    return st.tuples(_space, st.lists(elements, max_size=4), _space).map(
        lambda parts: f"{parts[0]}[{(',' + parts[2]).join(parts[1])}]"
    )


def _maps(elements: Texts) -> Texts:
    pairs = st.tuples(elements, _space, elements).map(lambda pair: f"{pair[0]}:{pair[1]}{pair[2]}")
    return st.lists(pairs, max_size=3).map(lambda pairs: "{" + ",".join(pairs) + "}")


containers: Final[Texts] = st.recursive(
    st.one_of(_lists(_element), _maps(_element)),
    lambda inner: st.one_of(_lists(inner), _maps(st.one_of(inner, _element))),
    max_leaves=4,
)
cut: Final[Texts] = st.tuples(containers, st.integers(0, 12)).map(lambda pair: pair[0][: -pair[1] or None])
quoted: Final[Texts] = plain.map(json.dumps)
texts: Final[Texts] = st.one_of(joined, plain, numbers, times, containers, cut, quoted, containers)
"""Any of them."""
