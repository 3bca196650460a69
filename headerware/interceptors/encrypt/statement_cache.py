"""Check the statements of records, and remember the statements that have decrypted a record.

A statement is remembered only after it has decrypted a record. So only somebody with a data key can fill the
cache. After a second, its data key is asked for again, so a forgotten or deleted key is soon no longer used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import DecryptionError
from headerware.interceptors.encrypt.keys import UNKNOWN_EPOCH, Epochs, SessionKeys, scope_of
from headerware.keyring.subjects.rows import is_of_subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.record import Record
    from headerware.interceptors.encrypt.envelope import Statement
    from headerware.keyring.services import DataKey

_CHECK_EVERY_MS: Final = 1_000
"""How long a data key decrypts before its validity is checked again, in milliseconds."""
_CHECK_SUBJECTS_EVERY_MS: Final = 30_000
"""The same for data keys of subjects, which are also checked when any key of a subject becomes invalid."""
_MAX_STATEMENTS: Final = 4096
_MAX_STATEMENTS_BYTES: Final = 4 << 20
_MAX_FRESH: Final = 256
"""How many statements are looked through for each batch, to find the fresh ones."""
_Opener = TypeVar("_Opener")


def check_signer(statement: Statement, record: Record, signer: Callable[[str], str | None]) -> None:
    """Refuse a record whose signature was removed, or replaced by another signer's.

    ``signer`` is :attr:`headerware.Context.signer`; if no step verifies, signatures are ignored.
    """
    if not statement.signer:
        return
    verified = record.verified
    if verified is None:
        if signer(record.topic) is not None:
            raise DecryptionError(
                f"it was encrypted to be signed with key {statement.signer!r}, and has no signature"
            )
    elif verified.key_id != statement.signer:
        raise DecryptionError(
            f"it was encrypted to be signed with key {statement.signer!r}, and is signed with "
            f"{verified.key_id!r}"
        )


def _accept(statement: Statement) -> None:
    """Accept every statement."""


class StatementOpener(Generic[_Opener]):
    """A statement, and ``open``: the function that decrypts records with this statement."""

    __slots__ = ("check_every_ms", "checked_ms", "data_key", "epoch", "has_decrypted", "open", "statement")

    def __init__(self, statement: Statement, open_: _Opener, data_key: DataKey, checked_ms: int) -> None:
        self.statement: Final = statement
        self.open: Final = open_
        self.data_key: Final = data_key
        self.checked_ms: int = checked_ms
        """When the validity of the data key was last checked."""
        of_subject = is_of_subject(statement.wrapped)
        self.check_every_ms: Final = _CHECK_SUBJECTS_EVERY_MS if of_subject else _CHECK_EVERY_MS
        self.epoch: int = UNKNOWN_EPOCH
        """The epoch of the keys at that time, if there are keys of subjects."""
        self.has_decrypted: bool = False
        """Whether it has decrypted a record, which proves that the statement is genuine."""


class KnownStatements(Generic[_Opener]):
    """Find the opener for a record's statement; for one caller at a time.

    The caller asks :meth:`get` for each record, and calls :meth:`confirm` after an opener has decrypted its
    first record.

    Args:
        keys: the session's keys.
        prepare: makes an opener from ``(data key, statement's bytes, statement)``.
        signer: :attr:`headerware.Context.signer`.
        also_refuse: raises DecryptionError for some of the statements that
            :meth:`SessionKeys.accepted_statement` accepts.
    """

    def __init__(
        self,
        keys: SessionKeys,
        prepare: Callable[[bytes, bytes, Statement], _Opener],
        signer: Callable[[str], str | None],
        also_refuse: Callable[[Statement], None] = _accept,
    ) -> None:
        self._keys = keys
        self._now_ms = keys.now_ms
        self._signer = signer
        self._prepare = prepare
        self._also_refuse = also_refuse
        self._own = keys.known_cluster()
        self._has_subjects: Final = keys.has_subjects
        self._epochs: Final = Epochs(keys)
        self._remembered: Final[BoundedCache[tuple[str, bytes], StatementOpener[_Opener]]] = BoundedCache(
            _MAX_STATEMENTS, max_cost=_MAX_STATEMENTS_BYTES, cost=lambda asked, _known: len(asked[1])
        )

    def get(self, record: Record, encoded: bytes) -> StatementOpener[_Opener]:
        """Return the opener for a record's statement, after all checks of the statement and its signer.

        Raises:
            HeldBackError: the key service cannot be reached now.
            DecryptionError: the statement or its signer is refused, or its key was deleted.
        """
        try:
            known = self._remembered[record.topic, encoded]
        except KeyError:
            return self._check_and_open(record, encoded)
        now_ms = self._now_ms()
        if not 0 <= now_ms - known.checked_ms < known.check_every_ms or (
            self._has_subjects and known.epoch != self._epochs.present(now_ms)
        ):
            return self._check_and_open(record, encoded)
        if known.statement.signer:
            check_signer(known.statement, record, self._signer)
        return known

    def fresh(self, topic: str) -> tuple[tuple[bytes, StatementOpener[_Opener]], ...]:
        """Return the statements of a topic whose data keys need no check now; none if many are known.

        The caller checks the signer of each record.
        """
        if len(self._remembered) > _MAX_FRESH:
            return ()
        now_ms = self._now_ms()
        epoch = self._epochs.present(now_ms) if self._has_subjects else UNKNOWN_EPOCH
        return tuple(
            (encoded, known)
            for (own, encoded), known in self._remembered.entries().items()
            if own == topic and 0 <= now_ms - known.checked_ms < known.check_every_ms and known.epoch == epoch
        )

    def confirm(self, record: Record, encoded: bytes, opener: StatementOpener[_Opener]) -> None:
        """Remember an opener that has decrypted a record."""
        opener.has_decrypted = True
        self._remembered[record.topic, encoded] = opener

    def prefetch(self, statements: Iterable[tuple[Record, bytes]]) -> None:
        """Unwrap the data keys of statements that are not remembered, several at once."""
        unknown = [asked for asked in statements if self._remembered.get((asked[0].topic, asked[1])) is None]
        wanted = []
        for record, encoded in unknown if len(unknown) > 1 else ():  # get() unwraps the key of a single one
            try:
                statement = self._accepted(record.topic, encoded)
                check_signer(statement, record, self._signer)
            except DecryptionError:
                continue  # decrypting the record raises the error
            wanted.append((statement.key_id, statement.wrapped, scope_of(statement.cluster, statement.topic)))
        if wanted:
            self._keys.data_keys.prefetch(wanted)

    def _check_and_open(self, record: Record, encoded: bytes) -> StatementOpener[_Opener]:
        """Check a statement and its data key, and return its opener; the key service is called last."""
        keys, topic = self._keys, record.topic
        if self._own is None and keys.own_cluster() is not None:
            self._own = keys.own_cluster()
            self._remembered.clear()
        known = self._remembered.get((topic, encoded))
        statement = self._accepted(topic, encoded) if known is None else known.statement
        check_signer(statement, record, self._signer)
        scope = scope_of(statement.cluster, statement.topic)
        now_ms = keys.now_ms()
        epoch = self._epochs.present(now_ms) if self._has_subjects else UNKNOWN_EPOCH
        data_key = keys.data_key_to_decrypt(statement.key_id, statement.wrapped, scope)
        now_ms = keys.now_ms()
        if known is None or data_key is not known.data_key:
            opener = self._prepare(data_key.secret, encoded, statement)
            known = StatementOpener(statement, opener, data_key, now_ms)
        known.checked_ms = now_ms
        known.epoch = UNKNOWN_EPOCH if epoch < 0 else epoch
        return known

    def _accepted(self, topic: str, encoded: bytes) -> Statement:
        statement = self._keys.accepted_statement(encoded, topic, self._own)
        self._also_refuse(statement)
        return statement
