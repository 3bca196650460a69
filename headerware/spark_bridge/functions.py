"""Columns over the headers of a frame, and the same as functions of SQL.

A header is found by Spark's own expressions, which run without Python. A trail is decoded in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType, TimestampType

from headerware.interceptors.trail import TRAIL_HEADER
from headerware.keyring import Keyring, encode_keyring, public_part, read_keyring
from headerware.spark_bridge.chain_source import ChainLike, chain_source
from headerware.spark_bridge.executors.shipping import shipped
from headerware.spark_bridge.frames.schema import HEADERS

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

_ENTRY: Final = [
    StructField("when", TimestampType()),
    StructField("by_whom", StringType()),
    StructField("read_from_cluster", StringType()),
    StructField("read_from_topic", StringType()),
    StructField("produced_into_cluster", StringType()),
    StructField("produced_into_topic", StringType()),
]
TRAIL: Final = ArrayType(StructType(_ENTRY))
"""The entries of a trail, oldest first."""
_PROOF: Final = [StructField("state", StringType()), StructField("key_id", StringType())]
PROVEN_TRAIL: Final = ArrayType(StructType([*_ENTRY, *_PROOF]))
"""The entries of a trail, oldest first, and whether each is proven."""
_OF_HEADERS: Final = f"headers {HEADERS.simpleString()}"
_LAST: Final = "try_element_at(filter(headers, header -> header.key = name), -1).value"
# As in headers_map: sorted by name, and the last of each name. The array of one makes a name for the sorted.
_MAP: Final = """
    transform(
        array(array_sort(transform(headers, (header, at) -> struct(header.key, at, header.value)))),
        all -> map_from_entries(transform(
            filter(all, (each, at) -> at + 1 = size(all) or all[at + 1].key != each.key),
            each -> struct(each.key, each.value)
        ))
    )[0]
"""
_DECODE: Final = "hw_decode_trail"
_SQL: Final = (
    ("hw_header", f"{_OF_HEADERS}, name STRING", "BINARY", _LAST),
    ("hw_headers_map", _OF_HEADERS, "MAP<STRING, BINARY>", _MAP),
    ("hw_trail", _OF_HEADERS, TRAIL.simpleString(), f"{_DECODE}(hw_header(headers, '{TRAIL_HEADER}'))"),
)
"""The functions of SQL: name, parameters, type and body, which Spark puts in place of each call."""


def header(name: str, headers: Column | str = "headers") -> Column:
    """Return the value of a header as a column of bytes; ``.cast("string")`` makes it text.

    Of several headers of one name the last counts; without one the value is null.

    Args:
        name: the header's name.
        headers: the column of headers, as Spark's Kafka connector has it.
    """
    return _last(F.lit(name), headers).alias(name)


def headers_map(headers: Column | str = "headers") -> Column:
    """Return all headers as a map from names to bytes; of several headers of one name the last counts.

    Args:
        headers: the column of headers, as Spark's Kafka connector has it.
    """
    # Sorted by name, because a record may have a hundred thousand headers.
    found = F.array_sort(
        F.transform(headers, lambda each, at: F.struct(each["key"], at.alias("at"), each["value"]))
    )
    # The array of one makes a name for the sorted headers, which are then computed once.
    return F.transform(F.array(found), _last_of_each)[0].alias("headers_map")


def trail(headers: Column | str = "headers") -> Column:
    """Return the paper trail as an array of structs, oldest entry first.

    An entry has ``when``, ``by_whom``, ``read_from_cluster``, ``read_from_topic``, ``produced_into_cluster``
    and ``produced_into_topic``; unknown parts are null. A record without a trail, or with a malformed one,
    has null. Without a signature that covers it a trail is a hint, not a proof.

    Args:
        headers: the column of headers, as Spark's Kafka connector has it.
    """
    found: Column = _trails()(header(TRAIL_HEADER, headers))
    return found.alias("trail")


def proven_trail(
    keyring: Keyring | str | os.PathLike[str],
    *,
    signers: Sequence[str] = (),
    accept_origins: Sequence[str] = (),
    topic: Column | str = "topic",
    key: Column | str = "key",
    value: Column | str = "value",
    headers: Column | str = "headers",
) -> Column:
    """Return the trail as :func:`trail` does, with the proof of each entry that a signed trail has.

    Each entry also has ``state``, which is ``proven``, ``unproven``, ``broken`` or ``read`` (the last entry,
    whose service has not sent the record on), and the ``key_id`` that signed it. A record without a trail has
    an empty array; a malformed trail is null. Values and headers are those after ``decode``, because services
    sign what their applications send.

    Args:
        keyring: the keys of the services, or the path of their file on the driver. Only public halves go to
            the tasks, so entries that an HMAC key has signed are not proven here; a chain in ``decode``
            verifies these.
        signers: services that keys may speak for, as in the options of ``trail``.
        accept_origins: topics whose records may have been copied without an entry, as in the options of
            ``trail``.
        topic: the column of topics.
        key: the column of keys, as bytes.
        value: the column of values, as bytes.
        headers: the column of headers, as Spark's Kafka connector has it.

    Raises:
        KeyringError: the keyring cannot be read.
    """
    import pandas as pd  # noqa: PLC0415 - where a trail is read, and not before

    known = keyring if isinstance(keyring, Keyring) else read_keyring(keyring)
    public = encode_keyring(public_part(known)[0])
    entry = "headerware.spark_bridge.executors.trails:prove_trails"
    prove = shipped(entry, public, tuple(signers), tuple(accept_origins))
    prove.__annotations__ = {"batches": Iterator[tuple[pd.Series, ...]], "return": Iterator[pd.Series]}
    proven = F.pandas_udf(prove, PROVEN_TRAIL)  # type: ignore[attr-defined]  # the types do not know it
    found: Column = proven(topic, key, value, headers)
    return found.alias("trail")


def counters(frame: DataFrame, chain: ChainLike) -> list[Column]:
    """Return the columns that count what a chain did with a frame, for ``observe``.

    ``frame.observe("orders", *counters(frame, chain))`` counts while Spark computes the frame: a listener of
    streaming queries finds the numbers in ``observedMetrics``, and an ``Observation`` has those of a batch. A
    frame that Spark computes twice is counted twice.

    The columns are ``rows``, the rows that passed; ``value_bytes``, the size of their values, if these are
    bytes; and of a frame with ``failures="route"``, ``refused`` and, for each step, ``refused_<step>``.

    Args:
        frame: the result of :func:`decode` or :func:`encode`.
        chain: their chain.
    """
    kinds = {field.name: field.dataType for field in frame.schema}
    routed = "failure" in kinds
    passed = F.col("failure").isNull() if routed else F.lit(True)  # noqa: FBT003 - Spark's signature
    found = {"rows": F.count_if(passed)}
    if isinstance(kinds.get("value"), BinaryType):
        found["value_bytes"] = F.coalesce(F.sum(F.when(passed, F.octet_length("value"))), F.lit(0))
    if routed:
        found["refused"] = F.count_if(~passed)
        for name in chain_source(chain)[1].names:
            found[f"refused_{name}"] = F.count_if(F.col("failure.step") == name)
    return [column.alias(name) for name, column in found.items()]


def register_functions(spark: SparkSession) -> None:
    """Register ``hw_header(headers, name)``, ``hw_headers_map(headers)`` and ``hw_trail(headers)`` for SQL.

    They are temporary functions: they end with the session.

    Args:
        spark: the session.
    """
    spark.udf.register(_DECODE, _trails())
    for name, parameters, kind, body in _SQL:
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({parameters}) RETURNS {kind} RETURN {body}")


def _last_of_each(headers: Column) -> Column:
    """Return a map with the last of each name, of headers that are sorted by name."""

    def is_last(each: Column, at: Column) -> Column:
        return (at + 1 == F.size(headers)) | (headers[at + 1]["key"] != each["key"])

    last = F.filter(headers, is_last)
    return F.map_from_entries(F.transform(last, lambda each: F.struct(each["key"], each["value"])))


def _last(name: Column, headers: Column | str) -> Column:
    """Return the value of the last header of a name."""
    found = F.filter(headers, lambda each: each["key"] == name)
    return F.try_element_at(found, F.lit(-1)).getField("value")


def _trails() -> Any:
    """Return the function of Spark that decodes trails, a series at a time."""
    import pandas as pd  # noqa: PLC0415 - where a trail is read, and not before

    decode = shipped("headerware.spark_bridge.executors.trails:decode_trails")
    series = Iterator[pd.Series]
    decode.__annotations__ = {"batches": series, "return": series}  # by which Spark knows what it takes
    return F.pandas_udf(decode, TRAIL)  # type: ignore[attr-defined]  # the types do not know it
