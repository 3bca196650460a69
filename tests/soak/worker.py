"""One client of the soak, a process: ``worker.py produce|consume|consume_with_workers SETTINGS``.

It writes one line for each record: a producer when the record's delivery is confirmed, a consumer when the
record is processed. Lines are written at once, so a killed process loses none.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from headerware import Chain, Consumer, Producer, load_chain

PACE_S = 0.004
LARGE_EVERY = 100
LARGE_BYTES = 400_000


class Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        self.then: Callable[[], object] = lambda: None
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True
        self.then()


def lines_to(path: str) -> Callable[[bytes], int]:
    """Return a function that appends a line to a file, in one write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return lambda line: os.write(file, line + b"\n")


def produce(settings: dict[str, Any], chain: Chain, stop: Stop) -> None:
    confirmed, failed = lines_to(settings["output"]), lines_to(settings["output"] + ".failed")
    generator = random.Random(settings["name"])
    conf = {"bootstrap.servers": settings["servers"], "enable.idempotence": True, "log_level": 0}
    with Producer(conf, chain=chain) as producer:
        sequence = 0
        while not stop.asked:
            ident = b"%s-%08d" % (settings["name"].encode(), sequence)
            size = (
                LARGE_BYTES if sequence % LARGE_EVERY == LARGE_EVERY - 1 else generator.randrange(50, 1_000)
            )

            def report(error: Any, _message: Any, ident: bytes = ident) -> None:
                if error is None:
                    confirmed(ident)
                else:
                    failed(ident + f" {error}".encode())

            value = ident + b" " + generator.randbytes(size // 2).hex().encode()
            producer.produce(settings["topic"], value, b"key-%d" % (sequence % 31), on_delivery=report)
            producer.poll(PACE_S)
            sequence += 1
        left = producer.flush(120)
        if left:
            sys.exit(f"{left} records were not delivered within 120 s")


def consumer_conf(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings["servers"],
        "group.id": settings["topic"],
        "client.id": settings["name"],
        "auto.offset.reset": "earliest",
        # A killed process must not have stored the offset of a record that it had not written down.
        "enable.auto.offset.store": False,
        "log_level": 0,
    }


def consume(settings: dict[str, Any], chain: Chain, stop: Stop) -> None:
    processed, refused = lines_to(settings["output"]), lines_to(settings["output"] + ".failed")
    with Consumer(consumer_conf(settings), chain=chain) as consumer:
        consumer.subscribe([settings["topic"]])
        while not stop.asked:
            try:
                message = consumer.poll(0.2)
            except Exception as failure:  # noqa: BLE001 - it is written down, and fails the soak
                refused(f"{type(failure).__name__}: {failure}".encode())
                continue
            if message is None:
                continue
            if error := message.error():
                if not error.retriable() and error.code() > 0:
                    refused(str(error).encode())
                continue
            value = message.value() or b""
            processed(value.partition(b" ")[0])
            consumer.store_offsets(message)


def consume_with_workers(settings: dict[str, Any], chain: Chain, stop: Stop) -> None:
    processed, refused = lines_to(settings["output"]), lines_to(settings["output"] + ".failed")
    with Consumer(consumer_conf(settings), chain=chain) as consumer:
        stop.then = consumer.stop
        consumer.subscribe([settings["topic"]])
        try:
            consumer.run(lambda message: processed((message.value() or b"").partition(b" ")[0]), workers=4)
        except Exception as failure:
            refused(f"{type(failure).__name__}: {failure}".encode())
            raise


class Nowhere(SpanExporter):
    """Take spans, and keep none."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def measure() -> None:
    """Record spans and metrics, as an application with OpenTelemetry's SDK does."""
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    measure()
    roles = {"produce": produce, "consume": consume, "consume_with_workers": consume_with_workers}
    roles[sys.argv[1]](given, load_chain(given["chain"]), Stop())
