"""The sink of a Delta or Iceberg table: a replayed batch is appended once.

A batch is replayed if the driver ended between the table's commit and the ledger's. The name of the output
and the number of the batch are stored in the table's own commit, so both appear together or not at all:

=======  =======================================================  ======================================
format   stored as                                                compared
=======  =======================================================  ======================================
Delta    transaction: ``txnAppId`` and ``txnVersion``             by Delta, as it commits
Iceberg  summary of the snapshot: ``headerware-output`` and       here, before a replay writes, along the
         ``headerware-batch``                                     ancestors of the branch's snapshot
=======  =======================================================  ======================================

The name of an output is ``<query id>/<work>``: rows and dead letters may go to one table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.core.errors import ConfigError
from headerware.spark_bridge.batches.storage import LedgerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headerware.spark_bridge.batches.sinks import Batch, Sink


_OUTPUT: Final = "headerware-output"
_BATCH: Final = "headerware-batch"


def table_sink(
    table: str | os.PathLike[str],
    *,
    format: Literal["delta", "iceberg"],  # noqa: A002 - Spark's name
    options: Mapping[str, Any] | None = None,
) -> Sink:
    """Append each batch to a Delta or Iceberg table, exactly once.

    The session must have the format's package and settings. A table that does not exist is created with the
    frame's columns; create it beforehand for partitions or properties.

    Args:
        table: the table's name in a catalog; for Delta also its path, which has a slash.
        format: ``delta`` or ``iceberg``.
        options: more options of the DataFrameWriter, such as ``mergeSchema``.

    Raises:
        ConfigError: the format is another one, an Iceberg table is given by its path, or an option is one
            that this sink sets. A query fails with LedgerError if Iceberg's snapshots have expired so far
            that nobody can know whether a batch was written.
    """
    name = os.fspath(table)
    is_path = isinstance(table, os.PathLike) or "/" in name
    if format not in _SINKS:
        raise ConfigError(
            f"expected delta or iceberg, found {format!r}; write other formats by writer_sink(...)",
            path="format",
        )
    if not name or (is_path and format == "iceberg"):
        raise ConfigError(f"expected the name of a table in a catalog, found {name!r}", path="table")
    sink = _SINKS[format]
    own = {option.lower() for option in sink.mark("", 0)}
    for option in options or {}:
        if option.lower() in own:
            raise ConfigError("this option marks the batch, and the sink sets it itself", path=option)
    return sink(name, is_path=is_path, options=dict(options or {}))


class _TableSink:
    """Append a batch with its mark, and let Delta compare the marks."""

    format = "delta"

    def __init__(self, table: str, *, is_path: bool, options: dict[str, Any]) -> None:
        self._table = table
        self._is_path = is_path
        self._options = options

    @staticmethod
    def mark(output: str, batch: int) -> dict[str, Any]:
        """Return the options that store the batch in the table's commit."""
        return {"txnAppId": output, "txnVersion": batch}

    def write(self, frame: DataFrame, batch: Batch) -> None:
        """Append a batch, unless the table has it."""
        if not self._is_written(batch):
            options = {**self._options, **self.mark(batch.output, batch.id)}
            writer = frame.write.format(self.format).mode("append").options(**options)
            (writer.save if self._is_path else writer.saveAsTable)(self._table)
        if batch.is_replay and not batch.decoded.by_row and not batch.decoded.counts:
            # The table had the batch, so no rows were computed; audit and metrics count as they are.
            frame.write.format("noop").mode("overwrite").save()

    def _is_written(self, batch: Batch) -> bool:  # noqa: ARG002 - Delta compares as it commits
        return False


class _IcebergSink(_TableSink):
    """Compare the marks of a replay with those of the table's snapshots."""

    format = "iceberg"

    def __init__(self, table: str, *, is_path: bool, options: dict[str, Any]) -> None:
        super().__init__(table, is_path=is_path, options=options)
        self._is_open = False

    @staticmethod
    def mark(output: str, batch: int) -> dict[str, Any]:
        return {f"snapshot-property.{_OUTPUT}": output, f"snapshot-property.{_BATCH}": batch}

    def _is_written(self, batch: Batch) -> bool:
        # The first batch may be a replay of which the ledger does not know: the ledger may have been deleted.
        if self._is_open and not batch.is_replay:
            return False
        self._is_open = True
        catalog = batch.spark.catalog
        if not catalog.tableExists(self._table):
            return False
        catalog.refreshTable(self._table)  # a killed driver may have written since the catalog cached it
        last = last_batch(*self._history(batch), batch.output)
        if last is None and batch.is_replay:
            raise LedgerError(
                f"table {self._table}: expected a snapshot of an earlier batch of {batch.output}, found that "
                f"older snapshots have expired, so nobody knows whether batch {batch.id} was written before "
                "the driver ended. While the query is stopped, look for the batch's rows in the table, and "
                f"delete them if they are there; then delete begun/{batch.id:012d}-* in the ledger. Keep "
                "snapshots for longer than the query may be stopped"
            )
        return last is not None and last >= batch.id

    def _history(self, batch: Batch) -> tuple[int | None, dict[int, Snapshot]]:
        """Return the id of the branch's snapshot, and all snapshots by id."""
        spark = batch.spark
        name = self._table if "." in self._table else f"{spark.catalog.currentDatabase()}.{self._table}"
        branches = spark.read.table(f"{name}.refs").where("type = 'BRANCH'")
        heads = {row[0]: row[1] for row in branches.select("name", "snapshot_id").collect()}
        summary = F.col("summary")
        rows = spark.read.table(f"{name}.snapshots").select(
            "snapshot_id", "parent_id", summary[_OUTPUT], summary[_BATCH].cast("long")
        )
        branch = spark.conf.get("spark.wap.branch", "main")
        return heads.get(branch, heads.get("main")), {row[0]: Snapshot(*row[1:]) for row in rows.collect()}


class Snapshot(NamedTuple):
    """The parent of a snapshot, and the output and batch that it has, if it was written by a table sink."""

    parent: int | None
    output: str | None
    batch: int | None


def last_batch(head: int | None, snapshots: Mapping[int, Snapshot], output: str) -> int | None:
    """Return the last batch of an output on a branch, -1 if there is none, None if nobody can know.

    Snapshots expire from the oldest on, so that a parent may be unknown.
    """
    while head is not None:
        snapshot = snapshots.get(head)
        if snapshot is None or snapshot.output == output:
            return snapshot and snapshot.batch
        head = snapshot.parent
    return -1


_SINKS: Final[Mapping[str, type[_TableSink]]] = {"delta": _TableSink, "iceberg": _IcebergSink}
