from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import cimpl

import headerware
from headerware.clients import Producer
from headerware.clients.partition_picker import PartitionPicker, partition_of_key
from headerware.core.chain import Chain
from headerware.core.hooks import Interceptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware.core.record import Record


class Plain(cimpl.Producer):
    """A plain producer that takes weak references; that of C takes none."""


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

    @pytest.mark.parametrize("partitioner", ["consistent", "consistent_random", "murmur2", "fnv1a"])
    def test_knows_where_librdkafka_sends_a_key(
        self, connection: dict[str, Any], unique_topic: Callable[[str], str], partitioner: str
    ) -> None:
        name = unique_topic("keys")
        keys = [random.Random(size).randbytes(size) for size in (*range(1, 40), 1_000)]
        keys += [b"\xff\xfe", b"customer 7", bytes(5)]
        sent: dict[bytes | None, int | None] = {}

        def note(_: object, message: Message) -> None:
            sent[message.key()] = message.partition()

        plain = Plain({**connection, "partitioner": partitioner})
        for key in keys:
            plain.produce(name, b"v", key, on_delivery=note)
        assert plain.flush(60) == 0
        count = len(plain.list_topics(name, 60).topics[name].partitions)
        known = {key: partition_of_key(key, partitioner, count) for key in keys}
        assert known == sent
        assert len(set(known.values())) > 1, "the topic has several partitions"

    def test_chooses_where_the_key_does_not_decide(
        self, connection: dict[str, Any], unique_topic: Callable[[str], str]
    ) -> None:
        plain = Plain(connection)
        picker = PartitionPicker(plain, "consistent_random")
        name = unique_topic("keys")
        assert picker(headerware.Record(name, b"v", b"k")) is None
        assert picker(headerware.Record(name, b"v", b"", partition=2)) is None
        assert {picker(headerware.Record(name, b"v", b"")) for _ in range(100)} > {0}
