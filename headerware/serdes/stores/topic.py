"""A compacted topic as a schema store: it needs no service but the brokers.

A record's key is the algorithm's byte and the digest, its value the schema's text (spec/schema.md). Two
processes that deposit a schema at once may write it twice; the records are equal, and compaction keeps one.
"""

from __future__ import annotations

from threading import Lock
from typing import Annotated, Any, ClassVar, Final

import msgspec

from headerware.core.errors import (
    HeldBackError,
    InterceptorError,
    SerdeError,
    UnknownSchemaError,
)
from headerware.core.options import PATH
from headerware.kafka.settings import dotted
from headerware.serdes.avro.limits import STORED
from headerware.serdes.avro.schema import AvroSchema, Fingerprint, Schema
from headerware.serdes.stores.store import Store
from headerware.topic_table.rows import Rows
from headerware.topic_table.table import TIMEOUT_S, TopicTable, errors_as


class TopicSchemas(Store, frozen=True, kw_only=True):
    """Keep schemas in a compacted topic of one partition.

    Args:
        servers: the brokers, as in ``bootstrap.servers``.
        topic: the topic.
        config: further properties of librdkafka, such as ``security.protocol``.
        snapshot: the file in which schemas are saved, for a start while the brokers are out of reach.
        create: whether to create the topic if it does not exist.
        replication_factor: of a created topic; -1 leaves it to the brokers.
        timeout_s: how long to wait for the brokers, in seconds.
    """

    type: ClassVar[str] = "topic"

    servers: str
    topic: str
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    snapshot: Annotated[str | None, PATH] = None
    create: bool = False
    replication_factor: Annotated[int, msgspec.Meta(ge=-1)] = -1
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = TIMEOUT_S

    def open(self) -> TopicSchemaStore:
        """Return the store; the topic is read with the first request.

        Raises:
            SerdeError: librdkafka refuses the properties.
        """
        return TopicSchemaStore(self)


class TopicSchemaStore:
    """The schemas of a topic; safe for use by several threads and processes at once."""

    def __init__(self, options: TopicSchemas) -> None:
        self._topic: Final = options.topic
        self._timeout_s: Final = options.timeout_s
        self._depositing: Final = Lock()
        with errors_as(SerdeError):
            self._table: Final = TopicTable(
                {**dotted(options.config), "bootstrap.servers": options.servers},
                options.topic,
                rows=Rows,
                snapshot=options.snapshot,
                create=options.create,
                replication_factor=options.replication_factor,
            )

    def get(self, fingerprint: Fingerprint) -> str:
        """Return a schema's text; if it is unknown, read the topic to its end first."""
        text, is_complete = self._text(fingerprint), True
        if text is None:
            with errors_as(HeldBackError):
                is_complete = self._table.refresh(self._timeout_s)
            text = self._text(fingerprint)
        if text is None:
            raise self._unknown(fingerprint, is_complete=is_complete)
        return text

    def put(self, schema: Schema) -> None:
        """Write a schema, unless the topic has an undamaged copy."""
        with self._depositing, errors_as(SerdeError):
            if self._text(schema.fingerprint) is None:
                self._table.refresh(self._timeout_s)
            if self._text(schema.fingerprint) is None:
                self._table.put(schema.fingerprint.code, schema.text.encode(), self._timeout_s)

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        self._table.close()

    def _text(self, fingerprint: Fingerprint) -> str | None:
        """Return the text under a fingerprint, or None if there is none or it is damaged."""
        value = self._table.get(fingerprint.code)
        try:
            text = None if value is None else value.decode()
            if (
                text is None
                or AvroSchema.parsed(text, STORED).fingerprint(fingerprint.algorithm) == fingerprint
            ):
                return text
        except (SerdeError, UnicodeDecodeError):
            pass
        return None

    def _unknown(self, fingerprint: Fingerprint, *, is_complete: bool) -> InterceptorError:
        stale = self._table.stale
        if is_complete or stale is None:
            return UnknownSchemaError(
                f"topic {self._topic!r} has no schema with fingerprint {fingerprint}; deposit it there"
            )
        return HeldBackError(
            f"the schema with fingerprint {fingerprint} is not known, and topic {self._topic!r} is out of "
            f"reach (it was last read at {stale:%Y-%m-%d %H:%M:%S} UTC)"
        )
