"""Produce, poll, flush and consume under signals whose handler raises at random moments.

Prints, as JSON, how often the handler raised, and what was lost or came twice.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from functools import partial
from itertools import count as numbers
from typing import Any

from confluent_kafka import TopicPartition

from headerware import Chain, Consumer, Producer, Record
from headerware.interceptors import Slice
from headerware.testing import EmbeddedCluster

TOPIC = "orders"
ENOUGH = 100


class Interrupt(Exception):  # noqa: N818 - an ordinary exception, as a handler may raise any
    """What the handler raises."""


class Acks:
    """Count acknowledgements."""

    def __init__(self) -> None:
        self.seen: Counter[Any] = Counter()

    def on_acknowledgement(self, record: Record, _metadata: Any, _error: Any) -> None:
        """Count one."""
        self.seen[record.value] += 1


def interrupt(_number: int, _frame: Any) -> None:
    """Raise, and be called again a little later."""
    global raised  # noqa: PLW0603 - a handler has no other place
    raised += 1
    raise Interrupt


def disturbed(work: Any, within_s: float = 0.0003) -> Any:
    """Do something while a signal may come, and return None if it came."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, within_s))
            return work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        return None
    except TypeError as error:
        # confluent-kafka asks for the text of a name, where CPython looks for signals, and tells it so.
        if "header key" not in str(error):
            raise
        return None


def take(consumer: Consumer, held: list[Any]) -> None:
    """Poll or consume; between the return and the assignment CPython looks for no signals."""
    if random.random() < 0.5:
        message = consumer.poll(0.01)
        held[:] = [message]
    else:
        messages = consumer.consume(7, 0.01)
        held[:] = messages


def main(count: int, chain: list[Any]) -> dict[str, Any]:
    """Try to send so many records, and read those that were sent."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        connection = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        acks, reports = Acks(), Counter[Any]()

        def report(_error: Any, message: Any) -> None:
            reports[message.value()] += 1

        producer = Producer(connection, chain=Chain([acks, *chain]))
        padding = b"." * 1_200 if chain else b""
        taken: list[bytes] = []
        for number in numbers():
            if number >= count and len(taken) > ENOUGH:  # a slow machine sends few before the signal comes
                break
            value = f"{number}:".encode() + padding

            def send(value: bytes = value) -> bool:
                producer.produce(
                    TOPIC,
                    value,
                    partition=0,
                    on_delivery=lambda _, message: reports.update([message.value()]),
                )
                return True

            # The first message is cut once the cluster has said whether its topic is compacted.
            if send() if not taken else disturbed(send):
                taken.append(value)
            disturbed(lambda: producer.poll(0))
        disturbed(lambda: producer.flush(5))
        left = producer.flush(60)
        on_wire: list[Any] = []
        reading = {"group.id": "plain", "auto.offset.reset": "earliest", "enable.partition.eof": True}
        plain = Consumer({**connection, **reading}, chain=Chain(chain))
        plain.assign([TopicPartition(TOPIC, 0)])
        found: list[Any] = []
        while not any(message.error() is not None for message in found):  # the news of the end
            found = plain.consume(500, 3)
            on_wire += [message.value() for message in found if message.error() is None]
        plain.close()

        conf = {"group.id": "stress", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 50}
        consumer = Consumer({**connection, **conf}, chain=Chain(chain or [Acks()]))
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumed: list[Any] = []
        deadline = time.monotonic() + 60
        while len(consumed) < len(on_wire) and time.monotonic() < deadline:
            # Whatever was given is here, also if a signal came behind it.
            held: list[Any] = []
            disturbed(partial(take, consumer, held), 0.03)  # what is read again must come meanwhile
            consumed += [message.value() for message in held if message is not None]
        failed = {name: stats.get("failed", 0) for name, stats in consumer.stats().items()}
        consumer.close()
        return {
            "raised": raised,
            "left": left,
            "lost": len(set(taken) - set(on_wire)),
            "reported_twice": sum(times > 1 for times in reports.values()),
            "acknowledged_twice": sum(times > 1 for times in acks.seen.values()),
            "consumed": len(consumed),
            "not_consumed": len(set(on_wire) - set(consumed)),
            "consumed_twice": len(consumed) - len(set(consumed)),
            "failed": sum(failed.values()),
        }


raised = 0
if __name__ == "__main__":
    signal.signal(signal.SIGALRM, interrupt)
    found = main(int(sys.argv[1]), [Slice(max_bytes=1_000)] if "slices" in sys.argv else [])
    sys.stdout.write(json.dumps(found))
