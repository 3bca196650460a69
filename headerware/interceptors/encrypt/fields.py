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
    KeyServiceError,
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
    decrypted,
    deriver,
    prefixed,
)
from headerware.interceptors.encrypt.keys import (
    ASK_EVERY_MS,
    EncryptionOptions,
    Known,
    KnownStatements,
    SessionKeys,
    cannot_encrypt,
    check_signer,
    scope_of,
)

if TYPE_CHECKING:
    from headerware.core.context import Context
    from headerware.core.record import Record
    from headerware.keyring.services import DataKey

FIELD_PREFIX: Final = "hw-encrypted:"
_DOMAIN: Final = b"headerware/hw.field/1"
_MAX_TOPICS: Final = 1024
_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_Missing = Literal["refuse", "pass"]
_Place = tuple[str | int, ...]
"""The steps to a field: names, and indices in lists."""
_Change = Callable[[Any, _Place], Any]

SealField = Callable[[bytes, bytes, _Place, bytes], str]
"""Takes salt, the key's part of what is authenticated, place and plaintext, and returns the field's text."""
OpenField = Callable[[bytes, bytes, _Place], bytes]
"""Takes what follows the statement, the key's part and the place, and returns the plaintext."""


class EncryptFields(EncryptionOptions, frozen=True, kw_only=True):
    r"""Encrypt fields of objects, so that each becomes a text; whoever may not decrypt them reads the rest.

    Values are dicts, with dicts and lists in them. A field may hold text, numbers, booleans, bytes, null, and
    lists and dicts of these. Each is bound to its path, to the record's key, and to the cluster and topic.

    Args:
        fields: paths of the fields: names with dots between them, where ``\.`` is a dot in a name. A list on
            the path stands for all its elements.
        missing: what happens to a record without one of the fields: ``refuse`` refuses it, ``pass`` lets it
            pass.
        bind_key: whether a field is bound to the record's key, which is then bytes, text or null at both
            ends.
        key_service: what wraps the data keys, as for ``encrypt``.
        key_id: the key-encryption key to encrypt under; fields that name it are accepted, too.
        key_ids: further key-encryption keys that fields may name.
        require: what happens to a record one of whose fields is plaintext: ``off`` passes it, ``warn`` counts
            it and logs each topic once, ``enforce`` refuses it.
        cluster: this cluster's id; None asks the client.
        accept_origins: other topics whose records may stand here too, as for ``encrypt``.
        data_key_max_age_ms: how long a data key encrypts, in milliseconds.
        data_key_max_uses: how many fields it encrypts.
        data_key_max_bytes: how many bytes it encrypts.
        data_key_cache_ms: how long an unwrapped data key is remembered, in milliseconds.
        data_key_cache_entries: how many of them are at most; half as many may be in use at a time without
            further calls.
        key_service_timeout_ms: how long a caller waits for the key service, in milliseconds.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "encrypt_fields"
    stage: ClassVar[Stage] = Stage.OBJECTS
    needs_serializer: ClassVar[str | None] = (
        "fields are those of objects, and no step behind it serializes these: values that are bytes are "
        "refused, and null ones pass; put serialize behind it, unless the client serializes by itself"
    )

    fields: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    missing: _Missing = "refuse"
    bind_key: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        super().__post_init__()
        if self.missing not in get_args(_Missing):  # in code it was not checked before
            raise ConfigError(f"refuse or pass, not {self.missing!r}", path="missing")
        steps = sorted(_steps(field) for field in self.fields)
        for outer, inner in pairwise(steps):
            if inner[: len(outer)] == outer:
                raise ConfigError(
                    f"the field {'.'.join(inner)!r} is within {'.'.join(outer)!r}, which is encrypted whole",
                    path="fields",
                )

    def open(self, context: Context) -> EncryptFieldsStep:
        """Open the key service, and return the hooks of one session.

        Raises:
            ConfigError: a producer's chain without a ``key_id``.
            KeyringError: a key service that cannot be opened.
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
        self._sealers: BoundedCache[tuple[str, str], tuple[DataKey, SealField]] = BoundedCache(_MAX_TOPICS)
        self._encrypted = self._decrypted = 0

    def on_send(self, record: Record) -> Record:
        """Encrypt the fields of the value; a null value has none."""
        key_id = self._options.key_id
        if record.value is None:
            return record
        if key_id is None:
            raise InterceptorError("sending takes a key_id to encrypt with, and none is configured")
        topic, bound_key, cluster = record.topic, self._bound_key(record), self._keys.own_cluster() or ""
        scope = scope_of(cluster, topic)

        def encrypt(value: Any, place: _Place) -> str:
            plain = _packed(value, place)
            try:
                data_key = self._keys.data_keys.to_send(key_id, scope, len(plain))
            except KeyServiceError as error:
                cannot_encrypt(error)
            found = self._sealers.get((cluster, topic))
            if found is None or found[0] is not data_key:
                found = self._sealers[cluster, topic] = data_key, self._sealer(data_key, cluster, topic)
            self._encrypted += 1
            return found[1](os.urandom(SALT_BYTES), bound_key, place, plain)

        return record.with_value(self._changed(record.value, encrypt))

    def on_consume(self, record: Record) -> Record:
        """Decrypt the fields of the value."""
        if record.value is None:
            return record
        bound_key = self._bound_key(record)

        def decrypt(value: Any, place: _Place) -> Any:
            if type(value) is not str or not value.startswith(FIELD_PREFIX):
                self._keys.unprotected.judge(record)
                return value
            encoded, tail = _parts(value, place)
            ready = self._find(record, encoded)
            try:
                plain = msgspec.msgpack.decode(ready.open(tail, bound_key, place))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                raise DecryptionError(
                    f"the field {_shown(place)} holds something other than MessagePack"
                ) from None
            except DecryptionError as error:
                raise DecryptionError(
                    f"the field {_shown(place)} cannot be decrypted: {error.message}"
                ) from error
            if not ready.opened:
                ready.opened = True
                self._known.remembered[record.topic, encoded] = ready
            self._decrypted += 1
            return plain

        return record.with_value(self._changed(record.value, decrypt))

    def stats(self) -> dict[str, int]:
        """Count fields, and what the data keys count."""
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

    def _find(self, record: Record, encoded: bytes) -> Known[OpenField]:
        known = self._known.remembered.get((record.topic, encoded))
        if known is None or not 0 <= self._keys.now_ms() - known.asked_ms < ASK_EVERY_MS:
            return self._known.find(record, encoded)
        check_signer(known.statement, record, self._signer)
        return known

    def _changed(self, value: Any, change: _Change) -> Any:
        if not isinstance(value, Mapping):
            raise InterceptorError(f"expected a dict to find fields in, found {type(value).__name__}")
        for path in self._paths:
            value = self._along(value, path, (), change)
        return value

    def _along(self, value: Any, path: tuple[str, ...], place: _Place, change: _Change) -> Any:
        """Return a value with the field at a path changed; values on the way are copied, not altered."""
        if not path:
            return change(value, place)
        if isinstance(value, list):
            return [self._along(item, path, (*place, index), change) for index, item in enumerate(value)]
        name = path[0]
        if not isinstance(value, Mapping) or name not in value:
            if self._options.missing == "pass":
                return value
            raise InterceptorError(
                f'expected a field {_shown((*place, *path))}, found none (missing = "refuse")'
            )
        return {**value, name: self._along(value[name], path[1:], (*place, name), change)}

    def _bound_key(self, record: Record) -> bytes:
        """Return the key's part of what is authenticated."""
        key: object = record.key
        if not self._options.bind_key:
            return b"\0"
        if key is None:
            return b"\x01" + NULL
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes):
            raise InterceptorError(
                f"expected a key of bytes or text, to which fields can be bound, found {type(key).__name__}; "
                "set bind_key = false for such keys"
            )
        return b"\x01" + prefixed(key)


def field_sealer(data_key: bytes, statement: bytes) -> SealField:
    """Return the function that encrypts fields under a data key and a statement."""
    derive, beginning = deriver(data_key, _DOMAIN), _DOMAIN + prefixed(statement)
    text = FIELD_PREFIX + encode_text(statement).decode() + "."

    def seal(salt: bytes, bound_key: bytes, place: _Place, plain: bytes, /) -> str:
        derived = derive(salt)
        context = beginning + bound_key + _encoded(place)
        sealed = AESGCM(derived[:KEY_BYTES]).encrypt(NONCE, plain, context)
        return text + encode_text(salt + derived[KEY_BYTES:] + sealed).decode()

    return seal


def field_opener(data_key: bytes, statement: bytes) -> OpenField:
    """Return the function that decrypts fields of a data key and a statement, or raises DecryptionError."""
    derive, beginning = deriver(data_key, _DOMAIN), _DOMAIN + prefixed(statement)

    def unseal(tail: bytes, bound_key: bytes, place: _Place, /) -> bytes:
        return decrypted(derive, tail, tail[TAIL_BYTES:], beginning + bound_key + _encoded(place))

    return unseal


def _opener(data_key: bytes, encoded: bytes, statement: Statement) -> OpenField:  # noqa: ARG001 - as others are called
    return field_opener(data_key, encoded)


def _encoded(place: _Place) -> bytes:
    """Return the steps to a field as they are authenticated."""
    steps = [
        b"\0" + prefixed(step.encode()) if isinstance(step, str) else b"\x01" + prefixed(b"%d" % step)
        for step in place
    ]
    return bytes((len(steps),)) + b"".join(steps)


def _parts(text: str, place: _Place) -> tuple[bytes, bytes]:
    """Return the statement of a field's text, and what follows it."""
    statement, _, tail = text.removeprefix(FIELD_PREFIX).partition(".")
    try:
        return tuple(decode_text(part.encode(), "field") for part in (statement, tail))  # type: ignore[return-value]  # two
    except (WireFormatError, UnicodeEncodeError):
        raise DecryptionError(
            f"the field {_shown(place)} cannot be read: expected two parts in base64 behind {FIELD_PREFIX!r}"
        ) from None


def _packed(value: Any, place: _Place) -> bytes:
    _require_plain(value, place)
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, ValueError):  # its text may quote the value
        raise InterceptorError(
            f"the field {_shown(place)} has a number of more than 64 bits, or text that UTF-8 cannot express"
        ) from None


def _require_plain(value: Any, place: _Place) -> None:
    """Refuse what would not come back as it was."""
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is list:
        for item in value:
            _require_plain(item, place)
        return
    if kind is dict and all(type(name) is str for name in value):
        for item in value.values():
            _require_plain(item, place)
        return
    raise InterceptorError(
        f"the field {_shown(place)} holds a {kind.__name__}; expected text, numbers, booleans, bytes, null, "
        "and lists and dicts of these, by names that are text"
    )


def _shown(place: _Place) -> str:
    return repr(".".join(map(str, place)))
