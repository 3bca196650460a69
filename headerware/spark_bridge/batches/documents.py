"""The ledger's JSON files: what was begun, what was committed, and where its rows are.

Each is one object with a ``version``. What has another version is not guessed at.
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
"""A session that skips lost files would lose records here without a word."""


class StoredRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows that an attempt wrote as Parquet.

    Args:
        name: the folder's name.
        files: how many files are in it, so that a lost one is noticed.
        columns: the schema, as Spark's JSON, so that reading needs no look into the files.
    """

    name: _Name
    files: _Count
    columns: str


class Segment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identities that one or more batches recorded.

    Args:
        rows: where they are.
        count: how many.
        batches: how many batches recorded them.
        last_batch: the latest of those.
        newest_ms: its time, in milliseconds since 1970.
    """

    rows: StoredRows
    count: _Count
    batches: Annotated[int, msgspec.Meta(ge=1)]
    last_batch: _Count
    newest_ms: int


class BatchAttempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An attempt at a batch, as it was begun.

    Args:
        batch: the batch's number.
        attempt: a token of this attempt alone.
        now_ms: the time of the batch's first attempt, in milliseconds since 1970.
        chain: the fingerprint of the chain at the first attempt.
        previous_chain: that of the last batch committed before; None where there is none.
        replay: whether there was an attempt before this one.
    """

    batch: _Count
    attempt: _Token
    now_ms: int
    chain: str
    previous_chain: str | None
    replay: bool
    version: int = VERSION


class Committed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch that is done.

    Args:
        batch: its number.
        attempt: the attempt that did it.
        now_ms: its time, in milliseconds since 1970.
        chain: the fingerprint of the chain.
        left: the rows that wait for the next batch; None where there are none.
        segments: the identities that the next batch is compared with, oldest first.
        offsets: the fingerprint of the offsets that it was read up to; None where Spark does not say them.
    """

    batch: _Count
    attempt: _Token
    now_ms: int
    chain: str
    left: StoredRows | None
    segments: tuple[Segment, ...]
    offsets: str | None = None
    version: int = VERSION

    def names(self) -> set[str]:
        """Return the names of the folders that it refers to."""
        named = {segment.rows.name for segment in self.segments}
        return named if self.left is None else named | {self.left.name}


class _Versioned(msgspec.Struct):
    version: int


_Document = TypeVar("_Document", BatchAttempt, Committed)


def encode(document: BatchAttempt | Committed) -> str:
    """Write a document as JSON."""
    return msgspec.json.encode(document).decode()


def retry_of(first: BatchAttempt, attempt: str) -> BatchAttempt:
    """Return a further attempt at a batch, with all that its first one fixed."""
    return msgspec.structs.replace(first, attempt=attempt, replay=True)


def read(storage: Storage, name: str, kind: type[_Document], remedy: str) -> _Document:
    """Read a document.

    Args:
        storage: where it is.
        name: its name there.
        kind: what it must be.
        remedy: what to do where it is damaged, for the error.

    Raises:
        LedgerError: where it cannot be read, is of another version, or is damaged.
    """
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
    """Write and read rows beside a checkpoint.

    Args:
        spark: the session.
        storage: where to.
    """

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._storage = storage

    def write(self, frame: DataFrame, name: str) -> StoredRows:
        """Write a frame as Parquet, over what a broken-off writing of the same name left."""
        frame.write.mode("overwrite").parquet(self._storage.path(f"{FOLDER}/{name}"))
        files = len(self._storage.names(f"{FOLDER}/{name}"))
        return StoredRows(name=name, files=files, columns=frame.schema.json())

    def read(self, *tables: StoredRows) -> DataFrame:
        """Read one or more folders of the same schema.

        Raises:
            LedgerError: where files that were written are not there any more.
        """
        from pyspark.sql.types import StructType  # noqa: PLC0415  where Spark is needed, not before

        for rows in tables:
            self._check(rows)
        schema = StructType.fromJson(json.loads(tables[0].columns))
        return self._spark.read.schema(schema).options(**_READING).parquet(*map(self._path, tables))

    def _path(self, rows: StoredRows) -> str:
        """Write a path so that Spark, which takes paths for patterns, reads that folder and no other."""
        return _GLOB.sub(r"\\\1", self._storage.path(f"{FOLDER}/{rows.name}"))

    def _check(self, rows: StoredRows) -> None:
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
