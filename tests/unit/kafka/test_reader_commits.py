from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headerware.kafka.reader import TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import EmbeddedCluster


class Moved:
    """A consumer whose group's coordinator has moved."""

    def __init__(self, consumer: Any, codes: list[int]) -> None:
        self._consumer = consumer
        self._codes = codes

    def committed(self, *arguments: Any, **more: Any) -> Any:
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop()))
        return self._consumer.committed(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


class TestCommitted:
    @pytest.fixture(autouse=True)
    def _setting(self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> None:
        self.servers = embedded_cluster.bootstrap_servers
        self.topic = unique_topic("orders")
        embedded_cluster.create_topic(self.topic)

    def ask(self, *codes: int) -> dict[int, tuple[int, str]]:
        reader: Any = TopicReader({"bootstrap.servers": self.servers}, self.topic, group_id="group")
        with reader:
            reader._consumer = Moved(reader._consumer, list(codes))
            found: dict[int, tuple[int, str]] = reader.committed()
            return found

    def test_asks_again_where_the_coordinator_has_moved(self) -> None:
        assert self.ask(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS) == {}

    def test_says_what_a_coordinator_that_does_not_answer_may_mean(self) -> None:
        with pytest.raises(KafkaException, match="a right on the group is missing") as raised:
            self.ask(KafkaError._TIMED_OUT)
        assert "group group" in raised.value.args[0].str()

    def test_raises_what_does_not_pass(self) -> None:
        with pytest.raises(KafkaException):
            self.ask(KafkaError.GROUP_AUTHORIZATION_FAILED)
