from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import headerware
from headerware.clients import Producer
from headerware.core.chain import Chain
from headerware.core.hooks import Interceptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.record import Record


class TestPartitionPicker:
    @pytest.mark.parametrize(
        ("partitioner", "scattered"),
        [
            ("random", {None, b"", b"k"}),
            ("consistent", set()),
            ("consistent_random", {None, b""}),
            ("murmur2", set()),
            ("murmur2_random", {None}),
            ("fnv1a", set()),
            ("fnv1a_random", {None}),
        ],
    )
    def test_picks_where_the_key_does_not_decide(
        self,
        connection: dict[str, Any],
        unique_topic: Callable[[str], str],
        partitioner: str,
        scattered: set[Any],
    ) -> None:
        class Pick(Interceptor, frozen=True, kw_only=True):
            def open(self, context: Any) -> Any:
                ports.append(context.pick_partition)
                return self

            def on_send(self, record: Record) -> Record:
                return record

        ports: list[Callable[[Record], int | None]] = []
        name = unique_topic("new")
        with Producer({**connection, "partitioner": partitioner}, chain=Chain([Pick()])):
            picked = {
                key for key in (None, b"", b"k") if ports[0](headerware.Record(name, b"v", key)) is not None
            }
            fixed = ports[0](headerware.Record(name, b"v", None, partition=3))
        assert picked == scattered
        assert fixed is None
