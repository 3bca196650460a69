"""Encode frames that are to be written to Kafka: the sending half of a chain, on the executors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from opentelemetry.propagate import inject
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import BinaryType, DataType, IntegerType, StructType

from headerware.core.errors import ConfigError
from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.interceptors.trace import Trace
from headerware.spark_bridge.chain_source import (
    ChainLike,
    ChainSource,
    Failures,
    TaskSpec,
    chain_source,
    log,
    require_typed,
)
from headerware.spark_bridge.driver import driver_of
from headerware.spark_bridge.executors.shipping import shipped
from headerware.spark_bridge.frames.arrow_types import require_arrow_type
from headerware.spark_bridge.frames.schema import (
    CARRIED_FROM,
    DIGEST,
    FAILURE,
    HEADERS,
    SOURCE,
    check_written,
    require_free,
    require_mappable,
    same_type,
    struct_from_json,
    with_columns,
)
from headerware.spark_bridge.origin import warn_of_unknown_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headerware.core.chain import Chain
    from headerware.spark_bridge.decoding import Decoded

_ENCODE: Final = "headerware.spark_bridge.executors.encoding:encode"
_RECODE: Final = "headerware.spark_bridge.executors.encoding:decode_and_encode"
_IN_FULL: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How columns that identify a row are written: with nulls, and with instants to the microsecond in UTC. By
default Spark writes milliseconds, so that two rows might have one identity."""
_NO_IDENTITY: Final = (
    "the chain has 'dedup', and the rows no longer say where they were read from (column 'source'); name "
    "columns that identify a row and are the same in a replay: identity=[...]"
)


def encode(
    frame: DataFrame,
    chain: ChainLike,
    *,
    failures: Failures = "fail",
    identity: Collection[str] | None = None,
    job: str | None = None,
    cluster_id: str | None = None,
    partition_counts: Mapping[str, int] | None = None,
    max_message_bytes: int | None = None,
    dead_letter_topic: str = "{topic}.dead-letter",
    dead_letter_headers: Literal["connect", "spring", "headerware"] = "connect",
) -> DataFrame:
    """Encode a frame that is to be written to Kafka through a chain, as a producer encodes its records.

    The result has bytes for key and value, headers, and a column ``partition``; further columns are kept. One
    row may become several (slices), which stay together.

    Args:
        frame: rows with topic and value, and optionally key, headers, partition or timestamp, and with
            ``carried_from``, the headers from which a row carries on: see :func:`keep_headers`. A frame that
            still has ``offset`` was read from Kafka, so its ``partition`` is the one it was read from, not
            the target; drop ``offset`` to choose partitions by column.
        chain: a :class:`Chain`, a flat configuration, or the path of a TOML file, as for :func:`decode`.
        failures: what happens to a row that the chain refuses. ``fail`` fails the job; ``route`` adds a
            column ``failure``: see :func:`split_failures`.
        identity: with ``dedup`` in the chain: the columns that identify a row, and are the same when the
            job runs again. Rows of a micro-batch need no such columns as long as they keep their column
            ``source``, nor does a ``dedup`` that has ``id_from`` or ``id_from_key``.
        job: the name of this job in trails, and the scope of identities; None takes Spark's application name.
        cluster_id: the id of the cluster that is written to, for signatures; None and an
            empty text mean no id; None logs a warning if a step needs the id.
        partition_counts: the number of partitions by topic. A message in slices whose key does not decide
            its partition gets partition 0 of a topic that is not listed.
        max_message_bytes: the largest message that the producer takes, for ``slice``.
        dead_letter_topic: the topic of dead letters; ``{topic}`` is the row's own.
        dead_letter_headers: the names of the headers with the reason: Connect's, Spring's or ours.

    Raises:
        ConfigError: before anything runs: the chain is wrong, or a column is missing or of a wrong type.
    """
    source, loaded = chain_source(chain, "encode")
    if cluster_id is None:
        warn_of_unknown_cluster(loaded, "give cluster_id=KafkaAdmin(spark, options).cluster_id()")
    warn_of_idle_identity(loaded, identity)
    plan = EncodePlan(frame, source, loaded, failures=failures, identity=identity)
    return plan.encoded(
        plan.task_spec(
            job=job,
            cluster_id=cluster_id or None,
            max_message_bytes=max_message_bytes,
            dead_letter_topic=dead_letter_topic,
            dead_letter_headers=dead_letter_headers,
        ),
        carrier=_current_context(loaded),
        partition_counts=partition_counts,
    )


def keep_headers(frame: DataFrame) -> DataFrame:
    """Copy the headers of a frame to a further column, from which ``encode`` carries them on.

    Rows that get other headers, or are made anew from this frame's columns, then continue the trail, and have
    the headers that the chain's ``carry`` names. A row's own headers win.

    Args:
        frame: the frame, as :func:`decode` returned it.

    Returns:
        the frame with the column ``carried_from``, which ``encode`` removes.
    """
    return frame.withColumn(CARRIED_FROM, F.col("headers"))


class EncodePlan:
    """How to encode a frame with a chain."""

    def __init__(
        self,
        frame: DataFrame,
        source: ChainSource,
        chain: Chain,
        *,
        failures: Failures = "fail",
        identity: Collection[str] | None = None,
        occasion: str | None = None,
    ) -> None:
        self._source = source
        self._failures = failures
        self._needs_identities = _needs_identities(chain, identity)
        self._typed = _typed_parts(frame, chain)
        check_written(frame, typed=self._typed)
        require_free(frame, {"failure", DIGEST})
        require_mappable(frame)
        self._frame = frame
        if self._needs_identities:
            self._frame = _with_digest(frame, identity, occasion)
        if "offset" in frame.columns or "partition" not in frame.columns:
            self._frame = self._frame.withColumn("partition", F.lit(None).cast("int"))
        columns: dict[str, DataType] = {"key": BinaryType(), "value": BinaryType(), "headers": HEADERS}
        columns["partition"] = IntegerType()
        kept = [field for field in self._frame.schema.fields if field.name not in {CARRIED_FROM, DIGEST}]
        added = {"failure": FAILURE} if failures == "route" else {}
        self.schema: Final[StructType] = with_columns(StructType(kept), **columns, **added)

    def task_spec(self, *, job: str | None, scope: str | None = None, **settings: Any) -> TaskSpec:
        """Return the specification of the executors' tasks."""
        name = job or driver_of(self._frame.sparkSession).app_name()
        return TaskSpec(
            source=self._source,
            side="producer",
            job=name,
            scope=(scope or name) if self._needs_identities else None,
            failures=self._failures,
            typed=self._typed,
            schema=self.schema.json(),
            **settings,
        )

    def encoded(
        self,
        spec: TaskSpec,
        accumulator: bytes | None = None,
        carrier: Mapping[str, str] | None = None,
        partition_counts: Mapping[str, int] | None = None,
        *,
        decoded: Decoded | None = None,
        topic: str | None = None,
    ) -> DataFrame:
        """Return the encoded frame; if ``decoded`` is the source of this frame, decode in the same pass.

        ``topic`` is the topic of all rows of a decoded frame; None if each row has its own.
        """
        arguments = (spec, accumulator, dict(carrier or {}), dict(partition_counts or {}))
        if decoded is None or DIGEST in self._frame.columns:  # SQL makes the digest, in between
            return self._frame.mapInArrow(shipped(_ENCODE, *arguments), struct_from_json(spec.schema))
        mapped = shipped(_RECODE, *decoded.arguments, *arguments, (self._frame.columns, topic))
        return decoded.read.mapInArrow(mapped, struct_from_json(spec.schema))


def _current_context(chain: Chain) -> dict[str, str]:
    """Return the trace context of the driver as headers, if a step writes it into records."""
    carrier: dict[str, str] = {}
    if any(isinstance(step, Trace) for step in chain):
        inject(carrier)
    return carrier


def _typed_parts(frame: DataFrame, chain: Chain) -> frozenset[str]:
    """Return the parts that a serializer takes as objects, which excludes parts that are bytes."""
    if not any(place_of(step) is Place.SERIALIZE for step in chain):
        return frozenset()
    parts = {
        field.name: field.dataType
        for field in frame.schema.fields
        if field.name in {"key", "value"} and not isinstance(field.dataType, BinaryType)
    }
    require_typed(chain, parts)
    for name, kind in parts.items():
        require_arrow_type(kind, f"column {name}")
    return frozenset(parts)


def _needs_identities(chain: Chain, identity: Collection[str] | None) -> bool:
    """Return whether rows need identities; ``dedup`` with ``id_from`` or ``id_from_key`` makes its own."""
    dedups = [step for step in chain if _dedups(step)]
    own = [getattr(step, "id_from", ()) or getattr(step, "id_from_key", False) for step in dedups]
    return bool(own) and (identity is not None or not all(own))


def warn_of_idle_identity(chain: Iterable[object], identity: Collection[str] | None) -> None:
    """Log that columns were named for identities that no step writes."""
    if identity is not None and not any(map(_dedups, chain)):
        log.warning("identity: the chain that writes has no 'dedup', so rows get no identities")


def _dedups(step: object) -> bool:
    return place_of(step) is Place.DEDUP


def _with_digest(frame: DataFrame, identity: Collection[str] | None, occasion: str | None) -> DataFrame:
    """Add the digest of the columns that identify a row."""
    if identity is None:
        if "source" not in frame.columns or not same_type(frame.schema["source"].dataType, SOURCE):
            raise ConfigError(_NO_IDENTITY, path="identity")
        return frame
    names = [identity] if isinstance(identity, str) else list(identity)
    missing = [name for name in names if name not in frame.columns]
    if missing or not names:
        raise ConfigError(
            f"there is no column {', '.join(missing) or 'named'}; found: {', '.join(frame.columns)}",
            path="identity",
        )
    columns = [F.lit(occasion or "").alias("_occasion"), *map(F.col, names)]
    text = F.to_json(F.struct(*columns), _IN_FULL)
    return frame.withColumn(DIGEST, F.unhex(F.substring(F.sha2(text, 256), 1, 32)))
