"""Attempts at batches: the first one gives the time, the latest one may commit."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.spark_bridge.batches import documents
from headerware.spark_bridge.batches.documents import Begun

if TYPE_CHECKING:
    from headerware.spark_bridge.batches.storage import Storage

_FOLDER: Final = "begun"
_NAME: Final = re.compile(r"(\d{12,})-(\d{6,})-([0-9a-f]{32})\.json")
_REMEDY: Final = "delete that file while the query is stopped, and the batch is begun anew, with a new time"


class _Attempt(NamedTuple):
    """An attempt by its file's name; the number orders those of one batch, the token those that met."""

    batch: int
    number: int
    token: str

    @property
    def name(self) -> str:
        return f"{_FOLDER}/{self.batch:012d}-{self.number:06d}-{self.token}.json"


class Attempts:
    """Write down attempts at batches.

    Args:
        storage: where to.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def begin(self, batch: int, *, chain: str, now_ms: int, previous_chain: str | None) -> Begun:
        """Write down an attempt; where it is not the batch's first, give what the first one wrote.

        Args:
            batch: the batch's number.
            chain: the fingerprint of the chain.
            now_ms: the time, in milliseconds since 1970.
            previous_chain: the fingerprint of the last committed batch; None where there is none.

        Raises:
            LedgerError: where the first attempt's file is damaged, or nothing can be written.
        """
        token = uuid.uuid4().hex
        earlier = self._of(batch)
        begun = Begun(
            batch=batch,
            attempt=token,
            now_ms=now_ms,
            chain=chain,
            previous_chain=previous_chain,
            replay=bool(earlier),
        )
        if earlier:
            first = documents.read(self._storage, earlier[0].name, Begun, _REMEDY)
            begun = documents.again(first, token)
        number = earlier[-1].number + 1 if earlier else 1
        self._storage.write_text(_Attempt(batch, number, token).name, documents.encode(begun))
        return begun

    def is_latest(self, begun: Begun) -> bool:
        """Tell whether nobody has begun the batch since."""
        attempts = self._of(begun.batch)
        return bool(attempts) and attempts[-1].token == begun.attempt

    def prune(self, before: int) -> None:
        """Delete the attempts at batches before that one."""
        for attempt in self._all():
            if attempt.batch < before:
                self._storage.delete(attempt.name)

    def _of(self, batch: int) -> list[_Attempt]:
        return [attempt for attempt in self._all() if attempt.batch == batch]

    def _all(self) -> list[_Attempt]:
        found = map(_NAME.fullmatch, self._storage.names(_FOLDER))
        return sorted(_Attempt(int(name[1]), int(name[2]), name[3]) for name in found if name)
