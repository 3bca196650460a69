"""The boundary of a session: normalise and check records once, when they come in and when they leave.

Only here do objects become bytes or bytes objects. On send, only bytes pass. On consume, a record that is
still encoded is refused, because a deserializer would take the encoded bytes for its own format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

import msgspec

from headerware.core.batch import entry_types, header_names
from headerware.core.errors import HeaderError, RecordError, TransportHeaderError
from headerware.core.header_ids import parse_id
from headerware.core.headers import EMPTY, Headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headerware.core.batch import Batch
    from headerware.core.record import Record

_RESERVED: Final = "hw."
"""The prefix of reserved names, in any case; ours are in lower case."""
WIRE_TYPES: Final = frozenset({bytes, type(None)})
"""The types of keys and values on the wire."""


class OwnHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """Headerware's own headers, by their meaning to these checks.

    ``lineage`` has the headers that describe a record; they may stay on it, so an application may send them
    back. ``encodings`` has the headers that mark an encoded value, each with the word for the interceptor
    that decodes it, in the order in which a chain encodes. ``signature`` is the header that proves the
    producer, and ``signature_interceptor`` the word for the interceptor that verifies it. ``compact_keys``
    has the header name for each compact key. ``ids_interceptor`` is the word for the interceptor that reads
    and escapes compact keys.
    """

    lineage: frozenset[str] = frozenset()
    encodings: Mapping[str, str] = {}
    signature: str = ""
    signature_interceptor: str = ""
    compact_keys: Mapping[str, str] = {}
    ids_interceptor: str = ""


def use_own_headers(headers: OwnHeaders) -> None:
    """Set Headerware's own headers; the package does it when it is imported."""
    global _own, _encodings, _order, _compacted, _sendable_keys, _compact_keys_of  # noqa: PLW0603 - set once, when the package is imported
    _own, _encodings = headers, headers.encodings
    words = list(_encodings.values())
    _order = {name: words.index(word) for name, word in _encodings.items()}
    keys = headers.compact_keys.items()
    _compact_keys_of = {name: key for key, name in keys}
    _compacted = frozenset(key for key, name in keys if name in headers.encodings)
    _sendable_keys = frozenset(key for key, name in keys if name in headers.lineage)


_own: OwnHeaders = OwnHeaders()
_compact_keys_of: Mapping[str, str] = {}
_encodings: Mapping[str, str] = {}
_order: Mapping[str, int] = {}
"""The position of each encoding in the order in which a chain encodes."""
_compacted: frozenset[str] = frozenset()
"""The compact keys of encodings; after an interceptor has read compact keys, these are plain names."""
_sendable_keys: frozenset[str] = frozenset()
"""The compact keys of own headers that applications may send."""
_OWN_KEY: Final = re.compile(r"~(?:A|[B-Za-z0-9_-][A-Za-z0-9_-]?|[B-P][A-Za-z0-9_-]{2})")
"""The compact keys of the ids 0.0.0.0 to 0.0.255.255, Headerware's block; some ids have no name yet."""
_OWN_IDS: Final = 2**16


def admit(record: Record) -> Record:
    """Normalise a record that an application sends; do not touch its key and value."""
    if record.headers.__class__ is not Headers or record.topic.__class__ is not str:
        record = record.replace(topic=_topic(record), headers=Headers(record.headers))
    for pair in record.headers:
        if pair[0] not in _admitted:
            _admit_name(pair[0])
    return record


def admit_bytes(record: Record) -> Record:
    """Normalise a record that an application sends, in a chain that does not serialize it."""
    # The checks of admit and to_wire together, because this runs for every record that is sent.
    headers = record.headers
    if (
        headers.__class__ is Headers
        and record.value.__class__ in WIRE_TYPES
        and record.key.__class__ in WIRE_TYPES
        and record.topic.__class__ is str
    ):
        for pair in headers:
            if pair[0] not in _admitted:
                break
        else:
            global _last_admitted  # noqa: PLW0603 - another thread's value is right for its own headers
            _last_admitted = headers
            return record
    return to_wire(admit(record))


def require_wire_names(record: Record) -> Record:
    """Refuse header names that no client can write; the last step on send, because hooks may have set them.

    librdkafka cuts a name at a zero byte, and confluent-kafka ends the process if UTF-8 cannot write one.
    """
    if record.headers is not _last_admitted:
        for pair in record.headers:
            if pair[0] not in _writable:
                _require_writable(pair[0])
    return record


def require_plain_names(record: Record) -> Record:
    """Also refuse names that look like compact keys of our own headers, on topics without such keys."""
    if record.headers is not _last_admitted:
        for pair in record.headers:
            if pair[0] not in _plain_names:
                _require_plain_name(pair[0])
    return record


# The same checks for batches. They leave the records as they are, or do not take them: then each record is
# checked by itself, and has its own error.


def admits(batch: Batch) -> bool:
    """Return whether :func:`admit` leaves each record of a batch as it is."""
    return batch.topic.__class__ is str and _are_known(batch, _admitted)


def admits_bytes(batch: Batch) -> bool:
    """Return whether :func:`admit_bytes` leaves each record of a batch as it is."""
    return admits(batch) and _is_on_wire(batch)


def is_normalised(batch: Batch) -> bool:
    """Return whether :func:`normalised` leaves each record of a batch as it is."""
    return batch.topic.__class__ is str and _has_plain_headers(batch) and _is_on_wire(batch)


def to_wire_batch(batch: Batch) -> Batch:
    """Do as :func:`to_wire` for records whose keys and values are bytes already."""
    return batch if _is_on_wire(batch) else batch.leave()


def require_wire_names_batch(batch: Batch) -> Batch:
    """Do as :func:`require_wire_names` for records whose names have been checked before."""
    return batch if _are_known(batch, _writable) else batch.leave()


def require_plain_names_batch(batch: Batch) -> Batch:
    """Do as :func:`require_plain_names` for records whose names have been checked before."""
    return batch if _are_known(batch, _plain_names) else batch.leave()


def refuse_encodings_batch(batch: Batch) -> Batch:
    """Do as :func:`refuse_encodings` for records without such headers."""
    return batch if header_names(batch.headers).isdisjoint(_encodings) else batch.leave()


def refuse_compacted_batch(batch: Batch) -> Batch:
    """Do as :func:`refuse_compacted` for records without such headers."""
    names = header_names(batch.headers)
    return batch if names.isdisjoint(_encodings) and names.isdisjoint(_compacted) else batch.leave()


def _is_on_wire(batch: Batch) -> bool:
    return entry_types(batch.values) <= WIRE_TYPES and entry_types(batch.keys) <= WIRE_TYPES


def _has_plain_headers(batch: Batch) -> bool:
    return entry_types(batch.headers) <= {Headers}


def _are_known(batch: Batch, names: set[str]) -> bool:
    return _has_plain_headers(batch) and header_names(batch.headers) <= names


def is_own(name: str) -> bool:
    """Return whether a name is Headerware's own, in upper or lower case, or stands for an id of its block.

    A later version of Headerware may have a name for such an id.
    """
    if name[: len(_RESERVED)].casefold() == _RESERVED or _OWN_KEY.fullmatch(name):
        return True
    found = parse_id(name)
    return found is not None and found < _OWN_IDS


def may_be_sent(name: str) -> bool:
    """Return whether an application may send a header of this name, which may also be a pattern of names."""
    return name in _own.lineage or not is_own(name)


def is_wire_name(name: str) -> bool:
    """Return whether clients can write a name."""
    try:
        _require_writable(name)
    except HeaderError:
        return False
    return True


def alike(name: str) -> frozenset[str]:
    """Return keys to compare names by: spellings of one name, in another case or compact, share a key."""
    full = _own.compact_keys.get(name, name)
    return frozenset((full.casefold(), _compact_keys_of.get(full, name.casefold())))


def _is_marker(name: str) -> bool:
    return _OWN_KEY.fullmatch(name) is not None and name not in _sendable_keys


_NAMES_LIMIT: Final = 1_000
_NAME_LENGTH_LIMIT: Final = 200
_admitted: set[str] = set()
_writable: set[str] = set()
"""Names that have been checked, so that each is checked once."""
_plain_names: set[str] = set()
"""Checked names that do not look like compact keys either."""
_last_admitted: Headers = EMPTY
"""The headers that were admitted last; the last step need not check them again if no hook changed them."""


def _admit_name(name: str) -> None:
    if name[: len(_RESERVED)].casefold() == _RESERVED and name not in _own.lineage:
        raise _reserved(name)
    _require_writable(name)
    if not _is_marker(name):
        _remember(_admitted, name)


def _require_plain_name(name: str) -> None:
    if _is_marker(name):
        raise HeaderError(
            f"header {name!r} would be read as the id of one of Headerware's own headers "
            f"(spec/header-ids.md); give it another name, or let the {_own.ids_interceptor!r} "
            "interceptor escape it"
        )
    _require_writable(name)
    _remember(_plain_names, name)


def _require_writable(name: str) -> None:
    if "\0" in name:
        raise HeaderError(f"header {name!r} has a zero byte in its name; clients would cut the name there")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise HeaderError(f"header {name!r} has a name that UTF-8 cannot express") from None
    _remember(_writable, name)


def _remember(names: set[str], name: str) -> None:
    if len(names) >= _NAMES_LIMIT:
        names.clear()
    if len(name) <= _NAME_LENGTH_LIMIT:
        names.add(name)


def _reserved(name: str) -> HeaderError:
    return HeaderError(
        f"header {name!r} is Headerware's own and is set by the chain; an application may not send it "
        f"(remove it, or consume through a chain that takes it off)"
    )


def normalised(record: Record) -> Record:
    """Return the record with plain headers, and text and buffers as bytes; objects stay as they are."""
    if (
        record.headers.__class__ is Headers
        and record.value.__class__ in WIRE_TYPES
        and record.key.__class__ in WIRE_TYPES
        and record.topic.__class__ is str
    ):
        return record
    return record.replace(
        topic=_topic(record),
        headers=Headers(record.headers),
        value=_plain(record.value, "value"),
        key=_plain(record.key, "key"),
    )


def to_wire(record: Record) -> Record:
    """Return the record with text and buffers as bytes; refuse other objects."""
    if record.value.__class__ in WIRE_TYPES and record.key.__class__ in WIRE_TYPES:
        return record
    record = record.replace(value=_plain(record.value, "value"), key=_plain(record.key, "key"))
    for name, part in (("value", record.value), ("key", record.key)):
        if part.__class__ not in WIRE_TYPES:
            raise RecordError(
                f"the {name} of a record for topic {record.topic!r} is bytes, str or None, "
                f"not {type(part).__name__}; put a step that serializes into the chain, or serialize it first"
            )
    return record


def require_numbers(topic: str, partition: object, timestamp_ms: object) -> None:
    """Refuse a partition or a timestamp that a client cannot send; None leaves it open.

    Raises:
        RecordError: it is not a whole number.
        OverflowError: the number is too large.
    """
    for name, given, bits, advice in (
        ("partition", partition, 31, "convert it, or leave it out for the partitioner"),
        ("timestamp", timestamp_ms, 63, "give milliseconds since the epoch, int(seconds * 1000)"),
    ):
        of_record = f"the {name} of a record for topic {topic!r}"
        if given is not None and not isinstance(given, SupportsIndex):
            raise RecordError(f"{of_record} is an int, not {type(given).__name__}; {advice}")
        if given is not None and not -(1 << bits) <= index(given) < 1 << bits:
            raise OverflowError(f"{of_record} has at most {bits} bits, found a larger number; {advice}")


def refuse_encodings(record: Record) -> Record:
    """Refuse a record that is still encoded; an application would take the encoded bytes for its value."""
    for pair in record.headers:
        if pair[0] in _encodings:
            raise _undecoded(_encoders(record.headers))
    return record


def refuse_compacted(record: Record) -> Record:
    """Also refuse a record that a compact key marks as encoded, on topics where no step reads such keys."""
    for pair in record.headers:
        if pair[0] in _encodings or pair[0] in _compacted:
            raise _undecoded(_encoders(record.headers, compacted=True))
    return record


def unread_without_a_chain(headers: Headers) -> str:
    """Return the warning about a record of a consumer without a chain; empty if it needs no chain."""
    encoders = words = _encoders(headers, compacted=True)
    compacted = _compact_keys_of.get(_own.signature)
    if any(name in {_own.signature, compacted} for name, _ in headers):  # signed last, but before ids
        plain = [word for word in encoders if word != _own.ids_interceptor]
        words = [*plain, _own.signature_interceptor, *encoders[len(plain) :]]
    if not words:
        return ""
    return _encoded_text(words, f"this consumer has no chain to {'decode' if encoders else 'verify'} that")


def undecoded_before(step: Iterable[str], headers: Headers) -> TransportHeaderError | None:
    """Return the error for a step that failed because other steps should have decoded the record first.

    A chain consumes from right to left: the encodings that come after a step on send must be decoded before
    that step on consume. ``step`` has the headers that the step itself removes.
    """
    last = max((_order[name] for name in step if name in _order), default=None)
    if last is None or all(_order.get(name, last) <= last for name, _ in headers):
        return None
    words = list(_encodings.values())
    return _undecoded([word for word in _encoders(headers) if words.index(word) > last])


def _encoders(headers: Headers, *, compacted: bool = False) -> list[str]:
    """Return the words for the interceptors that have encoded a record, in the order of sending."""
    found = {_encodings[name] for name, _ in headers if name in _encodings}
    if compacted:
        keys = [name for name, _ in headers if name in _compacted]
        found.update(_encodings[_own.compact_keys[key]] for key in keys)
        found.update(_own.ids_interceptor for _ in keys)
    return [word for word in _encodings.values() if word in found]


def header_ids_advice(headers: Headers) -> str:
    """Return advice if header names are ids that no step has read yet; else an empty text."""
    if any(_OWN_KEY.fullmatch(name) or _encodings.get(name) == _own.ids_interceptor for name, _ in headers):
        word = _own.ids_interceptor
        return f"; header names are ids here: add the {word!r} interceptor to the consumer's chain"
    return ""


def _undecoded(words: Sequence[str]) -> TransportHeaderError:
    return TransportHeaderError(_encoded_text(words, "nothing in this chain decodes that"))


def _encoded_text(words: Sequence[str], problem: str) -> str:
    names = ", ".join(map(repr, words))
    return (
        f"its headers say that the record was sent through {names}, and {problem}; "
        f"the consumer's chain needs, in this order: {names}"
    )


def _topic(record: Record) -> str:
    if not isinstance(record.topic, str):
        raise RecordError(f"a topic is a str, not {type(record.topic).__name__}")
    return str.__str__(record.topic)


def _plain(part: Any, name: str) -> Any:
    if isinstance(part, str):
        try:
            return part.encode()
        except UnicodeEncodeError:  # its text quotes the payload
            raise RecordError(f"the {name} is text that UTF-8 cannot express") from None
    if isinstance(part, bytes | bytearray | memoryview):
        return part if part.__class__ is bytes else bytes(memoryview(part))
    return part
