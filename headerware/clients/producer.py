"""The producer: confluent-kafka's, with a chain before every record and after every report.

A record goes through ``produce`` in these steps:

1. The chain makes one record, several, none or an error of it.
2. confluent-kafka's own method queues one record. Several records (slices of a message) are queued as there
   is room, and fail together. If there is none, the record is reported as dropped. An error is raised.
3. Delivery reports come through :class:`Deliveries`, to the interceptors and then to the application.
"""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from math import inf
from threading import Timer, get_ident
from types import CodeType, TracebackType
from typing import Any, ClassVar, Final, Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition, cimpl

from headerware.clients.callbacks import call_back, guard_callbacks
from headerware.clients.cluster_id import cluster_id_port
from headerware.clients.compacted_topics import CompactedTopics
from headerware.clients.dead_letters import DeadLetters, close_all, dead_letter_error
from headerware.clients.deliveries import (
    Deliveries,
    DeliveryCallback,
    JointDelivery,
    QueuedReports,
    Report,
    too_large,
)
from headerware.clients.forked import refuse_in_children
from headerware.clients.interrupts import CalledFrom, called_from, on_another_thread
from headerware.clients.live_chain import FollowsFile, LoadedChain
from headerware.clients.offsets import held_back
from headerware.clients.partition_picker import PartitionPicker
from headerware.clients.raw import (
    APPLICATION,
    MSG_SIZE_TOO_LARGE,
    QUEUE_FULL,
    STATE,
    TIMED_OUT,
    instrumented_by,
    unless_chained,
)
from headerware.clients.refused_records import as_client_error
from headerware.clients.sessions import Sessions
from headerware.clients.settings import chain_by_name, flattened, initialise, listen_to_statistics, merged
from headerware.core.batch import Batch
from headerware.core.boundary import normalised, require_numbers, to_wire
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import HeaderError, HeaderwareError, InterceptorError, RecordError, SerdeError
from headerware.core.headers import EMPTY, Headers, HeadersLike
from headerware.core.hooks import DROP, FanOut
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Operation, Record
from headerware.core.runner import Outcome, flat
from headerware.core.session import Session
from headerware.kafka.messages import wire_headers
from headerware.kafka.settings import boolean, bootstrap_servers, number

_TransactionCall = Literal["begin_transaction", "commit_transaction", "abort_transaction"]
Sendable = Record | Mapping[str, Any]
"""A Record, or a mapping with any of value, key, headers, partition, timestamp and on_delivery."""

# Not by the name in confluent_kafka, which instrumentation changes, ours and others'.
_C: Final[Any] = cimpl.Producer
_c_init, _c_produce, _c_poll, _c_flush = _C.__init__, _C.produce, _C.poll, _C.flush
_c_len, _c_close = _C.__len__, _C.close
# This saves a sixth of a microsecond, which type.__call__ takes.
_normalised: Final = Headers.__new__
_CHUNK: Final = 500
_TIMEOUT_MS: Final = 300_000
"""librdkafka's default of delivery.timeout.ms; 0 is no limit."""
_EXPIRY_S: Final = 3.0
"""How long librdkafka may take to notice that a record has timed out; it looks once a second."""
_ROOM_POLL_S: Final = 0.05
SILENT_S: Final = 5.0
"""How long ``close`` waits for deliveries before it says so."""
_PUBLISH_TIMEOUT_S: Final = 30.0
_ITEM_NAMES: Final = frozenset(
    {"value", "key", "headers", "partition", "timestamp", "on_delivery", "callback"}
)
_log: Final = logging.getLogger("headerware")


class Producer(FollowsFile, cimpl.Producer):
    """Produce to Kafka through a chain; a drop-in for ``confluent_kafka.Producer``.

    Args:
        conf: confluent-kafka's configuration, with the chain's own keys (``interceptors``,
            ``interceptors.*``, ``headerware.config``) among it; keywords are merged into it.
        chain: the chain, if code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    Without a chain it is the raw client: confluent-kafka's own methods answer. Delivery reports carry
    the application's key, value and headers. May be used by several threads; hooks run on the thread
    that sends, acknowledgements and callbacks on the one that polls.
    """

    _hw_side = "producer"
    _HW_RUNNING_CALLBACKS: ClassVar[frozenset[CodeType]] = frozenset()
    """The methods within which callbacks run."""
    _hw_order_of_arguments: str = "the second argument is the value here, and the third the key"

    @chain_by_name
    def __init__(self, *args: Any, chain: Chain | None = None, **conf: Any) -> None:
        given = merged(args, conf)
        if given is None:
            _c_init(self, *args, **conf)  # raises as confluent-kafka does
            raise TypeError("expected configuration dict")
        self._hw_chain, rest = self._hw_chain_for(given, chain)
        if not self._hw_may_have_a_chain():
            initialise(_c_init, self, rest)
            return
        self._hw_open(flattened(rest))
        refuse_in_children(self)
        if self._hw_live is not None:
            self._hw_live.follow(self)

    def _hw_open(self, conf: dict[str, Any]) -> None:
        report_producer = DeadLetters(conf)
        self._hw_serving: set[int] = set()
        session = self._hw_chain.open(self._hw_context(conf, report_producer))
        try:
            default = _callback_of(conf)
            only_errors = boolean(conf, "delivery.report.only.error", default=False)
            reports = self._hw_reports = QueuedReports()
            self._hw_deliveries = Deliveries(session, reports, only_errors=only_errors)
            # Interceptors hear of successes too, and a message's last slice may be one.
            conf["delivery.report.only.error"] = False
            reference = weakref.ref(self)
            guard_callbacks(conf)
            listen_to_statistics(conf, session, lambda: _session_of(reference()))
            initialise(_c_init, self, conf)
        except BaseException:
            session.close()
            raise
        self._hw_default = default
        self._hw_max_messages = number(conf, "queue.buffering.max.messages", 100_000)
        self._hw_max_bytes = number(conf, "queue.buffering.max.kbytes", 1_048_576) * 1024
        timeout_ms = number(conf, "message.timeout.ms", _TIMEOUT_MS)
        timeout_ms = number(conf, "delivery.timeout.ms", timeout_ms)
        self._hw_room_timeout_s = timeout_ms / 1000 + _EXPIRY_S if timeout_ms > 0 else inf
        self._hw_sessions = Sessions(self._hw_deliveries, session)
        self._hw_finish = weakref.finalize(self, close_all, self._hw_sessions, report_producer)
        self._hw_chained = True

    def _hw_context(self, conf: Mapping[str, Any], report_producer: DeadLetters) -> Context:
        reference = weakref.ref(self)
        self._hw_max_message_bytes = number(conf, "message.max.bytes", 1_000_000)
        cluster_id = cluster_id_port(self, conf, Producer._hw_is_in_c)

        def publish(record: Record) -> None:
            live = reference()
            if live is None:
                return
            try:
                live._hw_publish(record)  # noqa: SLF001 - the client itself, without a cycle
            except (KafkaException, BufferError) as error:
                raise dead_letter_error(record.topic, error) from error

        picker = PartitionPicker(self, str(conf.get("partitioner", "consistent_random")))
        return Context(
            side="producer",
            client_id=conf.get("client.id"),
            bootstrap_servers=bootstrap_servers(conf),
            instrumented_by=instrumented_by(self),
            cluster_id=cluster_id,
            wait_for_cluster_id=cluster_id.wait,
            publish=publish,
            post=report_producer.post,
            pick_partition=picker,
            is_compacted=CompactedTopics(conf),
            max_message_bytes=self._hw_max_message_bytes,
            transactional=bool(conf.get("transactional.id")),
        )

    # Another chain

    def _hw_use_chain(self, chain: Chain) -> None:
        earlier = self._hw_deliveries
        session = chain.open(earlier.session.context, previous=earlier.session)
        following = earlier.following(session)
        self._hw_sessions.add(following, session)
        self._hw_chain, self._hw_deliveries = chain, following

    def _hw_offer_chain(self, loaded: LoadedChain) -> None:
        if self._hw_live is not None:
            self._hw_live.replace(self, loaded)

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
        if not self._hw_chained:
            if headers is not None and not _has_plain_names(headers):
                headers = _plain_headers(headers)
            if callback is None:
                callback = on_delivery  # with a None as callback, C ignores on_delivery
            try:
                _c_produce(self, topic, value, key, partition, callback, None, timestamp, headers)
            except TypeError:
                record = of_our_types(topic, value, key, headers)
                if record is None:
                    raise
                wire, value, key = wire_headers(record.headers), record.value, record.key
                _c_produce(self, topic, value, key, partition, callback, None, timestamp, wire)
            return
        # A record goes through one chain, also if the chain is replaced meanwhile.
        deliveries = self._hw_deliveries
        try:
            given = EMPTY if headers is None else _normalised(Headers, headers)
            user = self._hw_default
            if callback is not None or on_delivery is not None:
                user = _first_callback(callback, on_delivery)
        except Exception as error:
            pass_on_interrupt(error)
            deliveries.acknowledge_failure(Record(topic, value, key), error)
            raise
        record = Record(topic, value, key, given, None if partition == -1 else partition, timestamp or None)
        sent = deliveries.send(record)
        if sent.__class__ is not Record:
            self._hw_answer(deliveries, record, sent, user)
            return
        reports = user is not None or sent.local is not None or deliveries.acknowledges_all
        original = sent if user is None else record  # nothing is kept in flight that nobody asks for
        report = Report(deliveries, original, sent, user) if reports else deliveries.report_failure
        try:
            if sent is record:
                # Not the caller's own headers: confluent-kafka would write an id as the text of a number.
                wire = list(given) if given else None
                _c_produce(self, topic, value, key, partition, report, None, timestamp, wire)
            else:
                self._hw_produce_wire_record(sent, report)
        except Exception as error:
            pass_on_interrupt(error)  # the record may be queued, and is acknowledged then
            if error.__class__ is not BufferError or not self._hw_queue_later(deliveries, sent, report):
                explained = self._hw_explained(error, sent)
                deliveries.acknowledge_failure(sent, explained)
                if explained is not error:
                    raise explained from error
                raise

    def produce_many(
        self,
        topic: str,
        records: Iterable[Sendable],
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> list[Exception | None]:
        """Send many records, with headers and timestamps; a record that fails does not affect the others.

        Args:
            topic: the topic of all records.
            records: Records, or mappings with any of ``value``, ``key``, ``headers``, ``partition``,
                ``timestamp`` (milliseconds since the epoch) and ``on_delivery`` (or ``callback``).
            on_delivery: called once for each record that was queued, if it has no callback of its own.

        A :class:`~headerware.core.batch.Batch` is sent by columns, if no interceptor hears of deliveries; its
        reports then show the records as they were sent.

        Returns:
            for each record, in order, None if it was queued, or else the exception of ``produce``.
        """
        if isinstance(records, Batch) and records.topic == topic:
            return self._hw_send_batch(records, on_delivery)
        send = self._hw_send_chunk if self._hw_chained else self._hw_send_raw
        errors: list[Exception | None] = []
        remaining = iter(records)
        while chunk := list(islice(remaining, _CHUNK)):
            errors.extend(send(topic, chunk, on_delivery))
        return errors

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Send a list of dicts as confluent-kafka's method does, but with their headers and timestamps.

        Returns:
            the number of queued messages; every other message has a KafkaError under ``_error``.

        Raises:
            TypeError: a message, or a part of one, has a wrong type; none is sent then.
        """
        if not self._hw_chained and not _needs_more_than_c(topic, messages):
            sent: int = _C.produce_batch(
                self, topic, messages, partition, on_delivery if callback is None else callback
            )
            return sent
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        takes_objects = self._hw_chained and self._hw_deliveries.session.takes_objects
        records = _checked_items(topic, messages, partition, takes_objects=takes_objects)
        errors = self.produce_many(topic, records, on_delivery=_first_callback(callback, on_delivery))
        for message, error in zip(messages, errors, strict=True):
            if error is not None:
                message["_error"] = _kafka_error(error)
        return errors.count(None)

    def _hw_send_batch(self, batch: Batch, on_delivery: DeliveryCallback | None) -> list[Exception | None]:
        """Send a batch; if the chain returns a batch, queue it by columns."""
        if not self._hw_chained:
            return self._hw_queue_batch(batch, on_delivery)
        deliveries = self._hw_deliveries
        report = self._hw_default if on_delivery is None else on_delivery
        outcomes = deliveries.session.send_outcomes(batch)
        if deliveries.passes_reports and isinstance(outcomes, Batch):
            reported = deliveries.report_failure if report is None else partial(call_back, report)
            return self._hw_queue_batch(outcomes, reported)
        return [
            self._hw_queue_outcome(deliveries, record, outcome, report)
            for record, outcome in zip(batch, outcomes, strict=True)
        ]

    def _hw_queue_batch(self, batch: Batch, report: DeliveryCallback | None) -> list[Exception | None]:
        """Queue the records of a batch as they are, and return a result for each."""
        topic = batch.topic
        errors: list[Exception | None] = [None] * len(batch)
        columns = zip(
            batch.values, batch.keys, batch.partitions, batch.timestamps_ms, batch.headers, strict=True
        )
        for index, (value, key, partition, timestamp_ms, headers) in enumerate(columns):
            try:
                _c_produce(
                    self,
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    report,
                    None,
                    timestamp_ms or 0,
                    list(headers) if headers else None,
                )
            except TypeError:  # C does not take it, so it goes the longer way
                errors[index] = self._hw_send_raw(topic, [batch[index]], report)[0]
            except Exception as error:  # noqa: BLE001 - it is this record's result
                pass_on_interrupt(error)
                errors[index] = self._hw_explained(error, batch[index])
        return errors

    def _hw_send_chunk(
        self, topic: str, chunk: Sequence[Sendable], on_delivery: DeliveryCallback | None
    ) -> list[Exception | None]:
        """Send records and mappings as a batch, and return a result for each."""
        errors: list[Exception | None] = [None] * len(chunk)
        deliveries = self._hw_deliveries
        shared = self._hw_default if on_delivery is None else on_delivery
        going: list[tuple[int, Record, DeliveryCallback | None]] = []
        for index, item in enumerate(chunk):
            if item.__class__ is Record and item.topic == topic and (shared is None or callable(shared)):
                going.append((index, item, shared))
                continue
            try:
                record, own = _to_record(topic, item)
                user = _first_callback(own, shared)
            except Exception as error:  # noqa: BLE001 - it is this record's result
                pass_on_interrupt(error)
                deliveries.acknowledge_failure(Record(topic), error)
                errors[index] = error
                continue
            going.append((index, record, user))
        outcomes = deliveries.session.send_outcomes([record for _, record, _ in going])
        results: Iterable[Exception | None]
        if (
            deliveries.passes_reports
            and isinstance(outcomes, Batch)
            and not any(user for _, _, user in going)
        ):
            results = self._hw_queue_batch(outcomes, deliveries.report_failure)
        else:
            results = (
                self._hw_queue_outcome(deliveries, record, outcome, user)
                for (_, record, user), outcome in zip(going, outcomes, strict=True)
            )
        for (index, _, _), result in zip(going, results, strict=True):
            errors[index] = result
        return errors

    def _hw_queue_outcome(
        self, deliveries: Deliveries, record: Record, outcome: Any, user: DeliveryCallback | None
    ) -> Exception | None:
        """Queue the outcome of a record, and return the exception that ``produce`` would raise, or None."""
        try:
            if outcome.__class__ is not Record:
                self._hw_answer(deliveries, record, outcome, user)
                return None
            reports = user is not None or outcome.local is not None or deliveries.acknowledges_all
            original = outcome if user is None else record  # nothing is kept in flight that nobody asks for
            report = Report(deliveries, original, outcome, user) if reports else deliveries.report_failure
            try:
                self._hw_produce_wire_record(outcome, report)
            except Exception as error:
                pass_on_interrupt(error)  # as above
                explained = self._hw_explained(error, outcome)
                deliveries.acknowledge_failure(outcome, explained)
                if explained is not error:
                    raise explained from error
                raise
        except Exception as error:  # noqa: BLE001 - it is this record's result
            pass_on_interrupt(error)
            return error
        return None

    def _hw_send_raw(
        self, topic: str, chunk: Sequence[Sendable], on_delivery: DeliveryCallback | None
    ) -> list[Exception | None]:
        errors: list[Exception | None] = []
        for item in chunk:
            if item.__class__ is Record and item.headers.__class__ is Headers:
                try:  # without calls of our own; a record that C does not take goes the longer way
                    _c_produce(
                        self,
                        topic,
                        item.value,
                        item.key,
                        -1 if item.partition is None else item.partition,
                        on_delivery,
                        None,
                        item.timestamp_ms or 0,
                        wire_headers(item.headers),
                    )
                except TypeError:
                    pass
                except Exception as error:  # noqa: BLE001 - it is this record's result
                    pass_on_interrupt(error)
                    errors.append(error)
                    continue
                else:
                    errors.append(None)
                    continue
            try:
                record, own = _to_record(topic, item)
                Producer.produce(
                    self,
                    topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    _first_callback(own, on_delivery),
                    timestamp=record.timestamp_ms or 0,
                    headers=record.headers,
                )
            except Exception as error:  # noqa: BLE001 - it is this record's result
                pass_on_interrupt(error)
                errors.append(error)
            else:
                errors.append(None)
        return errors

    def _hw_answer(
        self, deliveries: Deliveries, record: Record, outcome: Any, user: DeliveryCallback | None
    ) -> None:
        """Report a dropped record, raise an error, or send several records."""
        if outcome is DROP:
            deliveries.queue_dropped(record, user)
        elif isinstance(outcome, HeaderwareError):
            if _seems_swapped(record, outcome):
                _add_advice(outcome, self._hw_order_of_arguments)
            deliveries.acknowledge_failure(getattr(outcome, "last_record", None) or record, outcome)
            raise as_client_error(outcome, "send")
        else:
            self._hw_fan_out(deliveries, record, outcome, user)

    def _hw_publish(self, record: Record) -> None:
        """Send a record without the chain, and return once it is stored."""
        if not self._hw_may_wait():
            raise KafkaException(KafkaError(STATE, "cannot wait for a delivery inside a callback"))
        reports: list[KafkaError | None] = []
        self._hw_produce_wire_record(record, lambda error, _: reports.append(error))
        deadline = time.monotonic() + _PUBLISH_TIMEOUT_S
        while not reports and time.monotonic() < deadline:
            self._hw_make_room()
        if not reports:
            raise KafkaException(KafkaError(TIMED_OUT, "the record was not delivered in time"))
        if reports[0] is not None:
            raise KafkaException(reports[0])

    def _hw_explained(self, error: Exception, record: Record) -> Exception:
        """Return an error, or an error with more facts and advice for it."""
        if isinstance(error, TypeError | OverflowError):
            try:
                require_numbers(record.topic, record.partition, record.timestamp_ms)
            except (RecordError, OverflowError) as explained:
                return explained
        known = error.args[0] if isinstance(error, KafkaException) else None
        if not (self._hw_chained and isinstance(known, KafkaError) and known.code() == MSG_SIZE_TOO_LARGE):
            return error
        limit = f"this producer's message.max.bytes ({self._hw_max_message_bytes})"
        return KafkaException(too_large(record, limit, known))

    def _hw_produce_wire_record(self, record: Record, report: Any) -> None:
        """Queue a record without the chain; ``produce`` does this itself for a record that did not change."""
        _c_produce(
            self,
            record.topic,
            record.value,
            record.key,
            -1 if record.partition is None else record.partition,
            report,
            None,
            record.timestamp_ms or 0,
            wire_headers(record.headers),
        )

    def _hw_queue_later(
        self,
        deliveries: Deliveries,  # noqa: ARG002 - for subclasses that override it
        record: Record,  # noqa: ARG002 - as above
        report: Any,  # noqa: ARG002 - as above
    ) -> bool:
        """Keep a record for which the queue has no room, and return whether that is possible."""
        return False

    # Several records on the wire for one record of the application, which are queued and fail together

    def _hw_fan_out(
        self,
        deliveries: Deliveries,
        record: Record,
        pieces: list[Record] | FanOut,
        user: DeliveryCallback | None,
    ) -> None:
        joint = JointDelivery(deliveries, record, user)
        whole = pieces.whole if isinstance(pieces, FanOut) else next(iter(pieces), None)
        if whole is not None:
            joint.note_first(whole)
        try:
            self._hw_require_room(record, pieces)
            sent = self._hw_queue_pieces(iter(pieces), joint)
        except BaseException as error:
            joint.cancel()
            deliveries.acknowledge_failure(joint.sent, error)
            raise
        if not sent:
            deliveries.queue_dropped(record, user)

    def _hw_queue_pieces(self, pieces: Iterator[Record], joint: JointDelivery) -> int:
        """Queue one piece after the other; only two are in memory at a time."""
        deadline = time.monotonic() + self._hw_room_timeout_s
        count = 0
        piece: Record | None = next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            count += 1
            if count == 1:
                joint.note_first(piece)
            if following is None:
                joint.expected = count
            self._hw_queue_piece(piece, joint, deadline)
            piece = following
        return count

    def _hw_queue_piece(self, piece: Record, joint: JointDelivery, deadline: float) -> None:
        """Queue a piece, waiting for room as long as librdkafka would try to deliver it."""
        while True:
            if joint.error is not None:
                raise KafkaException(joint.error)
            try:
                self._hw_produce_wire_record(piece, joint)
            except BufferError:
                # Inside a callback, another poll would abort the process, so the message fails.
                if not self._hw_may_wait() or time.monotonic() >= deadline:
                    raise
                self._hw_reports.waits += 1
                self._hw_make_room()
            else:
                return

    def _hw_require_room(self, record: Record, pieces: list[Record] | FanOut) -> None:
        """Refuse a message whose pieces never fit the queue, before the first piece is queued."""
        count = len(pieces)
        if not count:
            raise InterceptorError(
                "an interceptor holds the record back on send, and a producer cannot wait for it",
                topic=record.topic,
            )
        size = pieces.size_bytes if isinstance(pieces, FanOut) else sum(_size(piece) for piece in pieces)
        if 0 < self._hw_max_messages < count or size > self._hw_max_bytes:
            raise BufferError(
                f"Local: Queue full: a message of {count} slices and {size} bytes could never fit a queue of "
                f"{self._hw_max_messages} messages and {self._hw_max_bytes} bytes (queue.buffering.max.*)"
            )

    # Delivery reports

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports and other events for up to ``timeout`` seconds, and count them."""
        if not self._hw_chained:
            return _c_poll(self, timeout)  # type: ignore[no-any-return]
        served = self._hw_reports.serve() if self._hw_reports or self._hw_reports.deferred else 0
        polled: int | None = self._hw_serve_c(_c_poll, 0 if served else timeout)
        self._hw_tick()
        return served + (polled or 0)

    def _hw_tick(self) -> None:
        session = self._hw_deliveries.session
        if session.ticks:
            session.tick()

    @unless_chained(_c_flush)
    def flush(self, timeout: float = -1) -> int:
        """Wait up to ``timeout`` seconds for the reports of all records; return how many are left."""
        try:
            self._hw_release()
        finally:
            left = self._hw_await_reports(timeout)
            self._hw_reports.undelivered.tell(at_end=False)
        return left

    def _hw_release(self) -> None:
        """Send the records that interceptors hold back, and report dropped records."""
        for outcome in self._hw_deliveries.session.flush():
            self._hw_send_released(outcome)
        self._hw_reports.serve()

    def _hw_await_reports(self, timeout: float) -> int:
        flushed: int | None = self._hw_serve_c(_c_flush, timeout)
        self._hw_tick()
        left: int = _c_len(self) if flushed is None else flushed
        return left + len(self._hw_reports)

    @unless_chained(_c_len)
    def __len__(self) -> int:
        in_flight: int = _c_len(self)
        return in_flight + len(self._hw_reports)

    def _hw_send_released(self, outcome: Outcome) -> None:
        """Send records that an interceptor held back; ``flush`` raises their errors."""
        try:
            for record in flat(outcome):
                self._hw_produce_wire_record(record, self._hw_reports.undelivered.report)
        except Exception as raised:  # noqa: BLE001 - no other call raises it
            pass_on_interrupt(raised)
            self._hw_reports.deferred.append(raised)

    def _hw_make_room(self) -> None:
        """Serve reports; the next ``poll`` or ``flush`` raises the errors of callbacks."""
        try:
            self._hw_serve_c(_c_poll, _ROOM_POLL_S)
        except Exception as raised:  # noqa: BLE001 - it belongs to the callback's record, not to this one
            pass_on_interrupt(raised)
            self._hw_reports.deferred.append(raised)

    def _hw_serve_c(self, serve: Any, timeout: float) -> Any:
        """Call a C method that runs callbacks, unless this thread is inside one of them."""
        place = self._hw_called_from()
        if place is CalledFrom.IN_CALLBACK:
            return None  # confluent-kafka aborts the process if a callback polls
        if place is CalledFrom.IN_HANDLER_IN_CALLBACK:
            # Some reports come only after the interrupted callback has ended, so this must not wait for ever.
            # All other reports come within the time for which librdkafka tries to deliver.
            timeout = self._hw_room_timeout_s if timeout < 0 else min(timeout, self._hw_room_timeout_s)
        return self._hw_run_callbacks(serve, timeout, place=place)

    def _hw_run_callbacks(self, serve: Any, *arguments: Any, place: CalledFrom = CalledFrom.OUTSIDE) -> Any:
        """Call a C method that runs callbacks; use a thread in a handler that interrupted such a call."""
        if place is not CalledFrom.OUTSIDE:
            return on_another_thread(partial(self._hw_run_callbacks, serve, *arguments))
        ident = get_ident()
        self._hw_serving.add(ident)
        try:
            return serve(self, *arguments)
        finally:
            self._hw_serving.discard(ident)

    def _hw_called_from(self) -> CalledFrom:
        """Return where this call is made: outside, in a callback of this client, or in a signal's handler."""
        if get_ident() not in self._hw_serving:
            return CalledFrom.OUTSIDE
        return called_from(self, self._HW_RUNNING_CALLBACKS, sys._getframe())  # noqa: SLF001 - as inspect does

    def _hw_is_in_c(self) -> bool:
        """Return whether this thread is inside a call into C; then C must not be called again."""
        return self._hw_called_from() is not CalledFrom.OUTSIDE

    def _hw_may_wait(self) -> bool:
        """Return whether a call may wait for reports, which come only after a callback has ended."""
        return self._hw_called_from() in {CalledFrom.OUTSIDE, CalledFrom.IN_HANDLER}

    # Transactions

    @unless_chained(_C.begin_transaction)
    def begin_transaction(self) -> None:
        """Begin a transaction, as confluent-kafka does."""
        begin = partial(self._hw_run_callbacks, _C.begin_transaction, place=self._hw_called_from())
        self._hw_transact("begin_transaction", begin)

    @unless_chained(_C.commit_transaction)
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit the transaction, as confluent-kafka does, and serve all reports.

        Raises:
            KafkaException: the commit failed, or this is called within a callback, which cannot wait.
        """
        self._hw_end_transaction("commit_transaction", _C.commit_transaction, timeout)

    @unless_chained(_C.abort_transaction)
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction, as confluent-kafka does; its records are reported as purged.

        Raises:
            KafkaException: the abort failed, or this is called within a callback, which cannot wait.
        """
        self._hw_end_transaction("abort_transaction", _C.abort_transaction, timeout)

    def _hw_end_transaction(self, name: _TransactionCall, end: Any, timeout: float) -> None:
        place = self._hw_called_from()
        if not self._hw_may_wait():
            raise KafkaException(KafkaError(STATE, "cannot end a transaction inside a callback"))
        self._hw_reports.serve()
        self._hw_transact(name, partial(self._hw_run_callbacks, end, timeout, place=place))
        self._hw_tick()

    def _hw_transact(self, name: _TransactionCall, call: Callable[[], object]) -> None:
        """Make a call, and then tell the interceptors of the operation."""
        began_ns, error = time.time_ns(), None
        try:
            call()
        except BaseException as failure:
            error = failure
            raise
        finally:
            session = self._hw_deliveries.session
            if session.hears_operations:
                session.operation(
                    Operation(name=name, began_ns=began_ns, ended_ns=time.time_ns(), error=error)
                )

    @unless_chained(_C.send_offsets_to_transaction)
    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit a consumer's offsets with the transaction, held back as the consumer's own commits are."""
        arguments = held_back(group_metadata, positions), group_metadata, timeout
        self._hw_run_callbacks(_C.send_offsets_to_transaction, *arguments, place=self._hw_called_from())

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        if not self._hw_chained:
            return {"client": {"queued": _c_len(self)}}
        own = {
            "queued": _c_len(self),
            "reports_queued": len(self._hw_reports),
            "waits_for_room": self._hw_reports.waits,
        }
        if self._hw_live is not None:
            own |= self._hw_live.stats()
        return {**self._hw_deliveries.session.stats(), "client": own}

    # The end

    @unless_chained(_c_close)
    def close(self) -> bool:
        """Flush, close the client, and close the interceptors, once; return True.

        Raises:
            KafkaException: this is called in a callback of the client, or in a signal's handler that
                interrupted a call of the client; that call has to end first.
        """
        if not self._hw_finish.alive:
            return True
        if self._hw_is_in_c():
            raise KafkaException(
                KafkaError(
                    STATE,
                    "cannot close the producer within one of its calls, neither in a callback nor in a "
                    "signal's handler; call flush() there, and close() after the call",
                )
            )
        if self._hw_live is not None:
            self._hw_live.close(self)
        closed: bool
        try:
            try:
                self._hw_reports.serve()
            finally:
                closed = self._hw_close_c()
        finally:
            self._hw_reports.undelivered.tell(at_end=True)
            self._hw_deliveries.close()
            self._hw_finish()
        return closed

    def _hw_close_c(self) -> bool:
        """Close the client, which delivers all records; say so if that takes long."""
        teller = Timer(SILENT_S, self._hw_teller())
        teller.daemon = True
        if _c_len(self):
            with suppress(RuntimeError):  # no thread can start while the interpreter exits
                teller.start()
        try:
            closed: bool = self._hw_run_callbacks(_c_close)
        finally:
            teller.cancel()
        return closed

    def _hw_teller(self) -> Callable[[], None]:
        """Return a function that says that ``close`` waits; it has no reference to the client."""
        servers = self._hw_deliveries.session.context.bootstrap_servers
        return partial(_tell_of_wait, self._hw_room_timeout_s - _EXPIRY_S, servers)

    @unless_chained(_C.__exit__)
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hw_chain!r}>"


Producer._HW_RUNNING_CALLBACKS = frozenset({Producer._hw_run_callbacks.__code__})  # noqa: SLF001 - our own


def _tell_of_wait(limit_s: float, servers: str | None) -> None:
    _log.warning(
        "close() waits%s for records to be delivered to %s",
        "" if limit_s == inf else f" up to {limit_s:g} s",
        servers or "the cluster",
    )


def _session_of(producer: Producer | None) -> Session | None:
    return None if producer is None else producer._hw_deliveries.session  # noqa: SLF001 - our own


# Without a chain


def _has_plain_names(headers: Any) -> bool:
    """Return whether confluent-kafka takes these headers, and none of their names is an id.

    confluent-kafka would send the dotted form of an id as a name. It refuses malformed headers itself.
    """
    # Plain loops, because this runs for every record: all() and a generator take three times as long.
    try:
        if headers.__class__ is list:
            for name, _ in headers:  # noqa: SIM110 - as above
                if name.__class__ is not str:
                    return False
            return True
        if headers.__class__ is dict:
            for name in headers:  # noqa: SIM110 - as above
                if name.__class__ is not str:
                    return False
            return True
    except (TypeError, ValueError):
        return True
    return False


def _plain_headers(headers: Any) -> Any:
    """Return headers as confluent-kafka takes them; return any other object unchanged."""
    try:
        return list(Headers(headers))
    except HeaderError:
        return headers


def of_our_types(topic: Any, value: Any, key: Any, headers: Any) -> Record | None:
    """Return the record of arguments that confluent-kafka refused, or None if a chain refuses them."""
    try:
        return to_wire(normalised(Record(topic, value, key, headers)))
    except HeaderwareError:
        return None


def _needs_more_than_c(topic: Any, messages: Any) -> bool:
    """Return whether a batch has headers or timestamps, which ``produce_batch`` drops or refuses.

    confluent-kafka itself refuses an argument that is not a topic or not a batch.
    """
    if not (isinstance(topic, str) and isinstance(messages, list)):
        return False
    return any(
        isinstance(message, dict) and (message.get("headers") is not None or "timestamp" in message)
        for message in messages
    )


# With a chain


def _callback_of(conf: dict[str, Any]) -> DeliveryCallback | None:
    """Take the default callback out of the configuration; confluent-kafka refuses other objects."""
    found: DeliveryCallback | None = None
    for name in ("dr_cb", "on_delivery"):
        if callable(conf.get(name)):
            found = conf.pop(name)
    return found


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")


def _to_record(topic: str, item: Sendable) -> tuple[Record, Callable[..., Any] | None]:
    """Return the record that an item stands for, and its own callback."""
    if isinstance(item, Record):
        return (item if item.topic == topic else item.replace(topic=topic)), None
    if not isinstance(item, Mapping):
        raise TypeError(f"a record is a Record or a mapping, not {type(item).__name__}")
    unknown = sorted(str(name) for name in item if name not in _ITEM_NAMES)
    if unknown:
        raise TypeError(
            f"unknown keys of a record: {', '.join(unknown)}; known: {', '.join(sorted(_ITEM_NAMES))}"
        )
    partition = item.get("partition")
    record = Record(
        topic,
        item.get("value"),
        item.get("key"),
        Headers(item.get("headers")),
        None if partition in {None, -1} else partition,
        item.get("timestamp") or None,
    )
    return record, _first_callback(item.get("on_delivery"), item.get("callback"))


def _first_callback(*given: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return the first callback that is not None, even if the callable is falsy."""
    for callback in given:
        if callback is not None:
            if not callable(callback):
                raise TypeError(f"expected a callable as callback, found {type(callback).__name__}")
            return callback
    return None


def _checked_items(topic: str, messages: Any, partition: int, *, takes_objects: bool) -> list[dict[str, Any]]:
    """Check a batch of dicts as confluent-kafka does, before any is sent; add the partition to each."""
    if not isinstance(messages, list):
        raise TypeError("messages must be a list")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"Message at index {index} must be a dict")
        for name in ("partition", "timestamp"):
            if not isinstance(message.get(name), int | None):
                raise TypeError(f"Message {name} at index {index} must be int")
        for name in ("on_delivery", "callback"):
            if message.get(name) is not None and not callable(message[name]):
                raise TypeError(f"Message {name} at index {index} must be callable")
        _check_parts(index, topic, message, takes_objects=takes_objects)
    return [
        {"partition": partition}
        | {name: message[name] for name in _ITEM_NAMES if message.get(name) is not None}
        for message in messages
    ]


def _check_parts(index: int, topic: str, message: Mapping[str, Any], *, takes_objects: bool) -> None:
    """Refuse a key, a value or headers of a wrong type; a chain that serializes takes objects."""
    try:
        headers = Headers(message.get("headers"))
        record = normalised(Record(topic, message.get("value"), message.get("key"), headers))
        if not takes_objects:
            to_wire(record)
    except HeaderwareError as error:
        raise TypeError(f"Message at index {index}: {error}") from None


def _seems_swapped(record: Record, error: HeaderwareError) -> bool:
    """Return whether an application seems to have taken the value for the key: the key alone is an object."""
    of_key = isinstance(error, SerdeError) and error.part == "key"
    of_types = isinstance(error, RecordError) or isinstance(error.__cause__, RecordError)
    is_object = not isinstance(record.key, str | bytes | bytearray | memoryview | int | float | None)
    return (of_key or of_types) and is_object and isinstance(record.value, str | bytes | None)


def _add_advice(error: HeaderwareError, advice: str) -> None:
    if isinstance(error, InterceptorError):
        error.message += f"; {advice}"
    else:
        error.args = (f"{error}; {advice}",)


def _kafka_error(error: Exception) -> KafkaError:
    """Return the KafkaError for an error of ``produce``."""
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0]
    if isinstance(error, BufferError):
        return KafkaError(QUEUE_FULL, str(error))
    return KafkaError(APPLICATION, str(error))
