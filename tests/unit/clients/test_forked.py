"""Clients that were made before a fork; each test forks in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import cimpl

PROGRAM = """
import asyncio, os, signal, sys
from contextlib import nullcontext
from headerware import AsyncConsumer, AsyncProducer, Chain, Consumer, Producer
from headerware.interceptors import Trail

class Own(Producer):
    __hash__ = None

    def produce(self, *args, **more):
        Producer.produce(self, *args, **more)

conf, chain = {"bootstrap.servers": "localhost:1", "log_level": 0}, Chain([Trail(service="test")])
producer, own = Producer(conf, chain=chain), Own(conf, chain=chain)
consumer = Consumer({**conf, "group.id": "g"}, chain=chain)
share = None
if sys.argv[1] == "share":
    from headerware import ShareConsumer

    share = ShareConsumer({**conf, "group.id": "g"}, chain=chain)
aproducer, aconsumer = AsyncProducer(conf, chain=chain), AsyncConsumer({**conf, "group.id": "g"}, chain=chain)
calls = {
    "producer": (producer.produce, producer.flush, producer.poll, producer.init_transactions, own.produce),
    "consumer": (consumer.poll, consumer.consume, consumer.subscribe, consumer.commit, consumer.messages),
    "share": share and (share.poll, share.commit_sync),
    "asyncio": (aproducer.produce, aproducer.flush, aconsumer.poll, aconsumer.run),
}[sys.argv[1]]
names = [(call.__self__, call.__name__) for call in calls]
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    if sys.argv[1] == "producer":
        producer.produce("orders", b"1")
        assert len(producer) >= 1  # librdkafka's own events count, too
        producer.purge()
    print("parent", os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)
signal.alarm(60)
for client, name in names:
    try:
        getattr(client, name)("orders")
    except RuntimeError as error:
        print(error, flush=True)
    else:
        os._exit(1)
with producer, consumer, share or nullcontext():
    assert "client" in producer.stats()

async def leave():
    try:
        async with aproducer:
            pass
    except RuntimeError as error:
        assert str(error).startswith("async with: this AsyncProducer"), error
    await aproducer.close()
    async with aconsumer:
        pass

asyncio.run(leave())
os._exit(0)
"""


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("producer", ["Producer produce", "Producer flush", "Producer poll", "Producer init_transactions"]),
        ("consumer", [f"Consumer {name}" for name in ("poll", "consume", "subscribe", "commit", "messages")]),
        pytest.param(
            "share",
            ["ShareConsumer poll", "ShareConsumer commit_sync"],
            marks=pytest.mark.skipif(
                not hasattr(cimpl, "ShareConsumer"), reason="this confluent-kafka has none"
            ),
        ),
        (
            "asyncio",
            ["AsyncProducer produce", "AsyncProducer flush", "AsyncConsumer poll", "AsyncConsumer run"],
        ),
    ],
)
def test_calls_of_a_child_are_refused_and_it_closes_quietly(kind: str, calls: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], check=False, capture_output=True, text=True, timeout=120
    )
    *lines, last = done.stdout.splitlines()
    if kind == "producer":
        calls = [*calls, "Own produce"]
    for call, line in zip(calls, lines, strict=True):
        client, name = call.split()
        assert line.startswith(f"{name}: this {client} was made before the fork")
    assert last == "parent 0", done.stderr


FREED = """
import gc, os, signal, sys, weakref
from headerware import Chain, Consumer, Producer

class Told:
    def on_send(self, record):
        return record

    def close(self):
        print("closed in", "the child" if os.getpid() != parent else "the parent", flush=True)

parent = os.getpid()
conf = {"bootstrap.servers": "localhost:1", "log_level": 0, "group.id": "g"}
client = {"producer": Producer, "consumer": Consumer}[sys.argv[1]](conf, chain=Chain([Told()]))
alive = weakref.ref(client)
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    client.close()
    print("child", os.waitstatus_to_exitcode(status), flush=True)
else:
    signal.alarm(60)
    del client
    gc.collect()
    print("alive" if alive() else "freed", flush=True)
"""


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_a_child_neither_frees_nor_closes_what_is_the_parents(kind: str) -> None:
    """librdkafka waits for its threads when a client is freed, now and then for ever."""
    done = subprocess.run(
        [sys.executable, "-c", FREED, kind], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["alive", "closed in the parent", "child 0"], done.stderr
