"""Rows for tracing: what spans add to producing, and what OpenTelemetry's own instrumentation adds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, Final

import confluent_kafka
from opentelemetry import trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, TraceIdRatioBased
from report import Row

import headerware
from headerware import Chain, Record
from headerware.interceptors import Trace
from headerware.testing import EmbeddedCluster, KafkaBroker

CHUNK: Final = 5_000
SAMPLERS: Final[dict[str, Sampler]] = {"off": ALWAYS_OFF, "1%": TraceIdRatioBased(0.01), "on": ALWAYS_ON}
BARS: Final = {"off": "at most 0.5", "1%": "at most 0.5", "on": "at most 0.85"}
CLIENTS: Final = ("raw", "theirs", "no-op", "ours", "no-op batch", "batch")


class _Discard(SpanExporter):
    """An exporter that sends nothing."""

    def export(self, spans: Sequence[Any]) -> SpanExportResult:  # noqa: ARG002 - an exporter's signature
        return SpanExportResult.SUCCESS


class _NoOp:
    """An interceptor that does nothing, so that the cost of the chain itself is known."""

    name = "no-op"

    def on_send(self, record: Record) -> Record:
        """Return the record as it is."""
        return record


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure each sampler in a process of its own, because an SDK is configured once a process."""
    note = (
        f"added CPU microseconds a record, flush included, {pairs} rounds of {CHUNK:,}; ours over a chain "
        "with a no-op interceptor, theirs over the raw client"
    )
    for sampler in ("none", *SAMPLERS):
        found = _measured(broker.bootstrap_servers, sampler, pairs)
        ours, batch = found["ours"] - found["no-op"], found["batch"] - found["no-op batch"]
        if sampler == "none":
            name = "tracing without an SDK: trace in the chain against a no-op interceptor"
            ratio = found["no-op"] / found["ours"]
            yield Row(name, found["ours"], found["no-op"], "us/record", ratio, "at least 0.97", note)
            continue
        theirs = found["theirs"] - found["raw"]
        name = f"tracing added to produce, a span a record, sampler {sampler}"
        yield Row(name, ours, theirs, "us/record", ours / theirs, BARS[sampler], note)
        if sampler == "on":
            name = "tracing added to produce_many, a span a batch"
            yield Row(name, batch, theirs, "us/record", batch / theirs, "at most 0.15", note)


def _measured(servers: str, sampler: str, rounds: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, servers, sampler, str(rounds)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    numbers = map(float, done.stdout.split())
    return dict(zip(CLIENTS, numbers, strict=True))


def _measure(servers: str, sampler: str, rounds: int) -> list[float]:
    """Return the median CPU microseconds a record of each client; they take turns in each round."""
    if sampler != "none":
        provider = TracerProvider(sampler=SAMPLERS[sampler])
        provider.add_span_processor(BatchSpanProcessor(_Discard(), max_queue_size=10 * CHUNK))
        trace.set_tracer_provider(provider)
    conf = {"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": 200_000}
    wrapped: Any = ConfluentKafkaInstrumentor.instrument_producer(confluent_kafka.Producer(conf))

    def chained(interceptor: object) -> headerware.Producer:
        return headerware.Producer(conf, chain=Chain([interceptor]))

    chunks = {
        "raw": _one_by_one(confluent_kafka.Producer(conf)),
        "theirs": _one_by_one(wrapped),
        "no-op": _one_by_one(chained(_NoOp())),
        "ours": _one_by_one(chained(Trace())),
        "no-op batch": _many(chained(_NoOp())),
        "batch": _many(chained(Trace(mode="batch"))),
    }
    found: dict[str, list[float]] = {name: [] for name in chunks}
    for turn in range(rounds + 2):
        for name in CLIENTS if turn % 2 else reversed(CLIENTS):
            began = time.process_time()
            chunks[name]()
            if turn >= 2:
                found[name].append((time.process_time() - began) / CHUNK * 1e6)
    return [median(found[name]) for name in CLIENTS]


def _one_by_one(producer: Any) -> Callable[[], None]:
    produce, poll = producer.produce, producer.poll

    def chunk() -> None:
        for number in range(CHUNK):
            produce("tracing", b"x" * 200, headers=[("tenant", b"north")])
            if not number % 100:
                poll(0)
        producer.flush()

    return chunk


def _many(producer: headerware.Producer) -> Callable[[], None]:
    records = [{"value": b"x" * 200, "headers": [("tenant", b"north")]}] * CHUNK

    def chunk() -> None:
        producer.produce_many("tracing", records)
        producer.flush()

    return chunk


if __name__ == "__main__":
    if sys.argv[1] == "embedded":  # a quick measurement without Java
        with EmbeddedCluster(topics={"tracing": 1}) as cluster:
            print(*_measure(cluster.bootstrap_servers, sys.argv[2], int(sys.argv[3])))
    else:
        print(*_measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))
