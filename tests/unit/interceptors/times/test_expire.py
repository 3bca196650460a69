"""The interceptor ``expire`` does with a batch what it does with its records."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest

from headerware import Chain, Context, Headers, Record
from headerware.interceptors import Expire

NOW = 1_760_000_000_000
LIFETIMES = [None, b"", b"0", b"01", b"%d" % (NOW - 5_000), b"%d" % (NOW - 5_001), b"%d" % (NOW + 1)]


def records() -> list[Record]:
    plain = [Record("orders", value, b"k") for value in (b"v", None)]
    headers = [Headers([("hw.expires", lifetime)]) for lifetime in LIFETIMES]
    headers.append(Headers([("hw.expires", b"%d" % NOW)] * 2))
    return [*plain, *(record.with_headers(own) for own in headers for record in plain)]


def shown(outcome: Any) -> Any:
    return (type(outcome), str(outcome)) if isinstance(outcome, Exception) else outcome


@pytest.mark.parametrize("side", ["producer", "consumer"])
@pytest.mark.parametrize("after_ms", [None, 1_000])
@pytest.mark.parametrize("malformed", ["keep", "refuse"])
def test_batches(side: Any, after_ms: int | None, malformed: Any) -> None:
    chain = Chain([Expire(after_ms=after_ms, malformed=malformed)])
    for pair in combinations_with_replacement(records(), 2):
        one, many = (chain.open(Context(side=side, now_ms=lambda: NOW, warns=False)) for _ in range(2))
        if side == "producer":
            outcomes, expected = many.send_outcomes(pair), map(one.send_outcome, pair)
        else:
            outcomes, expected = many.consume_outcomes(pair), map(one.consume_outcome, pair)
        assert list(map(shown, outcomes)) == list(map(shown, expected))
        assert many.stats() == one.stats()
