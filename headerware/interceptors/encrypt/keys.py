"""The keys of one session: the keys that a record may name, and the errors if a key cannot be used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, NoReturn, TypeVar

import msgspec

from headerware.core.bounded_cache import BoundedCache
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
)
from headerware.core.hooks import Interceptor, Role
from headerware.core.options import from_option, kinds
from headerware.core.origins import Origins, cluster_port
from headerware.core.requirement import Require, Unprotected, requirement
from headerware.interceptors.encrypt.envelope import Statement, decode_statement
from headerware.keyring import key_id_problem
from headerware.keyring.services import DataKey, DataKeys, key_service_type, open_key_service
from headerware.keyring.services.data_keys import CACHE_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.context import Context
    from headerware.core.record import Record

CHECK_EVERY_MS: Final = 1_000
"""How long a data key decrypts before its validity is checked again, in milliseconds."""
_MAX_STATEMENTS: Final = 4096
_MAX_STATEMENTS_BYTES: Final = 4 << 20
_log = logging.getLogger("headerware.interceptors.encrypt")
Opener = TypeVar("Opener")


class EncryptionOptions(Interceptor, frozen=True, kw_only=True):
    """The options of all interceptors that encrypt."""

    role: ClassVar[Role] = Role.PROTECT
    hides: ClassVar[bool] = True
    blocks: ClassVar[bool] = True
    names_cluster: ClassVar[bool] = True

    key_service: Annotated[Any, kinds(key_service_type)]
    key_id: str | None = None
    key_ids: tuple[str, ...] = ()
    require: Require = "enforce"
    cluster: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    accept_origins: tuple[str, ...] = ()
    data_key_max_age_ms: Annotated[int, msgspec.Meta(ge=1)] = 3_600_000
    data_key_max_uses: Annotated[int, msgspec.Meta(ge=1)] = 1 << 30
    data_key_max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1 << 40
    data_key_cache_ms: Annotated[int, msgspec.Meta(ge=1)] = 7_200_000
    data_key_cache_entries: Annotated[int, msgspec.Meta(ge=2)] = CACHE_ENTRIES
    key_service_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 5_000

    def __post_init__(self) -> None:
        """Normalize the options, and refuse options that are not valid."""
        msgspec.structs.force_setattr(self, "require", requirement(self.require))
        if isinstance(self.key_service, str | Mapping):  # code may give a type or a table, too, with secrets
            service = from_option(self.key_service, key_service_type, path="key_service")
            msgspec.structs.force_setattr(self, "key_service", service)
        for path, key_id in (("key_id", self.key_id), *(("key_ids", each) for each in self.key_ids)):
            if key_id is not None and (problem := key_id_problem(key_id)):
                raise ConfigError(problem, path=path)
        if not self.accepted_ids:
            raise ConfigError(
                "expected the key_id to encrypt with, or the key_ids that records may name; found neither",
                path="key_id",
            )
        Origins(self.accept_origins)

    def shown(self, option: str, written: Any) -> Any:
        """Return an option as it may be printed, without the secrets of the key service."""
        if option != "key_service" or not isinstance(written, Mapping):
            return written
        return {name: "[hidden]" if _is_secret(name, value) else value for name, value in written.items()}

    @property
    def accepted_ids(self) -> frozenset[str]:
        """The key-encryption keys that records may name."""
        return frozenset((*self.key_ids, *(() if self.key_id is None else (self.key_id,))))


def _is_secret(name: str, value: object) -> bool:
    named = any(word in name.casefold() for word in ("token", "secret", "password")) and "file" not in name
    return named and not str(value).startswith("${")


class SessionKeys:
    """The data keys of one session; sending is safe for several threads, reading has one caller."""

    def __init__(self, options: EncryptionOptions, context: Context, *, expected: str) -> None:
        if context.side == "producer" and options.key_id is None:
            raise ConfigError("sending needs the id of a key to encrypt with", path="key_id")
        self.accepted: Final = options.accepted_ids
        self.now_ms: Final = context.now_ms
        self.known_cluster: Final = cluster_port(options.cluster, context.cluster_id)
        self.own_cluster: Final = cluster_port(options.cluster, context.awaited_cluster_id)
        self.origins: Final = Origins(options.accept_origins)
        self.unprotected: Final = Unprotected(
            options.require,
            log=_log,
            without="in plaintext",
            refusal=lambda advice: DecryptionError(f"expected {expected}, found plaintext{advice}"),
        )
        self.data_keys: Final = DataKeys(
            open_key_service(options.key_service, context, path="key_service"),
            key_ids=self.accepted,
            max_age_ms=options.data_key_max_age_ms,
            max_uses=options.data_key_max_uses,
            max_bytes=options.data_key_max_bytes,
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

    def examine(self, encoded: bytes, topic: str, own: str | None) -> Statement:
        """Return a decoded statement if its key and origin are accepted; the key service is not called.

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
                f"accepted here"
            )
        if "/" in statement.topic:
            raise DecryptionError("it names a topic with a slash, which no topic's name has")
        problem = self.origins.problem(statement.cluster, statement.topic, own=own, found_in=topic)
        if problem:
            raise DecryptionError(f"encrypted {problem}")
        return statement

    def to_read(self, key_id: str, wrapped: bytes, scope: str) -> DataKey:
        """Return a data key to decrypt with.

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
            raise DecryptionError(f"its data key cannot be unwrapped: {error}") from error

    def stats(self) -> dict[str, int]:
        """Return the counts of records that passed in plaintext, and of data keys."""
        counts = {f"data_keys_{name}": count for name, count in self.data_keys.stats().items()}
        return {"plaintext": self.unprotected.count, **counts}

    def close(self) -> None:
        """Forget the keys, and close the service."""
        self.data_keys.close()


def scope_of(cluster: str, topic: str) -> str:
    """Return the scope that a data key is wrapped for; a topic has no slash, so no two scopes are equal."""
    return f"{cluster}/{topic}"


def cannot_encrypt(error: KeyServiceError) -> NoReturn:
    """Raise the error for a record that is not sent because there is no key to encrypt it with."""
    kind = HeldBackError if isinstance(error, KeyServiceUnavailableError) else InterceptorError
    raise kind(f"cannot encrypt, so nothing was sent: {error}") from error


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
    """Refuse nothing."""


class Known(Generic[Opener]):
    """A statement, and the opener: the function that decrypts records with this statement."""

    __slots__ = ("checked_ms", "data_key", "open", "opened", "statement")

    def __init__(self, statement: Statement, open_: Opener, data_key: DataKey, checked_ms: int) -> None:
        self.statement: Final = statement
        self.open: Final = open_
        self.data_key: Final = data_key
        self.checked_ms: int = checked_ms
        """When the validity of the data key was last checked."""
        self.opened: bool = False
        """Whether the opener has decrypted a record, which proves that the statement is genuine."""


class KnownStatements(Generic[Opener]):
    """Find the opener for a record's statement.

    ``remembered`` has the openers that have decrypted a record, by topic and statement. The caller adds an
    opener after it has decrypted a record, and calls :meth:`find` again after :data:`CHECK_EVERY_MS`. So only
    somebody with a data key can fill the cache, and a forgotten key is soon no longer used.

    ``prepare`` makes an opener from ``(data key, statement's bytes, statement)``. ``judge`` refuses some of
    the statements that :meth:`SessionKeys.examine` accepts. ``signer`` is :attr:`headerware.Context.signer`.
    For one caller at a time.
    """

    def __init__(
        self,
        keys: SessionKeys,
        prepare: Callable[[bytes, bytes, Statement], Opener],
        signer: Callable[[str], str | None],
        judge: Callable[[Statement], None] = _accept,
    ) -> None:
        self._keys = keys
        self._signer = signer
        self._prepare = prepare
        self._judge = judge
        self._own = keys.known_cluster()
        self.remembered: Final[BoundedCache[tuple[str, bytes], Known[Opener]]] = BoundedCache(
            _MAX_STATEMENTS, max_cost=_MAX_STATEMENTS_BYTES, cost=lambda asked, _known: len(asked[1])
        )

    def find(self, record: Record, encoded: bytes) -> Known[Opener]:
        """Return the opener for a record's statement; the key service is called after all checks.

        Raises:
            HeldBackError: the key service cannot be reached now.
            DecryptionError: the statement or its signer is refused, or its key was deleted.
        """
        keys, topic = self._keys, record.topic
        if self._own is None and keys.own_cluster() is not None:
            self._own = keys.own_cluster()
            self.remembered.clear()
        known = self.remembered.get((topic, encoded))
        statement = self._examined(topic, encoded) if known is None else known.statement
        check_signer(statement, record, self._signer)
        scope = scope_of(statement.cluster, statement.topic)
        data_key = keys.to_read(statement.key_id, statement.wrapped, scope)
        now_ms = keys.now_ms()
        if known is None or data_key is not known.data_key:
            return Known(statement, self._prepare(data_key.secret, encoded, statement), data_key, now_ms)
        known.checked_ms = now_ms
        return known

    def prefetch(self, statements: Iterable[tuple[Record, bytes]]) -> None:
        """Unwrap the data keys of statements that are not remembered, several at once."""
        unknown = [asked for asked in statements if self.remembered.get((asked[0].topic, asked[1])) is None]
        wanted = []
        for record, encoded in unknown if len(unknown) > 1 else ():
            try:
                statement = self._examined(record.topic, encoded)
                check_signer(statement, record, self._signer)
            except DecryptionError:
                continue  # decrypting the record raises the error
            wanted.append((statement.key_id, statement.wrapped, scope_of(statement.cluster, statement.topic)))
        if wanted:
            self._keys.data_keys.prefetch(wanted)

    def _examined(self, topic: str, encoded: bytes) -> Statement:
        statement = self._keys.examine(encoded, topic, self._own)
        self._judge(statement)
        return statement
