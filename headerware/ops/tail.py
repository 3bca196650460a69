"""A topic as its records are on the wire, and as an application sees them through a chain.

A :class:`ChainView` runs the consuming side of a chain as a dry run, over what a
:class:`~headerware.kafka.reader.TopicReader` reads. Interceptors that only observe are left out, for
their marks (trail entries, spans, reports) are about real consumers. A dead letter is made, but not
published.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.batch import Batch
from headerware.core.bounded_cache import BoundedCache
from headerware.core.chain import Chain
from headerware.core.context import Context, wall_clock_ms
from headerware.core.dead_letter import origin_of
from headerware.core.errors import (
    ConfigError,
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
from headerware.interceptors.header_ids import HeaderIds
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.trail import TrailReading, read_trail
from headerware.keyring.signature import (
    SIGNATURE_HEADER,
    STAMP_BYTES,
    decode_stamp,
    decode_statement,
)
from headerware.registry.names import NamesSource
from headerware.registry.wire.codec import HeaderIdCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headerware.core.services import Direction
    from headerware.kafka.reader import TopicReader

Outcome = Literal["delivered", "waits", "dropped", "dead_letter", "refused", "held_back"]
"""What the chain makes of a record: one or several records for the application, none yet, or none at all.

``held_back`` means that the record cannot be judged now, and may be good: a key service does not answer, or a
keyring cannot be read. A consumer waits, and passes over nothing.
"""

ENCRYPT_HEADER: Final = "hw.encrypt"
_MAX_MESSAGES: Final = 1_024
"""How many messages in slices are remembered, whose first slice met the conditions."""


# What is shown


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A key, a value or a header's value, cut to a bounded size.

    Args:
        size_bytes: the size of the whole; 0 for a null, and for an object.
        beginning: the first bytes of it; of an object, those of its form as JSON.
        kind: ``bytes``, ``null``, or the type of the object that a deserializer made.
    """

    size_bytes: int
    beginning: bytes
    kind: str = "bytes"


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """A record in one form: on the wire, or as an application sees it.

    Args:
        topic: the topic, which a transform may have changed.
        key: the key.
        value: the value.
        headers: the headers, in order.
        size_bytes: key, value, names and values of headers together.
        header_bytes: names and values of headers.
    """

    topic: str
    key: Part
    value: Part
    headers: tuple[tuple[str, Part], ...]
    size_bytes: int
    header_bytes: int


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """What one step of the chain did.

    Args:
        step: the interceptor's name.
        outcome: ``changed``, ``unchanged``, ``waits`` (it keeps the record for later), ``dropped``,
            ``refused``, ``held_back``, or ``skipped`` (it failed, and the record went on as it was).
        size_bytes: the size of the record behind this step.
        value_bytes: that of its value alone.
        header_bytes: that of its headers.
        removed: names of the headers that are gone.
        added: names of the headers that are new.
        reason: why the record was refused or held back, or the failure passed over.
    """

    step: str
    outcome: Literal["changed", "unchanged", "waits", "dropped", "refused", "held_back", "skipped"]
    size_bytes: int
    value_bytes: int
    header_bytes: int
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    reason: str | None = None


class SignatureView(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed a record, or claims so.

    Args:
        verified: whether the chain has verified it; if not, anybody may have written all this.
        key_id: the key.
        key_version: its version.
        signed_at_ms: when, by the signer's clock, in milliseconds since the epoch.
        cluster: the cluster that it was signed for; empty if the signer did not know it.
        topic: the topic that it was signed for.
        producer: the session that signed, as hexadecimal text.
        sequence: the number of the record in that session.
        uncovered: names of the headers that were added after it was signed.
        subject: who holds the key, by the certificate that ``admission`` accepted; empty without it.
        issuer: who certified that; empty without it.
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
    """Under which key a record is encrypted, or claims to be.

    Args:
        decrypted: whether the chain has decrypted it; if not, anybody may have written all this.
        key_id: the key-encryption key.
        key_version: its version, as the key service states it; may be empty.
        cluster: the cluster that it was encrypted for; empty if the writer did not know it.
        topic: the topic that it was encrypted for.
        signer: the key that signs it; empty if the writer's chain does not sign it.
        encrypts_key: whether the record's key is encrypted, too.
    """

    decrypted: bool
    key_id: str
    key_version: str
    cluster: str
    topic: str
    signer: str
    encrypts_key: bool


class SliceView(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of which message a record is.

    Args:
        message_id: the message, as hexadecimal text.
        index: the slice's number, from 0.
        count: how many slices there are.
        total_bytes: the length of the whole value.
    """

    message_id: str
    index: int
    count: int
    total_bytes: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a record does not reach an application, or not now.

    Args:
        step: the interceptor that refused it or holds it back; None if nobody got to see it.
        type: the class of the error; of what holds a record back if that is an error of a keyring or of a key
            service, such as ``KeyServiceUnavailableError``.
        reason: what was expected and what was found, without any payload.
    """

    step: str | None
    type: str
    reason: str


class TailedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a topic: as it is on the wire, and what a chain makes of it.

    Args:
        topic: the topic.
        partition: the partition.
        offset: the offset.
        timestamp_ms: milliseconds since the epoch, or None.
        outcome: what becomes of it.
        wire: the record as it is on the wire; None for a message that waited for its slices in vain.
        headers: names and values on the wire, with names in place of ids.
        application: the records that an application gets.
        steps: the steps of the chain, in the order of consuming.
        refusal: why it was refused, held back or dropped, if an error says so.
        dead_letter_topic: where its dead letter would go.
        slice: which part of a message it is, if it is one.
        signature: who signed it; None if it has no signature that can be read.
        encryption: under which key it is encrypted; None if it has no ``hw.encrypt`` that can be read.
        trail: where it has been; None if the header cannot be read.
        dead_letter_of: the position of the record that it is the dead letter of, as text; None if it is none.
        cluster: the id of the cluster that it was read from, if it is known.
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
    refusal: Refusal | None = None
    dead_letter_topic: str | None = None
    slice: SliceView | None = None
    signature: SignatureView | None = None
    encryption: EncryptionView | None = None
    trail: TrailReading | None = TrailReading()
    dead_letter_of: str | None = None
    cluster: str | None = None


# What the steps did

_Call = tuple[str, Record, Any]
"""A call of a hook: the step's name, the record, and the result or the exception."""


class _Watcher(Interceptor, frozen=True, kw_only=True):
    """Note what each hook of the chain is called with, and what comes of it."""

    type: ClassVar[str] = "headerware-tail"
    role: ClassVar[Role] = Role.OBSERVE

    calls: list[_Call]

    def on_consume(self, record: Record) -> Record:
        """Change nothing; a chain takes no interceptor without hooks."""
        return record

    def wrap_hook(
        self,
        step: str,
        direction: Direction,  # noqa: ARG002 - a service's signature
        hook: Callable[[Any], Any],
    ) -> Callable[[Any], Any]:
        """Return a hook that is noted."""

        def noted(given: Any) -> Any:
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

        return noted


# Which records


class Condition(msgspec.Struct, frozen=True):
    """A condition on a record's headers: ``NAME=VALUE``, ``NAME~REGEX``, ``NAME`` or ``!NAME``.

    The first two hold if any value of that name is the text, or has a match of the regular expression; the
    others if there is such a header, or none.
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
        """Read a condition.

        Raises:
            ConfigError: no name, or a pattern that is no regular expression.
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
        if not found.name or found.name.startswith("="):
            raise ConfigError(f"expected NAME=VALUE, NAME~REGEX, NAME or !NAME, found {text!r}")
        if found.kind == "matches":
            try:
                re.compile(found.value)
            except re.error as error:
                raise ConfigError(f"{found.value!r} is no regular expression: {error}") from None
        return found

    def holds(self, headers: Iterable[tuple[str, bytes | None]]) -> bool:
        """Return whether it holds for these headers."""
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
    """Show what the consuming side of a chain makes of records; for one caller at a time.

    Args:
        chain: the chain.
        cluster_id: the cluster's id, which signatures name.
        where: conditions on the headers, of which all must hold; names stand for ids. Nothing of the chain
            runs for other records. The slices of a message follow the first one.
        key: the key, as text, that a record must have.
        max_part_bytes: how much is kept of a key, a value or a header's value.
        now_ms: the clock.

    Raises:
        HeaderwareError: an interceptor cannot start.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        cluster_id: str | None = None,
        where: Sequence[Condition] = (),
        key: str | None = None,
        max_part_bytes: int = 4_096,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        observing = [role_of(interceptor) is Role.OBSERVE for interceptor in chain]
        self.left_out: Final = [name for name, left in zip(chain.names, observing, strict=True) if left]
        """The names of the interceptors that only observe, and do not run here."""
        running = [interceptor for interceptor, left in zip(chain, observing, strict=True) if not left]
        self.names: Final = Chain(running).names
        """The names of the interceptors that run, in the order of sending."""
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
            cluster_id=lambda: cluster_id,
            publish=lambda letter: self._dead_letters.append(letter.topic),
            dry_run=True,
        )
        if len(chain):  # an empty chain checks nothing, and must not begin to here
            running.insert(sum(map(precedes_bytes, running)), _Watcher(calls=self._calls))
        try:
            self._session = Chain(running).open(context)
        except BaseException:
            self._names.close()
            raise

    def look(self, record: Record) -> TailedRecord | None:
        """Return what the chain makes of a record from the wire; None if it does not meet the conditions."""
        unreadable: HeaderError | None = None
        try:
            record = record.replace(headers=Headers(record.headers))
        except HeaderError as error:
            unreadable = error
            record = record.replace(headers=EMPTY)
        headers = record.headers
        with suppress(WireFormatError):  # the chain says what is wrong with it
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
            self._calls.clear()  # they hold whole payloads

    def poll(self) -> list[TailedRecord]:
        """Return what the chain gives up or releases by itself, such as a message that lacks a slice."""
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
            refusal=None if error is None or what in ("delivered", "waits") else _refusal(error),
            dead_letter_topic=self._dead_letters[0] if self._dead_letters else None,
            slice=None if part is None else _slice_view(part),
            signature=_signature(headers, None if verified is None else verified.verified),
            encryption=_encryption(headers, record, application),
            trail=_trail(application[0].headers if application else headers),
            dead_letter_of=None if origin is None else str(origin),
            cluster=self._cluster_id,
        )

    def _raised(self) -> HeaderwareError | None:
        """Return the failure of the last step that ran, if it failed."""
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
            # A step may run once more when all steps have accepted a record.
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
        key_bytes, value_bytes = _size(after.key), _size(after.value)
        header_bytes = _header_bytes(after.headers)
        return StepView(
            step=step,
            outcome="changed" if outcome == "unchanged" and changed else outcome,
            size_bytes=key_bytes + value_bytes + header_bytes,
            value_bytes=value_bytes,
            header_bytes=header_bytes,
            removed=tuple(name for name in dict.fromkeys(old) if name not in new),
            added=tuple(name for name in dict.fromkeys(new) if name not in old),
            reason=reason,
        )

    def _released(self, record: Record) -> TailedRecord:
        return TailedRecord(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            outcome="delivered",
            application=(self._view(record),),
            trail=_trail(record.headers),
        )

    def _view(self, record: Record) -> RecordView:
        key, value = self._part(record.key), self._part(record.value)
        header_bytes = _header_bytes(record.headers)
        return RecordView(
            topic=record.topic,
            key=key,
            value=value,
            headers=self._headers(record.headers),
            size_bytes=key.size_bytes + value.size_bytes + header_bytes,
            header_bytes=header_bytes,
        )

    def _headers(self, headers: Headers) -> tuple[tuple[str, Part], ...]:
        return tuple((name, self._part(value)) for name, value in headers)

    def _part(self, part: Any) -> Part:
        if part is None:
            return Part(size_bytes=0, beginning=b"", kind="null")
        if isinstance(part, bytes):
            return Part(size_bytes=len(part), beginning=part[: self._max_part_bytes])
        try:
            shown = msgspec.json.encode(part, enc_hook=repr)
        except Exception:  # noqa: BLE001 - whatever a deserializer made can be shown somehow
            shown = repr(part).encode("utf-8", "replace")
        return Part(size_bytes=0, beginning=shown[: self._max_part_bytes], kind=type(part).__name__)


def _no_id(name: str) -> None:
    """Write no ids: they are only read here."""


def _size(part: Any) -> int:
    return len(part) if isinstance(part, bytes) else 0


def _header_bytes(headers: Headers) -> int:
    return sum(len(name.encode("utf-8", "replace")) + len(value or b"") for name, value in headers)


def _message(error: HeaderwareError) -> str:
    """Return an error's text without its step and position, which are shown beside it."""
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
        )
    return None


# The two together


def tailed(reader: TopicReader, view: ChainView, *, max_records: int = 100) -> Iterator[list[TailedRecord]]:
    """Yield what each read brings, perhaps nothing; it goes on until the caller has enough."""
    from headerware.kafka.messages import record_of  # noqa: PLC0415 - only this needs a client

    while True:
        found = [view.look(record_of(message)) for message in reader.read(max_records=max_records)]
        yield [record for record in found if record is not None] + view.poll()
