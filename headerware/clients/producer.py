"""The producer: confluent-kafka's, with a chain before every record and after every report."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import inf
from types import TracebackType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException

from headerware.clients.batches import Sendable, error_of, first_callback, message_records, to_record
from headerware.clients.cluster import cluster_id_port
from headerware.clients.dead_letters import unstored
from headerware.clients.deliveries import Deliveries, DeliveryCallback
from headerware.clients.messages import wire_headers
from headerware.clients.partitions import PartitionPicker
from headerware.clients.producer_fan_out import FanOutProducer
from headerware.clients.producer_reports import queue
from headerware.clients.raw import (
    has_plain_names,
    needs_more_than_c,
    of_our_types,
    plain_headers,
    unless_chained,
)
from headerware.clients.serde_errors import as_client_error
from headerware.clients.settings import boolean, flattened, merged, number
from headerware.core.chain import Chain
from headerware.core.client_chain import client_chain
from headerware.core.context import Context
from headerware.core.errors import HeaderwareError
from headerware.core.headers import EMPTY, Headers, HeadersLike
from headerware.core.hooks import DROP
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record
from headerware.core.runner import Outcome

_C: Final[Any] = confluent_kafka.Producer
_c_init, _c_produce, _c_len, _c_close = _C.__init__, _C.produce, _C.__len__, _C.close
# Without the detour through type.__call__, a sixth of a microsecond.
_normalised: Final = Headers.__new__
_CHUNK: Final = 500
_TIMEOUT_MS: Final = 300_000
"""librdkafka's default of delivery.timeout.ms; 0 is no limit."""


class Producer(FanOutProducer):
    """Produce to Kafka through a chain; a drop-in for ``confluent_kafka.Producer``.

    Args:
        conf: confluent-kafka's configuration, with the chain's own keys (``interceptors``,
            ``interceptors.*``, ``headerware.config``) among it; keywords are merged into it.
        chain: the chain, where code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    Without a chain it is the raw client: confluent-kafka's own methods answer. Delivery reports carry
    the application's key, value and headers. May be used by several threads; hooks run on the thread
    that sends, acknowledgements and callbacks on the one that polls.
    """

    chain: Chain = Chain()
    """The chain; empty for a raw client."""

    def __init__(self, *args: Any, chain: Chain | None = None, **conf: Any) -> None:
        given = merged(args, conf)
        if given is None:
            _c_init(self, *args, **conf)  # raises what confluent-kafka raises
            raise TypeError("expected configuration dict")
        self.chain, rest = self._chain_for(given, chain)
        if not self.chain:
            _c_init(self, rest)
            return
        self._open(flattened(rest))

    def _chain_for(self, conf: dict[str, Any], chain: Chain | None) -> tuple[Chain, dict[str, Any]]:
        """Find the chain, and what of the configuration remains for the client itself."""
        return client_chain(conf, chain)

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
        timeout_ms = number(conf, "message.timeout.ms", _TIMEOUT_MS)
        timeout_ms = number(conf, "delivery.timeout.ms", timeout_ms)
        self._patience_s = timeout_ms / 1000 if timeout_ms > 0 else inf
        self._finish = weakref.finalize(self, session.close)
        self._chained = True

    def _context(self, conf: Mapping[str, Any]) -> Context:
        reference = weakref.ref(self)

        def publish(record: Record) -> None:
            live = reference()
            if live is None:
                return
            try:
                live._publish(record)  # noqa: SLF001 - the client itself, without a cycle
            except (KafkaException, BufferError) as error:
                raise unstored(record, error) from error

        return Context(
            side="producer",
            client_id=conf.get("client.id"),
            cluster_id=cluster_id_port(self, conf),
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
        if not self._chained:
            if headers is not None and not has_plain_names(headers):
                headers = plain_headers(headers)
            try:
                _c_produce(self, topic, value, key, partition, callback, on_delivery, timestamp, headers)
            except TypeError:
                record = of_our_types(topic, value, key, headers)
                if record is None:
                    raise
                wire, value, key = wire_headers(record.headers), record.value, record.key
                _c_produce(self, topic, value, key, partition, callback, on_delivery, timestamp, wire)
            return
        try:
            given = EMPTY if headers is None else _normalised(Headers, headers)
            user = self._default
            if callback is not None or on_delivery is not None:
                user = first_callback(callback, on_delivery)
        except Exception as error:
            pass_on_interrupt(error)
            self._deliveries.failed(Record(topic, value, key), error)
            raise
        record = Record(topic, value, key, given, None if partition == -1 else partition, timestamp or None)
        sent = self._send(record)
        if sent.__class__ is not Record:
            self._answer(record, sent, user)
            return
        report = partial(self._arrived, record, sent, user) if user is not None or self._reports_all else None
        try:
            if sent is record:
                # Not the caller's own headers: confluent-kafka would take an id for the text of its number.
                wire = list(given) if given else None
                _c_produce(self, topic, value, key, partition, report, None, timestamp, wire)
            else:
                queue(self, sent, report)
        except Exception as error:
            pass_on_interrupt(error)  # the record may be queued, and is acknowledged then
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
        send = self._send_chunk if self._chained else self._send_raw
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
        """Send a list of dicts as confluent-kafka's does, but with their headers and timestamps.

        Returns:
            how many were queued; each of the others has a KafkaError under ``_error``.
        """
        if not self._chained and not needs_more_than_c(topic, messages):
            sent: int = _C.produce_batch(self, topic, messages, partition, callback, on_delivery)
            return sent
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        records = message_records(messages, partition)
        errors = self.produce_many(topic, records, on_delivery=first_callback(callback, on_delivery))
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
                user = first_callback(own, on_delivery, self._default)
            except Exception as error:  # noqa: BLE001 - it is this record's result
                pass_on_interrupt(error)
                self._deliveries.failed(Record(topic), error)
                errors[index] = error
                continue
            going.append((index, record, user))
        outcomes = self._session.send_outcomes([record for _, record, _ in going])
        for (index, record, user), outcome in zip(going, outcomes, strict=True):
            try:
                self._dispatch(record, outcome, user)
            except Exception as error:  # noqa: BLE001 - it is this record's result
                pass_on_interrupt(error)
                errors[index] = error
        return errors

    def _send_raw(
        self, topic: str, chunk: Sequence[Sendable], on_delivery: DeliveryCallback | None
    ) -> list[Exception | None]:
        errors: list[Exception | None] = []
        for item in chunk:
            try:
                record, own = to_record(topic, item)
                Producer.produce(
                    self,
                    topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    first_callback(own, on_delivery),
                    timestamp=record.timestamp_ms or 0,
                    headers=record.headers,
                )
            except Exception as error:  # noqa: BLE001 - it is this record's result
                pass_on_interrupt(error)
                errors.append(error)
            else:
                errors.append(None)
        return errors

    def _dispatch(self, record: Record, outcome: Outcome, user: DeliveryCallback | None) -> None:
        if not isinstance(outcome, Record):
            self._answer(record, outcome, user)
            return
        report = (
            partial(self._arrived, record, outcome, user) if self._reports_all or user is not None else None
        )
        try:
            queue(self, outcome, report)
        except Exception as error:
            pass_on_interrupt(error)  # as above
            self._deliveries.failed(outcome, error)
            raise

    def _answer(self, record: Record, outcome: Any, user: DeliveryCallback | None) -> None:
        """Deal with an outcome that is not one record."""
        if outcome is DROP:
            self._deliveries.dropped(record, user)
        elif isinstance(outcome, HeaderwareError):
            self._deliveries.failed(getattr(outcome, "last_record", None) or record, outcome)
            raise as_client_error(outcome, "send")
        else:
            self._fan_out(record, outcome, user)

    # Beside the stream

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        if not self._chained:
            return {"client": {"queued": _c_len(self)}}
        queued = {"queued": _c_len(self), "reports_queued": len(self._deliveries)}
        return {**self._session.stats(), "client": {**queued, "waits_for_room": self._deliveries.waits}}

    # The end

    @unless_chained(_c_close)
    def close(self) -> bool:
        """Flush, close the client, and close the interceptors, once; give True."""
        if not self._finish.alive:
            return True
        closed: bool
        try:
            try:
                self._deliveries.serve()
            finally:
                closed = self._run_callbacks(_c_close)
        finally:
            self._send = _as_it_is
            self._deliveries.close()
            self._finish()
        return closed

    @unless_chained(_C.__exit__)
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.chain!r}>"


def _callback_of(conf: dict[str, Any]) -> DeliveryCallback | None:
    """Take the default callback out of the configuration; confluent-kafka refuses what cannot be called."""
    found: DeliveryCallback | None = None
    for name in ("dr_cb", "on_delivery"):
        if callable(conf.get(name)):
            found = conf.pop(name)
    return found


def _as_it_is(record: Record) -> Outcome:
    return record
