"""A program with a real signal: its handler uses the client whose call it interrupted.

Takes the name of a scene, and prints as JSON what the handler and the program saw.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, TopicPartition

from headerware import Chain, Consumer, Producer
from headerware.interceptors import Slice
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware import Record

TOPIC: Final = "orders"
DEADLINE_S: Final = 60.0
SOON_S: Final = 0.5
"""How long the main thread gets to be in the call that is interrupted."""
FLUSH_S: Final = 5.0
CONSUME_S: Final = 5.0
"""confluent-kafka's consume lets no handler run before it is over."""
NOBODY: Final = "127.0.0.1:1"
RECORDS: Final = 100


class Acks:
    """Count acknowledgements by value, without what follows the first comma."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()

    def on_acknowledgement(self, record: Record, _metadata: Any, error: Any) -> None:
        """Count one."""
        if error is None:
            self.seen[bytes(record.value or b"").partition(b",")[0]] += 1


class Scene:
    """A producer, what its handler does, and what was seen."""

    def __init__(self, servers: str, *chain: Any, **conf: Any) -> None:
        self.acks: Final = Acks()
        self.found: Final[dict[str, Any]] = {}
        self.ends: bool = True
        """Whether there is a broker, so that more can be sent at the end."""
        settings = {name.replace("_", "."): value for name, value in conf.items()}
        self.producer: Final = Producer(
            {"bootstrap.servers": servers, "log_level": 0, **settings}, chain=Chain([self.acks, *chain])
        )

    def on_signal(self, handler: Callable[[], object]) -> None:
        """Set what the next signal does, and note what it raises."""

        def handle(_number: int, _frame: Any) -> None:
            try:
                self.found["handler"] = handler()
            except KafkaException as error:
                self.found["refused"] = error.args[0].str()

        signal.signal(signal.SIGTERM, handle)

    def send(self, name: str, count: int = RECORDS) -> None:
        """Queue records whose values begin with a name."""
        for _ in range(count):
            self.producer.produce(TOPIC, f"{name},".encode())

    def send_and_flush(self, timeout_s: float = DEADLINE_S) -> int:
        """Queue records, wait for all, and return how many are left."""
        self.send("handler")
        return self.producer.flush(timeout_s)

    def end(self) -> None:
        """Send more, for a client that is broken shows it at its next callback."""
        self.send("after", 1)
        self.found["left"] = self.producer.flush(DEADLINE_S)


def soon() -> None:
    """Let the signal come when the main thread is in its next call."""
    threading.Timer(SOON_S, os.kill, (os.getpid(), signal.SIGTERM)).start()


def in_poll(servers: str) -> Scene:
    """Interrupt a poll that has nothing to do; a record comes later, whose report it still serves."""
    scene = Scene(servers)
    scene.on_signal(scene.send_and_flush)
    soon()
    threading.Timer(4 * SOON_S, scene.send, ("later", 1)).start()
    deadline = time.monotonic() + DEADLINE_S
    while not scene.acks.seen[b"later"] and time.monotonic() < deadline:
        scene.producer.poll(FLUSH_S)
    return scene


def in_flush(_servers: str) -> Scene:
    """Interrupt a flush that can deliver nothing."""
    scene = Scene(NOBODY)
    scene.send("main")
    scene.on_signal(lambda: scene.producer.flush(0.1))
    soon()
    scene.found["flushed"] = scene.producer.flush(4 * SOON_S)
    scene.producer.purge()
    scene.ends = False
    return scene


def in_produce(servers: str) -> Scene:
    """Interrupt a message in slices that waits for room: without the handler's flush it would for an hour."""
    scene = Scene(
        servers, Slice(max_bytes=1_000), linger_ms=900_000, delivery_timeout_ms=3_600_000,
        queue_buffering_max_messages=20,
    )  # fmt: skip
    scene.send("main", 18)
    scene.on_signal(lambda: scene.producer.flush(DEADLINE_S))
    soon()
    scene.producer.produce(TOPIC, b"sliced," + b"." * 5_000, partition=0)
    return scene


def in_callback(servers: str) -> Scene:
    """Interrupt a delivery callback: what that does not hold up is delivered."""
    scene = Scene(servers, linger_ms=50)
    scene.on_signal(lambda: scene.send_and_flush(FLUSH_S))
    reported: list[Any] = []

    def report(_error: Any, message: Any) -> None:
        reported.append(message)
        if len(reported) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            while "handler" not in scene.found and "refused" not in scene.found:
                pass

    for _ in range(RECORDS):
        scene.producer.produce(TOPIC, b"main,", on_delivery=report, partition=0)
    while not reported:
        scene.producer.poll(1)
    scene.found["in_handler"] = scene.acks.seen[b"handler"]
    return scene


def flush_of_a_callback(servers: str) -> Scene:
    """Flush in a delivery callback, without a signal."""
    scene = Scene(servers)

    def report(_error: Any, _message: Any) -> None:
        scene.send("callback")
        scene.found["handler"] = scene.producer.flush(DEADLINE_S)

    scene.producer.produce(TOPIC, b"main,", on_delivery=report)
    while "handler" not in scene.found:
        scene.producer.poll(1)
    return scene


def close_in_poll(servers: str) -> Scene:
    """Close the producer in a handler."""
    scene = Scene(servers)
    scene.on_signal(scene.producer.close)
    soon()
    scene.producer.poll(4 * SOON_S)
    return scene


def commit_in_poll(servers: str) -> Scene:
    """End a transaction in a handler, and the next one as always."""
    scene = Scene(servers, transactional_id="signals")
    producer = scene.producer
    producer.init_transactions(DEADLINE_S)

    def commit() -> None:
        scene.send("handler")
        producer.commit_transaction(DEADLINE_S)

    scene.on_signal(commit)
    producer.begin_transaction()
    soon()
    producer.poll(4 * SOON_S)
    producer.begin_transaction()
    scene.send("main", 1)
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    return scene


def exit_in_poll(servers: str) -> Scene:
    """Flush in a handler that then ends the program, as most do."""
    scene = Scene(servers)

    def leave() -> None:
        scene.found["handler"] = scene.send_and_flush()
        raise SystemExit

    scene.on_signal(leave)
    soon()
    try:
        scene.producer.poll(DEADLINE_S)
    except SystemExit:
        scene.found["exited"] = True
    return scene


def consume(servers: str) -> Scene:
    """Close a consumer in a handler that interrupts its consume, and read on with another."""
    scene = Scene(servers)
    scene.send("main")
    scene.producer.flush(DEADLINE_S)
    conf = {"bootstrap.servers": servers, "group.id": "signals", "auto.offset.reset": "earliest"}
    read: list[Any] = []

    def leave() -> None:
        consumer.close()
        raise SystemExit

    for call in ("poll", "consume"):
        consumer = Consumer(conf, chain=Chain([Acks()]))
        consumer.assign([TopicPartition(TOPIC, 0)])
        scene.on_signal(leave)
        while len(read) < RECORDS:  # none is left, so that the signal comes while it waits
            read += consumer.consume(RECORDS, 1.0)
        soon()
        try:
            getattr(consumer, call)(*([] if call == "poll" else [7]), timeout=CONSUME_S)
        except SystemExit:
            scene.found[call] = len(read)
        scene.send("main")
        scene.producer.flush(DEADLINE_S)
        read = read[RECORDS:]
    return scene


def close_in_consume(servers: str) -> Scene:
    """Close a consumer in a handler while messages wait for more of them, and read with another."""
    scene = Scene(servers)
    scene.send("main", 3)
    scene.producer.flush(DEADLINE_S)
    conf = {"bootstrap.servers": servers, "group.id": "signals", "auto.offset.reset": "earliest"}

    def reader() -> Consumer:
        consumer = Consumer(conf, chain=Chain([Slice(max_bytes=1_000)]))
        consumer.assign([TopicPartition(TOPIC, 0)])
        return consumer

    def leave() -> None:
        first.close()
        raise SystemExit

    scene.on_signal(leave)
    first = reader()
    threading.Timer(4 * SOON_S, os.kill, (os.getpid(), signal.SIGTERM)).start()
    try:
        first.consume(10, DEADLINE_S)
    except SystemExit:
        second = reader()
        found = second.consume(3, DEADLINE_S)
        scene.found["read"] = [message.offset() for message in found]
        second.close()
    return scene


SCENES: Final[dict[str, Callable[[str], Scene]]] = {
    scene.__name__: scene
    for scene in (
        in_poll, in_flush, in_produce, in_callback, flush_of_a_callback, close_in_poll, commit_in_poll,
        exit_in_poll, consume, close_in_consume,
    )
}  # fmt: skip

if __name__ == "__main__":
    with EmbeddedCluster(topics={TOPIC: 1}) as cluster:
        played = SCENES[sys.argv[1]](cluster.bootstrap_servers)
        if played.ends:
            played.end()
        seen = {value.decode(): count for value, count in played.acks.seen.items()}
        sys.stdout.write(json.dumps({**played.found, "seen": seen}))
