"""Count usage from a frame of the Kafka connector, in one pass over its records.

SQL in the JVM extracts from each record its topic, partition, hour, size, the few bytes that name its owner
and producer, and its message if it is a slice. Only these go to the Python workers; keys, values and headers
do not, except that the headers of a record with a packed block of header ids go there as text. Headers are
found by their names and by their compact keys.

Reads by committed offsets are counted in the same pass: each record becomes a row for coming in, and one for
each group that read it.

A message in slices names its owner and producer in its first slice only. Slices are summed by their message,
and take the names from that slice after the sums, when there are few rows.

An hour is its beginning in UTC; null for a record whose time no calendar reaches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.errors import ConfigError
from headerware.interceptors.slice.header import HEADER_BYTES as SLICE_HEADER_BYTES
from headerware.interceptors.slice.header import SLICE_HEADER
from headerware.interceptors.trail import TRAIL_HEADER
from headerware.ops.chargeback.names import MAX_OWNER_BYTES, OPENING, OWNER_HEADER, TIMELESS
from headerware.ops.chargeback.reads import Covered, GroupOffset, ReadRange, Reads, read_ranges
from headerware.ops.chargeback.rules import BEYOND_CALENDARS, HOUR_SECONDS
from headerware.ops.chargeback.sizes import HEADER_BYTES, RECORD_BYTES
from headerware.ops.chargeback.usage import Usage
from headerware.registry.names import default_names
from headerware.registry.wire.compact_keys import compact_key
from headerware.registry.wire.packed_block import HEADER as PACKED_HEADER
from headerware.spark_bridge.chargeback.executor_sums import COUNTED
from headerware.spark_bridge.executors.shipping import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession


USAGE: Final = (
    "hour timestamp, topic string, owner string, producer string, direction string, group string, "
    "records bigint, bytes bigint, malformed bigint, source string"
)
"""The schema of usage: the fields of ``headerware.ops.chargeback.Usage``."""
KEYS: Final = ("hour", "topic", "owner", "producer", "direction", "group", "source")
"""The columns of usage that are not sums."""
OFFSETS: Final = "group string, topic string, partition int, offset bigint, at timestamp"
"""The schema of offsets that consumer groups had committed at a moment."""
_RECORDS: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "timestamp": "timestamp",
}
"""The columns that a frame of records needs, with Spark's names of their types."""
_POSITIONS: Final[Mapping[str, str]] = {"partition": "int", "offset": "bigint"}
"""Further columns that are needed to count reads by committed offsets."""
_AUDIT: Final[Mapping[str, str]] = {
    "group": "string",
    "topic": "string",
    "hour": "timestamp",
    "records": "bigint",
    "bytes": "bigint",
}
"""The columns of the consumers' own counts; ``owner`` and ``producer``, strings, are optional."""
_ADVICE: Final = {"headers": "; read the topic with option('includeHeaders', 'true')"}
_COUNT: Final = "headerware.spark_bridge.chargeback.executor_sums:count"
_IN: Final = "struct('in' AS direction, cast(null AS string) AS group, hour)"
_OUT: Final = """
    transform(filter(ranges, found -> offset >= found.begin AND offset < found.end),
        found -> struct('out' AS direction, found.group AS group, found.hour AS hour))
"""
_RANGE: Final = "struct<group: string, begin: bigint, end: bigint, hour: bigint>"
_SUMS: Final = ("records", "bytes", "malformed")
_BY: Final = ("hour", "topic", "owner", "producer", "direction", "group")
_MESSAGE: Final = ("topic", "partition", "message")
_RANGES: Final = f"topic string, partition int, ranges array<{_RANGE}>"
_SIZE: Final = f"""
    {RECORD_BYTES} + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)
    + coalesce(aggregate(headers, 0, (sum, header) -> sum + {HEADER_BYTES}
        + octet_length(header.key) + coalesce(octet_length(header.value), 0)), 0)
"""
_PACKED: Final = f"""
    CASE WHEN exists(headers, header -> header.key = '{PACKED_HEADER}')
    THEN array_join(transform(headers, header ->
        concat(hex(header.key), ':', coalesce(hex(header.value), '-'))), ',') END
"""


def usage(
    frame: DataFrame,
    *,
    audit: DataFrame | None = None,
    offsets: Iterable[GroupOffset] = (),
    covered: Iterable[Covered] | None = None,
) -> DataFrame:
    """Return records and bytes by hour, topic, owner, producer, direction and consumer group.

    Reads of a group and topic come from ``audit`` if it has them, else from committed offsets; other reads
    are unknown, and have rows that say so. Without ``audit`` and offsets, the frame has no outgoing rows.

    Slices of a message have the owner and producer that its first slice names, if the frame holds it. A
    message is identified by topic, message id and, if the frame has the column, partition.

    Args:
        frame: records as they are on the wire, as the Kafka connector returns them with ``includeHeaders``;
            not decoded, since sizes and header ids are those of the wire.
        audit: the consumers' counts of their own reads: ``group, topic, hour, records, bytes``, and
            optionally ``owner`` and ``producer``.
        offsets: the committed offsets of groups, at two moments or more.
        covered: the offsets that the frame holds, needed with ``offsets``; if None, one more pass over the
            frame finds its smallest and largest.

    Raises:
        ConfigError: a frame lacks a column or has one of another type.
    """
    taken = list(offsets)
    _require_columns(frame, _RECORDS, "frame")
    if taken:
        _require_columns(frame, _POSITIONS, "frame")
    reads = read_ranges(taken, _covered(frame, covered)) if taken else Reads()
    found = _counted(_with_reads(_extracted(frame, positions=bool(taken)), reads.ranges))
    if reads.rows:
        found = found.unionByName(_usage_frame(frame.sparkSession, reads.rows))
    return found if audit is None else _with_audit(found, audit)


def usage_rows(frame: DataFrame) -> Iterator[Usage]:
    """Return a frame of usage row by row, for :func:`headerware.ops.chargeback.charge`.

    Args:
        frame: the result of :func:`~headerware.spark_bridge.chargeback.usage`, or the same read from Parquet.
            It is computed once, with one partition at a time in the driver's memory.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    names = list(Usage.__struct_fields__)
    # Spark's timestamps come to Python in the driver's own time zone; seconds have none.
    plain = frame.withColumn("hour", sql.unix_seconds("hour")).select(names)
    for row in plain.toLocalIterator():
        fields: dict[str, Any] = row.asDict()
        if fields["hour"] is not None:
            fields["hour"] = datetime.fromtimestamp(fields["hour"], UTC)
        yield msgspec.convert(fields, Usage)


def _extracted(frame: DataFrame, *, positions: bool) -> DataFrame:
    """Return only the columns from which names and sizes are read."""
    partition = ["partition"] if dict(frame.dtypes).get("partition") == "int" else [_null("partition", "int")]
    kept = ["offset"] if positions else []
    extracted = frame.select(
        "topic",
        *partition,
        *kept,
        _hour_number().alias("hour"),
        _size_bytes().alias("bytes"),
        _owner_value().alias("owner"),
        _trail_value().alias("trail"),
        _slice_value().alias("slice"),
        _packed_headers().alias("packed"),
    )
    return extracted.withColumn("opening", _opening_of("trail")).drop("trail")


def _with_reads(extracted: DataFrame, ranges: Sequence[ReadRange]) -> DataFrame:
    """Return a row for each incoming record, and a row for each read of a record."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    moved = sql.expr(f"array({_IN})")
    if ranges:
        by_partition = sql.broadcast(_ranges_frame(extracted.sparkSession, ranges))
        extracted = extracted.join(by_partition, ["topic", "partition"], "left")
        moved = sql.expr(f"concat(array({_IN}), coalesce({_OUT}, array()))")
    return extracted.withColumn("moved", sql.explode(moved)).select(
        "topic",
        "partition",
        "moved.hour",
        "moved.direction",
        "moved.group",
        "bytes",
        "owner",
        "opening",
        "slice",
        "packed",
    )


def _counted(moved: DataFrame) -> DataFrame:
    """Return sums by name, on top of the workers' sums of each batch."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    by_message = _summed(moved.mapInArrow(shipped(_COUNT), COUNTED), *_BY, "partition", "message", "first")
    sums = _summed(_carried_over(by_message), *_BY)
    hour = sql.timestamp_seconds(sql.col("hour") * HOUR_SECONDS)
    source = sql.when(sql.col("direction") == "in", "records").otherwise("offsets")
    return sums.withColumns({"hour": hour, "source": source}).select(*_BY, *_SUMS, "source")


def _summed(rows: DataFrame, *by: str) -> DataFrame:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return rows.groupBy(*by).agg(*(sql.sum(name).alias(name) for name in _SUMS))


def _carried_over(sums: DataFrame) -> DataFrame:
    """Give the slices of each message the names of its first slice.

    These names win over a slice's own names: a relay that does not know slices adds its trail to each slice.
    """
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as sql  # noqa: PLC0415

    # Records that are no slices have no message; without spreading they would all go to one task.
    spread = sql.when(sql.col("message").isNull(), sql.xxhash64(*_BY))
    message = Window.partitionBy(*_MESSAGE, spread)
    # The smallest names if there are several, so that the result is always the same.
    names = sql.min(sql.when(sql.col("first"), sql.struct("owner", "producer"))).over(message)
    return sums.withColumn("names", names).withColumns(
        {
            name: sql.coalesce(sql.when(~sql.col("first"), sql.col(f"names.{name}")), sql.col(name))
            for name in ("owner", "producer")
        }
    )


def _covered(frame: DataFrame, covered: Iterable[Covered] | None) -> list[Covered]:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    if covered is not None:
        return list(covered)
    bounds = frame.groupBy("topic", "partition").agg(sql.min("offset"), sql.max("offset") + 1)
    return [Covered(*row) for row in bounds.collect()]


def _ranges_frame(spark: SparkSession, ranges: Sequence[ReadRange]) -> DataFrame:
    by_partition: defaultdict[tuple[str, int], list[tuple[str, int, int, int]]] = defaultdict(list)
    for each in ranges:
        hour = int(each.hour.timestamp()) // HOUR_SECONDS
        by_partition[each.topic, each.partition].append((each.group, each.begin, each.end, hour))
    return spark.createDataFrame([(*partition, found) for partition, found in by_partition.items()], _RANGES)


def _with_audit(found: DataFrame, audit: DataFrame) -> DataFrame:
    """Replace the counts by offsets with audit counts of the same groups and topics."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    _require_columns(audit, _AUDIT, "audit")
    names = dict.fromkeys({"owner", "producer"}.intersection(audit.columns), "string")
    _require_columns(audit, names, "audit")
    seconds = sql.floor(sql.unix_seconds(sql.col("hour")) / HOUR_SECONDS) * HOUR_SECONDS
    audited = audit.select(
        sql.timestamp_seconds(seconds).alias("hour"),
        "topic",
        *(sql.col(name) if name in names else _null(name) for name in ("owner", "producer")),
        sql.lit("out").alias("direction"),
        "group",
        "records",
        "bytes",
        sql.lit("audit").alias("source"),
    )
    counts = (sql.sum("records").alias("records"), sql.sum("bytes").alias("bytes"))
    sums = audited.groupBy(*KEYS).agg(*counts, sql.lit(0).cast("bigint").alias("malformed"))
    others = found.join(audit.select("group", "topic").distinct(), ["group", "topic"], "left_anti")
    return others.select(found.columns).unionByName(sums)


def _null(name: str, kind: str = "string") -> Column:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.lit(None).cast(kind).alias(name)


def _hour_number() -> Column:
    """Return hours since the epoch of ``timestamp``; null for a time that no calendar reaches."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    seconds = sql.unix_seconds(sql.col("timestamp"))
    usable = (seconds >= 0) & (seconds < BEYOND_CALENDARS)
    return sql.when(usable, sql.floor(seconds / HOUR_SECONDS))


def _size_bytes() -> Column:
    """Return a record's size, as :func:`~headerware.ops.chargeback.record_bytes` computes it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(_SIZE).cast("bigint")


def _owner_value() -> Column:
    """Return the value of the last owner header, truncated; null if there is none."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(f"substring({_last(OWNER_HEADER)}, 1, {MAX_OWNER_BYTES})")


def _trail_value() -> Column:
    """Return the value of the last trail; null if there is none."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(_last(TRAIL_HEADER))


def _slice_value() -> Column:
    """Return the value of a slice's header, cut one byte after its size; null if there is none."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(f"substring({_last(SLICE_HEADER)}, 1, {SLICE_HEADER_BYTES + 1})")


def _opening_of(trail: str) -> Column:
    """Return the part of a trail that names the producer, as ``names.trail_opening`` does."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    text = sql.col(trail).cast("string")
    opening = sql.concat(sql.lit(TIMELESS), sql.regexp_extract(text, OPENING, 1))
    return sql.when(text.rlike(OPENING), opening).when(text.isNotNull(), "").cast("binary")


def _packed_headers() -> Column:
    """Return all headers of a record that has a packed block among them, as text; null for all other records.

    The text is ``name:value,name:value``, both in hex, and ``-`` for a null value. An array of structs would
    cost five times as much as all other columns together, even if all of it is null.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(_PACKED)


def _last(name: str) -> str:
    """Return SQL for the value of the last header of a name, in full or as a compact key."""
    header_id = default_names().id_of(name)
    names = f"'{name}'" if header_id is None else f"'{name}', '{compact_key(header_id)}'"
    return f"try_element_at(filter(headers, header -> header.key IN ({names})), -1).value"


def _usage_frame(spark: SparkSession, rows: Iterable[Usage]) -> DataFrame:
    """Make a frame of usage."""
    return spark.createDataFrame([msgspec.structs.astuple(row) for row in rows], USAGE)


def _require_columns(frame: DataFrame, columns: Mapping[str, str], what: str) -> None:
    """Raise ConfigError if a frame lacks a column or has one of another type; ``what`` names the frame."""
    found = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for name, kind in columns.items():
        seen = found.get(name, "no such column")
        if seen != kind:
            raise ConfigError(f"expected {kind}, found {seen}{_ADVICE.get(name, '')}", path=f"{what}.{name}")
