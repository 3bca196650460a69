"""Encrypt single fields of objects, before they are serialized (spec/encrypt.md).

text          "hw-encrypted:", the statement as in hw.encrypt in base64, ".", and in base64:
              24      salt, random for each field
              32      key commitment
              n       ciphertext of the field as MessagePack, and its tag of 16 bytes

authenticated 21      domain, "headerware/hw.field/1"
              u32 + n the statement
              u8      1 if the record's key is bound, else 0
              u32 + n the key's bytes if it is bound, 0xFFFFFFFF and nothing for null
              u8      number of steps of the field's path
              u8      for each: 0 for a name, 1 for the index in a list
              u32 + n and the name, UTF-8, or the index in decimal
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, get_args

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headerware.connect.errors import ConnectConfigError
from headerware.connect.fields.paths import parse_path
from headerware.connect.modes import STRICT
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import (
    ConfigError,
    DecryptionError,
    InterceptorError,
    WireFormatError,
)
from headerware.core.header_text import decode_text, encode_text
from headerware.core.hooks import Stage
from headerware.interceptors.encrypt.envelope import (
    KEY_BYTES,
    NONCE,
    NULL,
    SALT_BYTES,
    TAIL_BYTES,
    Statement,
    decode_statement,
    decrypted,
    deriver,
    prefixed,
)
from headerware.interceptors.encrypt.keys import SessionKeys
from headerware.interceptors.encrypt.names import FIELD_PREFIX
from headerware.interceptors.encrypt.options import EncryptionOptions
from headerware.interceptors.encrypt.statement_cache import KnownStatements
from headerware.interceptors.encrypt.subject import SubjectOf

if TYPE_CHECKING:
    from headerware.core.context import Context
    from headerware.core.record import Record
    from headerware.keyring.services import DataKey

_DOMAIN: Final = b"headerware/hw.field/1"
_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_TO_SEND: Final = (
    "pass the dict itself to produce, without json.dumps, and put a serialize step after this step to make "
    "its bytes"
)
_TO_CONSUME: Final = "put a serialize step after this step, which makes a dict of the bytes"
_Missing = Literal["refuse", "pass"]
_Path = tuple[str | int, ...]
"""The path of a field in a value: names, and indices in lists."""
_Change = Callable[[Any, _Path], Any]

SealField = Callable[[bytes, bytes, _Path, bytes], str]
"""Takes salt, the authenticated form of the record's key, path and plaintext; returns the field's text."""
OpenField = Callable[[bytes, bytes, _Path], bytes]
"""Takes the bytes after the statement, the authenticated form of the key, and path; returns the plaintext."""


class EncryptFields(EncryptionOptions, frozen=True, kw_only=True):
    r"""Encrypt fields of objects, each to a text; readers without the key can still read the other fields.

    Values are dicts, with dicts and lists in them. A field may hold text, numbers, booleans, bytes, null, and
    lists and dicts of these. Each field is bound to its path, the record's key, and the cluster and topic.

    Args:
        fields: paths of the fields: names with dots between them, where ``\.`` is a dot in a name. A list on
            the path selects all its elements.
        missing: what happens to a record without one of the fields: ``refuse`` refuses it, ``pass`` passes
            it.
        bind_key: whether a field is bound to the record's key; the key must then be bytes, text or null at
            both ends.
        key_service: the key service that wraps the data keys, as for ``encrypt``.
        key_id: the key-encryption key to encrypt under; fields that name it are accepted, too.
        key_ids: further key-encryption keys that fields may name.
        require: what happens to a record with one of the fields in plaintext: ``off`` passes it, ``warn``
            counts it and logs each topic once, ``enforce`` refuses it.
        cluster: this cluster's id; None asks the client.
        accept_origins: other topics whose records are accepted here, too, as for ``encrypt``.
        data_key_max_age_ms: how long a data key encrypts, in milliseconds.
        data_key_max_uses: how many fields a data key encrypts.
        data_key_max_bytes: how many bytes a data key encrypts.
        data_key_cache_ms: how long an unwrapped data key is remembered, in milliseconds.
        data_key_cache_entries: how many unwrapped data keys are remembered; up to half as many can be in use
            at a time without further calls of the key service.
        key_service_timeout_ms: how long a caller waits for the key service, in milliseconds.
        key_of: what names the subject of a record, as for ``encrypt``; here ``value`` is the object before
            its fields are encrypted.
        subject_keys: where the keys of subjects are kept, as for ``encrypt``.

    Raises:
        ConfigError: an option is not valid.
    """

    type: ClassVar[str] = "encrypt_fields"
    stage: ClassVar[Stage] = Stage.OBJECTS
    needs_serializer: ClassVar[str | None] = (
        "it encrypts fields of objects, and no step after it serializes objects: values that are bytes are "
        "refused, and null values pass; put serialize after it, unless the client serializes by itself"
    )

    fields: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    missing: _Missing = "refuse"
    bind_key: bool = True

    def __post_init__(self) -> None:
        """Refuse options that are not valid."""
        super().__post_init__()
        if self.missing not in get_args(_Missing):  # options from code are not checked before
            raise ConfigError(f"expected refuse or pass, found {self.missing!r}", path="missing")
        steps = sorted(_steps(field) for field in self.fields)
        for outer, inner in pairwise(steps):
            if inner[: len(outer)] == outer:
                raise ConfigError(
                    f"the field {'.'.join(inner)!r} is within {'.'.join(outer)!r}, which is encrypted, too",
                    path="fields",
                )

    def open(self, context: Context) -> EncryptFieldsStep:
        """Open the key service, and return the hooks of one session.

        Raises:
            ConfigError: a producer's chain has no ``key_id``.
            KeyringError: the key service cannot be opened.
        """
        return EncryptFieldsStep(self, context)


def _steps(field: str) -> tuple[str, ...]:
    try:
        return parse_path(field, STRICT, "fields").steps
    except ConnectConfigError as error:
        raise ConfigError(str(error).removeprefix("fields: "), path="fields") from error


class EncryptFieldsStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller."""

    def __init__(self, options: EncryptFields, context: Context) -> None:
        self._options = options
        self._paths = tuple(map(_steps, options.fields))
        self._signer = context.signer
        self._keys = SessionKeys(options, context, expected="an encrypted field")
        self._known: KnownStatements[OpenField] = KnownStatements(self._keys, _opener, self._signer)
        # A dry run's records are samples, which have no subject.
        without = options.key_of is None or context.dry_run
        self._subject_of = None if without else SubjectOf(options.key_of or "").of
        self._sealers: BoundedCache[str, tuple[DataKey, SealField]] = BoundedCache(
            options.data_key_cache_entries
        )
        self._encrypted = self._decrypted = 0

    def on_send(self, record: Record) -> Record:
        """Encrypt the fields of the value; a null value has none."""
        if record.value is None:
            return record
        self._keys.require_key_id()
        topic, bound_key, cluster = record.topic, self._bound_key(record), self._keys.own_cluster() or ""
        subject = None
        if self._subject_of is not None:
            subject = self._subject_of(topic, record.value, record.key, record.headers)
        scope = self._keys.scope(cluster, topic, subject)

        def encrypt(value: Any, path: _Path) -> str:
            plain = _packed(value, path)
            data_key = self._keys.data_key_to_encrypt(scope, len(plain))
            found = self._sealers.get(scope)
            if found is None or found[0] is not data_key:
                found = self._sealers[scope] = data_key, self._sealer(data_key, cluster, topic)
            self._encrypted += 1
            return found[1](os.urandom(SALT_BYTES), bound_key, path, plain)

        return record.with_value(self._changed(record.value, encrypt, _TO_SEND))

    def on_consume(self, record: Record) -> Record:
        """Decrypt the fields of the value."""
        if record.value is None:
            return record
        bound_key = self._bound_key(record)

        def decrypt(value: Any, path: _Path) -> Any:
            if type(value) is not str or not value.startswith(FIELD_PREFIX):
                self._keys.unprotected.judge(record)
                return value
            encoded, tail = _parts(value, path)
            ready = self._known.get(record, encoded)
            try:
                plain = msgspec.msgpack.decode(ready.open(tail, bound_key, path))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                raise DecryptionError(
                    f"the field {_shown(path)} holds something other than MessagePack"
                ) from None
            except DecryptionError as error:
                raise DecryptionError(
                    f"the field {_shown(path)} cannot be decrypted: {error.message}"
                ) from error
            if not ready.has_decrypted:
                self._known.confirm(record, encoded, ready)
            self._decrypted += 1
            return plain

        return record.with_value(self._changed(record.value, decrypt, _TO_CONSUME))

    def stats(self) -> dict[str, int]:
        """Return the counts of fields and of data keys."""
        return {"encrypted": self._encrypted, "decrypted": self._decrypted, **self._keys.stats()}

    def close(self) -> None:
        """Forget the keys, and close the key service."""
        self._keys.close()

    def _sealer(self, data_key: DataKey, cluster: str, topic: str) -> SealField:
        statement = Statement(
            key_id=data_key.key_id,
            key_version=data_key.version,
            wrapped=data_key.wrapped,
            cluster=cluster,
            topic=topic,
            signer=self._signer(topic) or "",
        )
        return field_sealer(data_key.secret, statement.encode())

    def _changed(self, value: Any, change: _Change, remedy: str) -> Any:
        if not isinstance(value, Mapping):
            raise InterceptorError(
                f"expected a dict to find fields in, found {type(value).__name__}: {remedy}"
            )
        for steps in self._paths:
            value = self._along(value, steps, (), change)
        return value

    def _along(self, value: Any, steps: tuple[str, ...], path: _Path, change: _Change) -> Any:
        """Return a copy of the value at a path, with the field changed that the steps lead to."""
        if not steps:
            return change(value, path)
        if isinstance(value, list):
            return [self._along(item, steps, (*path, index), change) for index, item in enumerate(value)]
        name = steps[0]
        if not isinstance(value, Mapping) or name not in value:
            if self._options.missing == "pass":
                return value
            raise InterceptorError(
                f'expected a field {_shown((*path, *steps))}, found none (missing = "refuse")'
            )
        return {**value, name: self._along(value[name], steps[1:], (*path, name), change)}

    def _bound_key(self, record: Record) -> bytes:
        """Return the record's key as it is authenticated."""
        key: object = record.key
        if not self._options.bind_key:
            return b"\0"
        if key is None:
            return b"\x01" + NULL
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes):
            raise InterceptorError(
                f"expected a key of bytes or text to bind fields to, found {type(key).__name__}; set "
                "bind_key = false for such keys"
            )
        return b"\x01" + prefixed(key)


def field_sealer(data_key: bytes, statement: bytes) -> SealField:
    """Return the function that encrypts fields under a data key and a statement."""
    derive, beginning = deriver(data_key, _DOMAIN), _DOMAIN + prefixed(statement)
    text = FIELD_PREFIX + encode_text(statement).decode() + "."

    def seal(salt: bytes, bound_key: bytes, path: _Path, plain: bytes, /) -> str:
        derived = derive(salt)
        context = beginning + bound_key + _encoded(path)
        sealed = AESGCM(derived[:KEY_BYTES]).encrypt(NONCE, plain, context)
        return text + encode_text(salt + derived[KEY_BYTES:] + sealed).decode()

    return seal


def field_opener(data_key: bytes, statement: bytes) -> OpenField:
    """Return the function that decrypts fields of a data key and a statement, or raises DecryptionError."""
    derive, beginning = deriver(data_key, _DOMAIN), _DOMAIN + prefixed(statement)

    def unseal(tail: bytes, bound_key: bytes, path: _Path, /) -> bytes:
        return decrypted(derive, tail, tail[TAIL_BYTES:], beginning + bound_key + _encoded(path))

    return unseal


def _opener(data_key: bytes, encoded: bytes, statement: Statement) -> OpenField:  # noqa: ARG001 - a signature that KnownStatements calls
    return field_opener(data_key, encoded)


def _encoded(path: _Path) -> bytes:
    """Return the path of a field as it is authenticated."""
    steps = [
        b"\0" + prefixed(step.encode()) if isinstance(step, str) else b"\x01" + prefixed(b"%d" % step)
        for step in path
    ]
    return bytes((len(steps),)) + b"".join(steps)


def statement_of_field(text: str) -> Statement:
    """Return the statement of an encrypted field, which anybody may have written until it is decrypted.

    Raises:
        DecryptionError: the text is not of two parts in base64.
        WireFormatError: the statement cannot be read.
    """
    return decode_statement(_parts(text, ())[0])


def _parts(text: str, path: _Path) -> tuple[bytes, bytes]:
    """Return the statement in a field's text, and the bytes after it."""
    statement, _, tail = text.removeprefix(FIELD_PREFIX).partition(".")
    try:
        return tuple(decode_text(part.encode(), "field") for part in (statement, tail))  # type: ignore[return-value]  # two
    except (WireFormatError, UnicodeEncodeError):
        raise DecryptionError(
            f"the field {_shown(path)} cannot be read: expected two parts in base64 after {FIELD_PREFIX!r}"
        ) from None


def _packed(value: Any, path: _Path) -> bytes:
    _require_plain(value, path)
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, ValueError):  # the exception's text may quote the value
        raise InterceptorError(
            f"the field {_shown(path)} has a number of more than 64 bits, or text that UTF-8 cannot express"
        ) from None


def _require_plain(value: Any, path: _Path) -> None:
    """Refuse a value that MessagePack would not give back with the same types."""
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is list:
        for item in value:
            _require_plain(item, path)
        return
    if kind is dict and all(type(name) is str for name in value):
        for item in value.values():
            _require_plain(item, path)
        return
    raise InterceptorError(
        f"the field {_shown(path)} holds a {kind.__name__}; expected text, numbers, booleans, bytes, null, "
        "and lists and dicts of these, with names that are text"
    )


def _shown(path: _Path) -> str:
    return repr(".".join(map(str, path)))
