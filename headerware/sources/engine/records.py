"""Make the records for a chain from an extractor's results; all runtimes use this."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.wire_records import joined
from headerware.core.batch import Batch as RecordBatch
from headerware.core.batch import HeaderColumns, Repeated
from headerware.core.context import wall_clock_ms
from headerware.core.dead_letter import SOURCE_STAGE, dead_letter
from headerware.core.errors import InterceptorError, SourceError
from headerware.core.headers import Headers, HeaderValue
from headerware.core.record import Record
from headerware.sources.evolving import KEY_HEADER, NUMBER_HEADER, SOURCE_HEADER, EvolvingRecord
from headerware.sources.source import Source

if TYPE_CHECKING:
    from headerware.sources.config import SourceConfig
    from headerware.sources.engine.batches import Batch
    from headerware.sources.extractor import Extracted, Split
    from headerware.sources.source import NativeItem
    from headerware.sources.transformers import Transformers

_CONTENT_TYPE: Final = "content-type"
_trusted: Final = tuple.__new__  # as Headers.trusted, without its call

_log: Final = logging.getLogger("headerware.sources")


def part_of(split: Split | None) -> str:
    """Return the prefix for the numbers of a part's records; empty if the first record's number is known."""
    return "" if split is None or split.first_record is not None else f"{split.begin}+"


def refused(config: SourceConfig, batch: Batch, at: int, error: Exception, shown: str) -> list[Record]:
    """Apply ``on_record_error`` to a record that cannot be sent; return its dead letter, if any.

    Args:
        config: the configuration.
        batch: the batch of the record.
        at: the index of the record in the batch.
        error: why the record cannot be sent.
        shown: the error's text, without any payload.

    Raises:
        SourceError: ``on_record_error`` is ``raise``.
    """
    key, number = config.key_text(batch.native_key), f"{batch.part}{batch.numbers[at]}"
    reason = f"record {number} of object {key!r} of source {config.name!r} cannot be sent: {shown}"
    if config.on_record_error == "raise":
        raise SourceError(reason) from error
    if config.on_record_error == "skip":
        _log.warning("skipped a record: %s", reason)
    if config.on_record_error != "dead_letter":
        return []
    return [source_dead_letter(config, key, number, topic=batch.records[at].topic, reason=reason, raw=None)]


class RecordMaker:
    """Make the records of one object.

    Args:
        config: the configuration.
        item: the object.
        transformers: the configured transformers, initialized.
        split: the part of the object that is read; None reads the complete object.
    """

    def __init__(
        self, config: SourceConfig, item: NativeItem, transformers: Transformers, split: Split | None = None
    ) -> None:
        self._config: Final = config
        self._context: Final = item.context
        self._native_key: Final = item.context.key
        self._timestamp_ms: Final = item.context.timestamp_ms
        self._transform: Final = transformers if len(transformers) else None
        self._evolves: Final = type(config.source).last_evolution is not Source.last_evolution
        self.is_plain: Final = self._transform is None and not self._evolves
        """Whether no user's code is called for a record."""
        self._text: Final = config.key_text(item.context.key)
        self.where: Final = f"object {self._text!r} of source {config.name!r}"
        """The object, for messages."""
        self._part: Final = part_of(split)
        self._part_bytes: Final = self._part.encode()
        self._topic = ""
        self._partition: int | None = None
        self._own: list[tuple[str, bytes | None]] = []
        if config.headers:
            self._own += [(SOURCE_HEADER, config.name.encode()), (KEY_HEADER, text_bytes(self._text))]
        content_type = item.context.content_type or config.extractor.content_type
        self._typed: Final = () if content_type is None else ((_CONTENT_TYPE, content_type.encode()),)

    def route(self) -> None:
        """Find the topic and the partition, before the first record; raise SourceError if invalid."""
        self._topic, self._partition = self._config.route(self._context)

    def numbered(self, number: int) -> str:
        """Return a record's number as text, with the prefix of its part, if there is one."""
        return f"{self._part}{number}"

    def make(self, number: int, found: Extracted) -> tuple[list[Record], Mapping[str, Any] | None]:
        """Return the records of an extracted value, and the offset's properties after them.

        There is one record, unless transformers drop or split the value. The records of a split have numbers
        such as 3.1 and 3.2.

        Raises:
            Exception: a transformer or the last evolution has failed; this counts as a bad record.
        """
        values = (found.value,) if self._transform is None else self._transform(found.value)
        if len(values) == 1:
            record, properties = self._made(number, b"", found, values[0])
            return [record], properties
        most = self._config.poll_records
        if len(values) > most:
            raise SourceError(
                f"transformers split it into {len(values)} records; expected at most {most} (poll_records)"
            )
        properties = found.properties
        records = []
        for index, value in enumerate(values, 1):
            record, properties = self._made(number, b".%d" % index, found, value)
            records.append(record)
        return records, properties

    def _made(
        self, number: int, index: bytes, found: Extracted, value: Any
    ) -> tuple[Record, Mapping[str, Any] | None]:
        timestamp_ms = found.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self._timestamp_ms
        headers = found.headers
        if self._own:  # the last header of a name counts, so these headers come last, except content-type
            typed = self._typed if value.__class__ is bytes else ()
            numbered = (NUMBER_HEADER, b"%s%d%s" % (self._part_bytes, number, index))
            headers = _trusted(Headers, (*typed, *headers, *self._own, numbered))
        if not self._evolves:
            key = found.key
            if found.schema is not None:
                value = joined(found.schema, value)
            if found.key_schema is not None:
                key = joined(found.key_schema, key)
            return Record(self._topic, value, key, headers, self._partition, timestamp_ms), found.properties
        evolved = self._evolved(
            EvolvingRecord(
                self._native_key,
                number,
                self._topic,
                self._partition,
                found.key,
                found.key_schema,
                value,
                found.schema,
                headers,
                timestamp_ms,
                found.properties,
            )
        )
        return evolved.to_record(), evolved.properties

    def make_batch(self, first: int, found: Sequence[Extracted]) -> RecordBatch | None:
        """Return the records of extracted values as columns; None if they have too little in common.

        Call this only if :attr:`is_plain`.
        """
        values = [each.value for each in found]
        kinds = set(map(type, values))
        if (bytes in kinds and len(kinds) > 1) or any(each.headers for each in found):
            return None
        count = len(found)
        headers: list[tuple[str, Sequence[HeaderValue]]] = []
        if self._own:
            part = self._part_bytes
            stated = (*(self._typed if bytes in kinds else ()), *self._own)
            headers += [(name, Repeated(value, count)) for name, value in stated]
            headers.append(
                (NUMBER_HEADER, [b"%s%d" % (part, number) for number in range(first, first + count)])
            )
        item_ms = self._timestamp_ms
        return RecordBatch(
            self._topic,
            [
                value if each.schema is None else joined(each.schema, value)
                for each, value in zip(found, values, strict=True)
            ],
            keys=[
                each.key if each.key_schema is None else joined(each.key_schema, each.key) for each in found
            ],
            headers=HeaderColumns(headers, count),
            partitions=Repeated(self._partition, count),
            timestamps_ms=[item_ms if each.timestamp_ms is None else each.timestamp_ms for each in found],
        )

    def dead_letter(self, number: int, reason: str, raw: bytes | None) -> Record:
        """Return the dead letter of a record, with the object's key and the record's number."""
        return source_dead_letter(
            self._config, self._text, self.numbered(number), topic=self._topic, reason=reason, raw=raw
        )

    def _evolved(self, given: EvolvingRecord) -> EvolvingRecord:
        found = self._config.source.last_evolution(given)
        if not isinstance(found, EvolvingRecord):
            raise SourceError(f"expected an EvolvingRecord from last_evolution, found {type(found).__name__}")
        for name in ("native_key", "record_number"):
            if getattr(found, name) != getattr(given, name):
                raise SourceError(f"last_evolution changed {name}, which must stay the same")
        return found


def text_bytes(text: str) -> bytes:
    """Return the text of a key as UTF-8; characters that UTF-8 cannot encode become escapes."""
    return text.encode("utf-8", "backslashreplace")


def source_dead_letter(
    config: SourceConfig, key_text: str, number: str, *, topic: str, reason: str, raw: bytes | None
) -> Record:
    """Return the dead letter of a record that could not be read or sent.

    The dead letter's key is the object's key and the record's number, as text; its value is the record's
    bytes, if they are known.
    """
    headers = [
        (SOURCE_HEADER, config.name.encode()),
        (KEY_HEADER, text_bytes(key_text)),
        (NUMBER_HEADER, number.encode()),
    ]
    return dead_letter(
        Record(topic or config.name, raw, text_bytes(f"{key_text}#{number}"), Headers(headers)),
        InterceptorError(reason, step=config.extractor.type),
        topic=config.dead_letter_topic,
        names="connect",
        stage=SOURCE_STAGE,
        group_id=None,
        cluster=None,
        now_ms=wall_clock_ms(),
    )
