"""Train compression dictionaries on a topic's records, and measure which compression saves most.

Samples are values as `compress` gets them: complete, not compressed and not encrypted. They are drawn
uniformly from all records that are read, in bounded memory.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import zstandard

from headerware.core.chain import Chain, raising
from headerware.core.context import Context
from headerware.core.errors import DictionaryError, HeaderError, HeaderwareError
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place
from headerware.core.record import Record
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.dictionary import Dictionary, essence
from headerware.dictionaries.store import publish
from headerware.interceptors.compress import Compress, dictionary_compressor, is_compressed
from headerware.interceptors.encrypt import Encrypt
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from confluent_kafka import Message

DICTIONARY_BYTES: Final = 16 << 10
"""The default size of a dictionary; a larger one rarely saves more, and needs more of the CPU's cache."""
MAX_SAMPLE_BYTES: Final = 8 << 20
"""The default limit for the bytes of all samples."""
_MAX_VALUE_BYTES: Final = 128 << 10
"""Larger values gain nothing from a dictionary."""
_MIN_SAMPLES: Final = 50
_HELD_OUT: Final = 5
"""One of this many samples is kept out of the training, to measure the dictionary."""
_CONTENT_TYPES: Final = ("content-type", "Content-Type")
_LEVEL: Final = 3
_TOPIC: Final = "samples"
_CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qk"
"""An id as long as a real cluster's: the header ``hw.encrypt`` contains it, so its length counts."""


class Sample(NamedTuple):
    """A record as `compress` gets it on send."""

    key: bytes | None
    value: bytes
    headers: Headers


class Skipped(msgspec.Struct):
    """How many records were not sampled, by reason."""

    empty: int = 0
    large: int = 0
    compressed: int = 0
    content_type: int = 0
    encoded: int = 0
    """Records that an interceptor encoded which the given chain does not decode."""


class Samples:
    """A uniform sample of records, bounded in bytes; for one caller at a time.

    Args:
        chain: the chain that decodes on consume what the steps after `compress` encoded on send; with None,
            values are only decompressed.
        cluster_id: the id of the records' cluster.
        bootstrap_servers: its brokers, from which a step may read a topic of its own.
        content_type: sample only records of this content type; None samples all records.
        max_bytes: how many bytes of values are kept at most.
    """

    def __init__(
        self,
        chain: Chain | None = None,
        *,
        cluster_id: str | None = None,
        bootstrap_servers: str | None = None,
        content_type: str | None = None,
        max_bytes: int = MAX_SAMPLE_BYTES,
    ) -> None:
        context = Context(
            side="consumer",
            bootstrap_servers=bootstrap_servers,
            cluster_id=lambda: cluster_id,
            dry_run=True,
        )
        self._session: Final = _before_compress(chain).open(context)
        self._content_type: Final = None if content_type is None else essence(content_type.encode())
        self._max_bytes: Final = max_bytes
        # Each record gets a random number; keeping the records with the smallest numbers is a uniform sample.
        self._heap: list[tuple[float, int, Sample]] = []
        self._random: Final = random.SystemRandom()
        self._bytes = 0
        self.seen: int = 0
        self.skipped: Final = Skipped()

    def add(self, record: Record) -> None:
        """Decode a consumed record, and sample or skip it."""
        self.seen += 1
        try:
            plain = self._session.consume([record])
        except HeaderwareError:
            self.skipped.encoded += 1
            return
        for each in plain:
            self._keep(each)

    def _keep(self, record: Record) -> None:
        value, skipped = record.value, self.skipped
        found = next((record.headers.last(name) for name in _CONTENT_TYPES if name in record.headers), None)
        if not value:
            skipped.empty += 1
        elif self._content_type is not None and (found is None or essence(found) != self._content_type):
            skipped.content_type += 1
        elif len(value) > _MAX_VALUE_BYTES:
            skipped.large += 1
        elif is_compressed(value):
            skipped.compressed += 1
        else:
            sample = Sample(record.key, value, record.headers)
            heapq.heappush(self._heap, (-self._random.random(), self.seen, sample))
            self._bytes += len(value)
            while self._bytes > self._max_bytes:
                self._bytes -= len(heapq.heappop(self._heap)[2].value)

    def taken(self) -> list[Sample]:
        """Return the samples, in the order of reading."""
        return [sample for _, _, sample in sorted(self._heap, key=lambda entry: entry[1])]

    def close(self) -> None:
        """Close the chain's session."""
        self._session.close()


def _before_compress(chain: Chain | None) -> Chain:
    """Return the part of a chain that decodes values to what `compress` got on send."""
    steps: list[Any] = [
        step
        for step in (chain or ())
        if isinstance(step, Interceptor)
        and type(step).decodes
        and step.place is not None
        and step.place >= Place.COMPRESS
    ]
    if not any(isinstance(step, Compress) for step in steps):
        steps.insert(0, Compress())
    return raising(steps)  # what is refused is counted


def sample(messages: Iterable[Sequence[Message]], samples: Samples) -> Samples:
    """Add all messages of a reader's batches to the samples."""
    from headerware.kafka.messages import record_of  # noqa: PLC0415 - only this needs a client

    for batch in messages:
        for message in batch:
            try:
                samples.add(record_of(message))
            except HeaderError:
                samples.skipped.encoded += 1
    return samples


class Trained(NamedTuple):
    """A dictionary, and how far it compressed the samples that were kept out of its training."""

    dictionary: Dictionary
    samples: int
    held_out: int
    plain_bytes: int
    without_bytes: int
    with_bytes: int


def train(samples: Sequence[Sample], *, size_bytes: int = DICTIONARY_BYTES) -> Trained:
    """Train a dictionary on four fifths of the samples, and measure it on the rest.

    Args:
        samples: the samples to train on; 100 times the dictionary's size is enough.
        size_bytes: the size of the dictionary.

    Raises:
        DictionaryError: there are too few samples, or they have nothing in common.
    """
    values = [each.value for each in samples]
    if len(values) < _MIN_SAMPLES:
        raise DictionaryError(
            f"expected at least {_MIN_SAMPLES} records to train on, found {len(values)}; read more records "
            "of the topic"
        )
    held_out = values[::_HELD_OUT]
    learnt: list[Any] = [value for index, value in enumerate(values) if index % _HELD_OUT]
    try:
        content = zstandard.train_dictionary(size_bytes, learnt, level=_LEVEL).as_bytes()
        dictionary = Dictionary(content)
        compress = dictionary_compressor(content, _LEVEL)
    except zstandard.ZstdError as error:
        raise DictionaryError(
            f"zstd cannot make a dictionary from {len(learnt)} records of {sum(map(len, learnt)):,} bytes "
            f"({error}); read more records of the topic, or choose a smaller dictionary"
        ) from error
    plain = zstandard.ZstdCompressor(level=_LEVEL).compress
    made = Trained(
        dictionary,
        len(values),
        len(held_out),
        sum(map(len, held_out)),
        sum(len(plain(value)) for value in held_out),
        sum(len(compress(value)) for value in held_out),
    )
    if made.with_bytes >= min(made.plain_bytes, made.without_bytes):
        raise DictionaryError(
            f"the records have too little in common for a dictionary: {made.plain_bytes:,} bytes of records "
            f"outside the training become {made.without_bytes:,} with zstd alone, and {made.with_bytes:,} "
            "with the dictionary"
        )
    return made


# Measure what compression saves

Record_ = Literal["none", "zstd", "dictionary"]


class Figures(msgspec.Struct, frozen=True):
    """The sizes and CPU times of one way to compress.

    Args:
        record: how each value is compressed.
        batch: whether batches are compressed, as with ``compression.type=zstd``.
        encrypted: whether ``encrypt`` encrypts values after each is compressed, before the batch is.
        bytes_per_record: a record's share of its batch, in Kafka's record format.
        ratio: how many times larger a record is without compression and encryption.
        write_us: CPU time per record of ``compress``, ``encrypt`` and the batch's compression, in
            microseconds.
        read_us: CPU time per record to undo them, in microseconds.
    """

    record: Record_
    batch: bool
    encrypted: bool
    bytes_per_record: float
    ratio: float
    write_us: float
    read_us: float


class Evaluation(msgspec.Struct, frozen=True):
    """The figures of all ways to compress some samples, and advice in words."""

    records: int
    batch_records: int
    figures: tuple[Figures, ...]
    plain_advice: str
    encrypted_advice: str

    def best(self, *, encrypted: bool) -> Figures:
        """Return the figures of the simplest way whose size is within 5% of the smallest."""
        found = [each for each in self.figures if each.encrypted is encrypted]
        least = min(each.bytes_per_record for each in found)
        return min(
            (each for each in found if each.bytes_per_record <= least * _TOLERANCE),
            key=lambda each: (_STEPS[each.record] + each.batch, each.bytes_per_record),
        )


_TOLERANCE: Final = 1.05
"""A more complex way is advised only if it saves at least a twentieth."""
_STEPS: Final[dict[Record_, int]] = {"none": 0, "zstd": 1, "dictionary": 2}


def evaluate(samples: Sequence[Sample], dictionary: Dictionary, *, batch_records: int = 100) -> Evaluation:
    """Measure compression by record, by batch and by both, with and without encryption.

    The interceptors ``compress`` and ``encrypt`` do the work, with their defaults and a key from a keyring
    file.

    Args:
        samples: records that the dictionary was not trained on.
        dictionary: the dictionary for compression by record.
        batch_records: how many records a producer's batch has.

    Raises:
        DictionaryError: there are no samples, or zstd cannot use the dictionary.
    """
    if not samples:
        raise DictionaryError("expected records to evaluate compression on, found none")
    ways: list[tuple[Record_, bool, bool]] = [
        (record, batch, encrypted)
        for encrypted in (False, True)
        for record in ("none", "zstd", "dictionary")
        for batch in (False, True)
    ]
    with TemporaryDirectory() as folder:
        steps = _Ways(Path(folder), dictionary)
        figures = tuple(_measured(samples, steps, way, batch_records=batch_records) for way in ways)
    found = Evaluation(len(samples), batch_records, figures, "", "")
    return msgspec.structs.replace(
        found,
        plain_advice=_advice(found, encrypted=False),
        encrypted_advice=_advice(found, encrypted=True),
    )


def split(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return the samples to train on, and the samples to measure with."""
    return [each for index, each in enumerate(samples) if index % 2], list(samples[::2])


class _Ways:
    """The interceptors of each way to compress, with a temporary dictionary store and keyring."""

    def __init__(self, folder: Path, dictionary: Dictionary) -> None:
        store = FolderDictionaries(path=str(folder / "dictionaries"))
        publish(store.open(), dictionary, _TOPIC)
        keyring = str(folder / "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, _TOPIC, "aes-256"), create=True)
        self._compress: dict[Record_, tuple[object, ...]] = {
            "none": (),
            "zstd": (Compress(),),
            "dictionary": (Compress(dictionaries=store),),
        }
        self._encrypt = Encrypt(key_service=FileKeys(keyring=keyring), key_id=_TOPIC, cluster=_CLUSTER)

    def chain(self, record: Record_, *, encrypted: bool) -> Chain:
        return Chain([*self._compress[record], *((self._encrypt,) if encrypted else ())])


def _measured(
    samples: Sequence[Sample], ways: _Ways, way: tuple[Record_, bool, bool], *, batch_records: int
) -> Figures:
    record, batch, encrypted = way
    plain = [Record(_TOPIC, each.value, each.key, each.headers) for each in samples]
    with ways.chain(record, encrypted=encrypted).open() as session:
        # Call the steps directly: samples may have headers that a session refuses from an application.
        steps: list[Any] = [step.opened for step in session.steps]
        for step in steps:
            step.on_send(plain[0])  # fetches keys and dictionaries before the clock starts
        began = time.process_time()
        wire = plain
        for step in steps:
            wire = [step.on_send(each) for each in wire]
        writing_s = time.process_time() - began
        began = time.process_time()
        read = wire
        for step in reversed(steps):
            read = [step.on_consume(each) for each in read]
        reading_s = time.process_time() - began
    frames = list(_batches(wire, batch_records))
    if batch:
        began = time.process_time()
        compressor = zstandard.ZstdCompressor(level=_LEVEL)
        frames = [compressor.compress(frame) for frame in frames]
        writing_s += time.process_time() - began
        began = time.process_time()
        decompressor = zstandard.ZstdDecompressor()
        for frame in frames:
            decompressor.decompress(frame)
        reading_s += time.process_time() - began
    size, count = sum(map(len, frames)), len(samples)
    plain_bytes = sum(map(len, _batches(plain, batch_records)))
    return Figures(
        record,
        batch,
        encrypted,
        size / count,
        plain_bytes / size,
        writing_s / count * 1e6,
        reading_s / count * 1e6,
    )


def _batches(samples: Sequence[Record], batch_records: int) -> Iterator[bytes]:
    """Yield the records of each batch in Kafka's record format 2, without the batch's header of 61 bytes."""
    for start in range(0, len(samples), batch_records):
        yield b"".join(
            _framed(index, each) for index, each in enumerate(samples[start : start + batch_records])
        )


def _framed(index: int, record: Record) -> bytes:
    parts = [b"\0", _varint(0), _varint(index), *_sized(record.key), *_sized(record.value)]
    parts.append(_varint(len(record.headers)))
    for name, value in record.headers:
        parts += (*_sized(name.encode()), *_sized(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    return (_varint(-1), b"") if content is None else (_varint(len(content)), content)


def _varint(number: int) -> bytes:
    """Return a number in Kafka's encoding: zigzag, then seven bits per byte."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _advice(found: Evaluation, *, encrypted: bool) -> str:
    """Return advice in words, from the figures."""
    best = found.best(encrypted=encrypted)
    sizes = {
        (each.record, each.batch): f"{each.bytes_per_record:.0f}"
        for each in found.figures
        if each.encrypted is encrypted
    }
    where = "If values are encrypted" if encrypted else "Without encryption"
    if best.record == "none" and not best.batch:
        return f"{where}, do not compress: no way makes these records a twentieth smaller."
    compress = {"none": "", "zstd": "compress without a dictionary", "dictionary": "use the dictionary"}
    batch = "compression.type=zstd" if best.batch else ""
    do = " and ".join(filter(None, (compress[best.record], f"set {batch}" if batch else "")))
    text = f"{where}, {do}: {best.bytes_per_record:.0f} bytes a record instead of {sizes['none', False]}. "
    if best.record == "none":
        alone, both = sizes["dictionary", False], sizes["dictionary", True]
        return f"{text}A dictionary alone gives {alone}, and both together {both}."
    if best.record == "dictionary":
        without, alone = sizes["zstd", best.batch], sizes["none", True]
        return f"{text}Without a dictionary it is {without}, and with batch compression alone {alone}."
    return f"{text}A dictionary would give {sizes['dictionary', best.batch]}."
