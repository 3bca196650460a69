"""Test an application with records that come twice, in another order or not at all.

    python examples/faults.py

The application books payments. Its clients have a chain that ends with a plan of faults. The plan has a seed,
so each run meets the same faults. What was booked is compared with the faults, without and with `dedup`.
It starts an embedded cluster.
"""

from __future__ import annotations

import time
from collections import Counter
from uuid import uuid4

from headerware import Chain, Consumer, Producer
from headerware.interceptors import Dedup
from headerware.testing import EmbeddedCluster
from headerware.testing.faults import Faults

PAYMENTS = 500


def pay(servers: str, topic: str, chain: Chain) -> None:
    """Send payments as an ordinary application."""
    with Producer({"bootstrap.servers": servers}, chain=chain) as producer:
        for number in range(PAYMENTS):
            producer.produce(topic, str(number), key=str(number % 7))


def book(servers: str, topic: str, chain: Chain) -> list[int]:
    """Book payments until no more come, as an ordinary application."""
    conf = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    booked: list[int] = []
    with Consumer(conf, chain=chain) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                booked.append(int(message.value() or b""))
                deadline = time.monotonic() + 2
    return booked


def run(cluster: EmbeddedCluster, steps: list[Dedup]) -> None:
    """Pay and book under faults, and show what the application did."""
    topic = f"payments-{uuid4().hex[:8]}"
    cluster.create_topic(topic)
    sending = Faults("send", seed=1, double=0.04)
    reading = Faults("consume", seed=1, drop=0.01, reorder=0.1)
    pay(cluster.bootstrap_servers, topic, Chain([*steps, sending]))
    booked = book(cluster.bootstrap_servers, topic, Chain([*steps, reading]))
    print(f"{'with' if steps else 'without'} dedup: {PAYMENTS} payments, {len(booked)} booked")
    print(f"  the faults: {sending.counts | reading.counts}")
    times = Counter(booked)
    print(f"  booked twice: {sum(count > 1 for count in times.values())}")
    print(f"  never booked: {sorted(set(range(PAYMENTS)) - set(times))}")


def main() -> None:
    """Run the application without dedup, and with it."""
    with EmbeddedCluster() as cluster:
        run(cluster, [])
        run(cluster, [Dedup()])


if __name__ == "__main__":
    main()
