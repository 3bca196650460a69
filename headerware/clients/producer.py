"""The producer: confluent-kafka's, with a chain before every record and after every report."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from threading import get_ident
from types import TracebackType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headerware.clients.batches import Sendable, error_of, message_records, to_record
from headerware.clients.cluster import cluster_id_port
from headerware.clients.deliveries import Deliveries, DeliveryCallback, JointDelivery
from headerware.clients.groups import clamped
from headerware.clients.messages import wire_headers
from headerware.clients.partitions import PartitionPicker
from headerware.clients.raw import become_raw
from headerware.clients.settings import boolean, flattened, merged, number
from headerware.core.chain import Chain
from headerware.core.config import client_chain
from headerware.core.context import Context
from headerware.core.errors import HeaderError, HeaderwareError, InterceptorError
from headerware.core.fold import Outcome
from headerware.core.headers import EMPTY, Headers, HeadersLike
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record

_C: Final[Any] = confluent_kafka.Producer
_c_init, _c_produce, _c_poll, _c_flush, _c_len, _c_close = (
    _C.__init__,
    _C.produce,
    _C.poll,
    _C.flush,
    _C.__len__,
    _C.close,
)
# Without the detour through type.__call__, a sixth of a microsecond.
_normalised: Final = Headers.__new__
_CHUNK: Final = 500
_ROOM_POLL_S: Final = 0.05
_PUBLISH_TIMEOUT_S: Final = 30.0
_log = logging.getLogger("headerware")


class Producer(confluent_kafka.Producer):
    """Produce to Kafka through a chain; a drop-in for ``confluent_kafka.Producer``.

    Args:
        conf: confluent-kafka's configuration, with the chain's own keys (``interceptors``,
            ``interceptors.*``, ``headerware.config``) among it; keywords are merged into it.
        chain: the chain, where code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    Without a chain it is the raw client: its methods are confluent-kafka's own. Delivery reports carry
    the application's key, value and headers. May be used by several threads; hooks run on the thread
    that sends, acknowledgements and callbacks on the one that polls.
    """

    chain: Chain
    """The chain; empty for a raw client."""

    def __init__(self, *args: Any, chain: Chain | None = None, **conf: Any) -> None:
        given = merged(args, conf)
        if given is None:
            _c_init(self, *args, **conf)  # raises what confluent-kafka raises
            raise TypeError("expected configuration dict")
        self.chain, rest = client_chain(given, chain)
        if not self.chain:
            become_raw(self, _RawProducer)
            _c_init(self, rest)
            return
        self._open(flattened(rest))

    def _open(self, conf: dict[str, Any]) -> None:
        session = self._session = self.chain.open(self._context(conf))
        try:
            default = _callback_of(conf)
            only_errors = boolean(conf, "delivery.report.only.error", default=False)
            self._deliveries = Deliveries(session, only_errors=only_errors)
            # Interceptors hear of successes too, and a message's last slice may be one.
            conf["delivery.report.only.error"] = False
            _c_init(self, conf)
        except BaseException:
            session.close()
            raise
        self._send = session.send_outcome
        self._arrived = self._deliveries.arrived
        self._default = default
        self._reports_all = self._deliveries.acknowledges
        self._max_messages = number(conf, "queue.buffering.max.messages", 100_000)
        self._max_bytes = number(conf, "queue.buffering.max.kbytes", 1_048_576) * 1024
        self._serving: set[int] = set()
        self._finish = weakref.finalize(self, session.close)

    def _context(self, conf: Mapping[str, Any]) -> Context:
        reference = weakref.ref(self)

        def publish(record: Record) -> None:
            live = reference()
            if live is not None:
                live._publish(record)

        return Context(
            side="producer",
            client_id=conf.get("client.id"),
            cluster_id=cluster_id_port(self),
            publish=publish,
            pick_partition=PartitionPicker(self, str(conf.get("partitioner", "consistent_random"))),
            max_message_bytes=number(conf, "message.max.bytes", 1_000_000),
        )

    # Sending

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersLike = None,
    ) -> None:
        """Send a record through the chain and queue it for delivery.

        Args:
            topic: the topic.
            value: the payload; bytes or text, unless the chain serializes; None is a tombstone.
            key: the key, likewise.
            partition: the partition; -1 leaves it to the partitioner.
            callback: called with ``(error, message)`` by ``poll`` or ``flush``, once for the record.
            on_delivery: another name for ``callback``.
            timestamp: milliseconds since the epoch; 0 is now.
            headers: a mapping or pairs.

        Raises:
            HeaderwareError: an interceptor refused the record.
            BufferError: the queue is full, or could never hold all slices of the message.
            KafkaException: librdkafka refused it.

        A record that a hook drops is reported with a policy violation. Slices of one message wait for
        room in the queue by polling, so that callbacks may run inside this call.
        """
        try:
            given = _normalised(Headers, headers) if headers else EMPTY
        except HeaderError as error:
            self._deliveries.failed(Record(topic, value, key), error)
            raise
        record = Record(topic, value, key, given, None if partition == -1 else partition, timestamp or None)
        sent = self._send(record)
        user = callback or on_delivery or self._default
        if sent.__class__ is not Record:
            self._answer(record, sent, user)
            return
        report = partial(self._arrived, record, sent, user) if user is not None or self._reports_all else None
        try:
            if sent is record:
                try:
                    _c_produce(self, topic, value, key, partition, report, None, timestamp, headers)
                except TypeError:  # headers in a form that only we take
                    _queue(self, sent, report)
            else:
                _queue(self, sent, report)
        except Exception as error:
            self._deliveries.failed(sent, error)
            raise

    def produce_many(
        self,
        topic: str,
        records: Iterable[Sendable],
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> list[Exception | None]:
        """Send many records, headers and timestamps included; a bad one takes no neighbour along.

        Args:
            topic: the topic of all of them.
            records: Records, or mappings with any of ``value``, ``key``, ``headers``, ``partition``,
                ``timestamp`` (milliseconds since the epoch) and ``on_delivery`` (or ``callback``).
            on_delivery: called once for each record that was queued, where it has none of its own.

        Returns:
            for each record, in order, None if it was queued, else what ``produce`` would have raised.
        """
        errors: list[Exception | None] = []
        remaining = iter(records)
        while chunk := list(islice(remaining, _CHUNK)):
            errors.extend(self._send_chunk(topic, chunk, on_delivery))
        return errors

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Send a list of dicts as confluent-kafka's does, but with their headers and timestamps.

        Returns:
            how many were queued; each of the others has a KafkaError under ``_error``.
        """
        records = message_records(messages, partition)
        errors = self.produce_many(topic, records, on_delivery=callback or on_delivery)
        for message, error in zip(messages, errors, strict=True):
            if error is not None:
                message["_error"] = error_of(error)
        return errors.count(None)

    def _send_chunk(
        self, topic: str, chunk: Sequence[Sendable], on_delivery: DeliveryCallback | None
    ) -> list[Exception | None]:
        """Send through the batch forms of the hooks, and answer for each record alone."""
        errors: list[Exception | None] = [None] * len(chunk)
        going: list[tuple[int, Record, DeliveryCallback | None]] = []
        for index, item in enumerate(chunk):
            try:
                record, own = to_record(topic, item)
            except (HeaderwareError, TypeError) as error:
                self._deliveries.failed(Record(topic), error)
                errors[index] = error
                continue
            going.append((index, record, own or on_delivery or self._default))
        outcomes = self._session.send_outcomes([record for _, record, _ in going])
        for (index, record, user), outcome in zip(going, outcomes, strict=True):
            try:
                self._dispatch(record, outcome, user)
            except Exception as error:  # noqa: BLE001 - it is this record's result
                errors[index] = error
        return errors

    def _dispatch(self, record: Record, outcome: Outcome, user: DeliveryCallback | None) -> None:
        if not isinstance(outcome, Record):
            self._answer(record, outcome, user)
            return
        report = partial(self._arrived, record, outcome, user) if self._reports_all or user else None
        try:
            _queue(self, outcome, report)
        except Exception as error:
            self._deliveries.failed(outcome, error)
            raise

    def _answer(self, record: Record, outcome: Any, user: DeliveryCallback | None) -> None:
        """Deal with an outcome that is not one record."""
        if outcome is DROP:
            self._deliveries.dropped(record, user)
        elif isinstance(outcome, HeaderwareError):
            self._deliveries.failed(getattr(outcome, "last_record", None) or record, outcome)
            raise outcome
        else:
            self._fan_out(record, outcome, user)

    # Several records for one

    def _fan_out(
        self, record: Record, pieces: list[Record] | FanOut, user: DeliveryCallback | None
    ) -> None:
        joint = JointDelivery(self._deliveries, record, user)
        try:
            self._require_room(record, pieces)
            sent = self._queue_all(iter(pieces), joint)
        except BaseException as error:
            joint.cancel()
            self._deliveries.failed(joint.sent, error)
            raise
        if not sent:
            self._deliveries.dropped(record, user)

    def _queue_all(self, pieces: Any, joint: JointDelivery) -> int:
        """Queue piece after piece; only two are held at a time."""
        count = 0
        piece: Record | None = next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            count += 1
            if count == 1:
                joint.began(piece)
            if following is None:
                joint.expected = count
            self._queue_with_patience(piece, joint)
            piece = following
        return count

    def _queue_with_patience(self, piece: Record, report: JointDelivery) -> None:
        while True:
            try:
                _queue(self, piece, report)
            except BufferError:
                # Inside a callback, polling again would abort the process; the message fails as one.
                if get_ident() in self._serving:
                    raise
                self._deliveries.waits += 1
                self._make_room()
            else:
                return

    def _make_room(self) -> None:
        """Serve reports; what callbacks raise comes out of the next ``poll`` or ``flush``."""
        try:
            self._serve_c(_c_poll, _ROOM_POLL_S)
        except Exception as raised:  # noqa: BLE001 - it belongs to the callback's record, not to this one
            self._deliveries.deferred.append(raised)

    def _require_room(self, record: Record, pieces: list[Record] | FanOut) -> None:
        """Refuse a message, before its first piece, whose pieces could never all be queued.

        Raises:
            BufferError: what there is of them, and what the queue holds.
            InterceptorError: there are none, for an interceptor holds the record back.
        """
        count = len(pieces)
        if not count:
            raise InterceptorError(
                "an interceptor holds the record back on send, and a producer cannot wait for it",
                topic=record.topic,
            )
        size = pieces.size_bytes if isinstance(pieces, FanOut) else sum(_size(piece) for piece in pieces)
        if 0 < self._max_messages < count or size > self._max_bytes:
            raise BufferError(
                f"Local: Queue full: a message of {count} slices and {size} bytes could never fit a queue of "
                f"{self._max_messages} messages and {self._max_bytes} bytes (queue.buffering.max.*)"
            )

    # Reports

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports and other events for up to ``timeout`` seconds, and count them."""
        served = self._deliveries.serve() if self._deliveries or self._deliveries.deferred else 0
        return served + (self._serve_c(_c_poll, 0 if served else timeout) or 0)

    def flush(self, timeout: float = -1) -> int:
        """Wait up to ``timeout`` seconds for all records to be reported, and count those that are left."""
        for outcome in self._session.flush():
            for released in [outcome] if isinstance(outcome, Record) else outcome or ():  # type: ignore[union-attr]
                _queue(self, released, None)
        try:
            self._deliveries.serve()
        finally:
            left = self._serve_c(_c_flush, timeout) or 0
        return left + len(self._deliveries)

    def __len__(self) -> int:
        return _c_len(self) + len(self._deliveries)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit the transaction, as confluent-kafka does, and serve all reports."""
        self._deliveries.serve()
        self._serve_c(_C.commit_transaction, timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction, as confluent-kafka does; its records are reported as purged."""
        self._deliveries.serve()
        self._serve_c(_C.abort_transaction, timeout)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit a consumer's offsets with the transaction, held back to what its chain has delivered whole."""
        _C.send_offsets_to_transaction(self, clamped(group_metadata, positions), group_metadata, timeout)

    def _serve_c(self, serve: Any, timeout: float) -> Any:
        """Call a C method that runs callbacks, and know meanwhile that this thread is inside them."""
        ident = get_ident()
        if ident in self._serving:
            return None  # confluent-kafka aborts the process when a callback polls again
        self._serving.add(ident)
        try:
            return serve(self, timeout)
        finally:
            self._serving.discard(ident)

    # Beside the stream

    def stats(self) -> dict[str, dict[str, int]]:
        """Give the counters of each interceptor, and those of the client under ``client``."""
        queued = {"queued": _c_len(self), "reports_queued": len(self._deliveries)}
        return {**self._session.stats(), "client": {**queued, "waits_for_room": self._deliveries.waits}}

    def _publish(self, record: Record) -> None:
        """Send a finished record past the chain, and return once it is stored."""
        if get_ident() in self._serving:
            raise KafkaException(KafkaError(KafkaError._STATE, "cannot wait for a delivery inside a callback"))
        reports: list[KafkaError | None] = []
        _queue(self, record, lambda error, _: reports.append(error))
        deadline = time.monotonic() + _PUBLISH_TIMEOUT_S
        while not reports and time.monotonic() < deadline:
            self._make_room()
        if not reports:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the record was not delivered in time"))
        if reports[0] is not None:
            raise KafkaException(reports[0])

    # The end

    def close(self) -> bool:
        """Flush, close the client, and close the interceptors, once; give True."""
        if not self._finish.alive:
            return _c_close(self)
        try:
            try:
                self._deliveries.serve()
            finally:
                ident = get_ident()
                self._serving.add(ident)
                closed = _c_close(self)
        finally:
            self._serving.discard(ident)
            self._send = _as_it_is
            self._deliveries.close()
            self._finish()
        return closed

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.chain!r}>"


class _RawProducer(Producer):
    """A producer with an empty chain: the C methods themselves."""

    __slots__ = ()

    produce = _C.produce  # type: ignore[assignment]
    produce_batch = _C.produce_batch
    poll = _C.poll
    flush = _C.flush
    __len__ = _C.__len__
    commit_transaction = _C.commit_transaction
    abort_transaction = _C.abort_transaction
    send_offsets_to_transaction = _C.send_offsets_to_transaction
    close = _C.close
    __exit__ = _C.__exit__  # type: ignore[assignment]

    def produce_many(
        self,
        topic: str,
        records: Iterable[Sendable],
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> list[Exception | None]:
        errors: list[Exception | None] = []
        for item in records:
            try:
                record, own = to_record(topic, item)
                _queue(self, record, own or on_delivery)
            except Exception as error:  # noqa: BLE001 - it is this record's result
                errors.append(error)
            else:
                errors.append(None)
        return errors

    def stats(self) -> dict[str, dict[str, int]]:
        return {"client": {"queued": len(self)}}


def _queue(client: Producer, record: Record, report: Any) -> None:
    """Give a record to librdkafka as it is."""
    _c_produce(
        client,
        record.topic,
        record.value,
        record.key,
        -1 if record.partition is None else record.partition,
        report,
        None,  # type: ignore[arg-type]  # no second callback
        record.timestamp_ms or 0,
        wire_headers(record.headers),
    )


def _callback_of(conf: dict[str, Any]) -> DeliveryCallback | None:
    """Take the default callback out of the configuration; what cannot be called is confluent-kafka's to refuse."""
    found: DeliveryCallback | None = None
    for name in ("dr_cb", "on_delivery"):
        if callable(conf.get(name)):
            found = conf.pop(name)
    return found


def _as_it_is(record: Record) -> Outcome:
    return record


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")
