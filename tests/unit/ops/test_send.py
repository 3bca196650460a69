"""Sending lines: what a client's thread and its queue do to the counts."""

from __future__ import annotations

from typing import Any

import pytest

from headerware import Chain, Interceptor, InterceptorError, Producer
from headerware.core.record import Record
from headerware.interceptors import HeaderIds, Trail
from headerware.ops.send import DeadLettersOfLines, Failure, LineSender
from headerware.testing import EmbeddedCluster
from tests.waiting import until


class RefusesBad(Interceptor, frozen=True, kw_only=True):
    """Refuses one value."""

    def on_send(self, record: Record) -> Record:
        if record.value == b"bad":
            raise InterceptorError("no region")
        return record


class TestLineSender:
    def test_raises_what_the_callback_of_its_thread_raised(self) -> None:
        def fail(_: Failure) -> None:
            raise BrokenPipeError("nobody reads standard error")

        for way in ("send", "finish"):
            with EmbeddedCluster(topics={"orders": 1}) as cluster:
                producer = Producer(
                    {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 50, "log_level": 0}
                )
            sender = LineSender(producer, fail)
            sender.send(1, Record("orders", b"x"))
            until(lambda: sender.failed == 1)  # noqa: B023 - called in this round
            sender._poller.join()
            with pytest.raises(BrokenPipeError, match="nobody reads"):
                sender.finish() if way == "finish" else sender.send(2, Record("orders", b"y"))
            assert (sender.failed, sender.delivered) == (1, 0)

    @pytest.mark.parametrize("others", [(), (HeaderIds(),)], ids=["alone", "before header_ids"])
    def test_says_why_a_line_is_a_dead_letter_and_where(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Any, others: tuple[object, ...]
    ) -> None:
        topic = unique_topic("orders")
        for name in (topic, f"{topic}.dead-letter"):
            embedded_cluster.create_topic(name)
        refuses = RefusesBad(name="region", on_error="dead_letter")
        dead_letters = DeadLettersOfLines(Chain([Trail(), refuses, *others], carry=["tenant"]))
        assert dead_letters.chain.carry == ("tenant",)
        failures: list[Failure] = []
        with Producer(
            {"bootstrap.servers": embedded_cluster.bootstrap_servers}, chain=dead_letters.chain
        ) as producer:
            sender = LineSender(producer, failures.append, dead_letters)
            for number, value in enumerate((b"good", b"bad", b"good", b"bad"), start=1):
                sender.send(number, Record(topic, value))
            sender.finish()
        why = f"region at {topic}: no region; it is in {topic}.dead-letter"
        assert (sender.delivered, failures) == (2, [Failure(2, why), Failure(4, why)])
        assert not dead_letters.reasons

    def test_leaves_an_empty_chain_empty(self) -> None:
        assert not DeadLettersOfLines(Chain()).chain

    def test_waits_for_room_although_the_last_report_comes_meanwhile(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Any
    ) -> None:
        class Emptied(Producer):
            """A full queue is empty by the time that the caller learns that it was full."""

            def produce(self, *arguments: Any, **options: Any) -> None:
                try:
                    super().produce(*arguments, **options)
                except BufferError:
                    self.flush()
                    raise

        topic = unique_topic("orders")
        embedded_cluster.create_topic(topic)
        producer = Emptied(
            {"bootstrap.servers": embedded_cluster.bootstrap_servers, "queue.buffering.max.messages": 1}
        )
        failures: list[Failure] = []
        sender = LineSender(producer, failures.append)
        for number in range(100):
            sender.send(number, Record(topic, b"x"))
        sender.finish()
        assert (sender.delivered, failures) == (100, [])
