"""Rows for small records: the empty chain, no-op interceptors, and the first real chain against its limit."""

from __future__ import annotations

import contextlib
import hmac
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import zstandard
from natively import WAYS, in_force
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pairing import Chunk, Paired, compare
from report import Row
from vega_datasets import local_data

import headerware
from headerware import Chain, Record, load_chain
from headerware.core.headers import EMPTY
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.store import publish
from headerware.interceptors import Audit, Compress, Lineage, Metrics, Sign, Trail
from headerware.interceptors.compress import dictionary_compressor
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.ops.dictionaries import Sample, split, train
from headerware.testing import KafkaBroker

CHUNK = 5_000
READ_CHUNK = 20_000
"""A raw consumer reads 5,000 records in 3 ms, which is too short to compare."""
HEADERS: list[tuple[str, bytes | None]] = [
    ("content-type", b"application/json"),
    ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tenant", b"north"),
]


TRAIL: dict[str, Any] = {"interceptors": "trail", "interceptors.trail.service": "bench"}
"""A chain in a client's configuration."""


class NoOp:
    """An interceptor that does nothing, in both directions."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_send(self, record: Record) -> Record:
        """Return the record as it is."""
        return record

    def on_consume(self, record: Record) -> Record:
        """Return the record as it is."""
        return record


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure all rows for small records."""
    small = _airports(1)
    noop = Chain([NoOp(f"noop-{index}") for index in range(4)])
    raw = confluent_kafka.Producer
    empty, wrapped = Chain(), noop
    # A chunk of produced records ends with the broker's answer, so these rows need more pairs.
    many = pairs * 3
    yield _produced("A/A: raw produce against raw produce", broker, small, many, raw, "")
    yield _produced("produce, empty chain", broker, small, many, _with(empty), "at least 0.97")
    yield _produced("produce, 4 no-op interceptors", broker, small, many, _with(wrapped), "at least 0.7")
    yield from _watched_file(broker, small, many)
    yield _consumed(
        "A/A: raw consume against raw consume", broker, small, pairs, confluent_kafka.Consumer, ""
    )
    yield _consumed("consume, empty chain", broker, small, pairs, _reading(empty), "at least 0.95")
    yield _consumed("consume, 4 no-op interceptors", broker, small, pairs, _reading(wrapped), "")
    for what, chain_keys in (("without a chain", {}), ("a trail", TRAIL)):
        ours = _instrumented("Producer", chain_keys)
        yield _produced(f"produce, instrumented, {what}", broker, small, many, ours, "")
        ours = _instrumented("Consumer", chain_keys)
        yield _consumed(f"consume, instrumented, {what}", broker, small, pairs, ours, "")
    for way, natively in WAYS.items():
        with in_force(natively):
            yield from _first_chain(broker, _airports(10), pairs, way)
            yield from _first_chain(broker, small, pairs, way, with_dictionary=True)
    yield from _dictionary(small, pairs)
    yield from _observed(broker, small, pairs)
    yield _with_workers(broker, pairs=max(3, pairs // 4))


def _observed(broker: KafkaBroker, values: list[bytes], pairs: int) -> Iterator[Row]:
    """Measure the costs of audit, metrics and lineage."""
    set_meter_provider(MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False))
    broker.create_topic(audit_topic := "bench-audit")
    trail = Trail(service="bench")
    alone = Chain([trail])
    with tempfile.TemporaryDirectory() as folder, _lineage_events_in(Path(folder) / "events.json"):
        for what, interceptor in (
            ("metrics (with an SDK)", Metrics()),
            ("audit", Audit(audit_topic=audit_topic)),
            ("lineage (into a file)", Lineage(service="bench")),
        ):
            chain = Chain([interceptor, trail])
            name = f"{what} and a trail against a trail"
            yield _produced(f"produce, {name}", broker, values, pairs * 3, _with(chain), "", _with(alone))
            yield _consumed(f"consume, {name}", broker, values, pairs, _reading(chain), "", _reading(alone))


@contextlib.contextmanager
def _lineage_events_in(path: Path) -> Iterator[None]:
    """Have OpenLineage's client write its events into a file."""
    variables = {
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(path),
        "OPENLINEAGE__TRANSPORT__APPEND": "true",
    }
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _instrumented(name: str, chain_keys: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a function that makes a client as an unchanged application does, by confluent-kafka's name."""

    def make(conf: dict[str, Any]) -> Any:
        headerware.instrument()
        try:
            return getattr(confluent_kafka, name)({**conf, **chain_keys})
        finally:
            headerware.uninstrument()

    return make


def _reading(chain: Chain) -> Callable[[dict[str, Any]], Any]:
    return lambda conf: headerware.Consumer(conf, chain=chain)


def _watched_file(broker: KafkaBroker, values: list[bytes], pairs: int) -> Iterator[Row]:
    """Measure the cost of a chain that may change at any time, and the cost of a change."""
    with tempfile.TemporaryDirectory() as folder:
        path, other = Path(folder) / "chain.toml", Path(folder) / "other.toml"
        texts = [f'[[interceptors]]\ntype = "trail"\nservice = "bench-{each}"\n' for each in range(2)]
        for each in (path, other):
            each.write_text(texts[0])

        def live(file: Path) -> Callable[[dict[str, Any]], headerware.Producer]:
            keys = {"headerware.config": str(file), "headerware.reload": "watch"}
            return lambda conf: headerware.Producer({**conf, **keys})

        in_code = _with(load_chain(path))
        name = "produce, a trail from a watched file against one in code"
        yield _produced(name, broker, values, pairs, live(path), "", in_code)

        broker.create_topic(topic := "produce-reloaded")
        conf = _producer_conf(broker)
        changing, unchanged = live(path)(conf), live(other)(conf)
        send, turns = _producing(changing, topic, values), itertools.cycle(reversed(texts))

        def reloaded() -> int:
            path.write_text(next(turns))
            changing.reload()
            return send()

        found = compare(reloaded, _producing(unchanged, topic, values), pairs=pairs)
        changing.close()
        unchanged.close()
        note = f"the file is written and read again once in {CHUNK:,} records, flush included, {pairs} pairs"
        yield _row("produce, a chain that is replaced while it runs against one that stays", found, "", note)


def _with(chain: Chain) -> Callable[[dict[str, Any]], confluent_kafka.Producer]:
    return lambda conf: headerware.Producer(conf, chain=chain)


def _airports(together: int) -> list[bytes]:
    rows = local_data.airports().to_dict("records")
    groups = [rows[index : index + together] for index in range(0, len(rows) - together, together)]
    return [json.dumps(group if together > 1 else group[0]).encode() for group in groups]


def _producer_conf(broker: KafkaBroker) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
    }


def _produced(
    name: str,
    broker: KafkaBroker,
    values: list[bytes],
    pairs: int,
    ours: Callable[[dict[str, Any]], Any],
    bar: str,
    reference: Callable[[dict[str, Any]], Any] = confluent_kafka.Producer,
) -> Row:
    broker.create_topic(topic := f"produce-{abs(hash(name))}")
    conf = _producer_conf(broker)
    wrapped = _producing(ours(conf), topic, values)
    found = compare(wrapped, _producing(reference(conf), topic, values), pairs=pairs)
    size = sum(map(len, values)) // len(values)
    note = f"{size}-byte values, 3 headers, flush included, {pairs} pairs of {CHUNK:,}"
    return _row(name, found, bar, note)


def _producing(producer: Any, topic: str, values: list[bytes]) -> Chunk:
    produce, flush = producer.produce, producer.flush
    some = [values[index % len(values)] for index in range(CHUNK)]

    def chunk() -> int:
        for value in some:
            produce(topic, value, headers=HEADERS)
        flush()
        return CHUNK

    return chunk


def _row(name: str, found: Paired, bar: str, note: str) -> Row:
    return Row(name, found.ours, found.reference, "records/s", found.ratio, bar, note)


# Consuming


def _consumed(
    name: str,
    broker: KafkaBroker,
    values: list[bytes],
    pairs: int,
    make: Callable[[dict[str, Any]], Any],
    bar: str,
    make_reference: Callable[[dict[str, Any]], Any] = confluent_kafka.Consumer,
) -> Row:
    broker.create_topic(topic := f"consume-{abs(hash(name))}")
    chunk = _producing(confluent_kafka.Producer(_producer_conf(broker)), topic, values)
    for _ in range((pairs + 5) * (READ_CHUNK // CHUNK)):
        chunk()
    ours = make(_consumer_conf(broker, "ours"))
    reference = make_reference(_consumer_conf(broker, "reference"))
    for consumer in (ours, reference):
        _prefetched(consumer, topic)
    found = compare(_consuming(ours, size=READ_CHUNK), _consuming(reference, size=READ_CHUNK), pairs=pairs)
    ours.close()
    reference.close()
    note = f"3 headers, consume(500) of what is prefetched, {pairs} pairs of {READ_CHUNK:,}"
    return _row(name, found, bar, note)


def _consumer_conf(broker: KafkaBroker, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"{group}-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1_000_000,
    }


def _prefetched(consumer: Any, topic: str) -> None:
    """Begin reading, and let librdkafka fetch all records, so that only the client's side is measured."""
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    assert consumer.consume(1, timeout=30)
    time.sleep(3)


def _consuming(
    consumer: Any, each: Callable[[Any], Any] = confluent_kafka.Message.value, *, size: int = CHUNK
) -> Chunk:
    def chunk() -> int:
        seen = 0
        while seen < size:
            messages = consumer.consume(500, 10)
            if not messages:
                raise RuntimeError("the topic ran dry in the middle of a chunk")
            for message in messages:
                each(message)
            seen += len(messages)
        return seen

    return chunk


def _with_workers(broker: KafkaBroker, *, pairs: int) -> Row:
    """Compare ``run`` with a plain loop, for a handler that waits 2 ms."""
    workers, wait_s, size = 8, 0.002, 800
    broker.create_topic(topic := "workers")
    producer = confluent_kafka.Producer(_producer_conf(broker))
    for number in range((pairs + 5) * size):
        producer.produce(topic, b"v", str(number % 97).encode())
    producer.flush()
    conf = {"headerware.processing": "explicit", "enable.auto.commit": False}
    ours = headerware.Consumer({**_consumer_conf(broker, "ours"), **conf})
    reference = confluent_kafka.Consumer(_consumer_conf(broker, "reference"))
    for consumer in (ours, reference):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])

    def with_workers() -> int:
        seen = itertools.count(1)

        def handle(_: Any) -> None:
            time.sleep(wait_s)
            if next(seen) == size:
                ours.stop()

        # Records that wait at the stop are read again, so few may wait.
        ours.run(handle, workers=workers, max_pending=2 * workers)
        return size

    def loop() -> int:
        seen = 0
        while seen < size:
            seen += reference.poll(10) is not None
            time.sleep(wait_s)
        return seen

    found = compare(with_workers, loop, pairs=pairs, warm_up=2)
    ours.close()
    reference.close()
    note = f"a handler that waits 2 ms, 97 keys, start and stop included, {pairs} pairs of {size}"
    return _row(f"run(workers={workers}) against a plain loop", found, "at least 5", note)


# The first chain: trail, compression and HMAC against the bare primitives with the same three headers


def _dictionary(values: list[bytes], pairs: int) -> Iterator[Row]:
    """Measure a dictionary that was trained on half of the values, on the other half."""
    learnt, others = split([Sample(None, value, EMPTY) for value in values])
    dictionary = train(learnt).dictionary
    ours, plain = dictionary_compressor(dictionary.content, 3), zstandard.ZstdCompressor(3).compress
    measured = [sample.value for sample in others]

    def packing(pack: Callable[[bytes], bytes]) -> Chunk:
        def chunk() -> int:
            for value in measured:
                pack(value)
            return len(measured)

        return chunk

    sizes = [sum(len(pack(value)) for value in measured) / len(measured) for pack in (plain, ours)]
    size = sum(map(len, measured)) // len(measured)
    note = f"{len(measured)} JSON objects of {size} bytes, a dictionary of 16 KiB"
    name = "compressed size of small JSON, zstd against zstd with a dictionary"
    yield Row(name, *sizes, "bytes", sizes[0] / sizes[1], "at least 2.2", note)
    found = compare(packing(ours), packing(plain), pairs=pairs)
    yield _row("compressing small JSON with a dictionary, against zstd", found, "at least 2", note)


def _first_chain(
    broker: KafkaBroker, values: list[bytes], pairs: int, way: str, *, with_dictionary: bool = False
) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        keyring = str(Path(folder) / "keys.json")
        edit_keyring(keyring, lambda empty: with_new_key(empty, "bench", "hmac-sha256"), create=True)
        topic = f"{'dictionary' if with_dictionary else 'first'}-chain{'-natively' if way else ''}"
        what = "compress with a dictionary" if with_dictionary else "compress"
        dictionaries, known = None, None
        if with_dictionary:
            trained = train([Sample(None, value, EMPTY) for value in values]).dictionary
            dictionaries = FolderDictionaries(path=folder)
            publish(dictionaries.open(), trained, f"{topic}-ours")
            known = zstandard.ZstdCompressionDict(trained.content)
            known.precompute_compress(3)
        chain = Chain(
            [
                Trail(service="bench"),
                Compress(codec="zstd", dictionaries=dictionaries),
                Sign(keyring=keyring, key_id="bench", require="enforce"),
            ]
        )
        wire = chain.open().send([Record(topic=f"{topic}-ours", value=values[0])])[0]
        assert wire.headers.names() == ("hw.trail", "hw.compress", "hw.sig"), wire
        broker.create_topic(f"{topic}-ours")
        broker.create_topic(f"{topic}-limit")
        conf = _producer_conf(broker)
        some = [values[index % len(values)] for index in range(CHUNK)]
        ours = headerware.Producer(conf, chain=chain)
        mine = _plain_producing(ours, f"{topic}-ours", some)
        pack = zstandard.ZstdCompressor(dict_data=known).compress
        limit = _limit_producing(conf, f"{topic}-limit", some, list(wire.headers), pack)
        size = sum(map(len, values)) // len(values)
        note = (
            f"{size}-byte JSON values; the limit is the raw client with the same headers, "
            f"hmac.digest and bare zstd{' with the dictionary' if with_dictionary else ''}"
        )
        if not way:  # records that are sent one by one go through Python
            made = compare(mine, limit, pairs=pairs)
            yield _row(f"produce, trail + {what} + sign (HMAC)", made, "at least 0.5", note)
        together = _producing_together(ours, f"{topic}-ours", some)
        made = compare(together, limit, pairs=pairs)
        bar = "at least 1.1" if way else "at least 0.5"
        yield _row(f"produce_many, trail + {what} + sign (HMAC){way}", made, bar, note)

        for _ in range(8):
            mine()
            limit()
        consumer = headerware.Consumer(_consumer_conf(broker, "ours"), chain=chain)
        reference = confluent_kafka.Consumer(_consumer_conf(broker, "limit"))
        _prefetched(consumer, f"{topic}-ours")
        _prefetched(reference, f"{topic}-limit")
        key, unpack = b"k" * 32, zstandard.ZstdDecompressor(dict_data=known).decompress

        def verify(message: confluent_kafka.Message) -> None:
            # The signature and the codec's name are in the headers, so the reference removes them, too.
            message.headers()
            value = message.value()
            hmac.digest(key, value, "sha256")
            unpack(value)

        seen = compare(_consuming(consumer), _consuming(reference, verify), pairs=pairs)
        consumer.close()
        reference.close()
        why = "of ours some 0.5 us are for headers as text, and 0.3 for keeping what was verified"
        bar = "at least 1.0" if way else "at least 0.5"
        yield _row(f"consume, trail + {what} + sign (HMAC){way}", seen, bar, f"{note}; {why}")


def _plain_producing(producer: Any, topic: str, values: list[bytes]) -> Chunk:
    produce, flush = producer.produce, producer.flush

    def chunk() -> int:
        for value in values:
            produce(topic, value)
        flush()
        return len(values)

    return chunk


def _producing_together(producer: headerware.Producer, topic: str, values: list[bytes]) -> Chunk:
    def chunk() -> int:
        assert not any(producer.produce_many(topic, [Record(topic, value) for value in values]))
        producer.flush()
        return len(values)

    return chunk


def _limit_producing(
    conf: dict[str, Any],
    topic: str,
    values: list[bytes],
    headers: list[Any],
    pack: Callable[[bytes], bytes],
) -> Chunk:
    producer = confluent_kafka.Producer(conf)
    key = b"k" * 32

    def chunk() -> int:
        for value in values:
            packed = pack(value)
            hmac.digest(key, packed, "sha256")
            producer.produce(topic, packed, headers=headers)
        producer.flush()
        return len(values)

    return chunk
