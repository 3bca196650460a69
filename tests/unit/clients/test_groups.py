from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from headerware.clients import offsets
from headerware.clients.offsets import held_back, register_consumer

if TYPE_CHECKING:
    import pytest


class HoldsBack:
    def clamped(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, each.offset - 1) for each in positions]


def offset_after(metadata: bytes) -> int:
    return held_back(metadata, [TopicPartition("orders", 0, 9)])[0].offset


class TestRegister:
    def test_finds_the_consumer_that_gave_the_metadata_out(self) -> None:
        consumer = HoldsBack()
        register_consumer(b"generation-1", consumer)
        assert offset_after(b"generation-1") == 8
        assert offset_after(b"of nobody") == 9

    def test_forgets_a_consumers_earlier_generations(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offsets, "_consumers", {})
        consumer, other = HoldsBack(), HoldsBack()
        register_consumer(b"generation-0", other)
        for generation in range(100):
            register_consumer(b"generation-%d" % generation, consumer)
        assert set(offsets._consumers) == {b"generation-0", b"generation-99"}
        assert offset_after(b"generation-99") == 8
        assert offset_after(b"generation-0") == 8
