from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from headerware.core.errors import HeaderwareError
from headerware.kafka.single_records import SingleRecords
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.record import Record
    from headerware.testing import EmbeddedCluster


class TestSingleRecords:
    @pytest.fixture(autouse=True)
    def _setting(self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> None:
        self.conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        self.topic = unique_topic("orders")
        embedded_cluster.create_topic(self.topic)
        self.put(b"0", b"1")

    def put(self, *values: bytes) -> None:
        producer = confluent_kafka.Producer(self.conf)
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(60) == 0

    def get(self, *offsets: int, timeout_s: float = 60.0, **more: Any) -> list[bytes | None]:
        records = SingleRecords(self.conf, "group", timeout_s)
        try:
            found: list[Record | None] = [records.get(self.topic, 0, each, **more) for each in offsets]
        finally:
            records.close()
        return [None if each is None else each.value for each in found]

    def test_are_there_or_not(self) -> None:
        assert self.get(0, 1, 2, 0) == [b"0", b"1", None, b"0"]

    def test_that_were_seen_are_waited_for(self) -> None:
        # A leader that has just been elected may not know of them yet.
        found: list[bytes | None] = []
        asks = threading.Event()

        def ask() -> None:
            asks.set()
            found.extend(self.get(2, seen=True))

        thread = threading.Thread(target=ask)
        thread.start()
        assert asks.wait(60)
        self.put(b"2")
        until(lambda: found)
        thread.join(60)
        assert found == [b"2"]

    def test_that_were_seen_and_do_not_come_are_no_records_that_are_gone(self) -> None:
        with pytest.raises(HeaderwareError, match=r"\[0\]@9 could not be read"):
            self.get(9, timeout_s=0.3, seen=True)

    def test_of_a_cluster_that_does_not_answer_are_no_records_that_are_gone(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            conf = {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}", "log_level": 0}
            records = SingleRecords(conf, "group", 0.1)
            with pytest.raises(HeaderwareError, match=r"\[0\]@0 could not be read"):
                records.get("orders", 0, 0)
            records.close()
