"""Show the records of a topic as they are on the wire, and as an application gets them through a chain.

A :class:`ChainView` applies the consuming side of a chain, as a dry run, to the records that a
:class:`~headerware.kafka.reader.TopicReader` reads. Interceptors that only observe are left out, because
their trail entries, spans and reports are about real consumers. A dead letter is made, but not published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.batch import Batch
from headerware.core.bounded_cache import BoundedCache
from headerware.core.chain import Chain
from headerware.core.context import Context, wall_clock_ms
from headerware.core.dead_letter import origin_of
from headerware.core.errors import (
    ConfigError,
    DecryptionError,
    HeaderError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    KeyringError,
    KeyServiceUnavailableError,
    WireFormatError,
)
from headerware.core.header_text import decode_text
from headerware.core.headers import EMPTY, Headers
from headerware.core.hooks import DROP, Interceptor, Role
from headerware.core.order import precedes_bytes, role_of
from headerware.core.record import Record, Verified
from headerware.core.runner import flat
from headerware.core.step import wrapped
from headerware.core.suggestions import with_equals
from headerware.interceptors.encrypt.names import BLOCK_HEADER, ENCRYPT_HEADER, FIELD_PREFIX
from headerware.interceptors.header_ids import HeaderIds
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.trail import TrailReading, read_trail
from headerware.interceptors.trail_proof import PROVEN, HopProof, TrailProof
from headerware.keyring.signature import (
    SIGNATURE_HEADER,
    STAMP_BYTES,
    decode_stamp,
    decode_statement,
)
from headerware.registry.names import NamesSource
from headerware.registry.wire.codec import HeaderIdCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from headerware.core.services import Direction
    from headerware.kafka.reader import TopicReader

Outcome = Literal["delivered", "waits", "dropped", "dead_letter", "refused", "held_back"]
"""The chain's result for a record: it is delivered as one or more records, is kept for later, or is stopped.

``held_back`` means that the chain cannot decide now, because a key service does not answer or a keyring
cannot be read. The record may be good: a consumer waits for it, and skips nothing.
"""

_MAX_FIELDS: Final = 100
"""How many encrypted fields of a record are shown."""
_MAX_PATH: Final = 1_000
"""How many characters the path of an encrypted field may have, and how many levels, to be shown."""
_MAX_MESSAGES: Final = 1_024
"""How many messages in slices are remembered because their first slice met the conditions."""


# The views of a record


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A key, a value or a header's value, cut to a bounded size.

    Args:
        size_bytes: the complete size; 0 for a null, and None for a deserialized object, which has no size.
        beginning: the first bytes; for a deserialized object, the first bytes of its JSON.
        kind: ``bytes``, ``null``, or the type of the deserialized object.
        is_cut: whether ``beginning`` is not all of it.
    """

    size_bytes: int | None
    beginning: bytes
    kind: str = "bytes"
    is_cut: bool = False


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """A record in one form: on the wire, or as an application gets it.

    Args:
        topic: the topic, which a transform may have changed.
        key: the key.
        value: the value.
        headers: the headers, in order.
        size_bytes: the size of the key, the value, and the headers' names and values together; None if the
            key or the value is an object.
        header_bytes: the size of the headers' names and values.
    """

    topic: str
    key: Part
    value: Part
    headers: tuple[tuple[str, Part], ...]
    size_bytes: int | None
    header_bytes: int


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step of the chain.

    Args:
        step: the interceptor's name.
        outcome: ``changed``, ``unchanged``, ``waits`` (the step keeps the record for later), ``dropped``,
            ``refused``, ``held_back``, or ``skipped`` (the step failed, and the record went on unchanged).
        size_bytes: the size of the record after this step; None if its key or its value is an object.
        value_bytes: the size of its value; None if it is an object.
        header_bytes: the size of its headers.
        removed: names of the headers that the step removed.
        added: names of the headers that the step added.
        reason: why the record was refused or held back, or why the step failed and was skipped.
    """

    step: str
    outcome: Literal["changed", "unchanged", "waits", "dropped", "refused", "held_back", "skipped"]
    size_bytes: int | None
    value_bytes: int | None
    header_bytes: int
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    reason: str | None = None


class SignatureView(msgspec.Struct, frozen=True, kw_only=True):
    """The signature of a record, verified or only claimed.

    Args:
        verified: whether the chain has verified the signature; if not, anyone may have written these facts.
        key_id: the id of the signing key.
        key_version: the version of the signing key.
        signed_at_ms: the time of signing by the signer's clock, in milliseconds since the epoch.
        cluster: the cluster that the record was signed for; empty if the signer did not know it.
        topic: the topic that the record was signed for.
        producer: the producer session that signed, as hexadecimal text.
        sequence: the number of the record in that session.
        uncovered: names of the headers that were added after signing.
        subject: the key's holder, from the certificate that ``admission`` accepted; empty without one.
        issuer: the issuer of that certificate; empty without one.
    """

    verified: bool
    key_id: str
    key_version: int
    signed_at_ms: int
    cluster: str
    topic: str
    producer: str
    sequence: int
    uncovered: tuple[str, ...] = ()
    subject: str = ""
    issuer: str = ""


class EncryptionView(msgspec.Struct, frozen=True, kw_only=True):
    """The encryption of a record, proved by decryption or only claimed.

    Args:
        decrypted: whether the chain has decrypted the record; if not, anyone may have written these facts.
        key_id: the id of the key-encryption key.
        key_version: the version of this key as the key service states it; may be empty.
        cluster: the cluster that the record was encrypted for; empty if the producer did not know it.
        topic: the topic that the record was encrypted for.
        signer: the id of the key that signs the record; empty if the producer's chain does not sign.
        encrypts_key: whether the record's key is encrypted too.
        encrypts_headers: whether some of its headers are encrypted too.
    """

    decrypted: bool
    key_id: str
    key_version: str
    cluster: str
    topic: str
    signer: str
    encrypts_key: bool
    encrypts_headers: bool = False


class EncryptedFieldView(msgspec.Struct, frozen=True, kw_only=True):
    """A field that ``encrypt_fields`` encrypted, proved by decryption or only claimed.

    Args:
        field: the path of the field, as in the option ``fields``: a list on the path has no part in it.
        decrypted: whether the chain has decrypted the field; if not, anyone may have written these facts.
        key_id: the id of the key-encryption key.
        key_version: the version of this key as the key service states it; may be empty.
        cluster: the cluster that the field was encrypted for; empty if the producer did not know it.
        topic: the topic that the field was encrypted for.
        signer: the id of the key that signs the record; empty if the producer's chain does not sign.
    """

    field: str
    decrypted: bool
    key_id: str
    key_version: str
    cluster: str
    topic: str
    signer: str


class SliceView(msgspec.Struct, frozen=True, kw_only=True):
    """The slice of a message that a record contains.

    Args:
        message_id: the id of the message, as hexadecimal text.
        index: the slice's number, from 0.
        count: how many slices the message has.
        total_bytes: the length of the complete value.
    """

    message_id: str
    index: int
    count: int
    total_bytes: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a record does not reach an application, or not yet.

    Args:
        step: the interceptor that refused the record or holds it back; None if no interceptor got the record.
        type: the class of the error. For a record that is held back because of a keyring or a key service,
            the class of that cause, such as ``KeyServiceUnavailableError``.
        reason: what was expected and what was found, without any payload.
    """

    step: str | None
    type: str
    reason: str


class TailedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a topic as it is on the wire, and the result of a chain.

    Args:
        topic: the topic.
        partition: the partition.
        offset: the offset.
        timestamp_ms: milliseconds since the epoch, or None.
        outcome: the chain's result.
        wire: the record as it is on the wire; None for a message whose slices did not all arrive in time.
        headers: the headers on the wire, with names in place of ids.
        application: the records that an application gets.
        steps: the steps of the chain, in the order of consuming.
        not_run: names of the interceptors of the chain that only observe, and did not run.
        refusal: the error for which the record was refused, held back or dropped; None without an error.
        dead_letter_topic: the topic that its dead letter would be sent to.
        slice: the slice of a message that the record contains; None if it is not a slice.
        signature: the signature; None if the record has no readable one.
        encryption: the encryption; None if the record has no readable ``hw.encrypt``.
        encrypted_fields: the encrypted fields of the value, a hundred at most; found in objects that the
            chain makes, and in values that are JSON.
        trail: the services that the record passed; None if the header cannot be read.
        trail_hops: which entries of the trail are proven, in their order; None if the chain's trail is not
            signed, or the record did not reach it.
        trail_problem: why the trail does not prove where the record has been; None if it does, or was not
            checked.
        dead_letter_of: for a dead letter, the position of its original as text; else None.
        cluster: the id of the cluster that the record was read from; None if it is not known.
    """

    topic: str
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    outcome: Outcome
    wire: RecordView | None = None
    headers: tuple[tuple[str, Part], ...] = ()
    application: tuple[RecordView, ...] = ()
    steps: tuple[StepView, ...] = ()
    not_run: tuple[str, ...] = ()
    refusal: Refusal | None = None
    dead_letter_topic: str | None = None
    slice: SliceView | None = None
    signature: SignatureView | None = None
    encryption: EncryptionView | None = None
    encrypted_fields: tuple[EncryptedFieldView, ...] = ()
    trail: TrailReading | None = TrailReading()
    trail_hops: tuple[HopProof, ...] | None = None
    trail_problem: str | None = None
    dead_letter_of: str | None = None
    cluster: str | None = None


# Calls of the steps

_Call = tuple[str, Record, Any]
"""A call of a hook: the step's name, the record, and the result or the exception."""


class _Watcher(Interceptor, frozen=True, kw_only=True):
    """Record each call of the chain's hooks, with its result."""

    type: ClassVar[str] = "headerware-tail"
    role: ClassVar[Role] = Role.OBSERVE

    calls: list[_Call]

    def on_consume(self, record: Record) -> Record:
        """Return the record unchanged; a chain refuses interceptors without hooks."""
        return record

    def wrap_hook(
        self,
        step: str,
        direction: Direction,  # noqa: ARG002 - a service's signature
        hook: Callable[[Any], Any],
    ) -> Callable[[Any], Any]:
        """Return a hook that calls the given one and records the call."""

        def recorded(given: Any) -> Any:
            records = list(given) if isinstance(given, Batch) else [given]
            try:
                out = hook(given)
            except Exception as error:
                self.calls.extend((step, record, error) for record in records)
                raise
            if not isinstance(out, Batch):
                self.calls.append((step, given, out))
                return out
            made = [out.failures.get(at, record) for at, record in enumerate(out)]
            not_taken = set(out.not_taken)
            self.calls.extend(
                (step, *pair)
                for at, pair in enumerate(zip(records, made, strict=False))
                if at not in not_taken
            )
            return out

        return recorded


# Conditions


class Condition(msgspec.Struct, frozen=True):
    """A condition on a record's headers: ``NAME=VALUE``, ``NAME~REGEX``, ``NAME`` or ``!NAME``.

    The first two hold if any value of the header is equal to VALUE, or contains a match of REGEX. ``NAME``
    holds if the record has the header, ``!NAME`` if it does not.
    """

    name: str
    kind: Literal["equals", "matches", "is_there", "is_absent"]
    value: str = ""

    @property
    def text(self) -> str:
        """The condition as it is written."""
        sign = {"equals": "=", "matches": "~"}.get(self.kind, "")
        return f"{'!' if self.kind == 'is_absent' else ''}{self.name}{sign}{self.value}"

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition.

        Raises:
            ConfigError: the name is missing, or the regular expression is not valid.
        """
        if text.startswith("!"):
            found = cls(text[1:], "is_absent")
        else:
            # A name may begin with "~", as compact keys do.
            at = next((at for at, character in enumerate(text) if at and character in "=~"), None)
            if at is None:
                found = cls(text, "is_there")
            else:
                found = cls(text[:at], "equals" if text[at] == "=" else "matches", text[at + 1 :])
        is_name = found.kind == "is_there" or ": " in found.name
        if is_name and (meant := with_equals(text)):
            raise ConfigError(
                f"expected NAME=VALUE, NAME~REGEX, NAME or !NAME, found a colon; did you mean {meant}?"
            )
        name, value = found.name.strip(), found.value.lstrip("= ")
        if found.kind == "equals" and name and value and (name, value) != (found.name, found.value):
            raise ConfigError(
                f"expected NAME=VALUE, with one = and no space around it, found {text!r}; did you mean "
                f"{name}={value}? (NAME~REGEX finds any value)"
            )
        if not found.name or found.name.startswith("="):
            raise ConfigError(f"expected NAME=VALUE, NAME~REGEX, NAME or !NAME, found {text!r}")
        if found.kind == "matches":
            try:
                re.compile(found.value)
            except re.error as error:
                raise ConfigError(f"expected a regular expression, found {found.value!r}: {error}") from None
        return found

    def holds(self, headers: Iterable[tuple[str, bytes | None]]) -> bool:
        """Return whether the condition holds for these headers."""
        values = [value or b"" for name, value in headers if name == self.name]
        if self.kind == "is_absent":
            return not values
        if self.kind == "is_there":
            return bool(values)
        if self.kind == "equals":
            return self.value.encode("utf-8", "surrogateescape") in values
        pattern = re.compile(self.value)
        return any(pattern.search(value.decode("utf-8", "replace")) for value in values)


class ChainView:
    """Show the result of a chain's consuming side for records; for one caller at a time.

    Args:
        chain: the chain.
        cluster_id: the cluster's id, which signatures name.
        bootstrap_servers: the cluster's brokers, from which a step may read a topic of its own.
        where: conditions on the headers, with names in place of ids; all must hold. The chain does not see
            other records. If the first slice of a message meets the conditions, so do the other slices.
        key: the key, as text, that a record must have.
        max_part_bytes: how many bytes are kept of a key, a value or a header's value.
        now_ms: the clock.

    Raises:
        HeaderwareError: an interceptor cannot start.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        cluster_id: str | None = None,
        bootstrap_servers: str | None = None,
        where: Sequence[Condition] = (),
        key: str | None = None,
        max_part_bytes: int = 4_096,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        observing = [role_of(interceptor) is Role.OBSERVE for interceptor in chain]
        self.left_out: Final = [name for name, left in zip(chain.names, observing, strict=True) if left]
        """The names of the interceptors that only observe, and are left out here."""
        running = [interceptor for interceptor, left in zip(chain, observing, strict=True) if not left]
        self.names: Final = Chain(running).names
        """The names of the interceptors that run, in the order of sending."""
        self._decrypting: Final = {
            name
            for name, interceptor in zip(self.names, running, strict=True)
            if getattr(interceptor, "type", None) == "encrypt_fields"
        }
        self._cluster_id = cluster_id
        self._where = tuple(where)
        self._key = None if key is None else key.encode("utf-8", "surrogateescape")
        self._max_part_bytes = max_part_bytes
        self._calls: list[_Call] = []
        self._dead_letters: list[str] = []
        self._wanted: BoundedCache[tuple[int | None, bytes], bool] = BoundedCache(_MAX_MESSAGES)
        header_ids = next((each for each in running if isinstance(each, HeaderIds)), None)
        self._names = NamesSource(None if header_ids is None else header_ids.registry)
        self._codec = HeaderIdCodec(_no_id, lambda header_id: self._names.current().name_of(header_id))
        context = Context(
            side="consumer",
            client_id="headerware-tail",
            now_ms=now_ms,
            bootstrap_servers=bootstrap_servers,
            cluster_id=lambda: cluster_id,
            publish=lambda letter: self._dead_letters.append(letter.topic),
            dry_run=True,
        )
        if len(chain):  # an empty chain checks nothing; with the watcher in it, it would
            running.insert(sum(map(precedes_bytes, running)), _Watcher(calls=self._calls))
        try:
            self._session = Chain(running).open(context)
        except BaseException:
            self._names.close()
            raise

    def look(self, record: Record) -> TailedRecord | None:
        """Return the chain's result for a record from the wire; None if the record fails the conditions."""
        unreadable: HeaderError | None = None
        try:
            record = record.replace(headers=Headers(record.headers))
        except HeaderError as error:
            unreadable = error
            record = record.replace(headers=EMPTY)
        headers = record.headers
        with suppress(WireFormatError):  # the chain reports the error
            headers = self._codec.decode(headers)
        part = _slice_of(headers)
        if not self._is_wanted(record, headers, part):
            return None
        self._calls.clear()
        self._dead_letters.clear()
        outcome = unreadable or self._session.consume_outcome(record)
        try:
            return self._tailed(record, headers, part, outcome)
        finally:
            self._calls.clear()  # the calls hold payloads

    def poll(self) -> list[TailedRecord]:
        """Return the records that the chain releases or gives up after a time, as incomplete messages."""
        self._calls.clear()
        self._dead_letters.clear()
        outcomes = self._session.poll()
        self._calls.clear()
        found = []
        for outcome in outcomes:
            if isinstance(outcome, HeaderwareError):
                found.append(_given_up(outcome))
            elif outcome is not DROP:
                found.extend(self._released(record) for record in flat(outcome))
        return found

    def close(self) -> None:
        """Close the chain."""
        self._session.close()
        self._names.close()

    def _is_wanted(self, record: Record, headers: Headers, part: SliceHeader | None) -> bool:
        if self._key is not None and record.key != self._key:
            return False
        if not self._where:
            return True
        if part is not None and part.index and self._wanted.get((record.partition, part.message_id)):
            return True
        wanted = all(condition.holds((*headers, *record.headers)) for condition in self._where)
        if wanted and part is not None:
            self._wanted[record.partition, part.message_id] = True
        return wanted

    def _tailed(
        self, record: Record, headers: Headers, part: SliceHeader | None, outcome: Any
    ) -> TailedRecord:
        application: list[Record] = []
        error = self._raised()
        what: Outcome = "delivered"
        try:
            application.extend(flat(outcome))
        except HeaderwareError as refused:
            what, error = _outcome_of(refused), refused
        else:
            if outcome is DROP:
                what = "dead_letter" if self._dead_letters else "dropped"
            elif not application:
                what = "waits"
        verified = next((found for _, found, _ in reversed(self._calls) if found.verified), None)
        verified = next((each for each in application if each.verified), verified)
        proof = _proof_of(application[0]) if application else None
        origin = origin_of(headers, record.topic)
        return TailedRecord(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            outcome=what,
            wire=self._view(record),
            headers=self._headers(headers),
            application=tuple(map(self._view, application)),
            steps=tuple(self._steps(what)),
            not_run=tuple(self.left_out),
            refusal=None if error is None or what in ("delivered", "waits") else _refusal(error),
            dead_letter_topic=self._dead_letters[0] if self._dead_letters else None,
            slice=None if part is None else _slice_view(part),
            signature=_signature(headers, None if verified is None else verified.verified),
            encryption=_encryption(headers, record, application),
            encrypted_fields=self._encrypted_fields(record),
            trail=_trail(application[0].headers if application else headers),
            trail_hops=None if proof is None else proof.hops,
            trail_problem=None if proof is None else proof.problem,
            dead_letter_of=None if origin is None else str(origin),
            cluster=self._cluster_id,
        )

    def _encrypted_fields(self, record: Record) -> tuple[EncryptedFieldView, ...]:
        values = [record.value, *(before.value for _, before, _ in self._calls)]
        decrypted: set[str] = set()
        for step, before, result in self._calls:
            if step in self._decrypting and isinstance(result, Record):
                decrypted.update(text for _, text in _field_texts(before.value))
                decrypted.difference_update(text for _, text in _field_texts(result.value))
        return next((found for value in values if (found := _field_views(value, decrypted))), ())

    def _raised(self) -> HeaderwareError | None:
        """Return the error of the last step that was called; None if the step did not fail."""
        result = self._calls[-1][2] if self._calls else None
        return wrapped(result).at(*self._calls[-1][:2]) if isinstance(result, Exception) else None

    def _steps(self, what: Outcome) -> Iterator[StepView]:
        seen: set[str] = set()
        for at, (step, before, result) in enumerate(self._calls):
            after, outcome, reason = before, "unchanged", None
            if isinstance(result, Exception):
                is_last = at == len(self._calls) - 1 and what not in ("delivered", "waits")
                error = wrapped(result)
                outcome, reason = _outcome_of(error) if is_last else "skipped", _message(error)
            elif result is DROP:
                outcome = "dropped"
            elif isinstance(result, Record):
                after = result
            elif isinstance(result, list):
                after = result[0] if result and isinstance(result[0], Record) else before
                outcome = "unchanged" if result else "waits"
            view = self._step(step, outcome, before, after, reason)
            # A step may be called again after all steps have accepted a record.
            if view.outcome != "unchanged" or step not in seen:
                yield view
            seen.add(step)

    def _step(self, step: str, outcome: Any, before: Record, after: Record, reason: str | None) -> StepView:
        old, new = before.headers.names(), after.headers.names()
        changed = (
            after.value is not before.value
            or after.key is not before.key
            or after.headers != before.headers
            or after.topic != before.topic
        )
        value_bytes, header_bytes = _size(after.value), _header_bytes(after.headers)
        return StepView(
            step=step,
            outcome="changed" if outcome == "unchanged" and changed else outcome,
            size_bytes=_sum(_size(after.key), value_bytes, header_bytes),
            value_bytes=value_bytes,
            header_bytes=header_bytes,
            removed=tuple(name for name in dict.fromkeys(old) if name not in new),
            added=tuple(name for name in dict.fromkeys(new) if name not in old),
            reason=reason,
        )

    def _released(self, record: Record) -> TailedRecord:
        proof = _proof_of(record)
        return TailedRecord(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            outcome="delivered",
            application=(self._view(record),),
            not_run=tuple(self.left_out),
            signature=_signature(record.headers, record.verified),
            trail=_trail(record.headers),
            trail_hops=None if proof is None else proof.hops,
            trail_problem=None if proof is None else proof.problem,
        )

    def _view(self, record: Record) -> RecordView:
        key, value = self._part(record.key), self._part(record.value)
        header_bytes = _header_bytes(record.headers)
        return RecordView(
            topic=record.topic,
            key=key,
            value=value,
            headers=self._headers(record.headers),
            size_bytes=_sum(key.size_bytes, value.size_bytes, header_bytes),
            header_bytes=header_bytes,
        )

    def _headers(self, headers: Headers) -> tuple[tuple[str, Part], ...]:
        return tuple((name, self._part(value)) for name, value in headers)

    def _part(self, part: Any) -> Part:
        if part is None:
            return Part(size_bytes=0, beginning=b"", kind="null")
        if isinstance(part, bytes):
            return self._cut(part, "bytes", len(part))
        try:
            shown = msgspec.json.encode(part, enc_hook=repr)
        except Exception:  # noqa: BLE001 - a deserializer may return any object; its repr is shown then
            shown = repr(part).encode("utf-8", "replace")
        return self._cut(shown, type(part).__name__, None)

    def _cut(self, content: bytes, kind: str, size_bytes: int | None) -> Part:
        beginning = content[: self._max_part_bytes]
        return Part(
            size_bytes=size_bytes, beginning=beginning, kind=kind, is_cut=len(beginning) < len(content)
        )


def _no_id(name: str) -> None:
    """Return no id: ids are only read here."""


def _size(part: Any) -> int | None:
    """Return the size of bytes, 0 for null, and None for an object."""
    if part is None:
        return 0
    return len(part) if isinstance(part, bytes) else None


def _sum(*sizes: int | None) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _header_bytes(headers: Headers) -> int:
    return sum(len(name.encode("utf-8", "replace")) + len(value or b"") for name, value in headers)


def _message(error: HeaderwareError) -> str:
    """Return an error's text without its step and position, which are shown separately."""
    text = (error.message if isinstance(error, InterceptorError) else "") or str(error)
    if not isinstance(error, HeldBackError):
        return text
    down = isinstance(error.__cause__, KeyServiceUnavailableError)
    if down and not text.startswith("the key service "):
        text = f"the key service did not answer: {text}"
    return f"{text}; the record may be good"


def _refusal(error: HeaderwareError) -> Refusal:
    step = error.step if isinstance(error, InterceptorError) else None
    cause = error.__cause__
    of_keys = isinstance(error, HeldBackError) and isinstance(cause, KeyringError)
    return Refusal(step=step, type=type(cause if of_keys else error).__name__, reason=_message(error))


def _outcome_of(error: HeaderwareError) -> Literal["refused", "held_back"]:
    return "held_back" if isinstance(error, HeldBackError) else "refused"


def _given_up(error: HeaderwareError) -> TailedRecord:
    return TailedRecord(
        topic=getattr(error, "topic", None) or "",
        partition=getattr(error, "partition", None),
        offset=getattr(error, "offset", None),
        timestamp_ms=None,
        outcome=_outcome_of(error),
        refusal=_refusal(error),
    )


def _slice_of(headers: Headers) -> SliceHeader | None:
    values = headers.all(SLICE_HEADER)
    with suppress(WireFormatError):
        return SliceHeader.unpack(values[-1]) if values else None
    return None


def _slice_view(part: SliceHeader) -> SliceView:
    return SliceView(
        message_id=part.message_id.hex(), index=part.index, count=part.count, total_bytes=part.total_bytes
    )


def _trail(headers: Headers) -> TrailReading | None:
    with suppress(WireFormatError):
        return read_trail(headers)
    return None


def _proof_of(record: Record) -> TrailProof | None:
    return None if record.local is None else record.local.get(PROVEN)


def _signature(headers: Headers, verified: Verified | None) -> SignatureView | None:
    if verified is not None:
        return SignatureView(
            verified=True,
            key_id=verified.key_id,
            key_version=verified.key_version,
            signed_at_ms=verified.signed_at_ms,
            cluster=verified.cluster,
            topic=verified.topic,
            producer=verified.producer.hex(),
            sequence=verified.sequence,
            uncovered=verified.uncovered,
            subject=verified.subject,
            issuer=verified.issuer,
        )
    with suppress(WireFormatError):
        values = headers.all(SIGNATURE_HEADER)
        if values:
            layout = decode_text(values[-1], SIGNATURE_HEADER)
            statement, end = decode_statement(layout)
            signed_at_ms, producer, sequence = decode_stamp(layout[end : end + STAMP_BYTES])
            return SignatureView(
                verified=False,
                key_id=statement.key_id,
                key_version=statement.key_version,
                signed_at_ms=signed_at_ms,
                cluster=statement.cluster,
                topic=statement.topic,
                producer=producer.hex(),
                sequence=sequence,
            )
    return None


def _encryption(headers: Headers, record: Record, application: Sequence[Record]) -> EncryptionView | None:
    if ENCRYPT_HEADER not in headers:
        return None
    from headerware.interceptors.encrypt.envelope import statement_of  # noqa: PLC0415 - it imports cryptography

    with suppress(WireFormatError):
        layout = decode_text(headers.last(ENCRYPT_HEADER), ENCRYPT_HEADER)
        statement, _ = statement_of(layout, is_null=record.value is None)
        return EncryptionView(
            decrypted=any(ENCRYPT_HEADER not in each.headers for each in application),
            key_id=statement.key_id,
            key_version=statement.key_version,
            cluster=statement.cluster,
            topic=statement.topic,
            signer=statement.signer,
            encrypts_key=statement.key_is_encrypted,
            encrypts_headers=BLOCK_HEADER in statement.bound and BLOCK_HEADER in headers,
        )
    return None


def _field_views(value: Any, decrypted: Container[str]) -> tuple[EncryptedFieldView, ...]:
    """Return the encrypted fields of a value; ``decrypted`` has the texts that the chain has decrypted."""
    found: dict[EncryptedFieldView, None] = {}  # the elements of a list have one path
    for field, text in _field_texts(value):
        from headerware.interceptors.encrypt.fields import statement_of_field  # noqa: PLC0415 - it imports cryptography

        with suppress(WireFormatError, DecryptionError):  # the chain reports the error
            statement = statement_of_field(text)
            view = EncryptedFieldView(
                field=field,
                decrypted=text in decrypted,
                key_id=statement.key_id,
                key_version=statement.key_version,
                cluster=statement.cluster,
                topic=statement.topic,
                signer=statement.signer,
            )
            found[view] = None
        if len(found) == _MAX_FIELDS:
            break
    return tuple(found)


def _field_texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each encrypted field in an object, or in bytes that are JSON."""
    if isinstance(value, bytes):
        if FIELD_PREFIX.encode() not in value:
            return
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return
    # Iterators, and not lists, and no path longer than can be shown: the writer of a record may have made
    # many names beneath a long path, or many levels of them.
    inside: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]
    while inside:
        path, item = next(inside[-1], (None, None))
        if path is None:
            inside.pop()
        elif len(inside) > _MAX_PATH:
            continue
        elif isinstance(item, Mapping):
            inside.append(_named(path, item))
        elif isinstance(item, list):
            inside.append(zip(repeat(path), item, strict=False))
        elif isinstance(item, str) and item.startswith(FIELD_PREFIX) and len(path) <= _MAX_PATH:
            yield path, item


def _named(path: str, fields: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each field of an object, as the option ``fields`` writes paths.

    Fields whose path would be too long are left out.
    """
    for name, value in fields.items():
        step = str(name)
        if len(path) + len(step) <= _MAX_PATH:
            step = step.replace("\\", r"\\").replace(".", r"\.")
            yield f"{path}.{step}" if path else step, value


# The reader and the view together


def tailed(
    reader: TopicReader, view: ChainView, *, max_records: int = 100, wait_s: float = 0.2
) -> Iterator[list[TailedRecord]]:
    """Yield the records of each read, which may be none; continue until the caller stops."""
    from headerware.kafka.messages import record_of  # noqa: PLC0415 - only this needs a client

    while True:
        messages = reader.read(max_records=max_records, timeout_s=wait_s)
        found = [view.look(record_of(message)) for message in messages]
        yield [record for record in found if record is not None] + view.poll()
