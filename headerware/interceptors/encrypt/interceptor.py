"""Encrypt values on send, and decrypt them on consume (spec/encrypt.md).

Each value is encrypted with AES-256-GCM under a key of its own, which is derived from a data key; a key
service keeps the key-encryption key under which data keys are wrapped. The layout of ``hw.encrypt`` and of
the authenticated data is in :mod:`headerware.interceptors.encrypt.envelope`.
"""

from __future__ import annotations

import logging
import os
from base64 import b64encode
from functools import partial
from struct import unpack
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, get_args

from headerware.core.batch import header_names
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import (
    ConfigError,
    DecryptionError,
    InterceptorError,
    WireFormatError,
)
from headerware.core.header_text import decode_text, text_bytes
from headerware.core.headers import EMPTY, Headers
from headerware.core.hooks import Place
from headerware.core.native import NativeForm, NativeState
from headerware.core.record import VERIFIED
from headerware.core.requirement import Unprotected
from headerware.interceptors.encrypt.envelope import (
    ALWAYS_BOUND,
    MAX_BOUND_HEADERS,
    SALT_BYTES,
    TAG_BYTES,
    TAIL_BYTES,
    Open,
    Seal,
    Statement,
    opener,
    sealer,
)
from headerware.interceptors.encrypt.keys import (
    EPOCH_EVERY_MS,
    UNKNOWN_EPOCH,
    Epochs,
    SessionKeys,
    scope_of,
)
from headerware.interceptors.encrypt.names import BLOCK_HEADER, ENCRYPT_HEADER
from headerware.interceptors.encrypt.options import EncryptionOptions
from headerware.interceptors.encrypt.record_keys import (
    RECORD_KEY_SCOPE,
    SIV_TAG_BYTES,
    RecordKeys,
    decode_key_secret,
)
from headerware.interceptors.encrypt.secret_headers import (
    BlockCipher,
    added_bytes,
    hidden,
    may_be_secret,
    revealed,
)
from headerware.interceptors.encrypt.statement_cache import KnownStatements, StatementOpener
from headerware.interceptors.encrypt.subject import FindSubject, SubjectOf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.headers import HeaderValue, Pair
    from headerware.core.record import Record
    from headerware.core.services import Direction
    from headerware.keyring.services import DataKey

_Nulls = Literal["authenticate", "pass"]
_KeyMode = Literal["plain", "deterministic"]
_NULL_TAIL_BYTES: Final = TAIL_BYTES + TAG_BYTES
_TAIL_TEXT_BYTES: Final = text_bytes(_NULL_TAIL_BYTES + 2)
"""The size of the end of a header's text, which differs between records with the same statement."""
_SALT_NUMBERS: Final = SALT_BYTES // 8
"""How many numbers of 64 bits a salt is, as native code gets it."""
_MAX_TOPICS: Final = 1024
_CHECK_EVERY_MS: Final = 100
"""How long a data key encrypts before its validity is checked again, in milliseconds."""
_CHECK_SUBJECTS_EVERY_MS: Final = 30_000
"""The same for data keys of subjects, which are also checked when any key of a subject becomes invalid."""
_CHECKS_PER_KEY: Final = 128
"""The validity is also checked after this fraction of a data key's uses or bytes."""
_FRAMING_BYTES: Final = 10
"""The largest size of a header's two lengths in the record format."""
_FIRST_STATEMENT_BYTES: Final = 2048
"""An upper bound of a statement's size without its names, until the first statement is made."""
_MAX_ENCRYPTED_NAMES: Final = 64
_log = logging.getLogger("headerware.interceptors.encrypt")


class Encrypt(EncryptionOptions, frozen=True, kw_only=True):
    """Encrypt each value, and refuse records that are plaintext, changed, or from another topic.

    Decryption removes ``hw.encrypt``. It also authenticates the record's key, its cluster and topic, the key
    that signs the record, and the headers that describe the plaintext. Headers can be encrypted, too; a
    reader needs no option to decrypt those of ``headers``.

    Args:
        key_service: the key service that wraps the data keys: its type, a table of ``type`` and options, or
            an object (docs/key-services.md).
        key_id: the key-encryption key to encrypt under; records that name it are accepted, too. A consumer
            needs this or ``key_ids``.
        key_ids: further key-encryption keys that records may name. A record that names another key is refused
            without a call of the service.
        require: what happens to records in plaintext, or with a header in plaintext that ``headers`` or
            ``deterministic_headers`` names: ``off`` passes them, ``warn`` counts them and logs each topic
            once, ``enforce`` refuses them. False and True mean off and enforce.
        nulls: what happens to null values: ``authenticate`` leaves them null and adds a tag, so that nobody
            else can delete a key of a compacted topic; ``pass`` neither writes nor requires one.
        key: how the record's key is sent: ``plain`` leaves it unchanged, ``deterministic`` encrypts equal
            keys to equal ciphertexts.
        key_secret: the wrapped secret for ``deterministic`` and ``deterministic_headers``;
            ``headerware keys key-secret`` makes it.
        bind_headers: names of headers that are authenticated with the value; on consume, records must have
            them authenticated. ``hw.compress``, ``hw.id`` and ``hw.schema`` always are authenticated.
        headers: names of headers whose names and values are encrypted. They leave together in one header,
            ``hw.secret``, and come back in their places.
        deterministic_headers: names of headers that stay where they are, with values that are encrypted
            deterministically: equal values of a topic and a name have equal ciphertexts.
        cluster: this cluster's id; None asks the client.
        accept_origins: other topics whose records are accepted here, too, if a mirror copies them byte for
            byte: ``cluster/topic``, in which ``*`` and ``?`` are wildcards, and ``{topic}`` is the topic that
            is read.
        data_key_max_age_ms: how long a data key encrypts, in milliseconds.
        data_key_max_uses: how many records a data key encrypts.
        data_key_max_bytes: how many bytes of values a data key encrypts.
        data_key_cache_ms: how long an unwrapped data key is remembered, in milliseconds.
        data_key_cache_entries: how many unwrapped data keys are remembered; up to half as many can be in use
            at a time without further calls of the key service. Each takes about 600 bytes.
        key_service_timeout_ms: how long a caller waits for the key service, in milliseconds.
        key_of: what names the subject of a record, such as a person, who then has a key of their own that can
            be erased: ``header:NAME``, or an expression (CEL) over ``topic``, ``key``, ``value`` and
            ``headers``, such as ``value.customer``. A record without a subject is refused.
        subject_keys: where the keys of subjects are kept: a table of ``type = "topic"``, ``topic`` and its
            options (docs/guides/erase-a-person.md). Readers need it, too.

    Raises:
        ConfigError: an option is not valid.
    """

    type: ClassVar[str] = "encrypt"
    place: ClassVar[Place | None] = Place.ENCRYPT
    decodes: ClassVar[tuple[str, ...]] = (ENCRYPT_HEADER,)

    nulls: _Nulls = "authenticate"
    key: _KeyMode = "plain"
    key_secret: str | None = None
    bind_headers: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    deterministic_headers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse options that are not valid."""
        super().__post_init__()
        for path, given, known in (("nulls", self.nulls, _Nulls), ("key", self.key, _KeyMode)):
            if given not in get_args(known):  # options from code are not checked before
                raise ConfigError(f"expected one of {', '.join(get_args(known))}, found {given!r}", path=path)
        encrypts_headers = bool(self.headers or self.deterministic_headers)
        if (self.key == "deterministic" or bool(self.deterministic_headers)) != (self.key_secret is not None):
            raise ConfigError(
                'key = "deterministic" and deterministic_headers need a key_secret, and nothing else takes '
                "one; headerware keys key-secret makes one",
                path="key_secret",
            )
        if self.nulls == "pass" and (self.key == "deterministic" or encrypts_headers):
            raise ConfigError(
                'expected "authenticate" with encrypted keys or headers, found "pass": without hw.encrypt, '
                "a reader cannot decrypt the key and the headers of a null value",
                path="nulls",
            )
        if self.key_secret is not None:
            try:
                secret = decode_key_secret(self.key_secret)
            except WireFormatError as error:
                raise ConfigError(f"cannot be read: {error}", path="key_secret") from None
            if secret.key_id not in self.accepted_ids:
                raise ConfigError(
                    f"the secret is wrapped under the key {secret.key_id!r}, which is not among the key_ids",
                    path="key_secret",
                )
        _check_bound(self.bind_headers)
        _check_encrypted("headers", self.headers, self.bind_headers)
        _check_encrypted("deterministic_headers", self.deterministic_headers, self.headers)

    def open(self, context: Context) -> EncryptStep:
        """Open the key service, and return the hooks of one session.

        Raises:
            ConfigError: a producer's chain has no ``key_id``.
            KeyringError: the key service cannot be opened.
        """
        return EncryptStep(self, context)


def _check_bound(names: Sequence[str]) -> None:
    if len(set(names)) > MAX_BOUND_HEADERS:
        raise ConfigError(f"expected at most {MAX_BOUND_HEADERS} names", path="bind_headers")
    for name in names:
        if name.casefold() in {ENCRYPT_HEADER, "hw.sig"}:
            raise ConfigError(
                f"{name!r} depends on the ciphertext, so it cannot be bound", path="bind_headers"
            )
        if not 1 <= len(name.encode()) <= 255:
            raise ConfigError("expected names of 1 to 255 bytes", path="bind_headers")


def _check_encrypted(path: str, names: Sequence[str], others: Collection[str]) -> None:
    if len(set(names)) > _MAX_ENCRYPTED_NAMES:
        raise ConfigError(f"expected at most {_MAX_ENCRYPTED_NAMES} names", path=path)
    for name in names:
        if not may_be_secret(name):
            raise ConfigError(
                f"{name!r} cannot be encrypted: expected a name of 1 to 255 bytes that does not begin with "
                "hw. or ce_ and is not among the headers that describe the value, such as content-type",
                path=path,
            )
        if name in others:
            before = "bind_headers" if path == "headers" else "headers"
            raise ConfigError(
                f"{name!r} is among the {before}, too; remove it there or here, because the name of a header "
                "in headers is not shown, and its value is authenticated",
                path=path,
            )


def _header_in_plaintext(advice: str) -> DecryptionError:
    return DecryptionError(
        "expected its headers to be encrypted that headers and deterministic_headers name, found one in "
        f"plaintext{advice}"
    )


def _set_aside(record: Record) -> Headers:
    """Return the headers that the application gets in addition, without a step having seen them."""
    return EMPTY if record.verified is None else record.verified.set_aside


class _Sealing(NamedTuple):
    """The function that encrypts records under a data key, and what it is made of."""

    seal: Seal
    data_key: DataKey
    statement: bytes
    blocks: BlockCipher | None
    """Encrypts secret headers; None if there are none."""


class _Opening(NamedTuple):
    """The function that decrypts records of a statement, and the cipher of their secret headers."""

    open: Open
    blocks: BlockCipher | None
    """Decrypts secret headers; None if the statement does not bind ``hw.secret``."""


class _Target:
    """A topic that records are sent to, or one of its subjects: what encrypts, and its uses since a check."""

    __slots__ = ("checked_ms", "epoch", "records", "scope", "sealing", "size_bytes", "subject")

    def __init__(self, scope: str, subject: str | None = None) -> None:
        self.scope = scope
        self.subject: Final = subject
        self.sealing: _Sealing | None = None
        """Replaced as a whole: several threads may send."""
        self.checked_ms = 0
        self.epoch = UNKNOWN_EPOCH
        """The epoch of the keys when the data key was last checked."""
        self.records = self.size_bytes = 0


class _Cluster:
    """A cluster's id and targets; all are replaced together, so that no thread mixes two clusters."""

    __slots__ = ("id", "subjects", "topics")

    def __init__(self, cluster: str | None, keys: SessionKeys, max_subjects: int) -> None:
        self.id: Final = cluster
        self.topics: Final[BoundedCache[str, _Target]] = BoundedCache(
            _MAX_TOPICS, lambda topic: _Target(scope_of(cluster or "", topic))
        )
        self.subjects: Final[BoundedCache[tuple[str, str], _Target]] = BoundedCache(
            max_subjects, lambda asked: _Target(keys.scope(cluster or "", *asked), asked[1])
        )


_Parts = tuple[Any, Any, Headers]
"""The value, the key and the headers that encryption or decryption makes."""


class EncryptStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller."""

    def __init__(self, options: Encrypt, context: Context) -> None:
        self._options = options
        self._signer = context.signer
        self._keys = SessionKeys(options, context, expected="an hw.encrypt header")
        self._bound = tuple(sorted(set(options.bind_headers) - ALWAYS_BOUND))
        self._hidden: Final = frozenset(options.headers)
        self._deterministic: Final = frozenset(options.deterministic_headers)
        self._encrypted_names: Final = self._hidden | self._deterministic
        also_bound = {BLOCK_HEADER, *self._deterministic} if self._encrypted_names else set()
        self._stated: Final = tuple(sorted(also_bound.union(self._bound)))
        """The names of bound headers in the statements of this writer."""
        self._in_plaintext: Final = Unprotected(
            options.require,
            log=_log,
            without="with headers in plaintext that are to be encrypted",
            refusal=_header_in_plaintext,
        )
        self._encrypts_keys: Final = options.key == "deterministic"
        self._secret = None if options.key_secret is None else decode_key_secret(options.key_secret)
        self._record_keys: tuple[bytes, RecordKeys] | None = None
        self._known: KnownStatements[_Opening] = KnownStatements(
            self._keys, self._opener, self._signer, self._refuse_unprotected
        )
        # A dry run's records are samples, which have no subject.
        without = options.key_of is None or context.dry_run
        self._subject_of = None if without else SubjectOf(options.key_of or "").of
        self._shared_bytes = 0
        """The largest size so far of a statement's parts that do not depend on the topic."""
        self._encrypted = self._decrypted = 0
        self._blocks_written = self._blocks_read = 0
        self._passes_nulls: Final = options.nulls == "pass"
        self._max_records: Final = options.data_key_max_uses // _CHECKS_PER_KEY
        self._max_bytes: Final = options.data_key_max_bytes // _CHECKS_PER_KEY
        self._epochs: Final = Epochs(self._keys)
        self._current = self._cluster(self._keys.known_cluster())
        self._encrypted_parts: Final[Callable[..., _Parts | None]] = self._encrypting()
        self._plain_parts: Final[Callable[[Record], _Parts | None]] = self._decrypting()

    def on_send(self, record: Record) -> Record:
        """Encrypt a record."""
        made = self._encrypted_parts(record.topic, record.value, record.key, record.headers)
        return record if made is None else record.with_parts(*made, record.local)

    def on_consume(self, record: Record) -> Record:
        """Decrypt a record."""
        made = self._plain_parts(record)
        return record if made is None else record.with_parts(*made, record.local)

    def on_send_batch(self, batch: Batch) -> Batch:
        """Encrypt each record; make the keys of new subjects together."""
        if self._subject_of is not None:
            self._prepare_subjects(batch, self._subject_of)
        encrypt = partial(self._encrypted_parts, batch.topic)
        return batch.remake(("value", "key", "headers"), encrypt, batch.values, batch.keys, batch.headers)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Decrypt many records; unwrap their data keys together."""
        records = batch.records()
        self._known.prefetch(self._statements(records))
        return batch.remake(("value", "key", "headers"), self._plain_parts, records)

    def native_form(self, direction: Direction, topic: str) -> NativeForm | None:
        """Return the native form of a batch hook, unless keys or headers of records are encrypted.

        Records that are encrypted for their subjects are not sent natively: each may have another data key.
        """
        if self._secret is not None or self._encrypted_names:
            return None
        if direction == "send" and self._subject_of is not None:
            return None
        state = self._native_encryption if direction == "send" else self._native_decryption
        return NativeForm(partial(state, topic), pays=True)

    def _native_encryption(self, topic: str, batch: Batch) -> NativeState | None:
        """Return the state with the current data key, if it may encrypt the whole batch without a check."""
        # Native steps before this one make values smaller, or leave them as they are.
        records, size_bytes = len(batch), sum(map(len, filter(None, batch.values)))
        if records > self._max_records or size_bytes > self._max_bytes:
            return None
        cluster = self._current if self._current.id is not None else self._find_cluster()
        to = cluster.topics[topic]
        sealing = to.sealing
        if (
            sealing is None
            or not 0 <= self._keys.now_ms() - to.checked_ms < _CHECK_EVERY_MS
            or to.records + records > self._max_records
            or to.size_bytes + size_bytes > self._max_bytes
        ):
            sealing = self._renew(to, cluster.id or "", topic, 0)
            to.records -= 1  # the check has counted a record, and note() counts all

        def arguments() -> tuple[Any, ...]:
            return b64encode(sealing.statement), sealing.data_key.secret, self._passes_nulls

        def salts() -> Sequence[int]:
            return unpack(f"<{_SALT_NUMBERS * records}q", os.urandom(SALT_BYTES * records))

        def note(_batch: Batch, _not_taken: Sequence[int], facts: tuple[int, int]) -> None:
            encrypted, encrypted_bytes = facts
            to.records += encrypted
            to.size_bytes += encrypted_bytes
            self._encrypted += encrypted

        return NativeState("encrypt", sealing.seal, arguments, salts, note)

    def _native_decryption(self, topic: str, batch: Batch) -> NativeState | None:
        """Return the state with the data keys of statements that the hooks have accepted.

        Each of them needs no check now. Records that may have secret headers are left to the hooks.
        """
        known = tuple(each for each in self._known.fresh(topic) if each[1].open.blocks is None)
        verified = [None if local is None else local.get(VERIFIED) for local in batch.locals]
        signers = {None if facts is None else facts.key_id for facts in verified}
        if not known or len(signers) > 1 or BLOCK_HEADER in header_names(batch.headers):
            return None
        signer = signers.pop()
        verifies = signer is not None or self._signer(topic) is not None

        def arguments() -> tuple[Any, ...]:
            return verifies, signer, [(b64encode(text), opener.data_key.secret) for text, opener in known]

        def note(batch: Batch, not_taken: Sequence[int], _facts: Any) -> None:
            self._decrypted += len(batch) - len(not_taken)

        return NativeState("decrypt", (verifies, signer, known), arguments, note=note)

    def overhead_bytes(self, record: Record) -> int:
        """Return an upper bound of the bytes that encryption adds to a record on the wire."""
        siv = SIV_TAG_BYTES if self._encrypts_keys and record.key else 0
        shared = self._shared_bytes or _FIRST_STATEMENT_BYTES + sum(1 + len(n.encode()) for n in self._stated)
        statement = shared + self._topic_bytes(record.topic)
        header = text_bytes(statement + _NULL_TAIL_BYTES)
        added = len(ENCRYPT_HEADER) + _FRAMING_BYTES + header + TAG_BYTES + siv
        if self._encrypted_names:
            added += _FRAMING_BYTES + added_bytes(record.headers, self._hidden, self._deterministic)
        return added

    def stats(self) -> dict[str, int]:
        """Return the counts of records and of data keys."""
        return {
            "encrypted": self._encrypted,
            "decrypted": self._decrypted,
            "headers_encrypted": self._blocks_written,
            "headers_decrypted": self._blocks_read,
            "headers_plaintext": self._in_plaintext.count,
            **self._keys.stats(),
        }

    def close(self) -> None:
        """Forget the keys, and close the key service."""
        self._record_keys = None
        self._keys.close()

    # Sending

    def _encrypting(self) -> Callable[[str, Any, Any, Headers], _Parts | None]:
        # One function with everything bound, because it is called for each record.
        now_ms, random, new = self._keys.now_ms, os.urandom, tuple.__new__
        find_cluster, passes_nulls = self._find_cluster, self._passes_nulls
        encrypts_keys, encrypts_headers = self._encrypts_keys, bool(self._encrypted_names)
        subject_of = self._subject_of
        check_every_ms = _CHECK_EVERY_MS if subject_of is None else _CHECK_SUBJECTS_EVERY_MS
        max_records, max_bytes = self._max_records, self._max_bytes
        epochs = self._epochs

        def encrypted(topic: str, value: Any, key: Any, headers: Headers) -> _Parts | None:
            if value is None and passes_nulls:
                return None
            cluster = self._current
            if cluster.id is None:
                cluster = find_cluster()
            now = now_ms()
            if subject_of is None:
                to = cluster.topics[topic]
                sealing = to.sealing
            else:
                to = cluster.subjects[topic, subject_of(topic, value, key, headers)]
                if not 0 <= now - epochs.asked_ms < EPOCH_EVERY_MS:
                    epochs.present(now)
                sealing = to.sealing if to.epoch == epochs.value else None
            size_bytes = 0 if value is None else len(value)
            if (
                sealing is None
                or not 0 <= now - to.checked_ms < check_every_ms
                or to.records >= max_records
                or to.size_bytes >= max_bytes
            ):
                sealing = self._renew(to, cluster.id or "", topic, size_bytes)
            else:
                to.records += 1
                to.size_bytes += size_bytes
            if encrypts_keys:
                key = self._cipher_of_keys().encrypt(topic, key)
            salt, derived = random(SALT_BYTES), None
            if encrypts_headers:
                headers, derived = self._with_block(sealing, topic, salt, headers)
            text, sealed = sealing.seal(salt, key, value, headers, derived)
            self._encrypted += 1
            return sealed, key, new(Headers, (*headers, (ENCRYPT_HEADER, text)))

        return encrypted

    def _with_block(
        self, sealing: _Sealing, topic: str, salt: bytes, headers: Headers
    ) -> tuple[Headers, bytes | None]:
        """Encrypt headers; return those to send, and what was derived from the salt if there is a block."""
        assert sealing.blocks is not None  # noqa: S101 - this step encrypts headers
        left, block = hidden(
            headers,
            self._hidden,
            self._deterministic,
            lambda name, value: self._cipher_of_keys().encrypt_header(topic, name, value),
        )
        if not block:
            return headers, None
        derived = sealing.blocks.derive(salt)
        self._blocks_written += 1
        return Headers.trusted((*left, (BLOCK_HEADER, sealing.blocks.encrypt(derived, block)))), derived

    def _find_cluster(self) -> _Cluster:
        """Return the cluster and its topics; they are new once the cluster's id is known."""
        found = self._keys.own_cluster()
        if found is not None:
            self._current = self._cluster(found)
        return self._current

    def _cluster(self, cluster: str | None) -> _Cluster:
        return _Cluster(cluster, self._keys, self._options.data_key_cache_entries)

    def _renew(self, to: _Target, cluster: str, topic: str, size_bytes: int) -> _Sealing:
        """Check that a topic's data key may encrypt one more record; if not, replace it by a new one."""
        now_ms = self._keys.now_ms()
        sealing = to.sealing
        if sealing is not None:
            # Other threads may go on counting meanwhile.
            (records, to.records), (in_bytes, to.size_bytes) = (to.records, 0), (to.size_bytes, 0)
            self._keys.data_keys.note_use(sealing.data_key, to.scope, records=records, size_bytes=in_bytes)
        epoch = UNKNOWN_EPOCH
        if to.subject is not None:
            epoch = self._epochs.present(now_ms)
            # The topic of subjects' keys may have got another secret, for instance because it was made anew.
            to.scope = self._keys.scope(cluster, topic, to.subject)
        data_key = self._keys.data_key_to_encrypt(to.scope, size_bytes)
        if sealing is None or data_key is not sealing.data_key:
            sealing = to.sealing = self._sealing(data_key, cluster, topic)
        to.checked_ms = now_ms
        to.epoch = UNKNOWN_EPOCH if epoch < 0 else epoch
        return sealing

    def _prepare_subjects(self, batch: Batch, subject_of: FindSubject) -> None:
        """Make the keys of those subjects of a batch that no record was encrypted for before."""
        cluster = self._current if self._current.id is not None else self._find_cluster()
        topic, known = batch.topic, cluster.subjects
        new = set()
        for value, key, headers in zip(batch.values, batch.keys, batch.headers, strict=True):
            try:
                asked = topic, subject_of(topic, value, key, headers)
                if known.get(asked) is None:
                    new.add(known[asked].scope)
            except InterceptorError:
                continue  # encrypting the record raises the error
        if len(new) > 1:  # a single one is made when its record is encrypted
            self._keys.prepare(new)

    def _sealing(self, data_key: DataKey, cluster: str, topic: str) -> _Sealing:
        statement = Statement(
            key_id=data_key.key_id,
            key_version=data_key.version,
            wrapped=data_key.wrapped,
            cluster=cluster,
            topic=topic,
            signer=self._signer(topic) or "",
            key_is_encrypted=self._encrypts_keys,
            bound=self._stated,
        ).encode()
        self._shared_bytes = max(self._shared_bytes, len(statement) - self._topic_bytes(topic))
        blocks = BlockCipher(data_key.secret, statement) if self._encrypted_names else None
        return _Sealing(sealer(data_key.secret, statement, self._stated), data_key, statement, blocks)

    def _topic_bytes(self, topic: str) -> int:
        """Return the size of a statement's parts that depend on the topic."""
        return len(topic.encode()) + len((self._signer(topic) or "").encode())

    # Consuming

    def _decrypting(self) -> Callable[[Record], _Parts | None]:
        # One function with everything bound, because it is called for each record.
        opener_of, unprotected = self._known.get, self._keys.unprotected
        to_layout, new, passes_nulls = decode_text, tuple.__new__, self._options.nulls == "pass"
        encrypted_names = self._encrypted_names

        def decrypted(record: Record) -> _Parts | None:
            headers, value = record.headers, record.value
            if headers and headers[-1][0] == ENCRYPT_HEADER:
                text, others = headers[-1][1], headers[:-1]
            elif ENCRYPT_HEADER in headers:
                at = headers.names().index(ENCRYPT_HEADER)
                text, others = headers[at][1], headers[:at] + headers[at + 1 :]
            else:
                if value is not None or not passes_nulls:
                    unprotected.judge(record)
                return None
            try:
                layout = to_layout(text, ENCRYPT_HEADER)
            except WireFormatError as error:
                raise DecryptionError(f"its encryption header cannot be read: {error}") from error
            end = len(layout) - (_NULL_TAIL_BYTES if value is None else TAIL_BYTES)
            if end < 0:  # noqa: PLR1730 - max() is slower, and this runs for each record
                end = 0
            encoded = layout[:end]
            ready = opener_of(record, encoded)
            statement, opening = ready.statement, ready.open
            key = record.key
            if opening.blocks is not None:
                plain, others = self._open_with_block(record, ready, layout[end:], others)
            else:
                plain = opening.open(layout[end:], key, value, others)
                if encrypted_names:
                    self._require_encrypted(record, others)
            if statement.key_is_encrypted:
                key = self._cipher_of_keys().decrypt(statement.topic, key)
            if not ready.has_decrypted:
                self._known.confirm(record, encoded, ready)
            self._decrypted += 1
            return plain, key, new(Headers, others)

        return decrypted

    def _open_with_block(
        self,
        record: Record,
        ready: StatementOpener[_Opening],
        tail: bytes,
        headers: tuple[Pair, ...],
    ) -> tuple[bytes | None, tuple[Pair, ...]]:
        """Return the plain value, and the headers as they were before their encryption.

        The value is decrypted first, because its tag shows that the block is genuine.
        """
        (open_, blocks), statement = ready.open, ready.statement
        texts = [value for name, value in headers if name == BLOCK_HEADER]
        if blocks is None or not texts:
            plain = open_(tail, record.key, record.value, headers)
            self._require_encrypted(record, headers)
            return plain, headers
        derived = blocks.derive(tail[:SALT_BYTES])
        plain = open_(tail, record.key, record.value, headers, derived)
        if len(texts) > 1:
            raise DecryptionError("the record carries more than one hw.secret")
        block = blocks.decrypt(derived, texts[0])
        if not set(statement.bound).issuperset(block.deterministic):
            raise DecryptionError("its hw.secret names an encrypted header that its hw.encrypt does not bind")
        received = [pair for pair in headers if pair[0] != BLOCK_HEADER]
        secret = {name for _, name, _ in block.headers}
        if any(name in secret for name, _ in (*received, *_set_aside(record))):
            raise DecryptionError("a header in plaintext has the name of a secret header, so it was added")
        self._require_encrypted(record, received, block.deterministic)
        found = revealed(received, block, partial(self._decrypted_header, statement.topic))
        self._blocks_read += 1
        return plain, found

    def _require_encrypted(
        self, record: Record, headers: Iterable[Pair], deterministic: Collection[str] = ()
    ) -> None:
        """Judge a record by its headers in plaintext; the values of ``deterministic`` ones are encrypted."""
        names = {name for name, _ in headers}.difference(deterministic)
        names.update(name for name, _ in _set_aside(record))
        if not names.isdisjoint(self._encrypted_names):
            self._in_plaintext.judge(record)

    def _decrypted_header(self, topic: str, name: str, value: HeaderValue) -> HeaderValue:
        if self._secret is None:
            raise DecryptionError(
                f"its header {name!r} is encrypted deterministically; configure deterministic_headers and "
                "the key_secret"
            )
        return self._cipher_of_keys().decrypt_header(topic, name, value)

    def _opener(self, data_key: bytes, encoded: bytes, statement: Statement) -> _Opening:
        blocks = BlockCipher(data_key, encoded) if BLOCK_HEADER in statement.bound else None
        return _Opening(opener(data_key, encoded, statement.bound), blocks)

    def _refuse_unprotected(self, statement: Statement) -> None:
        """Refuse a statement that does not protect the headers and the key as the options require."""
        missing = set(self._bound).difference(statement.bound)
        if missing:
            raise DecryptionError(
                f"expected these headers to be authenticated with the value: "
                f"{', '.join(map(repr, sorted(missing)))}"
            )
        if statement.key_is_encrypted and self._secret is None:
            raise DecryptionError('its key is encrypted; configure key = "deterministic" and the key_secret')
        if not statement.key_is_encrypted and self._encrypts_keys and self._options.require == "enforce":
            raise DecryptionError('its key is plaintext, and key = "deterministic" requires an encrypted key')

    def _cipher_of_keys(self) -> RecordKeys:
        """Return the cipher of record keys; unwrap the secret with the key service if it is not cached."""
        if self._secret is None:
            raise DecryptionError("there is no key_secret for record keys")
        secret = self._keys.data_key_to_decrypt(
            self._secret.key_id, self._secret.wrapped, RECORD_KEY_SCOPE
        ).secret
        known = self._record_keys
        if known is None or known[0] != secret:
            known = self._record_keys = secret, RecordKeys(secret)
        return known[1]

    def _statements(self, records: Sequence[Record]) -> list[tuple[Record, bytes]]:
        """Return the readable statements of a batch, each at least once for each signer."""
        # Most records of a batch have the same statement, and texts that begin alike have the same data key.
        alike = {
            (
                record.topic,
                (text or b"")[:-_TAIL_TEXT_BYTES],
                record.verified and record.verified.key_id,
            ): (record, text)
            for record in records
            for name, text in record.headers[-1:]
            if name == ENCRYPT_HEADER
        }
        found = []
        for record, text in alike.values() if len(alike) > 1 else ():
            try:
                layout = decode_text(text, ENCRYPT_HEADER)
            except WireFormatError:
                continue  # decrypting the record raises the error
            end = len(layout) - (_NULL_TAIL_BYTES if record.value is None else TAIL_BYTES)
            found.append((record, layout[: max(0, end)]))
        return found
