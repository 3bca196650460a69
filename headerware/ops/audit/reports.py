"""Read the reports of an audit from their topic, and make rows of usage of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition, cimpl

from headerware.core.errors import HeaderwareError, WireFormatError
from headerware.interceptors.audit import AuditReport, decode_report
from headerware.ops.chargeback.usage import Usage

_HOUR_MS: Final = 3_600_000
_WAIT_S: Final = 0.5


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic of an audit holds.

    Args:
        reports: the reports.
        malformed: how many records are none.
    """

    reports: tuple[AuditReport, ...] = ()
    malformed: int = 0


def read_reports(
    conf: Mapping[str, Any], topic: str, *, from_ms: int | None = None, timeout_s: float = 60.0
) -> Reports:
    """Read the reports that a topic holds now.

    Args:
        conf: the settings of a client of confluent-kafka.
        topic: the topic of the audit.
        from_ms: reports written before this time are left out, in milliseconds since the epoch.
        timeout_s: how long reading may take.

    Raises:
        HeaderwareError: the topic cannot be read, or not in time.
    """
    reports: list[AuditReport] = []
    malformed = 0
    try:
        for value in _values(conf, topic, from_ms, time.monotonic() + timeout_s):
            try:
                reports.append(decode_report(value))
            except WireFormatError:
                malformed += 1
    except KafkaException as error:
        raise HeaderwareError(f"the audit topic {topic!r} cannot be read: {error.args[0].str()}") from error
    return Reports(reports=tuple(reports), malformed=malformed)


def _values(
    conf: Mapping[str, Any], topic: str, from_ms: int | None, deadline: float
) -> Iterator[bytes | None]:
    consumer = cimpl.Consumer(  # never one with a chain
        {
            "group.id": "headerware-audit",  # librdkafka asks for one; it is neither joined nor committed to
            "log_level": 0,  # errors are raised
            **conf,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=_left(topic, deadline)).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        starts = [TopicPartition(topic, number, from_ms or 0) for number in found.partitions]
        if from_ms is not None:
            starts = consumer.offsets_for_times(starts, timeout=_left(topic, deadline))
        open_partitions = set()
        for start in starts:
            low, high = consumer.get_watermark_offsets(start, timeout=_left(topic, deadline))
            start.offset = high if start.offset == OFFSET_END else max(low, start.offset)
            if start.offset < high:
                open_partitions.add(start.partition)
        consumer.assign([start for start in starts if start.partition in open_partitions])
        while open_partitions:
            for message in consumer.consume(500, timeout=min(_WAIT_S, _left(topic, deadline))):
                error = message.error()
                if error is None:
                    yield message.value()
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
                    open_partitions.discard(message.partition())
                elif error.fatal() or not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()


def _left(topic: str, deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise HeaderwareError(f"reading the audit topic {topic!r} took too long; allow more time")
    return left


def audit_usage(reports: Iterable[AuditReport]) -> Iterator[Usage]:
    """Return what consumer groups read, as rows of usage, for :func:`headerware.ops.chargeback.charge`.

    Records and bytes are the application's: a message in slices is one record, and its bytes are those of key
    and value before compression. A record that was read again counts again.

    Args:
        reports: the reports; one that is there twice counts once.
    """
    sums: defaultdict[tuple[str, str | None, int], list[int]] = defaultdict(lambda: [0, 0])
    seen: set[tuple[str, int]] = set()
    for report in reports:
        if report.side != "consumer" or (report.session, report.sequence) in seen:
            continue
        seen.add((report.session, report.sequence))
        for count in report.counts:
            if count.given:  # it has been counted as consumed
                continue
            total = sums[count.topic, report.group, count.bucket // _HOUR_MS]
            total[0] += count.records
            total[1] += count.bytes
    for (topic, group, hour), (records, size) in sorted(sums.items(), key=lambda item: str(item[0])):
        yield Usage(
            hour=datetime.fromtimestamp(hour * 3600, UTC),
            topic=topic,
            direction="out",
            group=group,
            records=records,
            bytes=size,
            source="audit",
        )
