"""JsonConverter: values as JSON, in an envelope with their schemas where ``schemas.enable`` says so.

with schemas      {"schema": {"type": "int32", "optional": false}, "payload": 42}
without           42

What is written is byte for byte what Kafka writes, in both modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from headerware.connect.config import ConfigDef
from headerware.connect.converters.dual import DualConverter
from headerware.connect.converters.json.known import Known
from headerware.connect.converters.json.nodes import DigitsNeededError, count_of_names
from headerware.connect.converters.json.options import (
    DECIMAL_FORMAT,
    JSON_CONFIG,
    REPLACE_NULL,
    SCHEMA_CONTENT,
    SCHEMAS_CACHE_SIZE,
    SCHEMAS_ENABLE,
    check_options,
)
from headerware.connect.converters.json.parsing import REFUSALS, KafkaParser, StrictParser, is_long
from headerware.connect.converters.json.reading import Read, Readers, refuse_too_many, widest_struct
from headerware.connect.converters.json.schemas import SchemaReader, schema_text
from headerware.connect.converters.json.writing import Write, Writers
from headerware.connect.data.schema import NULL, Schema, SchemaAndValue
from headerware.connect.errors import ConnectConfigError, ConnectDataError, NullValueError
from headerware.connect.modes import STRICT, Mode

_MAX_TEXT_BYTES: Final = 65_536
"""The largest schema that is remembered by its text; longer ones are read each time."""
_TOO_DEEP: Final = "the value is nested too deeply"


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An envelope whose schema has not been read."""

    schema: msgspec.Raw
    payload: Any


class _Reading(NamedTuple):
    """How to read values.

    Args:
        schema: their schema.
        read: the function for it; None for values without a schema.
        names: how many names there are in the objects of the schema's JSON.
        widest: how many fields the schema's widest struct has.
    """

    schema: Schema | None
    read: Read | None
    names: int
    widest: int = 0

    def value(self, node: Any, size: int) -> SchemaAndValue:
        """Read JSON of a number of bytes."""
        assert self.schema is not None  # noqa: S101 - who reads by a schema has one
        assert self.read is not None  # noqa: S101 - likewise
        refuse_too_many(self.schema, node, size, self.widest)
        return SchemaAndValue(self.schema, self.read(node))


class _Writing(NamedTuple):
    """How to write values.

    Args:
        schema: their schema; kept, for it is found by identity.
        opening: what stands before the payload.
        write: writes the payload.
    """

    schema: Schema
    opening: str
    write: Write


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


class JsonConverter(DualConverter):
    """Convert values to JSON, and back.

    Equal schemas come out of envelopes as one and the same, so that transforms find their plans by identity.

    Args:
        config: ``schemas.enable``, ``schemas.cache.size``, ``schema.content``, ``decimal.format`` and
            ``replace.null.with.default``.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: a key that is not known, or a value that it cannot have.
        ConnectDataError: ``schema.content`` is no schema, in the ``kafka_4_3`` mode.
    """

    CONFIG: ClassVar[ConfigDef] = JSON_CONFIG

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        options = self.options
        check_options(options, mode)
        size, replace_null = options[SCHEMAS_CACHE_SIZE], options[REPLACE_NULL]
        self._enveloped: Final[bool] = options[SCHEMAS_ENABLE]
        self._parser: Final[KafkaParser | StrictParser] = StrictParser() if mode == STRICT else KafkaParser()
        self._readers: Final = Readers(mode, replace_null=replace_null)
        self._schemas: Final = SchemaReader(mode, self._readers)
        numeric = options[DECIMAL_FORMAT].upper() == "NUMERIC"
        self._writers: Final = Writers(mode, replace_null=replace_null, numeric=numeric)
        self._by_text: Final[Known[bytes, _Reading]] = Known(size)
        self._by_content: Final[Known[Schema, _Reading]] = Known(size)
        self._by_identity: Final[Known[int, _Writing]] = Known(size)
        self._by_schema: Final[Known[Schema, _Writing]] = Known(size)
        self._configured: Final = self._content(options[SCHEMA_CONTENT])

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the same for all topics
        """Return the JSON of a value.

        Raises:
            ConnectDataError: the value does not fit its schema, or is of a class that JSON has nothing for.
            NullValueError: a decimal's schema has no scale, or a map's no keys, in the ``kafka_4_3`` mode.
        """
        try:
            if schema is None:
                if value is None:
                    return None
                text = self._writers.schemaless(value)
                return (f'{{"schema":null,"payload":{text}}}' if self._enveloped else text).encode()
            found = self._by_identity.get(id(schema))
            _, opening, write = found if found is not None else self._writing(schema)
            return f"{opening}{write(value)}{'}' if opening else ''}".encode()
        except RecursionError:
            raise ConnectDataError(_TOO_DEEP) from None
        except NullValueError as error:
            if self.mode == STRICT:
                raise ConnectDataError(str(error)) from None
            raise

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the same for all topics
        """Return the value of JSON, with its schema where there is one.

        Raises:
            ConnectDataError: it is no JSON, no envelope, or does not fit the schema.
        """
        if data is None:
            return NULL
        try:
            if not self._enveloped:
                return SchemaAndValue(None, self._parser.schemaless(data))
            if self._configured is not None:
                return self._with_schema(self._configured, data)
            return self._from_envelope(data)
        except RecursionError:
            raise ConnectDataError(_TOO_DEEP) from None

    def _from_envelope(self, data: bytes) -> SchemaAndValue:
        if is_long(data):
            return self._from_any_envelope(data)
        try:
            envelope = _ENVELOPE.decode(data)
        except REFUSALS:
            return self._from_any_envelope(data)
        text = bytes(envelope.schema)
        reading = self._by_text.get(text) or self._reading_of_text(text)
        if reading.read is None:
            return self._from_any_envelope(data)
        payload = envelope.payload
        if self.mode == STRICT:
            self._parser.check_names(data, reading.names + 2 + count_of_names(payload))
        try:
            return reading.value(payload, len(data))
        except DigitsNeededError:
            return self._from_any_envelope(data)

    def _from_any_envelope(self, data: bytes) -> SchemaAndValue:
        """Read an envelope with nothing left for later: the slow way, for what is unusual."""
        tree = self._parser.exact(data)
        if not isinstance(tree, dict) or tree.keys() != {"schema", "payload"}:
            raise ConnectDataError(
                "expected an object of 'schema' and 'payload', as schemas.enable says; "
                "set schemas.enable=false to read plain JSON"
            )
        self._parser.check_names(data, count_of_names(tree))
        reading, payload = self._reading(tree["schema"]), tree["payload"]
        if reading.read is None:
            return SchemaAndValue(None, self._parser.plain(payload))
        return reading.value(payload, len(data))

    def _with_schema(self, reading: _Reading, data: bytes) -> SchemaAndValue:
        tree = self._parser.fast(data)
        self._parser.check_names(data, count_of_names(tree))
        try:
            return reading.value(tree, len(data))
        except DigitsNeededError:
            return reading.value(self._parser.exact(data), len(data))

    def _reading_of_text(self, text: bytes) -> _Reading:
        tree = self._parser.exact(text)
        reading = self._reading(tree)._replace(names=count_of_names(tree))
        return self._by_text.put(text, reading) if len(text) <= _MAX_TEXT_BYTES else reading

    def _reading(self, tree: Any) -> _Reading:
        schema = self._schemas.schema(tree)
        if schema is None:
            return _Reading(None, None, 0)
        known = self._by_content.get(schema)
        if known is not None:
            return known
        return self._by_content.put(
            schema, _Reading(schema, self._readers.reader(schema), 0, widest_struct(schema))
        )

    def _writing(self, schema: Schema) -> _Writing:
        known = self._by_schema.get(schema)
        if known is None:
            opening = f'{{"schema":{schema_text(schema, self._writers)},"payload":' if self._enveloped else ""
            known = self._by_schema.put(schema, _Writing(schema, opening, self._writers.writer(schema)))
        return self._by_identity.put(id(schema), known._replace(schema=schema))

    def _content(self, text: str | None) -> _Reading | None:
        if not text:
            return None
        try:
            reading = self._reading(self._parser.exact(text.encode()))
        except ConnectDataError as error:
            if self.mode != STRICT:
                raise
            raise ConnectConfigError(str(error), path=SCHEMA_CONTENT) from None
        return None if reading.schema is None else reading
