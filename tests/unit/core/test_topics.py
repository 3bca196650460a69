"""Which topics an interceptor works on, and which lists of patterns are mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError, load_chain
from headerware.core.order import weaknesses
from headerware.core.topics import TopicPatterns, suspicious
from headerware.interceptors import Trail

if TYPE_CHECKING:
    from pathlib import Path


def test_a_topic_is_missed_until_another_one_fits() -> None:
    patterns = TopicPatterns(["order", "pay-*", "!clicks"])
    assert patterns.misses("orders")
    assert not patterns.misses("clicks"), "excluded, so somebody has thought of it"
    patterns.note("pay-eu")
    assert not patterns.misses("orders")
    assert not TopicPatterns(["!clicks"]).misses("clicks")
    assert TopicPatterns(["order", "order"]).misses("orders")


class TestEmptyLists:
    @pytest.mark.parametrize("topics", ["[]", '""', '","'])
    def test_refuses_one_in_a_file(self, topics: str, tmp_path: Path) -> None:
        file = tmp_path / "chain.toml"
        file.write_text(f'[[interceptors]]\ntype = "trail"\nservice = "a"\ntopics = {topics}\n')

        with pytest.raises(ConfigError, match="leave the option out for all topics") as caught:
            load_chain(file)

        assert (caught.value.line, caught.value.column) == (4, 1)

    def test_refuses_one_in_a_clients_keys(self) -> None:
        keys: dict[str, Any] = {"interceptors": "trail", "interceptors.trail.service": "a"}

        with pytest.raises(
            ConfigError, match=r"^interceptors\.trail\.topics: expected a pattern, found none"
        ):
            Chain.from_config({**keys, "interceptors.trail.topics": ""})

    def test_refuses_one_in_code(self) -> None:
        with pytest.raises(ConfigError, match=r"^trail\.topics: expected a pattern, found none"):
            Chain([Trail(service="a", topics=())])

    def test_accepts_exclusions_alone(self) -> None:
        assert Chain([Trail(service="a", topics=("!orders",))]).for_topic("payments")


class TestSuspicious:
    def test_asks_whether_a_glob_is_meant_as_a_regular_expression(self) -> None:
        (found,) = suspicious(["orders.*"])

        assert found == "'*' is a glob: 'orders.*' fits 'orders.x' and not 'orders'; did you mean 'orders*'?"

    @pytest.mark.parametrize(
        "topics",
        [
            ["orders*"],
            ["?rders.*"],
            ["orders"],
            ["orders", "orders.*"],
            ["orders.*", "!orders.raw"],
            ["orders.x*"],
        ],
    )
    def test_accepts_a_list_that_was_written_with_globs_in_mind(self, topics: list[str]) -> None:
        assert suspicious(topics) == []

    def test_is_a_warning_of_check(self) -> None:
        found = weaknesses(Chain([Trail(service="a", topics=("orders.*",))]).interceptors)

        assert [name for name, why in found if "is a glob" in why] == ["trail"]
