"""The ledger: which micro-batches of a streaming query are done, and which rows wait for the next batch.

Layout, below the folder of a streaming query's checkpoint::

    headerware/<query id>/
        begun/<batch>-<attempt number>-<attempt>.json   an attempt, and the time of the batch's first one
        committed/<batch>.json                          the batch is done; says which rows count
        rows/<batch>-<attempt>-left/                    Parquet: rows that wait for the next batch
        rows/<batch>-<attempt>-seen/, ...-merged<n>/    Parquet: identities, see `identities`
        tmp/                                            texts on their way to their names

The files after each step of batch N, and what a replay does if the driver ends right after the step:

=============  ==================  ================  =======================  ===============================
step           begun               rows              committed                the replay of N
=============  ==================  ================  =======================  ===============================
(N-1 done)     N-1                 of N-1            N-1                      begins for the first time
begin(N)       N-1, N              of N-1            N-1                      same time; carries N-1's rows
leave(N)       N-1, N              of N-1, of N      N-1                      the same; ignores N's rows
fresh(N)       N-1, N              of N-1, of N      N-1                      the same; compares with N-1's
the output     N-1, N              of N-1, of N      N-1                      the same: writes a second time
commit(N)      N-1, N              of N-1, of N      N-1, N                   is_committed: skips the batch
pruning        the last 10         of N-1, of N      the last 10              the same
=============  ==================  ================  =======================  ===============================

The decisive step is the file ``committed/<batch>.json``, which appears completely or not at all. Rows are in
folders of their own attempt, and count once this file refers to them. So a failed attempt leaves nothing
that a replay could see, and two drivers never write to the same folder.

Waiting rows are slices as they came, encoded and signed. So a changed chain decodes them as if it read them
from the topic, and a dead letter is the original. The time of the batch's first attempt decides which
messages have expired, so the same messages expire in a replay.

Two drivers on one ledger: each `begin` is a new attempt with the next number, and `commit` refuses an attempt
that is no longer the latest. Rows that the earlier driver has sent to a sink meanwhile remain sent; the
ledger only stops that driver.

A ledger serves one thread at a time, as the batches of a query come one at a time.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.spark_bridge.batches import documents
from headerware.spark_bridge.batches.documents import (
    FOLDER,
    BatchAttempt,
    Committed,
    StoredRows,
    Tables,
    aligned,
)
from headerware.spark_bridge.batches.identities import IdentityHistory, Window
from headerware.spark_bridge.batches.storage import LedgerError, Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


KEPT_BATCHES: Final = 10
"""Spark replays the last batch at most; the others are for users who delete Spark's own commits by hand."""
_log = logging.getLogger("headerware.spark_bridge")
_COMMITTED_FOLDER: Final = "committed"
_COMMITTED: Final = re.compile(r"(\d{12,})\.json")
_ROWS: Final = re.compile(r"(\d{12,})-[0-9a-f]{32}-[a-z0-9]+")
_BEGUN_FOLDER: Final = "begun"
_ATTEMPT_NAME: Final = re.compile(r"(\d{12,})-(\d{6,})-([0-9a-f]{32})\.json")
_REMEDY: Final = "delete that file while the query is stopped; then the batch begins again, with a new time"


class Ledger:
    """Record which batches of a streaming query are done, and which rows wait; `open` makes a ledger.

    The calls for a batch are: `is_committed`, and if it is not, `begin`, `carried`, `leave`,
    `identities.fresh`, the output, `commit`. One thread at a time.
    """

    def __init__(self, spark: SparkSession, storage: Storage, window: Window) -> None:
        self._storage = storage
        self._attempts = _Attempts(storage)
        self._tables = Tables(spark, storage)
        self.identities: Final = IdentityHistory(self._tables, window)
        """The identities of earlier batches."""
        self._attempt: BatchAttempt | None = None
        self._chain = ""
        self._offsets: str | None = None
        self._previous: Committed | None = None
        self._left: StoredRows | None = None
        self._has_left = False

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        folder: str | os.PathLike[str],
        query_id: str,
        *,
        window_batches: int = 100,
        window_ms: int | None = None,
    ) -> Ledger:
        """Open the ledger of a query; nothing is written before the first `begin`.

        The folder is the query's checkpoint. The query's id is the id that restarts do not change.
        """
        window = Window(batches=window_batches, time_ms=window_ms)
        if not (root := os.fspath(folder)):
            raise LedgerError("expected a folder for the ledger, found an empty text: name the checkpoint's")
        try:
            query = uuid.UUID(query_id)
        except ValueError as error:
            raise LedgerError(f"expected a query's id, which is a UUID, found {query_id!r}") from error
        return cls(spark, Storage(spark, f"{root.rstrip('/')}/headerware/{query}"), window)

    def is_committed(self, batch: int, offsets: str | None = None) -> bool:
        """Return whether a batch was committed before, and must be skipped.

        Raise LedgerError if a later batch was committed, or this one with other end offsets: then the
        checkpoint is older than its ledger.
        """
        done = self._committed_batches()
        if not done or batch > done[-1]:
            return False
        found = f"{batch}"
        if batch == done[-1]:  # Spark replays its latest batch, and no other
            committed = self._read(batch)
            if None in {offsets, committed.offsets} or offsets == committed.offsets:
                return True
            found += " again, with other records"
        raise LedgerError(
            f"{self._storage.path()}: expected a batch after {done[-1]}, the last that was committed, found "
            f"{found}: the checkpoint is older than its ledger. Restore both from the same time, or delete "
            "this folder while the query is stopped: then waiting rows are forgotten, and records may be "
            "written again"
        )

    def begin(self, batch: int, *, chain: str, now_ms: int, offsets: str | None = None) -> BatchAttempt:
        """Begin a batch, for the first time or again, and take the ledger over from any other driver.

        In a replay, the time of the first attempt counts instead of ``now_ms``.
        """
        if self.is_committed(batch, offsets):
            raise LedgerError(
                f"{self._storage.path()}: batch {batch} is committed: skip it, as is_committed tells"
            )
        done = self._committed_batches()
        self._previous = previous = self._read(done[-1]) if done else None
        self._attempt = attempt = self._attempts.begin(
            batch, chain=chain, now_ms=now_ms, previous_chain=previous.chain if previous else None
        )
        self._chain, self._offsets, self._left, self._has_left = chain, offsets, None, False
        self.identities.start(attempt, previous.segments if previous else ())
        return attempt

    def carried(self, batch: int, *, like: StructType | None = None) -> DataFrame | None:
        """Return the waiting rows of the last committed batch, with the columns of ``like``, or None."""
        self._require_begun(batch)
        if self._previous is None or self._previous.left is None:
            return None
        frame = self._tables.read(self._previous.left)
        return frame if like is None else aligned(frame, like)

    def leave(self, batch: int, frame: DataFrame | None) -> None:
        """Write the rows that wait for the next batch, or None; the last call of an attempt counts."""
        attempt = self._require_begun(batch)
        self._left = None
        if frame is not None:
            self._left = self._tables.write(frame, f"{batch:012d}-{attempt.token}-left")
        self._has_left = True

    def commit(self, batch: int) -> None:
        """Commit a batch: from now on it is skipped, and the rows that it left count. Then delete old files.

        Raise LedgerError if another driver has begun or committed it since, or if rows were waiting and
        `leave` was not called, so that they would be lost.
        """
        attempt = self._require_begun(batch)
        if not self._has_left and self._previous is not None and self._previous.left is not None:
            raise LedgerError(
                f"batch {batch}: expected leave before commit, because rows of batch "
                f"{self._previous.batch} wait"
            )
        if not self._attempts.is_latest(attempt):
            raise self._taken_over(batch)
        committed = Committed(
            batch=batch,
            attempt=attempt.token,
            now_ms=attempt.now_ms,
            chain=self._chain,
            left=self._left,
            segments=self.identities.segments(),
            offsets=self._offsets,
        )
        text = documents.encode(committed)
        if not self._storage.write_text(_name(batch), text) and self._read(batch).attempt != attempt.token:
            raise self._taken_over(batch)
        self._attempt = None
        self._prune(committed)

    def _require_begun(self, batch: int) -> BatchAttempt:
        if self._attempt is None or self._attempt.batch != batch:
            found = "none" if self._attempt is None else f"batch {self._attempt.batch}"
            raise LedgerError(f"expected batch {batch} to be begun, found {found}: call begin first")
        return self._attempt

    def _taken_over(self, batch: int) -> LedgerError:
        return LedgerError(
            f"{self._storage.path()}: batch {batch} was begun later by another driver: two drivers run the "
            "same query. This driver stops; make sure that only one driver runs"
        )

    def _committed_batches(self) -> list[int]:
        """Return the committed batches that are still recorded, in order."""
        found = map(_COMMITTED.fullmatch, self._storage.names(_COMMITTED_FOLDER))
        return sorted(int(name[1]) for name in found if name)

    def _read(self, batch: int) -> Committed:
        remedy = (
            f"restore it, or delete {self._storage.path()} while the query is stopped: then waiting "
            "rows are forgotten, and records may be written again"
        )
        return documents.read(self._storage, _name(batch), Committed, remedy)

    def _prune(self, committed: Committed) -> None:
        """Delete files that no restart needs; frames may still read the rows of the previous batch."""
        needed = committed.names() | (self._previous.names() if self._previous else set())
        oldest = committed.batch - KEPT_BATCHES + 1
        try:
            for name in self._storage.names(FOLDER):
                found = _ROWS.fullmatch(name)
                if found and name not in needed and int(found[1]) <= committed.batch:
                    self._storage.delete(f"{FOLDER}/{name}")
            for batch in self._committed_batches():
                if batch < oldest:
                    self._storage.delete(_name(batch))
            self._attempts.prune(oldest)
            self._storage.delete_temporary()
        except LedgerError as error:
            # The batch is done nevertheless, and the next one tries again.
            _log.warning("old files of the ledger are kept for now: %s", error)


class _AttemptName(NamedTuple):
    """The name of an attempt's file; the number orders the attempts of a batch, the token concurrent ones."""

    batch: int
    number: int
    token: str

    @property
    def name(self) -> str:
        return f"{_BEGUN_FOLDER}/{self.batch:012d}-{self.number:06d}-{self.token}.json"


class _Attempts:
    """The attempts at batches: the first one sets the time, the latest one may commit."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def begin(self, batch: int, *, chain: str, now_ms: int, previous_chain: str | None) -> BatchAttempt:
        """Record an attempt, with the values of the batch's first attempt if there was one."""
        token = uuid.uuid4().hex
        earlier = self._of(batch)
        attempt = BatchAttempt(
            batch=batch,
            token=token,
            now_ms=now_ms,
            chain=chain,
            previous_chain=previous_chain,
            replay=bool(earlier),
        )
        if earlier:
            first = documents.read(self._storage, earlier[0].name, BatchAttempt, _REMEDY)
            attempt = documents.retry_of(first, token)
        number = earlier[-1].number + 1 if earlier else 1
        self._storage.write_text(_AttemptName(batch, number, token).name, documents.encode(attempt))
        return attempt

    def is_latest(self, attempt: BatchAttempt) -> bool:
        """Return whether no other attempt at the batch was begun since."""
        attempts = self._of(attempt.batch)
        return bool(attempts) and attempts[-1].token == attempt.token

    def prune(self, before: int) -> None:
        """Delete the attempts at batches before the given one."""
        for attempt in self._all():
            if attempt.batch < before:
                self._storage.delete(attempt.name)

    def _of(self, batch: int) -> list[_AttemptName]:
        return [attempt for attempt in self._all() if attempt.batch == batch]

    def _all(self) -> list[_AttemptName]:
        found = map(_ATTEMPT_NAME.fullmatch, self._storage.names(_BEGUN_FOLDER))
        return sorted(_AttemptName(int(name[1]), int(name[2]), name[3]) for name in found if name)


def _name(batch: int) -> str:
    return f"{_COMMITTED_FOLDER}/{batch:012d}.json"
