"""The topic of subjects' keys: each subject has a key of its own, until the subject is erased.

All processes follow the topic. They agree on the first valid key of a subject, because a writer uses its own
key only after it has read it back, and found no other before it. An erasure stays in the topic as a row, and
a key counts only if its writer knew of all erasures of the subject: so a key that is written while the
subject is erased is not valid.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from headerware.core.context import wall_clock_ms
from headerware.core.errors import (
    ConfigError,
    HeldBackError,
    InvalidWrappedKeyError,
    KeptError,
    KeyDeletedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    RegistryError,
)
from headerware.core.options import PATH
from headerware.core.plugins import Catalogue
from headerware.core.shared import Shared
from headerware.core.typed_options import SecretOptions
from headerware.kafka.settings import dotted
from headerware.keyring.subjects.rows import (
    ID_BYTES,
    KEY_BYTES,
    MAX_GENERATION,
    PSEUDONYMS,
    SUBJECT_KEY,
    TABLE_KEYS,
    ErasureRow,
    SecretRow,
    SubjectKeyRow,
    WrappedName,
    pseudonym_of,
    seal_subject_key,
)
from headerware.keyring.subjects.store import FileInUseError, Subject, SubjectFile, SubjectRows
from headerware.topic_table.table import TIMEOUT_S, TopicTable
from headerware.topic_table.topic import UnreachableError

if TYPE_CHECKING:
    from headerware.keyring.services.data_keys import DataKeys
    from headerware.keyring.services.service import KeyService

MAX_STALE_MS: Final = 60_000
"""How long the topic may be out of reach by default before its keys are no longer used."""
MAX_COMPACTION_LAG_MS: Final = 86_400_000
"""How long the brokers may keep the rows of erased keys in a created topic; without it, perhaps for ever."""
_PROBE_S: Final = 0.5
"""How long after a failure the topic is not read again, in seconds."""
_PROBE_WAIT_S: Final = 0.2
"""How long a caller waits for a topic that was out of reach."""
_log: Final = logging.getLogger("headerware.keyring")
_NEW_KEY: Final = "; headerware keys readmit lets a subject have a new key"
"""Advice to a writer; a reader has no use for it, because what was erased stays erased."""
_NO_SERVERS: Final = (
    "expected servers, the brokers that have the topic, because there is no client here; found none"
)


class SubjectTopic(SecretOptions, frozen=True, kw_only=True):
    """Keep the keys of subjects in a compacted topic of one partition.

    Args:
        topic: the topic.
        servers: the brokers, as in ``bootstrap.servers``; None means those of the client.
        config: further properties of librdkafka, such as ``security.protocol``; they are not taken from the
            client.
        file: a SQLite file in which the topic's rows are kept, so that a restart reads on where the process
            stopped. Each process needs a file of its own; one that finds it in use has a temporary file
            instead. None is a temporary file.
        max_stale_ms: how long keys are used while the topic is out of reach, in milliseconds; then records
            wait. So an erasure takes effect everywhere within this time and a second.
        create: whether to create the topic if it does not exist; then ``max.compaction.lag.ms`` is a day.
        replication_factor: of a created topic; -1 leaves it to the brokers.

    Raises:
        ConfigError: an option has an invalid value.
    """

    type: ClassVar[str] = "topic"
    printable: ClassVar[tuple[str, ...]] = ("topic", "file", "max_stale_ms", "create", "replication_factor")

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    servers: str | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    file: Annotated[str | None, PATH] = None
    max_stale_ms: Annotated[int, msgspec.Meta(ge=10_000)] = MAX_STALE_MS
    create: bool = False
    replication_factor: Annotated[int, msgspec.Meta(ge=-1)] = -1

    def require_servers(self) -> None:
        """Raise ConfigError if the options do not name the brokers."""
        if self.servers is None:
            raise ConfigError(_NO_SERVERS, path="subject_keys.servers")

    def acquire(self, servers: str | None) -> SubjectTable:
        """Return the open table; sessions of a process with equal options share it.

        Args:
            servers: the client's brokers, for options without ``servers``.

        Raises:
            ConfigError: no brokers are known.
            RegistryError: the file or the properties cannot be used.
        """
        servers = self.servers or servers
        if servers is None:
            raise ConfigError(_NO_SERVERS, path="subject_keys.servers")
        conf = {**dotted(self.config), "bootstrap.servers": servers}
        return _open_tables.acquire((self, servers), lambda: SubjectTable(self, conf))


def _file_for(options: SubjectTopic) -> SubjectFile:
    """Open the file; if another process uses it, as the first of several workers does, a temporary one."""
    try:
        return SubjectFile(options.file, options.topic)
    except FileInUseError as error:
        _log.warning(
            "%s; here a temporary file is used, so that a restart reads the topic from its beginning", error
        )
        return SubjectFile(None, options.topic)


subject_keys_type: Final[Catalogue[SubjectTopic]] = Catalogue(
    "store of subjects' keys", SubjectTopic, {"topic": "headerware.keyring.subjects.topic:SubjectTopic"}
)
"""The stores of subjects' keys by type."""


class SubjectTable:
    """The rows of the topic, followed in the background; safe for use by several threads."""

    def __init__(self, options: SubjectTopic, conf: Mapping[str, Any]) -> None:
        self.topic: Final = options.topic
        self._servers: Final = conf["bootstrap.servers"]
        self._file: Final = _file_for(options)
        self._down: KeptError[UnreachableError] | None = None
        """Why the topic is out of reach, until it is reached again."""
        self._probe_at = 0.0
        self._max_stale_ms: Final = options.max_stale_ms
        try:
            self._table: Final = TopicTable(
                conf,
                options.topic,
                rows=self._file.rows,
                create=options.create,
                replication_factor=options.replication_factor,
                topic_settings={"max.compaction.lag.ms": str(MAX_COMPACTION_LAG_MS)},
            )
        except BaseException:
            self._file.close()
            raise

    @property
    def is_fresh(self) -> bool:
        """Whether the rows were complete a short while ago, so that no erasure is missing for long."""
        complete_ms = self._table.complete_ms
        return complete_ms is not None and 0 <= wall_clock_ms() - complete_ms <= self._max_stale_ms

    @property
    def epoch(self) -> int:
        """A number that changes when a key becomes invalid; -1 if the rows are not fresh."""
        return self._file.epoch if self.is_fresh and not self._file.failed else -1

    @contextmanager
    def rows(self, timeout_s: float) -> Iterator[SubjectRows]:
        """Yield the rows, read to the end before if they are not fresh; keep the block short.

        Raises:
            UnreachableError: they are not fresh, and the brokers do not answer in time.
            RegistryError: the topic cannot be read.
        """
        if not self.is_fresh:
            self.refresh(timeout_s)
        with self._table.rows() as rows:
            yield rows

    def refresh(self, timeout_s: float) -> None:
        """Read the topic to its present end, and follow it from the first time on.

        A topic that is large, or out of reach, is read on in the background. Any other error is raised before
        that, because it would only be logged there. After a failure callers hardly wait.

        Raises:
            UnreachableError: the brokers do not answer in time.
            RegistryError: the topic cannot be read.
        """
        down = self._down
        if down is not None:
            if time.monotonic() < self._probe_at:
                raise down.again()
            timeout_s = min(timeout_s, _PROBE_WAIT_S)
        out_of_reach: UnreachableError | None = None
        try:
            if not self._table.refresh(timeout_s):
                out_of_reach = UnreachableError(
                    f"topic {self.topic!r} at {self._servers} is out of reach, so an erasure may be missing"
                )
        except UnreachableError as error:
            out_of_reach = error
        if out_of_reach is not None:
            self._down, self._probe_at = KeptError(out_of_reach), time.monotonic() + _PROBE_S
            self._table.follow()
            raise out_of_reach
        self._down = None
        self._table.follow()

    def known(self, pseudonym: bytes) -> Subject | None:
        """Return what is known about a subject without waiting; None if the rows are not fresh."""
        if not self.is_fresh:
            return None
        try:
            with self._table.rows() as rows:
                return rows.subject(pseudonym)
        except RegistryError:  # of the file; whoever waits for the answer gets the error
            return None

    def write(self, rows: Sequence[tuple[bytes, bytes | None]], timeout_s: float) -> int:
        """Write rows, and return the last one's offset once all have been read back."""
        return self._table.put_many(rows, timeout_s)

    def release(self) -> None:
        """Close the table if nobody else uses it."""
        if _open_tables.release(self):
            self._table.close()
            self._file.close()


_open_tables: Final[Shared[SubjectTable]] = Shared(lambda one, other: one == other)


class Erased(NamedTuple):
    """An erasure as it was written."""

    row: ErasureRow
    offset: int | None
    """The offset of its record; None if the subject had been erased before."""
    key_ids: tuple[bytes, ...]
    """The keys that this call removed from the topic."""


class SubjectKeys:
    """The keys of subjects; safe for use by several threads.

    Args:
        table: the topic's rows.
        secrets: unwraps the secrets of the topic, with a key service.
        key_id: the key-encryption key under which new secrets are wrapped; None makes none.
        timeout_s: how long to wait for the brokers, in seconds.
    """

    def __init__(
        self, table: SubjectTable, secrets: DataKeys, *, key_id: str | None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._table: Final = table
        self._secrets: Final = secrets
        self._key_id: Final = key_id
        self._timeout_s: Final = timeout_s
        self._making: Final = Lock()

    def pseudonym(self, subject: str) -> bytes:
        """Return the pseudonym of a subject in the topic.

        Raises:
            KeyServiceError: the topic or the key service cannot be used now.
        """
        return pseudonym_of(self._secret_of(self._first_secret(PSEUDONYMS)), subject)

    def to_send(self, pseudonym: bytes) -> tuple[WrappedName, bytes]:
        """Return the name of a subject's first key, and the key; the subject gets one if it has none.

        Raises:
            KeyDeletedError: the subject was erased.
            KeyServiceError: the topic or the key service cannot be used now; nothing may be sent.
        """
        subject = self._subject(pseudonym, _NEW_KEY)
        if not subject.keys:
            self.prepare([pseudonym])
            subject = self._subject(pseudonym, _NEW_KEY)
        if not subject.keys:  # it was erased meanwhile, and that is read now
            raise KeyServiceUnavailableError("the subject got a key, and lost it at once; try again")
        row = next(iter(subject.keys.values()))
        return WrappedName(pseudonym, row.id), self._open(row)

    def to_read(self, name: WrappedName) -> bytes:
        """Return the key that a wrapped data key names.

        Raises:
            KeyDeletedError: the subject was erased.
            InvalidWrappedKeyError: the topic has no such key.
            KeyServiceError: the topic or the key service cannot be used now.
        """
        subject = self._subject(name.pseudonym)
        if name.id not in subject.keys:
            # Its writer has read the key back before it sent a record: so a key that is not there by now was
            # never written, or was erased, or the topic lost it.
            with _service_errors():
                self._table.refresh(self._timeout_s)
            subject = self._subject(name.pseudonym)
        row = subject.keys.get(name.id)
        if row is None and subject.generation:
            raise KeyDeletedError(
                f"its subject, {name.pseudonym.hex()} in topic {self._table.topic!r}, was erased, and has "
                "another key now"
            )
        if row is None:
            raise InvalidWrappedKeyError(
                f"topic {self._table.topic!r} has no key {name.id.hex()} of subject {name.pseudonym.hex()}"
            )
        return self._open(row)

    def has(self, name: WrappedName) -> bool:
        """Return whether a key is valid now, as far as it is known without waiting."""
        known = self._table.known(name.pseudonym)
        return known is not None and not known.unreadable and name.id in known.keys

    @property
    def epoch(self) -> int:
        """A number that changes when a key becomes invalid; -1 if that is not known now."""
        return self._table.epoch

    def is_at_hand(self, pseudonym: bytes, key_id: bytes | None) -> bool:
        """Return whether a key is known, or that its subject was erased, without waiting."""
        known = self._table.known(pseudonym)
        if known is None:
            return False
        return known.is_erased or (bool(known.keys) if key_id is None else key_id in known.keys)

    def prepare(self, pseudonyms: Sequence[bytes]) -> None:
        """Write keys for those of some subjects that have none and are not erased, all together."""
        with _service_errors():
            with self._table.rows(self._timeout_s) as rows:
                found = {pseudonym: rows.subject(pseudonym) for pseudonym in pseudonyms}
            lacking = {
                pseudonym: subject.generation
                for pseudonym, subject in found.items()
                if not subject.keys and not subject.is_erased and not subject.unreadable
            }
            if not lacking:
                return
            secret = self._first_secret(TABLE_KEYS)
            table_key = self._secret_of(secret)
            made = [
                seal_subject_key(
                    table_key,
                    os.urandom(KEY_BYTES),
                    topic=self._table.topic,
                    pseudonym=pseudonym,
                    generation=generation,
                    table_key_id=secret.id,
                )
                for pseudonym, generation in lacking.items()
            ]
            self._table.write([row.row for row in made], self._timeout_s)
            with self._table.rows(self._timeout_s) as rows:
                invalid = [row.row[0] for row in made if row.id not in rows.subject(row.pseudonym).keys]
            if invalid:  # their subjects were erased meanwhile, and no row of a key is to stay
                self._table.write([(key, None) for key in invalid], self._timeout_s)

    def erase(self, subject: str) -> Erased:
        """Erase a subject: from now on nobody opens what was written under its keys.

        Raises:
            KeyServiceError: the topic or the key service cannot be used now; the subject may not be erased.
        """
        with _service_errors():
            self._table.refresh(self._timeout_s)
            pseudonym = self.pseudonym(subject)
            found = self._look_up(pseudonym)
            offset = None
            # The topic may have lost an erasure that this process remembers.
            is_lost = found.erasure is None or found.erasure.generation < found.generation
            if not found.is_erased or is_lost:
                generation = found.generation + (not found.is_erased)
                if generation > MAX_GENERATION:
                    raise KeyServiceError("the subject was erased as often as the topic can count")
                row = ErasureRow(pseudonym, generation, wall_clock_ms(), len(found.keys) + len(found.others))
                offset = self._table.write([row.row], self._timeout_s)
                found = self._look_up(pseudonym)
            if found.others:
                names = [bytes((SUBJECT_KEY,)) + pseudonym + each for each in found.others]
                self._table.write([(name, None) for name in names], self._timeout_s)
        return Erased(_erasure(found), offset, found.others)

    def readmit(self, subject: str) -> ErasureRow:
        """Let an erased subject have a new key; what was erased stays erased.

        Raises:
            InvalidWrappedKeyError: the topic has no erasure of the subject.
            KeyServiceError: the topic or the key service cannot be used now, or the subject was erased again
                at the same time, and stays erased.
        """
        with _service_errors():
            self._table.refresh(self._timeout_s)
            pseudonym = self.pseudonym(subject)
            row = _erasure(self._look_up(pseudonym))
            if not row.readmitted:
                row = row._replace(readmitted=True)
                self._table.write([row.row], self._timeout_s)
                if self._look_up(pseudonym).is_erased:
                    # Another erasure was written before this row, which has taken its place in the topic.
                    self.erase(subject)
                    raise KeyServiceUnavailableError(
                        "the subject was erased again meanwhile, so it is not readmitted; if it is to be, "
                        "try again"
                    )
        return row

    def look_up(self, pseudonym: bytes) -> Subject:
        """Return what the topic has of a subject, read to its present end.

        Raises:
            KeyServiceError: the topic cannot be read now, or the subject's erasure cannot.
        """
        with _service_errors():
            self._table.refresh(self._timeout_s)
            return self._look_up(pseudonym)

    def rewrap(self, service: KeyService) -> int:
        """Wrap the topic's secrets again, under the newest version of ``key_id``, and return their number.

        No subject's key and no record changes.

        Raises:
            KeyServiceError: the topic or the key service cannot be used now.
        """
        with _service_errors():
            self._table.refresh(self._timeout_s)
            with self._table.rows(self._timeout_s) as rows:
                secrets = [*rows.secrets(PSEUDONYMS), *rows.secrets(TABLE_KEYS)]
            key_id, made = self._required_key_id(), []
            for secret in secrets:
                context = secret.scope(self._table.topic).encode()
                plain = service.unwrap(secret.key_id, secret.wrapped, context)
                wrapped = service.wrap(key_id, plain, context).wrapped
                made.append(secret._replace(key_id=key_id, wrapped=wrapped).row)
            if made:
                self._table.write(made, self._timeout_s)
        return len(made)

    def close(self) -> None:
        """Release the table, and forget the secrets."""
        self._secrets.close()
        self._table.release()

    def _subject(self, pseudonym: bytes, advice: str = "") -> Subject:
        """Return what the topic says about a subject; raise KeyDeletedError if it was erased."""
        with _service_errors():
            subject = self._look_up(pseudonym)
        if subject.is_erased:
            raise KeyDeletedError(
                f"its subject, {pseudonym.hex()} in topic {self._table.topic!r}, was erased{advice}"
            )
        return subject

    def _look_up(self, pseudonym: bytes) -> Subject:
        with self._table.rows(self._timeout_s) as rows:
            subject = rows.subject(pseudonym)
        if subject.unreadable:
            raise KeyServiceError(subject.unreadable)
        return subject

    def _open(self, row: SubjectKeyRow) -> bytes:
        with _service_errors(), self._table.rows(self._timeout_s) as rows:
            secrets = {secret.id: secret for secret in rows.secrets(TABLE_KEYS)}
        secret = secrets.get(row.table_key_id)
        if secret is None:
            raise InvalidWrappedKeyError(
                f"topic {self._table.topic!r} has no table key {row.table_key_id.hex()}, which sealed the "
                "subject's key"
            )
        return row.open(self._secret_of(secret), self._table.topic)

    def _first_secret(self, purpose: int) -> SecretRow:
        """Return the first secret of a purpose, which all processes use; make it if there is none."""
        with _service_errors():
            with self._table.rows(self._timeout_s) as rows:
                found = rows.secrets(purpose)
            if found:
                return found[0]
            key_id = self._required_key_id()
            with self._making:
                with self._table.rows(self._timeout_s) as rows:
                    found = rows.secrets(purpose)
                if not found:
                    row = SecretRow(purpose, os.urandom(ID_BYTES), key_id, b"")
                    made = self._secrets.to_send(key_id, row.scope(self._table.topic), 0)
                    self._table.write([row._replace(wrapped=made.wrapped).row], self._timeout_s)
                    with self._table.rows(self._timeout_s) as rows:
                        found = rows.secrets(purpose)
        if not found:
            raise KeyServiceUnavailableError("the topic lost the secret that was just written; try again")
        return found[0]

    def _secret_of(self, row: SecretRow) -> bytes:
        if not self._secrets.accepts(row.key_id):  # records wait until the options are changed
            raise KeyServiceError(
                f"the secrets of topic {self._table.topic!r} are wrapped under the key-encryption key "
                f"{row.key_id!r}, which is not among the key_ids accepted here; add it to the option key_ids"
            )
        try:
            return self._secrets.to_read(row.key_id, row.wrapped, row.scope(self._table.topic)).secret
        except HeldBackError as error:
            raise KeyServiceUnavailableError(f"the secrets of its topic: {error}") from error

    def _required_key_id(self) -> str:
        if self._key_id is None:
            raise KeyServiceError(
                f"topic {self._table.topic!r} has no secrets yet, and there is no key_id here to make them"
            )
        return self._key_id


def _erasure(subject: Subject) -> ErasureRow:
    if subject.erasure is None:
        raise InvalidWrappedKeyError("the topic has no erasure of this subject")
    return subject.erasure


@contextmanager
def _service_errors() -> Iterator[None]:
    """Raise errors of the topic as those of a key service."""
    try:
        yield
    except UnreachableError as error:
        raise KeyServiceUnavailableError(str(error)) from error
    except RegistryError as error:
        raise KeyServiceError(str(error)) from error
