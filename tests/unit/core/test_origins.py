from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import ConfigError
from headerware.core.hmac_states import hmac_states
from headerware.core.origins import Origins


class TestOrigins:
    def test_the_stated_place_is_right(self) -> None:
        assert Origins().problem("east", "orders", own="east", found_in="orders") is None

    @pytest.mark.parametrize(("cluster", "own"), [("", "east"), ("east", None), ("", None)])
    def test_what_is_unknown_is_not_compared(self, cluster: str, own: str | None) -> None:
        assert Origins().problem(cluster, "orders", own=own, found_in="orders") is None

    @pytest.mark.parametrize(("cluster", "topic"), [("west", "orders"), ("east", "refunds"), ("", "refunds")])
    def test_another_place_is_a_problem(self, cluster: str, topic: str) -> None:
        problem = Origins().problem(cluster, topic, own="east", found_in="orders")
        assert problem is not None
        assert "found in topic 'orders' of cluster 'east'" in problem

    @pytest.mark.parametrize(
        ("accepted", "topic", "fits"),
        [
            ("west/orders", "orders", True),
            ("west/{topic}", "orders", True),
            ("west/{topic}", "refunds", False),
            ("*/ord*", "orders", True),
            ("east/orders", "orders", False),
        ],
    )
    def test_accepts_origins(self, accepted: str, topic: str, *, fits: bool) -> None:
        problem = Origins([accepted]).problem("west", topic, own="east", found_in="orders")
        assert (problem is None) is fits

    @pytest.mark.parametrize("accepted", ["orders", "/orders", "east/", "east/[ab]", "{topic}/orders"])
    def test_refuses_what_is_no_origin(self, accepted: str) -> None:
        with pytest.raises(ConfigError, match="accept_origins"):
            Origins([accepted])


@pytest.mark.parametrize("name", ["sha256", "sha512"])
@given(secret=st.binary(max_size=300), beginning=st.binary(max_size=40), rest=st.binary(max_size=40))
def test_states_make_the_hmac_of_the_standard_library(
    name: str, secret: bytes, beginning: bytes, rest: bytes
) -> None:
    copy_inner, copy_outer = hmac_states(getattr(hashlib, name), secret, beginning)
    inner, outer = copy_inner(), copy_outer()
    inner.update(rest)
    outer.update(inner.digest())
    assert outer.digest() == hmac.digest(secret, beginning + rest, name)
