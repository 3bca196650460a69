"""Rows for serdes: Avro with the schema in headers, and polyglot, each against the bare library."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pairing import Chunk, compare
from report import Row
from vega_datasets import local_data

from headerware import Headers
from headerware.serdes import Avro, FolderSchemas, Json, Polyglot, SerdeContext

TOPIC = "airports"
CONTEXT = SerdeContext(part="value")
SCHEMA = {
    "type": "record",
    "name": "Airport",
    "fields": [
        *({"name": name, "type": "string"} for name in ("iata", "name", "city", "state", "country")),
        {"name": "latitude", "type": "double"},
        {"name": "longitude", "type": "double"},
    ],
}
HEADERS = Headers([("tenant", b"north")])


def rows(*, pairs: int) -> Iterator[Row]:
    """Measure all rows for serdes; no broker takes part."""
    airports = list(local_data.airports().fillna("").head(2_000).to_dict("records"))
    yield from _avro(airports, pairs)
    yield from _polyglot(airports, pairs)


def _avro(airports: list[dict[str, Any]], pairs: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        ours = Avro(schema=SCHEMA, store=FolderSchemas(path=str(Path(folder)))).open(CONTEXT)
        client = SchemaRegistryClient.new_client({"url": "mock://bench"})
        writes = AvroSerializer(client, json.dumps(SCHEMA))
        reads = AvroDeserializer(client)
        parsed = fastavro.parse_schema(SCHEMA)

        def serialize(value: Any) -> Any:
            return ours.serialize(TOPIC, HEADERS, value)

        def theirs(value: Any) -> Any:
            return writes(value, SerializationContext(TOPIC, MessageField.VALUE, list(HEADERS)))

        note = "140-byte JSON as a dict of 7 fields; theirs writes its prefix with a mock registry"
        yield _row(
            "Avro: serialize, against confluent-kafka's serializer", airports, serialize, theirs, pairs, note
        )
        yield _row("Avro: serialize, against bare fastavro", airports, serialize, _writer(parsed), pairs, "")
        wire = [serialize(airport) for airport in airports]
        prefixed = [theirs(airport) for airport in airports]
        bare = [payload for payload, _ in wire]
        yield _row(
            "Avro: deserialize, against confluent-kafka's deserializer",
            (wire, prefixed),
            lambda item: ours.deserialize(TOPIC, item[1], item[0]),
            lambda item: reads(item, SerializationContext(TOPIC, MessageField.VALUE, list(HEADERS))),
            pairs,
            "",
        )
        yield _row(
            "Avro: deserialize, against bare fastavro",
            (wire, bare),
            lambda item: ours.deserialize(TOPIC, item[1], item[0]),
            lambda item: fastavro.schemaless_reader(io.BytesIO(item), parsed, None),
            pairs,
            "ours also checks lengths and counts before anything is made of them",
        )
        ours.close()


def _writer(parsed: Any) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    return write


def _polyglot(airports: list[dict[str, Any]], pairs: int) -> Iterator[Row]:
    direct, polyglot = Json().open(CONTEXT), Polyglot().open(CONTEXT)
    wire = [direct.serialize(TOPIC, HEADERS, airport) for airport in airports]
    yield _row(
        "polyglot: deserialize JSON, against the JSON deserializer itself",
        wire,
        lambda item: polyglot.deserialize(TOPIC, item[1], item[0]),
        lambda item: direct.deserialize(TOPIC, item[1], item[0]),
        pairs,
        "2 headers",
    )
    yield _row(
        "polyglot: serialize a dict, against the JSON serializer itself",
        airports,
        lambda item: polyglot.serialize(TOPIC, HEADERS, item),
        lambda item: direct.serialize(TOPIC, HEADERS, item),
        pairs,
        "1 header",
    )


def _row(
    name: str,
    items: Any,
    ours: Callable[[Any], Any],
    reference: Callable[[Any], Any],
    pairs: int,
    note: str,
) -> Row:
    mine, theirs = items if isinstance(items, tuple) else (items, items)
    found = compare(_chunk(ours, mine), _chunk(reference, theirs), pairs=pairs)
    bar = "at least 1" if "confluent-kafka" in name else ""
    extra = 1e6 / found.ours - 1e6 / found.reference
    how = f"{extra:+.2f} us a record; {pairs} pairs of {len(mine):,}, in process" + (
        f"; {note}" if note else ""
    )
    return Row(name, found.ours, found.reference, "records/s", found.ratio, bar, how)


def _chunk(function: Callable[[Any], Any], items: list[Any]) -> Chunk:
    def run() -> int:
        for item in items:
            function(item)
        return len(items)

    return run
