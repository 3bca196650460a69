"""Encode rows; one row may become several rows, which stay together and go to one partition."""

from __future__ import annotations

import hashlib
import pickle
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from opentelemetry.context import attach, detach
from opentelemetry.propagate import extract
from pyspark import TaskContext

from headerware.core.batch import Batch
from headerware.core.carry import AtWork
from headerware.core.errors import InterceptorError, WireFormatError
from headerware.core.headers import EMPTY, Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.interceptors import Identity
from headerware.serdes.serde import PARTS
from headerware.spark_bridge.executors.counts import Part, TaskCounter
from headerware.spark_bridge.executors.decoding import decode_rows
from headerware.spark_bridge.executors.open_chain import OpenChain, TaskPartitionPicker, open_chain
from headerware.spark_bridge.executors.task import Task
from headerware.spark_bridge.frames.output import FLUSH_BYTES, OutputRows
from headerware.spark_bridge.frames.records import (
    column,
    header_lists,
    milliseconds,
    payload_bytes,
    read_parts,
    topics_of,
)
from headerware.spark_bridge.frames.schema import CARRIED_FROM, DIGEST, SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Batches = Iterable[pa.RecordBatch]


_READ: Final = ("topic", "value", "key", "headers", "partition", "timestamp")
"""The columns that become fields of records."""
_MAX_TRACKED: Final = 65_536
_REPEATED: Final = (
    "another row of this batch has the same identity, so that readers would take one for a repeat of the "
    "other; name columns that tell the rows apart: identity=[...]"
)
_NO_SOURCE: Final = "the row does not say where it was read from, and no columns were named as its identity"


def encode(
    spec: bytes, accumulator: bytes, carrier: bytes, counts: bytes
) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that encodes rows; all arguments are pickled, and the accumulator twice."""
    chain = open_chain(spec)
    chain.pick_partition.counts = pickle.loads(counts)  # noqa: S301 - Spark's own channel
    counter = TaskCounter(chain.session, pickle.loads(accumulator))  # noqa: S301 - Spark's own channel
    return _EncodeTask(chain, counter, pickle.loads(carrier))  # noqa: S301 - as above


def decode_and_encode(*arguments: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that decodes rows and encodes them again, for micro-batches without a step in between.

    The arguments are those of `decode_rows`, those of `encode`, and the written columns with the topic.
    """
    *decoding, spec, accumulator, carrier, counts, between = arguments
    decoded = decode_rows(*decoding)
    encoded = encode(spec, accumulator, carrier, counts)
    columns, topic = pickle.loads(between)  # noqa: S301 - Spark's own channel
    return lambda batches: encoded(_to_write(batch, columns, topic) for batch in decoded(batches))


class _EncodeTask(Task):
    """Encode one task's rows."""

    def __init__(self, chain: OpenChain, counter: TaskCounter, carrier: dict[str, str]) -> None:
        super().__init__(chain, counter, ("topic", "key", "value", "headers", "partition"))
        self._carrier = carrier
        self._identities = RowIdentities(chain.spec.scope)

    def _part(self, batch: pa.RecordBatch) -> Part | None:  # noqa: ARG002 - rows need no position
        task = TaskContext.get()
        return None if task is None else (type(self).__name__, task.partitionId())

    def _map_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._counter.counts["records_in"] += batch.num_rows
        self._counter.counts["bytes_in"] += payload_bytes(batch)
        typed = self._chain.spec.typed
        plain = None if typed or self._prepares(batch) else _as_bytes(batch)
        for part, records in read_parts(batch, plain, partial(_records, typed=typed)):
            yield from self._map_part(part, records)

    def _map_part(self, batch: pa.RecordBatch, records: Sequence[Record]) -> Iterator[pa.RecordBatch]:
        rows = OutputRows(batch, self._schema)
        plain, given = records, records
        good: Sequence[int] = range(len(records))
        if not isinstance(records, Batch):
            prepared = self._prepared(batch, records)
            plain = list(map(_with_bytes, records)) if self._chain.spec.typed else records
            for index, error in enumerate(prepared):
                if isinstance(error, InterceptorError):
                    self._refuse(rows, index, plain[index], error)
            good = [index for index, record in enumerate(prepared) if isinstance(record, Record)]
            given = [prepared[at] for at in good]  # type: ignore[misc]  # those are records
        with _trace_context(self._carrier):
            outcomes = self._outcomes(self._session.send_outcomes, given)
            if isinstance(outcomes, Batch) and rows.take_all(outcomes):
                yield self._flush(rows, plain)
                return
            results = zip(good, outcomes, strict=True)
            while (stopped := rows.take(results, {})) is not None:
                index, outcome = stopped
                if outcome.__class__ is not Record and outcome is not DROP:
                    for record in self._expanded(rows, index, plain[index], outcome):
                        rows.add(index, record)
                if rows.size_bytes > FLUSH_BYTES:
                    yield self._flush(rows, plain)
        if len(rows):
            yield self._flush(rows, plain)

    def _prepares(self, batch: pa.RecordBatch) -> bool:
        """Return whether rows get an identity or carried headers before they go through the chain."""
        carries = batch.schema.get_field_index(CARRIED_FROM) >= 0 and bool(self._session.carrying)
        return carries or self._identities.scope is not None

    def _prepared(
        self, batch: pa.RecordBatch, records: Sequence[Record]
    ) -> Sequence[Record | InterceptorError]:
        """Return the records with identities and carried headers, or errors in place of records."""
        prepared: list[Record | InterceptorError] = list(records)
        if self._identities.scope is not None:
            prepared = list(self._identities.of(batch, records))
        if self._chain.spec.typed:
            for index, record in enumerate(records):
                for part in (record.key, record.value):
                    if isinstance(part, InterceptorError):  # the column's value is no object
                        prepared[index] = part
        carried_from = batch.schema.get_field_index(CARRIED_FROM)
        if carried_from >= 0 and self._session.carrying:
            origins = header_lists(batch.column(carried_from))
            prepared = [self._carried(*each) for each in zip(prepared, origins, strict=True)]
        return prepared

    def _carried(self, record: Record | InterceptorError, origin: Headers) -> Record | InterceptorError:
        """Return a record with what it carries on from the headers of its origin."""
        if not (origin and isinstance(record, Record)):
            return record
        topic: object = record.topic
        headers: object = record.headers
        if not (isinstance(topic, str) and isinstance(headers, Headers)):
            return record  # the chain refuses it
        return self._session.carrying.added_to(record, AtWork([Record(topic, headers=origin)]))

    def _flush(self, rows: OutputRows, plain: Sequence[Record]) -> pa.RecordBatch:
        if self._chain.counts_topics:
            self._counter.count_topics(topics_of(rows.going()))
        if self._chain.dedups:
            rows.records = [
                self._identities.with_partition(record, self._chain.pick_partition) for record in rows.records
            ]
        return super()._flush(rows, plain)


@contextmanager
def _trace_context(carrier: Mapping[str, str]) -> Iterator[None]:
    """Make the driver's trace context, which the carrier holds, the current one."""
    if not carrier:
        yield
        return
    token = attach(extract(carrier))
    try:
        yield
    finally:
        detach(token)


class RowIdentities:
    """Give each row an identity that is the same in a replay.

    The identity of a row that was read from Kafka is its position: one producer per partition, and the offset
    as the sequence. For other rows it is the digest of the columns that the user named.
    """

    def __init__(self, scope: str | None) -> None:
        self.scope = scope
        self._producers: dict[tuple[Any, ...], bytes] = {}
        self._seen: dict[bytes, None] = {}

    def of(self, batch: pa.RecordBatch, records: Sequence[Record]) -> Iterator[Record | InterceptorError]:
        """Return the records with their identities, or errors for records that have none."""
        digests = column(batch, DIGEST)
        sources = _sources(batch)
        for record, digest, source in zip(records, digests, sources, strict=False):
            try:
                identity = self._identity(record.topic, digest, source)
            except WireFormatError as error:  # such as for an offset below 0
                yield InterceptorError(str(error), step="dedup", topic=record.topic)
                continue
            if identity is None:
                yield InterceptorError(_NO_SOURCE, step="dedup", topic=record.topic)
            elif self._is_repeated(identity.encode()):
                yield InterceptorError(_REPEATED, step="dedup", topic=record.topic)
            else:
                yield record.with_local("dedup", identity)

    @staticmethod
    def with_partition(record: Record, pick: TaskPartitionPicker) -> Record:
        """Give a record without a key the same partition in a replay, so that one reader sees both."""
        if record.partition is not None or record.key is not None or record.value is None:
            return record
        # Kafka spreads the records of a topic whose number of partitions is unknown.
        return record.replace(partition=pick(record)) if record.topic in pick.counts else record

    def _identity(self, topic: str, digest: bytes | None, source: dict[str, Any] | None) -> Identity | None:
        # The target topic is part of the identity: one row in two topics is two records.
        if digest is not None:
            return Identity(self._producer("key", topic), digest=digest)
        if source is None or None in source.values():
            return None
        return Identity.numbered(
            self._producer("place", topic, source["topic"], source["partition"]), source["offset"]
        )

    def _producer(self, kind: str, *parts: Any) -> bytes:
        producer = self._producers.get((kind, *parts))
        if producer is None:
            producer = self._producers[kind, *parts] = _hashed(kind, self.scope, *parts)
        return producer

    def _is_repeated(self, identity: bytes) -> bool:
        if identity in self._seen:
            return True
        self._seen[identity] = None
        if len(self._seen) > _MAX_TRACKED:
            del self._seen[next(iter(self._seen))]
        return False


def _to_write(batch: pa.RecordBatch, columns: list[str], topic: str | None) -> pa.RecordBatch:
    """Return decoded rows for a sink: without the bridge's columns and the source's partitions."""
    made = {"partition": pa.nulls(batch.num_rows, pa.int32())}
    if topic is not None:
        made["topic"] = pa.repeat(pa.scalar(topic), batch.num_rows)
    arrays = [made[name] if name in made else batch.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=columns)


def _sources(batch: pa.RecordBatch) -> Iterable[Any]:
    """Return where rows were read from; a user's own column of this name does not count."""
    index = batch.schema.get_field_index("source")
    if index < 0 or batch.schema.get_field_index(DIGEST) >= 0:
        return repeat(None)
    column_of = batch.column(index)
    names = {field.name for field in column_of.type} if pa.types.is_struct(column_of.type) else set()
    return column_of.to_pylist() if set(SOURCE.names) <= names else repeat(None)


def _hashed(*parts: object) -> bytes:
    digest = hashlib.sha256(b"headerware.spark/1")
    for part in parts:
        text = str(part).encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return digest.digest()[:16]


def _records(batch: pa.RecordBatch, typed: frozenset[str]) -> list[Record]:
    length = batch.num_rows
    found = batch.schema.get_field_index("headers")
    headers = repeat(EMPTY) if found < 0 else header_lists(batch.column(found))
    columns = (_part_values(batch, "value", typed), _part_values(batch, "key", typed), headers)
    rows = zip(
        column(batch, "topic"), *columns, column(batch, "partition"), milliseconds(batch), strict=False
    )
    return [Record(*row) for row in rows][:length]


def _as_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of records, with text as bytes."""
    names = [name for name in _READ if batch.schema.get_field_index(name) >= 0]
    arrays = [_in_bytes(batch.column(name)) if name in PARTS else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _in_bytes(array: pa.Array) -> pa.Array:
    """Return text as bytes, because Spark does not insist on UTF-8."""
    return array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())


def _part_values(batch: pa.RecordBatch, name: str, typed: frozenset[str]) -> Iterable[Any]:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return repeat(None)
    if name not in typed:
        found: list[bytes | None] = _in_bytes(batch.column(index)).to_pylist()
        return found
    from headerware.spark_bridge.frames.typed_objects import objects  # noqa: PLC0415 - not for bytes

    return objects(batch.column(index))


def _with_bytes(record: Record) -> Record:
    """Return a record for a dead letter: objects, which have no bytes yet, as JSON."""
    return record.replace(key=_to_bytes(record.key), value=_to_bytes(record.value))


def _to_bytes(part: Any) -> bytes | None:
    if isinstance(part, str):
        return part.encode()
    if part is None or isinstance(part, bytes):
        return part
    if isinstance(part, InterceptorError):  # the column held no object
        return None
    return msgspec.json.encode(part, enc_hook=str)
