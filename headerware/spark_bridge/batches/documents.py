"""The ledger's files: JSON documents of attempts and commits, and Parquet tables of the rows they refer to.

A document is one JSON object with a ``version``; a document of another version is refused. Each table is a
folder that one attempt at one batch wrote, and never changes. The table counts once the document of a
committed batch refers to it. A table without such a reference was left by a failed attempt; nobody reads it,
and pruning deletes it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec

from headerware.spark_bridge.batches.storage import LedgerError, Storage
from headerware.spark_bridge.frames.schema import RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


VERSION: Final = 1
_Name = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{12,}-[0-9a-f]{32}-[a-z0-9]+$")]
_Token = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
_Count = Annotated[int, msgspec.Meta(ge=0)]
FOLDER: Final = "rows"
_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_READING: Final = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Without these, a session that skips lost files would lose records silently."""


class StoredRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of rows that an attempt wrote as Parquet."""

    name: _Name
    files: _Count
    """The number of its files, to notice a lost one."""
    columns: str
    """The schema as Spark's JSON, so that no file must be read for it."""


class Segment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identities that one or more batches recorded; ``newest_ms`` is the time of the last batch."""

    rows: StoredRows
    count: _Count
    batches: Annotated[int, msgspec.Meta(ge=1)]
    last_batch: _Count
    newest_ms: int


class BatchAttempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An attempt at a batch, with the chain's fingerprint and the one of the last committed batch."""

    batch: _Count
    token: _Token = msgspec.field(name="attempt")
    now_ms: int
    """The time of the batch's first attempt, in ms since the epoch."""
    chain: str
    previous_chain: str | None
    replay: bool
    """Whether there was an earlier attempt."""
    version: int = VERSION


class Committed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A committed batch."""

    batch: _Count
    attempt: _Token
    now_ms: int
    chain: str
    left: StoredRows | None
    """The rows that wait for the next batch."""
    segments: tuple[Segment, ...]
    """The identities that the next batch is compared with, oldest first."""
    offsets: str | None = None
    """The fingerprint of its end offsets, or None if Spark does not tell them."""
    version: int = VERSION

    def names(self) -> set[str]:
        """Return the names of the tables that it refers to."""
        named = {segment.rows.name for segment in self.segments}
        return named if self.left is None else named | {self.left.name}


class _Versioned(msgspec.Struct):
    version: int


_Document = TypeVar("_Document", BatchAttempt, Committed)


def encode(document: BatchAttempt | Committed) -> str:
    return msgspec.json.encode(document).decode()


def retry_of(first: BatchAttempt, token: str) -> BatchAttempt:
    """Return a further attempt at a batch, with the values that its first attempt fixed."""
    return msgspec.structs.replace(first, token=token, replay=True)


def read(storage: Storage, name: str, kind: type[_Document], remedy: str) -> _Document:
    """Read a document; the error for a damaged one ends with the remedy."""
    text = storage.read_text(name)
    try:
        found = msgspec.json.decode(text, type=_Versioned).version
        if found != VERSION:
            raise LedgerError(
                f"{storage.path(name)}: expected version {VERSION} of the ledger, found {found}: "
                "run the release of headerware that wrote it, or a later one"
            )
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise LedgerError(f"{storage.path(name)} is damaged ({error}): {remedy}") from error


class Tables:
    """Write and read the tables of a ledger."""

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._storage = storage

    def write(self, frame: DataFrame, name: str) -> StoredRows:
        """Write a frame as Parquet; replace what an unfinished write of the same name left."""
        frame.write.mode("overwrite").parquet(self._storage.path(f"{FOLDER}/{name}"))
        files = len(self._storage.names(f"{FOLDER}/{name}"))
        return StoredRows(name=name, files=files, columns=frame.schema.json())

    def read(self, *tables: StoredRows) -> DataFrame:
        """Read one or more tables of the same schema."""
        from pyspark.sql.types import StructType  # noqa: PLC0415  where Spark is needed, not before

        for rows in tables:
            self._check(rows)
        schema = StructType.fromJson(json.loads(tables[0].columns))
        return self._spark.read.schema(schema).options(**_READING).parquet(*map(self._path, tables))

    def _path(self, rows: StoredRows) -> str:
        """Return a path with its wildcards escaped, since Spark takes paths for patterns."""
        return _GLOB.sub(r"\\\1", self._storage.path(f"{FOLDER}/{rows.name}"))

    def _check(self, rows: StoredRows) -> None:
        found = len(self._storage.names(f"{FOLDER}/{rows.name}"))
        if found != rows.files:
            raise LedgerError(
                f"{self._storage.path(FOLDER)}/{rows.name}: expected {rows.files} files of waiting rows or "
                f"identities, found {found}: restore the folder"
            )


def aligned(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return stored rows with the columns of a schema: new columns are null, others are dropped."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name; where Spark is needed

    before = {field.name: field.dataType for field in frame.schema}
    columns = []
    for field in schema:
        was = before.get(field.name)
        if RAW in before and field.name in {"key", "value"}:
            was = None  # the bytes of waiting rows are in RAW
        if was is not None and _without_nullability(was.jsonValue()) != _without_nullability(
            field.dataType.jsonValue()
        ):
            raise LedgerError(
                f"column {field.name}: expected {was.simpleString()}, as in the waiting rows, found "
                f"{field.dataType.simpleString()}: give the new column another name"
            )
        null = F.lit(None).cast(field.dataType).alias(field.name)
        columns.append(null if was is None else F.col(quoted(field.name)))
    return frame.select(columns)


def quoted(name: str) -> str:
    """Return a column's name as an expression, for names with dots."""
    return "`" + name.replace("`", "``") + "`"


def _without_nullability(kind: object) -> object:
    """Return a type's JSON without nullability and metadata, which Parquet does not keep."""
    if isinstance(kind, dict):
        forgotten = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {key: _without_nullability(value) for key, value in kind.items() if key not in forgotten}
    return [_without_nullability(each) for each in kind] if isinstance(kind, list) else kind
