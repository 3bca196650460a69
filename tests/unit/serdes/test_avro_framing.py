"""What others write, read by Avro, and the other way round: Confluent's framing, single-object encoding."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headerware.core.errors import SerdeError, UnknownSchemaError
from headerware.core.headers import EMPTY, Headers
from headerware.serdes.avro.schema import AvroSchema
from headerware.serdes.avro.serde import Avro
from headerware.serdes.confluent.framing import encode_single_object
from headerware.serdes.serde import SerdeContext
from headerware.serdes.stores.folder import FolderSchemas
from headerware.serdes.stores.schema_registry import RegistryStore

if TYPE_CHECKING:
    from pathlib import Path

    from headerware.serdes.serde import Part

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}],
}
VALUE = {"id": 7, "customer": "Ada L."}
BARE = b"\x0e\x0cAda L."  # theirs refuses less than 6 bytes, even where the header names the schema
PARTS = pytest.mark.parametrize("part", ["key", "value"])


@pytest.fixture
def client() -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://"})


@pytest.fixture
def store(client: Any) -> RegistryStore:
    return RegistryStore(client)


def opened(part: Any = "value", **options: Any) -> Any:
    return Avro(**options).open(SerdeContext(part=part))


def context(part: Part) -> SerializationContext:
    return SerializationContext("orders", MessageField.KEY if part == "key" else MessageField.VALUE, [])


class TestConfluentPrefix:
    @PARTS
    def test_theirs_writes_ours_reads(self, client: Any, store: RegistryStore, part: Part) -> None:
        payload = AvroSerializer(client, json.dumps(ORDER))(VALUE, context(part))
        assert opened(part, store=store).deserialize("orders", EMPTY, payload) == (VALUE, EMPTY)

    @PARTS
    def test_ours_writes_theirs_reads(self, client: Any, store: RegistryStore, part: Part) -> None:
        serde = opened(part, schema=ORDER, store=store, write_as="prefix")
        headers = Headers([("a", b"1")])
        payload, after = serde.serialize("orders", headers, VALUE)
        assert after is headers
        assert payload == b"\x00\x00\x00\x00\x01" + BARE
        assert client.get_subjects() == [f"orders-{part}"]
        assert AvroDeserializer(client)(payload, context(part)) == VALUE
        assert serde.deserialize("orders", headers, payload) == (VALUE, headers)

    def test_topics_and_types_have_subjects_of_their_own(self, client: Any, store: RegistryStore) -> None:
        serde = opened(schema=ORDER, store=store, write_as="prefix", subject="{name}.{topic}-{part}")
        for topic in ("a", "b", "a"):
            serde.serialize(topic, EMPTY, VALUE)
        assert sorted(client.get_subjects()) == ["Order.a-value", "Order.b-value"]

    def test_an_unknown_id(self, store: RegistryStore) -> None:
        with pytest.raises(UnknownSchemaError, match="under id 9"):
            opened(schema=ORDER, store=store).deserialize("t", EMPTY, b"\x00\x00\x00\x00\x09" + BARE)

    def test_a_content_type_of_bare_avro_says_that_there_is_no_prefix(self, store: RegistryStore) -> None:
        fixed = {"type": "fixed", "name": "F", "size": 5}
        headers = Headers([("content-type", b"application/avro-binary")])
        reader = opened(schema=fixed, store=store)
        assert reader.deserialize("t", headers, bytes(5))[0] == bytes(5)
        for other in (
            EMPTY,
            Headers([("content-type", b"application/json")]),
            Headers([("content-type", b"/")]),
        ):
            with pytest.raises(UnknownSchemaError):
                reader.deserialize("t", other, bytes(5))

    def test_a_serde_that_writes_the_prefix_reads_it_despite_the_content_type(
        self, store: RegistryStore
    ) -> None:
        serde = opened(schema=ORDER, store=store, write_as="prefix")
        headers = Headers([("content-type", b"application/avro-binary")])
        payload, after = serde.serialize("t", headers, VALUE)
        assert serde.deserialize("t", after, payload)[0] == VALUE

    def test_without_ids_a_payload_of_that_look_is_bare(self, tmp_path: Path) -> None:
        fixed = {"type": "fixed", "name": "F", "size": 6}
        serde = opened(schema=fixed, store=FolderSchemas(path=str(tmp_path)))
        assert serde.deserialize("t", EMPTY, bytes(6))[0] == bytes(6)
        serde.close()

    def test_an_error_hints_at_the_prefix(self) -> None:
        for options in ({}, {"schema": ORDER}):
            with pytest.raises(SerdeError, match="it may begin with Confluent's prefix"):
                opened(**options).deserialize("t", EMPTY, b"\x00\x00\x00\x00\x01" + BARE)


class TestConfluentHeader:
    @PARTS
    def test_theirs_writes_ours_reads(self, client: Any, store: RegistryStore, part: Part) -> None:
        ctx = context(part)
        conf = {"schema.id.serializer": header_schema_id_serializer}
        payload = AvroSerializer(client, json.dumps(ORDER), conf=conf)(VALUE, ctx)
        assert payload == BARE
        assert opened(part, store=store).deserialize("orders", Headers(ctx.headers), payload) == (
            VALUE,
            EMPTY,
        )

    @PARTS
    def test_ours_writes_theirs_reads(self, client: Any, store: RegistryStore, part: Part) -> None:
        serde = opened(part, schema=ORDER, store=store, write_as="confluent-header")
        headers = EMPTY
        for _ in range(3):
            payload, headers = serde.serialize("orders", headers, VALUE)
        assert payload == BARE
        prefix = "key-" if part == "key" else ""
        assert sorted(headers.names()) == sorted([f"__{part}_schema_id", f"{prefix}content-type"])
        ctx = SerializationContext("orders", context(part).field, list(headers))
        assert AvroDeserializer(client)(payload, ctx) == VALUE
        assert serde.deserialize("orders", headers, payload)[0] == VALUE

    def test_the_last_of_several_counts(self, store: RegistryStore) -> None:
        """What passes its headers on adds one to those of the record that it read."""
        _, before = opened(schema='"string"', store=store, write_as="confluent-header").serialize(
            "t", EMPTY, "x"
        )
        payload, after = opened(schema=ORDER, store=store, write_as="confluent-header").serialize(
            "t", EMPTY, VALUE
        )
        headers = Headers([*before, *after])
        assert opened(store=store).deserialize("t", headers, payload)[0] == VALUE

    def test_reading_needs_a_store(self, store: RegistryStore) -> None:
        writer = opened(schema=ORDER, store=store, write_as="confluent-header")
        payload, headers = writer.serialize("t", EMPTY, VALUE)
        with pytest.raises(UnknownSchemaError, match="option store, of type 'registry'"):
            opened().deserialize("t", headers, payload)

    def test_a_registry_that_is_too_old_for_guids(self, client: Any) -> None:
        class Old(RegistryStore):
            def register(self, subject: str, text: str) -> tuple[int, bytes]:
                return super().register(subject, text)[0], b""

        with pytest.raises(SerdeError, match="gave no GUID"):
            opened(schema=ORDER, store=Old(client), write_as="confluent-header").serialize("t", EMPTY, VALUE)

    def test_a_fingerprint_with_a_registry_as_store(self, client: Any, store: RegistryStore) -> None:
        payload, headers = opened(schema=ORDER, store=store).serialize("orders", EMPTY, VALUE)
        assert headers.names() == ("hw.schema", "content-type")
        assert opened(store=RegistryStore(client)).deserialize("orders", headers, payload)[0] == VALUE


class TestSingleObjectEncoding:
    SCHEMA = AvroSchema.of(ORDER)
    PAYLOAD = encode_single_object(SCHEMA.fingerprint("rabin")) + BARE

    @pytest.mark.parametrize("option", ["schema", "reader_schema"])
    def test_by_a_schema_of_the_options(self, option: str) -> None:
        assert opened(**{option: ORDER}).deserialize("t", EMPTY, self.PAYLOAD) == (VALUE, EMPTY)

    def test_by_a_schema_of_the_store(self, tmp_path: Path) -> None:
        (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
        serde = opened(store=FolderSchemas(path=str(tmp_path)))
        assert [serde.deserialize("t", EMPTY, self.PAYLOAD)[0] for _ in range(2)] == [VALUE, VALUE]
        serde.close()

    def test_bare_payloads_may_begin_with_the_same_bytes(self, tmp_path: Path) -> None:
        fixed = {"type": "fixed", "name": "F", "size": len(self.PAYLOAD)}
        serde = opened(schema=fixed, store=FolderSchemas(path=str(tmp_path)))
        assert serde.deserialize("t", EMPTY, self.PAYLOAD)[0] == self.PAYLOAD
        serde.close()

    def test_unknown_fingerprints(self) -> None:
        with pytest.raises(UnknownSchemaError, match="no header names the value's schema"):
            opened().deserialize("t", EMPTY, self.PAYLOAD)
