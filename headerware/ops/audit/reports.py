"""Read the reports of an audit from their topic, and make rows of usage from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec
from confluent_kafka import KafkaException

from headerware.core.errors import ConfigError, HeaderwareError, WireFormatError
from headerware.interceptors.audit import AuditReport, decode_report
from headerware.kafka.reader import BEGINNING, Start, TopicReader
from headerware.ops.chargeback.usage import Usage, audited_reads


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an audit topic.

    Args:
        reports: the reports.
        malformed: how many records are not reports.
    """

    reports: tuple[AuditReport, ...] = ()
    malformed: int = 0


def read_reports(
    conf: Mapping[str, Any], topic: str, *, from_ms: int | None = None, timeout_s: float = 60.0
) -> Reports:
    """Return the reports that a topic has now.

    Args:
        conf: the settings of a client of confluent-kafka.
        topic: the audit topic.
        from_ms: leave out reports written before this time, in milliseconds since the epoch.
        timeout_s: how long reading may take, in seconds.

    Raises:
        HeaderwareError: the topic does not exist, or cannot be read in time.
    """
    reports: list[AuditReport] = []
    malformed = 0
    committed = {**conf, "isolation.level": "read_committed"}
    try:
        with TopicReader(committed, topic, group_id="headerware-audit", timeout_s=timeout_s) as reader:
            reader.start(BEGINNING if from_ms is None else Start("time", from_ms))
            for message in chain.from_iterable(reader.to_end()):
                try:
                    reports.append(decode_report(message.value()))
                except WireFormatError:
                    malformed += 1
    except ConfigError as error:
        raise ConfigError(f"the audit topic {error}") from error
    except KafkaException as error:
        raise HeaderwareError(f"the audit topic {topic!r} cannot be read: {error.args[0].str()}") from error
    return Reports(reports=tuple(reports), malformed=malformed)


def audit_usage(reports: Iterable[AuditReport]) -> Iterator[Usage]:
    """Return the records that consumer groups read, as rows for :func:`headerware.ops.chargeback.charge`.

    Records and bytes are counted as the application gets them: a message in slices is one record, and its
    size is the size of its key and value before compression. A record that was read again counts again. A
    record whose timestamp is out of range counts in the first hour of 1970 or in the last hour of the year
    9999.

    Args:
        reports: the reports; a repeated report counts once.
    """
    seen: set[tuple[str, int]] = set()

    def counts() -> Iterator[tuple[str, str | None, int, int, int]]:
        for report in reports:
            if report.side != "consumer" or (report.session, report.sequence) in seen:
                continue
            seen.add((report.session, report.sequence))
            for each in report.counts:
                if not each.given:  # records that were given up were counted as consumed too
                    yield each.topic, report.group, each.bucket, each.records, each.bytes

    return audited_reads(counts())
