"""The ledger's JSON files: what was begun, what was committed, and where its rows are.

Each is one object with a ``version``. What has another version is not guessed at.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec

from headerware.spark_bridge.batches.storage import LedgerError, Storage

VERSION: Final = 1

_Name = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{12,}-[0-9a-f]{32}-[a-z0-9]+$")]
_Token = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Rows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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

    rows: Rows
    count: _Count
    batches: Annotated[int, msgspec.Meta(ge=1)]
    last_batch: _Count
    newest_ms: int


class Begun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    left: Rows | None
    segments: tuple[Segment, ...]
    offsets: str | None = None
    version: int = VERSION

    def names(self) -> set[str]:
        """Return the names of the folders that it refers to."""
        named = {segment.rows.name for segment in self.segments}
        return named if self.left is None else named | {self.left.name}


class _Versioned(msgspec.Struct):
    version: int


_Document = TypeVar("_Document", Begun, Committed)


def encode(document: Begun | Committed) -> str:
    """Write a document as JSON."""
    return msgspec.json.encode(document).decode()


def again(first: Begun, attempt: str) -> Begun:
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
