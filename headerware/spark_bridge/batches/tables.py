"""Rows of a ledger: Parquet folders, each written by one attempt at one batch and never changed after.

A folder counts once a committed batch refers to it. What no such batch refers to was left by an attempt
that failed; nobody reads it, and pruning takes it away.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from headerware.spark_bridge.batches.documents import Rows
from headerware.spark_bridge.batches.storage import LedgerError, Storage
from headerware.spark_bridge.frames.schema import RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FOLDER: Final = "rows"

_GLOB: Final = re.compile(r"([\\{}\[\]*?])")

_READING: Final = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""A session that skips lost files would lose records here without a word."""


class Tables:
    """Write and read rows beside a checkpoint.

    Args:
        spark: the session.
        storage: where to.
    """

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._storage = storage

    def write(self, frame: DataFrame, name: str) -> Rows:
        """Write a frame as Parquet, over what a broken-off writing of the same name left."""
        frame.write.mode("overwrite").parquet(self._storage.path(f"{FOLDER}/{name}"))
        files = len(self._storage.names(f"{FOLDER}/{name}"))
        return Rows(name=name, files=files, columns=frame.schema.json())

    def read(self, *tables: Rows) -> DataFrame:
        """Read one or more folders of the same schema.

        Raises:
            LedgerError: where files that were written are not there any more.
        """
        from pyspark.sql.types import StructType  # noqa: PLC0415  where Spark is needed, not before

        for rows in tables:
            self._check(rows)
        schema = StructType.fromJson(json.loads(tables[0].columns))
        return self._spark.read.schema(schema).options(**_READING).parquet(*map(self._path, tables))

    def _path(self, rows: Rows) -> str:
        """Write a path so that Spark, which takes paths for patterns, reads that folder and no other."""
        return _GLOB.sub(r"\\\1", self._storage.path(f"{FOLDER}/{rows.name}"))

    def _check(self, rows: Rows) -> None:
        found = len(self._storage.names(f"{FOLDER}/{rows.name}"))
        if found != rows.files:
            raise LedgerError(
                f"{self._storage.path(FOLDER)}/{rows.name}: expected {rows.files} files of waiting rows or "
                f"identities, found {found}: restore the folder"
            )


def aligned(frame: DataFrame, schema: StructType) -> DataFrame:
    """Bring rows of an earlier run to the columns of now.

    A column that came since is null, one that went is dropped, and the order is that of now.

    Raises:
        LedgerError: where a column's type is another one.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name; where Spark is needed

    before = {field.name: field.dataType for field in frame.schema}
    columns = []
    for field in schema:
        was = before.get(field.name)
        if RAW in before and field.name in {"key", "value"}:
            was = None  # as long as a row waits, what they are is there
        if was is not None and _loose(was.jsonValue()) != _loose(field.dataType.jsonValue()):
            raise LedgerError(
                f"column {field.name}: expected {was.simpleString()}, as in the rows that wait, found "
                f"{field.dataType.simpleString()}: give the new column another name"
            )
        null = F.lit(None).cast(field.dataType).alias(field.name)
        columns.append(null if was is None else F.col(quoted(field.name)))
    return frame.select(columns)


def quoted(name: str) -> str:
    """Write a column's name as an expression, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def _loose(kind: object) -> object:
    """Take a type's JSON without what Parquet forgets: whether something may be null, and metadata."""
    if isinstance(kind, dict):
        forgotten = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {key: _loose(value) for key, value in kind.items() if key not in forgotten}
    return [_loose(each) for each in kind] if isinstance(kind, list) else kind
