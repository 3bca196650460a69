"""The keys of one session: which statements and keys it accepts, and its errors if a key cannot be used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.errors import (
    ConfigError,
    DecryptionError,
    HeldBackError,
    InterceptorError,
    KeyDeletedError,
    KeyringError,
    KeyServiceError,
    KeyServiceUnavailableError,
    ShreddedError,
    UnboundKeyError,
    WireFormatError,
    below,
)
from headerware.core.origins import Origins, cluster_port
from headerware.core.requirement import Unprotected
from headerware.interceptors.encrypt.envelope import Statement, decode_statement
from headerware.keyring.file import naming_key
from headerware.keyring.services import DataKey, DataKeys, open_key_service
from headerware.keyring.subjects.rows import is_of_subject
from headerware.keyring.subjects.service import SubjectKeyService

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.context import Context
    from headerware.interceptors.encrypt.options import EncryptionOptions
    from headerware.keyring.services import KeyService

_NO_KEY_ID: Final = "expected a key_id to encrypt with, because this chain sends records; found none"
_log = logging.getLogger("headerware.interceptors.encrypt")


class SessionKeys:
    """The data keys of one session; sending is safe for several threads, reading has one caller."""

    def __init__(self, options: EncryptionOptions, context: Context, *, expected: str) -> None:
        if context.side == "producer" and options.key_id is None:
            raise ConfigError(_NO_KEY_ID, path="key_id")
        self._key_id: Final = options.key_id
        self._is_dry_run: Final = context.dry_run
        self.accepted: Final = options.accepted_ids
        self.now_ms: Final = context.now_ms
        self.known_cluster: Final = cluster_port(options.cluster, context.cluster_id)
        self.own_cluster: Final = cluster_port(options.cluster, context.awaited_cluster_id)
        self.origins: Final = Origins(options.accept_origins)
        self.unprotected: Final = Unprotected(
            options.require,
            log=_log,
            without="in plaintext",
            step=options.type,
            refusal=lambda advice: DecryptionError(f"expected {expected}, found plaintext{advice}"),
        )
        with below("key_service"), naming_key(options.key_id, "aes-256", context.side):
            service = open_key_service(options.key_service, context, path="key_service")
        self._subjects: Final = self._subject_service(options, context, service)
        limits: dict[str, Any] = {
            "max_age_ms": options.data_key_max_age_ms,
            "max_uses": options.data_key_max_uses,
            "max_bytes": options.data_key_max_bytes,
        }
        self.data_keys: Final = DataKeys(
            service if self._subjects is None else self._subjects,
            key_ids=self.accepted,
            # A dry run sends nothing, so one data key is enough, and the key service is asked once.
            **({} if context.dry_run else limits),
            cache_entries=options.data_key_cache_entries,
            cache_age_ms=options.data_key_cache_ms,
            timeout_ms=options.key_service_timeout_ms,
            now_ms=context.now_ms,
        )
        if options.key_id is not None and context.side != "consumer" and not context.dry_run:
            try:
                self.data_keys.require_bound(options.key_id)
            except UnboundKeyError as error:
                self.close()
                raise KeyringError(f"key_service: {error}") from error

    def _subject_service(
        self, options: EncryptionOptions, context: Context, service: KeyService
    ) -> SubjectKeyService | None:
        if options.subject_keys is None:
            return None
        if context.side == "producer" and options.key_of is None:
            raise ConfigError(
                'expected what names the subject of a record, such as "header:customer", because this chain '
                "sends records; found none",
                path="key_of",
            )
        if context.bootstrap_servers is None and not context.dry_run:
            options.subject_keys.require_servers()
        place = options.subject_keys
        if context.dry_run:  # the file is an application's, and the topic is not to be created
            place = msgspec.structs.replace(place, file=None, create=False)
        return SubjectKeyService(
            place,
            service,
            key_id=None if context.dry_run else options.key_id,
            key_ids=options.accepted_ids,
            servers=context.bootstrap_servers,
            timeout_ms=options.key_service_timeout_ms,
            cache_age_ms=options.data_key_cache_ms,
            now_ms=context.now_ms,
        )

    def scope(self, cluster: str, topic: str, subject: str | None) -> str:
        """Return the scope of the data key to encrypt with, for a subject or for all records of a topic.

        Raises:
            HeldBackError: the topic of subjects' keys, or the key service, cannot be used now.
            InterceptorError: the subject cannot have a key.
        """
        scope = scope_of(cluster, topic)
        if subject is None or self._subjects is None or self._is_dry_run:
            return scope
        try:
            return self._subjects.scope(scope, subject)
        except KeyServiceError as error:
            raise _cannot_encrypt(error) from error

    @property
    def has_subjects(self) -> bool:
        """Whether records are encrypted for subjects, whose keys can be erased at any time."""
        return self._subjects is not None

    def epoch(self) -> int:
        """Return a number that changes when a subject's key becomes invalid; -1 if that is not known now."""
        return 0 if self._subjects is None else self._subjects.epoch

    def prepare(self, scopes: Iterable[str]) -> None:
        """Give keys to the subjects of scopes that have none; what fails is tried again for each record."""
        if self._subjects is None or self._is_dry_run:
            return
        try:
            self._subjects.prepare(scopes)
        except KeyServiceError as error:
            _log.debug("the keys of subjects are not prepared: %s", error)

    def accepted_statement(self, encoded: bytes, topic: str, own: str | None) -> Statement:
        """Decode a statement, and return it if its key and origin are accepted; do not call the key service.

        Raises:
            DecryptionError: the statement cannot be read, or is not accepted.
        """
        try:
            statement = decode_statement(encoded)
        except WireFormatError as error:
            raise DecryptionError(f"its encryption header cannot be read: {error}") from error
        if statement.key_id not in self.accepted:
            raise DecryptionError(
                f"it names the key-encryption key {statement.key_id!r}, which is not among the key_ids "
                f"accepted here; if its records may be read here, add it to the option key_ids"
            )
        if "/" in statement.topic:
            raise DecryptionError("it names a topic with a slash, which no topic's name has")
        problem = self.origins.problem(statement.cluster, statement.topic, own=own, found_in=topic)
        if problem:
            raise DecryptionError(f"encrypted {problem}")
        return statement

    def require_key_id(self) -> str:
        """Return the id of the key to encrypt with; raise InterceptorError if there is none."""
        if self._key_id is None:
            raise InterceptorError(_NO_KEY_ID)
        return self._key_id

    def data_key_to_encrypt(self, scope: str, size_bytes: int) -> DataKey:
        """Return the data key to encrypt a value or field of this size with.

        Raises:
            HeldBackError: the key service cannot be reached now.
            InterceptorError: there is no ``key_id``, or no data key can be wrapped under it.
        """
        try:
            return self.data_keys.to_send(self.require_key_id(), scope, size_bytes)
        except KeyServiceError as error:
            raise _cannot_encrypt(error) from error

    def data_key_to_decrypt(self, key_id: str, wrapped: bytes, scope: str) -> DataKey:
        """Return the data key of a statement, to decrypt with.

        Raises:
            HeldBackError: the key service cannot be reached now.
            ShreddedError: the key-encryption key was deleted.
            DecryptionError: the data key was not wrapped under this key for this scope.
        """
        try:
            return self.data_keys.to_read(key_id, wrapped, scope)
        except KeyDeletedError as error:
            raise ShreddedError(f"it can no longer be read: {error}") from error
        except KeyServiceError as error:
            if self._subjects is None and is_of_subject(wrapped):
                raise DecryptionError(
                    "its data key seems to be wrapped under the key of a subject, and no option says where "
                    "these keys are: configure subject_keys as its writer does"
                ) from error
            raise DecryptionError(f"its data key cannot be unwrapped: {error}") from error

    def stats(self) -> dict[str, int]:
        """Return the counts of records that passed in plaintext, and of data keys."""
        counts = {f"data_keys_{name}": count for name, count in self.data_keys.stats().items()}
        return {"plaintext": self.unprotected.count, **counts}

    def close(self) -> None:
        """Forget the keys, and close the service."""
        self.data_keys.close()


UNKNOWN_EPOCH: Final = -2
"""Differs from every present epoch, so that a check follows."""
EPOCH_EVERY_MS: Final = 1_000
"""How long an epoch is used before it is asked for again, in milliseconds."""


class Epochs:
    """The present epoch of a session's keys, which is looked at once a second.

    ``value`` is the epoch that was found at ``asked_ms``; -1 if it was not known, so that each record is
    checked. Hooks that run for each record compare both themselves.
    """

    __slots__ = ("_ask", "asked_ms", "value")

    def __init__(self, keys: SessionKeys) -> None:
        self._ask: Final = keys.epoch
        self.asked_ms: int = -EPOCH_EVERY_MS
        self.value: int = -1

    def present(self, now_ms: int) -> int:
        """Return the present epoch."""
        if not 0 <= now_ms - self.asked_ms < EPOCH_EVERY_MS:
            self.value, self.asked_ms = self._ask(), now_ms
        return self.value


def _cannot_encrypt(error: KeyServiceError) -> InterceptorError:
    kind = HeldBackError if isinstance(error, KeyServiceUnavailableError) else InterceptorError
    return kind(f"cannot encrypt, so nothing was sent: {error}")


def scope_of(cluster: str, topic: str) -> str:
    """Return the scope that a data key is wrapped for; unambiguous, because a topic's name has no slash."""
    return f"{cluster}/{topic}"
