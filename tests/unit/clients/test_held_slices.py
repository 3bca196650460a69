"""Where the stream stands still, messages in slices do not expire: what they wait for could not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka

from headerware import Chain, Consumer, Record
from headerware.core.context import Context
from headerware.core.errors import HeldBackError
from headerware.interceptors import Slice

EXPIRE_S = 1.0
DEADLINE_S = 20.0


class Judge:
    """Cannot judge a record for longer than messages wait for their slices."""

    def __init__(self) -> None:
        self.attempts = 0
        self.until = 0.0

    def on_consume(self, record: Record) -> Record:
        if record.value == b"judged":
            self.attempts += 1
            self.until = self.until or time.monotonic() + 2 * EXPIRE_S
            if time.monotonic() < self.until:
                raise HeldBackError("it cannot be judged now")
        return record


def test_a_message_outlives_what_holds_its_stream(
    connection: dict[str, Any], topic: str, make_consumer: Callable[..., Consumer]
) -> None:
    whole = Record(topic, bytes(3_000), partition=0)
    first, *rest = Chain([Slice(max_bytes=1_500)]).open(Context(side="producer")).send([whole])
    producer = confluent_kafka.Producer(connection)
    for record in (first, Record(topic, b"judged"), *rest):
        producer.produce(topic, record.value, None, 0, headers=list(record.headers))
    assert producer.flush(DEADLINE_S) == 0

    judge = Judge()
    consumer = make_consumer(Slice(expire_ms=int(EXPIRE_S * 1000)), judge, topic=topic)
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < 2:
        assert time.monotonic() < deadline, f"only {found} came"
        try:
            message = consumer.poll(0.1)
        except HeldBackError:
            continue
        if message is not None:
            found.append(message.value())
    assert found == [b"judged", whole.value]
    assert judge.attempts > 2
    assert consumer.stats()["slice"]["expired"] == 0
