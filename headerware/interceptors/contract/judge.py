"""Judge records by the contract of their topic: its headers, key, value, content type and rules.

A rule has the JSON pointer that it has in the document as its name, and every failure has a place in the
record. Neither has a part of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.errors import ConnectError
from headerware.connect.headers import ConnectHeader
from headerware.connect.records import SinkRecord
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import SerdeError
from headerware.interceptors.contract.schemas import Failure, pointer_to
from headerware.registry.encodings import decoder_of, read_json
from headerware.serdes.avro.binary import reader
from headerware.serdes.content_types import content_type_of, parse_content_type, spellings
from headerware.serdes.schema_header import SCHEMA_HEADER, TEXT_HEADERS, decode_mark, is_mark_of_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.core.headers import Headers
    from headerware.core.record import Record
    from headerware.interceptors.contract.document import Channel, Message
    from headerware.interceptors.contract.document import Part as PartSchema
    from headerware.interceptors.contract.schemas import JsonSchema
    from headerware.registry.encodings import Decoder
    from headerware.registry.values import Encoding
    from headerware.serdes.serde import Part

_OWN: Final = "hw."
"""Headers of Headerware; a contract sees those that it names."""
_CONTENT_TYPES: Final = spellings("content-type")
_MAX_NAMES: Final = 1_024
_UNREAD: Final = object()
_PREFIX_BYTES: Final = 5
"""Confluent's prefix, in front of Avro."""


Judge = Callable[["Record"], Sequence[Failure]]
"""Returns the rules that a record breaks; safe for use by several threads."""


def judge_of(channel: Channel, encoding_of: Callable[[str], Encoding | None]) -> Judge:
    """Return the judge of a channel's records.

    Args:
        channel: the contract of the topic.
        encoding_of: returns the registered encoding of a header's name, or None.
    """
    messages = [_MessageJudge(message, encoding_of) for message in channel.messages]
    return messages[0].failures if len(messages) == 1 else _ChannelJudge(messages).failures


class _ChannelJudge:
    """Judge whether records are one of several messages."""

    def __init__(self, messages: Sequence[_MessageJudge]) -> None:
        self._messages: Final = messages

    def failures(self, record: Record) -> Sequence[Failure]:
        """Return the rules that a record breaks; none if it is one of the messages.

        Messages with the record's content type are tried. If the record is none of them, these are the
        failures of the message with the fewest.
        """
        seen = _Json(record.value)
        fewest: Sequence[Failure] = ()
        for message in self._candidates(record):
            found = message.failures(record, seen)
            if not found:
                return ()
            if not fewest or len(found) < len(fewest):
                fewest = found
        return fewest

    def _candidates(self, record: Record) -> Sequence[_MessageJudge]:
        stated = _stated_type(record.headers)
        if stated is None:
            return self._messages
        exact = [message for message in self._messages if message.is_of(stated, exactly=True)]
        return exact or [each for each in self._messages if each.is_of(stated)] or self._messages


class _Json:
    """The value of a record as JSON, which is decoded once for all messages."""

    __slots__ = ("_raw", "_value")

    def __init__(self, raw: bytes) -> None:
        self._raw: Final = raw
        self._value: Any = _UNREAD

    def value(self) -> Any:
        """Return the value; raise ValueError if it is not JSON."""
        if self._value is _UNREAD:
            self._value = read_json(self._raw)
        return self._value


class _MessageJudge:
    """Judge whether records are one kind of message."""

    def __init__(self, message: Message, encoding_of: Callable[[str], Encoding | None]) -> None:
        self._type = None if message.content_type is None else parse_content_type(message.content_type)
        self._type_rule = f"{message.pointer}/contentType"
        self._rules = message.rules
        self._rules_read_values = any("value" in rule.expression.reads for rule in message.rules)
        reads_headers = any("headers" in rule.expression.reads for rule in message.rules)
        needs_headers = message.headers is not None or reads_headers
        self._headers = _HeaderJudge(message, encoding_of) if needs_headers else None
        self._key = None if message.key is None else _PartJudge(message.key, "key")
        self._value = None if message.value is None else _PartJudge(message.value, "value")
        self._is_of_headers = self._key is None and self._value is None and not self._rules

    def is_of(self, stated: bytes, *, exactly: bool = False) -> bool:
        """Return whether records of a content type may be this message, by its format or only by its name."""
        if self._type is None:
            return not exactly
        try:
            found = content_type_of(stated)
        except SerdeError:
            return False
        if found.essence == self._type.essence:
            return True
        return not exactly and found.format is not None and found.format == self._type.format

    def failures(self, record: Record, json: _Json | None = None) -> Sequence[Failure]:
        """Return the rules that a record breaks; ``json`` is its value, for several messages."""
        found: Sequence[Failure] = ()
        headers: Mapping[str, Any] = {}
        if self._headers is not None:
            headers, found = self._headers.failures(record.headers)
        if self._type is not None and (
            self._headers is None or not headers.keys().isdisjoint(_CONTENT_TYPES)
        ):
            stated = _stated_type(record.headers)
            if stated is not None and not self.is_of(stated):
                found = [*found, Failure(self._type_rule, "header content-type")]
        if self._is_of_headers:
            return found
        key, value = record.key, record.value
        if self._key is not None:
            key, broken = self._key.read(record, None)
            found = [*found, *broken]
        elif key is not None:
            key = _any_text(key)
        is_right = True
        if value is not None and (self._value is not None or self._rules_read_values):
            value, broken = self._read_value(record, json or _Json(value))
            is_right = not broken
            found = [*found, *broken]
        if self._rules:
            found = [*found, *self._broken_rules(record, headers, key, value, is_right=is_right)]
        return found

    def _read_value(self, record: Record, json: _Json) -> tuple[Any, list[Failure]]:
        if self._value is not None and self._value.is_checked:
            return self._value.read(record, json)
        if self._type is not None and self._type.format == "json":
            try:
                return json.value(), []
            except ValueError:
                return None, [Failure(self._type_rule, "value")]
        return record.value, []

    def _broken_rules(
        self, record: Record, headers: Mapping[str, Any], key: Any, value: Any, *, is_right: bool
    ) -> list[Failure]:
        """Return the rules that are not true; a rule that reads the value needs one that is right."""
        given = SinkRecord(
            record.topic,
            record.partition,
            None,
            key,
            None,
            value,
            record.offset or 0,
            record.timestamp_ms,
            headers=[ConnectHeader(name, None, each) for name, each in headers.items()],
        )
        skips_value = record.value is None or not is_right
        found = []
        for rule in self._rules:
            if skips_value and "value" in rule.expression.reads:
                continue
            try:
                is_true = rule.expression.evaluate(given) is True
            except ConnectError:  # a part that it reads is missing, or of another type
                is_true = False
            if not is_true:
                found.append(Failure(rule.pointer, "record"))
        return found


class _HeaderJudge:
    """Decode headers, and judge them as one object of JSON."""

    __slots__ = ("_decoders", "_encoding_of", "_is_valid", "_named", "_pointer", "_schema")

    def __init__(self, message: Message, encoding_of: Callable[[str], Encoding | None]) -> None:
        self._schema: Final[JsonSchema | None] = message.headers
        self._pointer: Final = message.pointer if message.headers is None else message.headers.pointer
        self._named: Final = {} if message.headers is None else message.headers.properties
        self._is_valid: Final = _always if message.headers is None else message.headers.is_valid
        self._encoding_of: Final = encoding_of
        self._decoders: Final[BoundedCache[str, Decoder | None]] = BoundedCache(_MAX_NAMES, self._decoder)

    def failures(self, headers: Headers) -> tuple[Mapping[str, Any], Sequence[Failure]]:
        """Return the headers by name, decoded, and the rules that they break."""
        decoders = self._decoders
        try:
            # Written out, because this runs for every record.
            found = {
                name: decode(value)  # type: ignore[arg-type]  # of a null it raises TypeError
                for name, value in headers
                if (decode := decoders[name]) is not None
            }
            if (len(found) == len(headers) or not self._repeated(headers)) and self._is_valid(found):
                return found, ()
        except (TypeError, ValueError):
            pass
        return self._carefully(headers)

    def _carefully(self, headers: Headers) -> tuple[Mapping[str, Any], list[Failure]]:
        """Do the same for headers of which one is null, repeated, or not in its encoding."""
        found: dict[str, Any] = {}
        broken = [self._failure(name) for name in self._repeated(headers)]
        for name, value in headers:
            decode = self._decoders[name]
            if decode is None:
                continue
            try:
                found[name] = None if value is None else decode(value)
            except ValueError:
                if name in self._named:  # any other name counts as absent
                    broken.append(self._failure(name))
        size = sum(len(value) for _, value in headers if value)
        if not broken and self._schema is not None and not self._schema.holds(found, size):
            broken = self._schema.failures(found, size, "header")
        return found, broken

    def _failure(self, name: str) -> Failure:
        return Failure(f"{self._pointer}{pointer_to(['properties', name])}", f"header {name}")

    def _repeated(self, headers: Headers) -> list[str]:
        """Return the headers that the schema names and the record has more than once."""
        names = [name for name, _ in headers if name in self._named]
        return [name for name in dict.fromkeys(names) if names.count(name) > 1] if names else []

    def _decoder(self, name: str) -> Decoder | None:
        """Return the decoder of a header; None for headers of Headerware that the contract does not name."""
        named = self._named.get(name)
        if named is None and name.startswith(_OWN):
            return None
        encoding = self._encoding_of(name)
        if encoding is not None:
            return decoder_of(encoding)
        if named is None:
            return _any_text
        return decoder_of("utf-8" if _takes_text(named) else "json")


def _always(_: Any) -> bool:
    return True


def _takes_text(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema takes text: by its types, by its only values, or because it states neither."""
    stated = schema.get("type")
    if stated is not None:
        return stated == "string" or "string" in stated
    values = schema.get("enum", [schema["const"]] if "const" in schema else [""])
    return any(isinstance(value, str) for value in values)


def _any_text(value: bytes) -> str:
    """Decode a header that the contract does not name, so that it fails no record by its bytes."""
    return value.decode("utf-8", "replace")


def _stated_type(headers: Headers) -> bytes | None:
    """Return the last content type that headers state."""
    return next((value for name, value in reversed(headers) if name in _CONTENT_TYPES and value), None)


class _PartJudge:
    """Read a key or a value, and judge it."""

    def __init__(self, schema: PartSchema, part: Part) -> None:
        self._schema = schema
        self._part: Part = part
        self.is_checked: Final = schema.unchecked is None
        self._is_text = schema.json is not None and _takes_text(schema.json.root)
        self._read_avro = None if schema.avro is None else reader(schema.avro)

    def read(self, record: Record, json: _Json | None) -> tuple[Any, list[Failure]]:
        """Return the decoded part, and the rules that it breaks; ``json`` is that of a value."""
        raw = record.key if json is None else record.value
        if not self.is_checked:
            return raw, []
        try:
            if self._read_avro is not None:
                return (None if raw is None else self._avro(self._read_avro, record, raw)), []
            value = self._json(raw) if json is None else json.value()
        except (ValueError, SerdeError):
            return None, [Failure(self._schema.pointer, self._part)]
        schema = self._schema.json
        size = 0 if raw is None else len(raw)
        if schema is None or schema.holds(value, size):
            return value, []
        return value, schema.failures(value, size, self._part)

    def _json(self, raw: bytes | None) -> Any:
        if raw is None:
            return None
        return raw.decode() if self._is_text else read_json(raw)

    def _avro(self, read: Callable[..., Any], record: Record, raw: bytes) -> Any:
        """Read Avro; raise SerdeError if it was written by another schema, or cannot be read."""
        schema, part = self._schema.avro, self._part
        assert schema is not None  # noqa: S101 - there is a function that reads it
        for name, value in record.headers:
            if name == TEXT_HEADERS[part] and value is not None:
                # The text is of the record: it is parsed as the serde would.
                if type(schema).parsed(value).canonical != schema.canonical:
                    raise SerdeError("another schema")
            elif name == SCHEMA_HEADER and is_mark_of_part(part, (name, value)):
                fingerprint = decode_mark(value)[1]
                if schema.fingerprint(fingerprint.algorithm) != fingerprint:
                    raise SerdeError("another schema")
        try:
            return read(raw)
        except SerdeError:
            if raw[:1] != b"\0":
                raise
            return read(raw, _PREFIX_BYTES)
