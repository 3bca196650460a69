"""confluent-kafka's own serdes by name, and confluent-kafka itself as the other side."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import rich.console
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.rpc import error_details_pb2

from headerware import Chain, ConfigError, Headers, Record, SerdeError, UnknownSchemaError
from headerware.core.extras import install_command
from headerware.interceptors import Serialize
from headerware.serdes import (
    ConfluentAvro,
    ConfluentJson,
    ConfluentProtobuf,
    ConfluentSerializer,
    Serde,
    SerdeContext,
)
from headerware.serdes.confluent.client import SharedClient, client_of, shared_client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
    }
)
JSON = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["id"],
    }
)
MESSAGE = error_details_pb2.LocalizedMessage
"""One that is not the first of its file, so that the id comes with its place there."""
MESSAGE_PATH = "google.rpc.error_details_pb2:LocalizedMessage"
FORMATS = ["avro", "json", "protobuf"]
PLACES = ["prefix", "header"]
PARTS: list[Any] = ["key", "value"]
FIELDS = {"key": MessageField.KEY, "value": MessageField.VALUE}
ID_HEADER = {"key": "__key_schema_id", "value": "__value_schema_id"}
PLACED = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}
ORDER = {"id": 7, "note": "grün"}
OBJECTS: dict[str, Any] = {
    "avro": ORDER,
    "json": ORDER,
    "protobuf": MESSAGE(locale="de", message="grün"),
}
OURS: dict[str, Callable[..., Serde]] = {
    "avro": lambda **options: ConfluentAvro(**{"schema": AVRO, **options}),
    "json": lambda **options: ConfluentJson(**{"schema": JSON, **options}),
    "protobuf": lambda **options: ConfluentProtobuf(**{"message": MESSAGE_PATH, **options}),
}
THEIR_SERIALIZERS: dict[str, Callable[..., Any]] = {
    "avro": lambda client, **conf: AvroSerializer(client, AVRO, conf=conf),
    "json": lambda client, **conf: JSONSerializer(JSON, client, conf=conf),
    "protobuf": lambda client, **conf: ProtobufSerializer(MESSAGE, client, conf=conf),
}
THEIR_DESERIALIZERS: dict[str, Callable[..., Any]] = {
    "avro": AvroDeserializer,
    "json": lambda client: JSONDeserializer(None, schema_registry_client=client),
    "protobuf": lambda client: ProtobufDeserializer(MESSAGE, schema_registry_client=client),
}


@pytest.fixture
def url(unique_topic: Callable[[str], str]) -> str:
    """Return a registry of this test's own, in memory."""
    return f"mock://{unique_topic('registry')}"


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    """Return the client that our serdes share for that registry."""
    return shared_client(url, {}).client


def their_serializer(client: Any, word: str, id_in: str, **conf: Any) -> Any:
    return THEIR_SERIALIZERS[word](client, **{"schema.id.serializer": PLACED[id_in], **conf})


def context(part: str, headers: Any) -> SerializationContext:
    return SerializationContext("orders", FIELDS[part], headers)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("id_in", PLACES)
@pytest.mark.parametrize("word", FORMATS)
class TestBothWays:
    def test_theirs_writes_and_ours_reads(
        self, word: str, id_in: str, part: Any, url: str, client: Any
    ) -> None:
        headers: list[Any] = [("own", b"1")]
        payload = their_serializer(client, word, id_in)(OBJECTS[word], context(part, headers))
        assert (len(headers) == 2) == (id_in == "header")
        ours = OURS[word](url=url).open(SerdeContext(part=part, side="consumer"))
        found = ours.deserialize("orders", Headers(headers), payload)
        assert found == (OBJECTS[word], Headers([("own", b"1")]))

    def test_ours_writes_and_theirs_reads(
        self, word: str, id_in: str, part: Any, url: str, client: Any
    ) -> None:
        ours = OURS[word](url=url, id_in=id_in).open(SerdeContext(part=part, side="producer"))
        payload, headers = ours.serialize("orders", Headers([("own", b"1")]), OBJECTS[word])
        names = ("own", ID_HEADER[part]) if id_in == "header" else ("own",)
        assert headers.names() == names
        theirs = THEIR_DESERIALIZERS[word](client)
        assert theirs(payload, context(part, list(headers))) == OBJECTS[word]

    def test_a_tombstone_stays_one_and_has_no_id(self, word: str, id_in: str, part: Any, url: str) -> None:
        ours = OURS[word](url=url, id_in=id_in).open(SerdeContext(part=part))
        stale = Headers([(ID_HEADER[part], b"stale"), ("own", b"1")])
        kept = Headers([("own", b"1")])
        assert ours.serialize("orders", stale, None) == (None, kept)
        assert ours.deserialize("orders", stale, None) == (None, kept)
        assert ours.deserialize("orders", kept, None) == (None, kept)

    def test_a_stale_id_is_replaced(self, word: str, id_in: str, part: Any, url: str) -> None:
        ours = OURS[word](url=url, id_in=id_in).open(SerdeContext(part=part))
        stale = Headers([(ID_HEADER[part], b"\x01" + bytes(16)), (ID_HEADER[part], b"2"), ("own", b"1")])
        payload, headers = ours.serialize("orders", stale, OBJECTS[word])
        assert len(headers.all(ID_HEADER[part])) == (id_in == "header")
        assert ours.deserialize("orders", headers, payload) == (OBJECTS[word], Headers([("own", b"1")]))


@pytest.mark.parametrize("id_in", PLACES)
@pytest.mark.parametrize("word", FORMATS)
class TestBadInput:
    def test_a_bad_payload_is_refused_and_the_next_is_read(self, word: str, id_in: str, url: str) -> None:
        ours = OURS[word](url=url, id_in=id_in).open(SerdeContext())
        payload, headers = ours.serialize("orders", Headers(), OBJECTS[word])
        unknown = {"header": Headers([(ID_HEADER["value"], b"\x01" + bytes(16))]), "prefix": headers}[id_in]
        numbered = b"\x00\x00\x00\xff\xff\x00secret"
        bad: list[tuple[Headers, bytes]] = [
            (Headers(), b""),
            (Headers(), b"\x00"),
            (Headers(), b"secret, and no prefix"),
            (Headers(), b"\x01too short"),
            (unknown, numbered),
            (headers, payload[:-2]) if word != "protobuf" else (headers, payload[:-1]),
            (Headers([(ID_HEADER["value"], b"")]), payload),
            (Headers([(ID_HEADER["value"], b"\x01" + b"x" * 8)]), payload),
            (Headers([(ID_HEADER["value"], b"\x07" + b"x" * 16)]), payload),
        ]
        for given_headers, given in bad:
            with pytest.raises(SerdeError) as raised:
                ours.deserialize("orders", given_headers, given)
            assert raised.value.part == "value"
            assert "secret" not in str(raised.value)
            assert raised.value.__cause__ is not None
        assert ours.deserialize("orders", headers, payload)[0] == OBJECTS[word]

    def test_a_schema_that_nobody_knows_is_told_apart(self, word: str, id_in: str, url: str) -> None:
        ours = OURS[word](url=url, id_in=id_in).open(SerdeContext(side="consumer"))
        given = {
            "prefix": (Headers(), b"\x00\x00\x00\xff\xff\x00payload"),
            "header": (Headers([(ID_HEADER["value"], b"\x01" + b"x" * 16 + b"\x00")]), b"payload"),
        }
        with pytest.raises(UnknownSchemaError, match="404"):
            ours.deserialize("orders", *given[id_in])

    def test_an_object_that_does_not_fit_is_refused_without_being_shown(
        self, word: str, id_in: str, url: str
    ) -> None:
        ours = OURS[word](url=url, id_in=id_in).open(SerdeContext(part="key"))
        for wrong in ({"id": "secret"}, "secret", 7, object()):
            with pytest.raises(SerdeError, match="cannot serialize the key") as raised:
                ours.serialize("orders", Headers(), wrong)
            assert "secret" not in str(raised.value)
        assert ours.serialize("orders", Headers(), OBJECTS[word])[0]


class TestShortPayloads:
    """A payload without a prefix may be shorter than one; confluent-kafka's Avro deserializer refuses it."""

    @pytest.mark.parametrize(("schema", "value"), [('"int"', 7), ('"string"', "ab"), ('"null"', None)])
    def test_are_read_by_the_id_in_the_header(self, schema: str, value: Any, url: str) -> None:
        ours = ConfluentAvro(url=url, id_in="header", schema=schema).open(SerdeContext())
        payload, headers = ours.serialize("orders", Headers(), value)
        assert payload is None or len(payload) < 6
        assert ours.deserialize("orders", headers, payload) == (value, Headers())

    def test_with_a_corrupt_id_are_refused(self, url: str) -> None:
        ours = ConfluentAvro(url=url, id_in="header", schema='"int"').open(SerdeContext())
        for corrupt in (b"", b"\x01short", b"\x05" * 17):
            with pytest.raises(SerdeError, match="expected 0 and an id of 4 bytes, or 1 and a GUID"):
                ours.deserialize("orders", Headers([(ID_HEADER["value"], corrupt)]), b"\x0e")
        with pytest.raises(SerdeError, match="Expecting data framing"):
            ours.deserialize("orders", Headers([(ID_HEADER["value"], None)]), b"\x0e")


class TestAccumulatedIds:
    """A list that is used again holds an id for each record; the last is that of the payload."""

    def test_the_last_counts(self, url: str, client: Any) -> None:
        headers: list[Any] = []
        numbers = AvroSerializer(client, '"long"', conf={"schema.id.serializer": header_schema_id_serializer})
        orders = their_serializer(client, "avro", "header")
        numbers(12345678901, SerializationContext("numbers", MessageField.VALUE, headers))
        payload = orders(ORDER, context("value", headers))
        assert [name for name, _ in headers] == [ID_HEADER["value"]] * 2
        ours = ConfluentAvro(url=url).open(SerdeContext(side="consumer"))
        assert ours.deserialize("orders", Headers(headers), payload) == (ORDER, Headers())

    def test_ours_in_their_client_add_none(self, url: str) -> None:
        serializer = ConfluentSerializer(ConfluentAvro(url=url, id_in="header", schema=AVRO), "value")
        headers: list[Any] = [("own", b"1")]
        for number in range(3):
            serializer({"id": number}, context("value", headers))
        assert [name for name, _ in headers] == ["own", ID_HEADER["value"]]


class TestSettings:
    def test_a_reader_resolves_to_its_own_schema(self, url: str, client: Any) -> None:
        payload = their_serializer(client, "avro", "prefix")(ORDER, context("value", []))
        narrower = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "double"}]}
        ours = ConfluentAvro(url=url, schema=narrower).open(SerdeContext(side="consumer"))
        assert ours.deserialize("orders", Headers(), payload)[0] == {"id": 7.0}

    def test_a_schema_with_references_comes_as_confluent_kafkas_own(self, url: str, client: Any) -> None:
        given = Schema(AVRO, "AVRO")
        ours = ConfluentAvro(url=url, schema=given).open(SerdeContext())
        payload, headers = ours.serialize("orders", Headers(), ORDER)
        assert ours.deserialize("orders", headers, payload)[0] == ORDER

    def test_one_set_of_settings_serves_both_directions(self, url: str, client: Any) -> None:
        client.register_schema("orders-value", Schema(AVRO, "AVRO"))
        settings = {"auto.register.schemas": False, "use.latest.version": True, "validate.strict": True}
        ours = ConfluentAvro(url=url, settings=settings).open(SerdeContext())
        payload, headers = ours.serialize("orders", Headers(), ORDER)
        assert ours.deserialize("orders", headers, payload)[0] == ORDER
        with pytest.raises(SerdeError):
            ours.serialize("orders", Headers(), {**ORDER, "more": 1})

    def test_text_and_tables_become_what_confluent_kafka_takes(self, url: str, client: Any) -> None:
        client.register_schema("orders-value", Schema(AVRO, "AVRO"))
        settings = {"auto": {"register": {"schemas": "false"}}, "use.latest.version": "True"}
        ours = ConfluentAvro(url=url, settings=settings).open(SerdeContext(side="producer"))
        assert ours.serialize("orders", Headers(), ORDER)[0]

    def test_schemas_are_not_registered_where_that_is_switched_off(self, url: str) -> None:
        ours = ConfluentAvro(url=url, schema=AVRO, settings={"auto.register.schemas": False})
        with pytest.raises(SerdeError, match="404"):
            ours.open(SerdeContext(side="producer")).serialize("orders", Headers(), ORDER)

    @pytest.mark.parametrize(
        ("word", "subject"),
        [
            ("topic", "orders-key"),
            ("record", "Order"),
            ("topic-record", "orders-Order"),
            ("TOPIC", "orders-key"),
        ],
    )
    @pytest.mark.parametrize("setting", ["subject.name.strategy", "subject.name.strategy.type"])
    def test_a_strategy_is_named_by_a_word(
        self, word: str, subject: str, setting: str, url: str, client: Any
    ) -> None:
        ours = ConfluentAvro(url=url, schema=AVRO, settings={setting: word})
        ours.open(SerdeContext(part="key")).serialize("orders", Headers(), ORDER)
        assert client.get_subjects() == [subject]

    def test_a_strategy_may_be_a_function(self, url: str, client: Any) -> None:
        ours = ConfluentAvro(
            url=url, schema=AVRO, settings={"subject.name.strategy": lambda ctx, name: "mine"}
        )
        ours.open(SerdeContext()).serialize("orders", Headers(), ORDER)
        assert client.get_subjects() == ["mine"]

    @pytest.mark.parametrize(
        ("options", "path", "problem"),
        [
            ({"url": " "}, "url", "expected the address"),
            (
                {"settings": {"auto.register.schemas": "si"}},
                "settings.auto.register.schemas",
                "true or false",
            ),
            ({"settings": {"use": {"schema.id": "x"}}}, "settings.use.schema.id", "a number"),
            ({"registry": {"timeout": "soon"}}, "registry.timeout", "a number"),
        ],
    )
    def test_mistakes_are_found_at_once(self, options: dict[str, Any], path: str, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem) as raised:
            ConfluentAvro(**{"url": "mock://x", **options})
        assert raised.value.path == path

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"settings": {"subject.name.strategy": "topics"}}, "expected one of associated, record, topic"),
            ({"settings": {"schema.id.serializer": print}}, "id_in"),
            ({"settings": {"no.such": 1}}, "Unrecognized properties: no.such"),
            ({"settings": {"use.latest.version": True}}, "cannot enable both"),
            ({"schema": '{"type": "recor'}, "AvroSerializer refuses its options"),
            ({"schema": '"strin"'}, "AvroSerializer refuses its options"),
            ({"schema": "/no/such/file.avsc"}, "cannot read /no/such/file.avsc: No such file"),
            ({"schema": None}, "expected a schema to write by"),
            ({"registry": {"no.such": 1}}, "refuses its settings"),
            ({"url": "ftp://me:hunter2@host"}, "refuses its settings"),
        ],
    )
    def test_other_mistakes_are_found_when_it_opens(self, options: dict[str, Any], problem: str) -> None:
        serde = ConfluentAvro(**{"url": "mock://mistakes", "schema": AVRO, **options})
        with pytest.raises(ConfigError, match=problem) as raised:
            serde.open(SerdeContext(side="producer"))
        assert "hunter2" not in str(raised.value)

    @pytest.mark.parametrize("message", ["no.such:Message", f"{MESSAGE_PATH}s", "json:loads", "x", 5])
    def test_a_message_that_is_none_is_refused(self, message: Any, url: str) -> None:
        with pytest.raises(ConfigError):
            ConfluentProtobuf(url=url, message=message).open(SerdeContext())

    def test_a_reader_needs_no_schema_but_does_not_write(self, url: str) -> None:
        ours = ConfluentAvro(url=url).open(SerdeContext())
        with pytest.raises(SerdeError, match="opened without a schema"):
            ours.serialize("orders", Headers(), ORDER)
        ours = ConfluentAvro(url=url, schema=AVRO).open(SerdeContext(side="producer"))
        with pytest.raises(SerdeError, match="for writing only"):
            ours.deserialize("orders", Headers(), b"x")

    def test_passwords_are_not_shown(self) -> None:
        serde = ConfluentAvro(url="https://me:hunter2@host", registry={"basic.auth.user.info": "me:hunter2"})
        assert "hunter2" not in repr(serde)
        shown = io.StringIO()
        rich.console.Console(file=shown).print(serde)
        assert "hunter2" not in shown.getvalue()
        assert "ConfluentAvro" in shown.getvalue()

    @pytest.mark.parametrize(
        ("url", "registry", "auth", "addresses"),
        [
            ("http://me:hunter%402@a:1", {}, ("me", "hunter@2"), ["http://a:1"]),
            ("https://me:hunter2@a, https://me:hunter2@b", {}, ("me", "hunter2"), ["https://a", "https://b"]),
            ("http://token@a", {}, ("token", ""), ["http://a"]),
            ("http://a:1", {}, None, ["http://a:1"]),
            ("http://a", {"basic.auth.user.info": "me:hunter2"}, ("me", "hunter2"), ["http://a"]),
        ],
    )
    def test_passwords_are_no_part_of_the_addresses_that_are_asked(
        self, url: str, registry: dict[str, Any], auth: Any, addresses: list[str]
    ) -> None:
        """The client's HTTP library logs each address, as it stands, at level INFO."""
        shared = shared_client(url, registry)
        rest: Any = shared.client._rest_client
        assert (rest.auth, rest.base_urls) == (auth, addresses)
        shared.close()

    def test_a_file_names_a_schema_in_its_own_folder(self, tmp_path: Path, url: str) -> None:
        (tmp_path / "order.avsc").write_text(AVRO, encoding="utf-8")
        (tmp_path / "headerware.toml").write_text(
            f"""
            [[interceptors]]
            type = "serialize"
            [interceptors.value]
            type = "confluent-avro"
            url = "{url}"
            schema = "order.avsc"
            id_in = "header"
            settings.normalize.schemas = true
            settings.subject.name.strategy = "record"
            registry.max.retries = 1
            [interceptors.key]
            type = "confluent-protobuf"
            url = "{url}"
            message = "{MESSAGE_PATH}"
            """,
            encoding="utf-8",
        )
        session = Chain.from_config({"headerware.config": str(tmp_path / "headerware.toml")}).open()
        [sent] = session.send([Record("orders", ORDER, OBJECTS["protobuf"])])
        assert sent.headers.names() == ("__value_schema_id",)
        assert isinstance(sent.key, bytes)
        [back] = session.consume([sent])
        assert (back.key, back.value, back.headers) == (OBJECTS["protobuf"], ORDER, Headers())

    def test_the_flat_form(self, url: str) -> None:
        chain = Chain.from_config(
            {
                "interceptors": "serialize",
                "interceptors.serialize.value": "confluent-protobuf",
                "interceptors.serialize.value.url": url,
                "interceptors.serialize.value.message": MESSAGE_PATH,
                "interceptors.serialize.value.settings.skip.known.types": "false",
                "interceptors.serialize.value.registry.timeout": "2.5",
            }
        )
        session = chain.open()
        [sent] = session.send([Record("orders", OBJECTS["protobuf"])])
        assert session.consume([sent])[0].value == OBJECTS["protobuf"]


def is_closed(shared: SharedClient) -> bool:
    """Return whether the connections of a client are closed."""
    return bool(shared.client._rest_client.session.is_closed)


class TestSharedClient:
    def test_equal_settings_share_one(self, url: str) -> None:
        first = shared_client(url, {"timeout": 5})
        assert shared_client(url, {"timeout": "5"}) is first
        assert shared_client(url, {"timeout": 6}) is not first
        assert shared_client(f"{url}2", {"timeout": 5}) is not first

    def test_the_last_user_closes_it(self) -> None:
        first = shared_client("http://127.0.0.1:1", {"max.retries": 0})
        second = shared_client("http://127.0.0.1:1", {"max.retries": 0})
        assert second is first
        first.close()
        assert not is_closed(first)
        second.close()
        assert is_closed(first)
        third = shared_client("http://127.0.0.1:1", {"max.retries": 0})
        assert third is not first
        third.close()

    def test_a_stand_in_keeps_its_schemas(self, url: str) -> None:
        ours = ConfluentAvro(url=url, schema=AVRO).open(SerdeContext())
        payload, headers = ours.serialize("orders", Headers(), ORDER)
        ours.close()
        ours.close()
        again = ConfluentAvro(url=url).open(SerdeContext(side="consumer"))
        assert again.deserialize("orders", headers, payload)[0] == ORDER

    def test_a_serde_gives_it_up(self) -> None:
        options: dict[str, Any] = {
            "url": "http://127.0.0.1:1",
            "schema": AVRO,
            "registry": {"max.retries": 0},
        }
        probe = shared_client("http://127.0.0.1:1", {"max.retries": 0})
        session = Chain([Serialize(value=ConfluentAvro(**options))]).open()
        probe.close()
        assert not is_closed(probe)
        session.close()
        assert is_closed(probe)

    def test_a_serde_that_cannot_be_opened_keeps_none(self) -> None:
        probe = shared_client("http://127.0.0.1:2", {})
        with pytest.raises(ConfigError):
            ConfluentAvro(url="http://127.0.0.1:2", schema='"strin"').open(SerdeContext())
        probe.close()
        assert is_closed(probe)

    def test_a_client_that_is_closed_by_a_finalizer_meanwhile_is_not_joined(self) -> None:
        """Garbage collection may close a client in the same thread, at any line."""
        url = "http://127.0.0.1:4"
        found: list[SharedClient] = []

        class Closing(int):
            def __eq__(self, other: object) -> bool:
                if found:
                    found[0].close()
                return int(self) == other

            __hash__ = int.__hash__

        def ask() -> None:
            found.append(shared_client(url, {"max.retries": Closing(0)}))
            found.append(shared_client(url, {"max.retries": 0}))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(60)
        first, second = found
        assert is_closed(first)
        assert not is_closed(second)
        second.close()

    def test_a_registry_out_of_reach_is_an_error_of_the_record(self) -> None:
        settings = {"max.retries": "0", "timeout": "0.5"}
        url = "http://me:hunter2@127.0.0.1:1/api?token=hunter2, http://127.0.0.1:2"
        ours = ConfluentAvro(url=url, schema=AVRO, registry=settings).open(SerdeContext())
        with pytest.raises(SerdeError, match="ConnectError: ") as raised:
            ours.serialize("orders", Headers(), ORDER)
        assert not isinstance(raised.value, UnknownSchemaError)
        asked = "(from the schema registry at http://127.0.0.1:1/api, http://127.0.0.1:2)"
        assert str(raised.value).endswith(asked)
        assert "hunter2" not in str(raised.value)
        ours.close()

        client = SchemaRegistryClient(
            {"url": url.replace("me:hunter2@", ""), "max.retries": 0, "timeout": 0.5}
        )
        built = ConfluentSerializer(AvroSerializer(client, AVRO))
        with pytest.raises(SerdeError) as raised_by_built:
            built(ORDER, context("value", []))
        assert str(raised_by_built.value).endswith(asked)
        assert "hunter2" not in str(raised_by_built.value)

    @pytest.mark.parametrize("kind", THEIR_SERIALIZERS)
    def test_the_client_of_a_serde_is_found(self, client: Any, kind: str) -> None:
        # confluent-kafka has no public way to it; without it, errors do not name the registry.
        assert client_of(THEIR_SERIALIZERS[kind](client)) is client
        assert client_of(THEIR_DESERIALIZERS[kind](client)) is client


class TestThreads:
    def test_many_write_to_many_topics_at_once(self, url: str, client: Any) -> None:
        for number in range(4):
            fields = [{"name": f"f{number}", "type": ["long", "string", "double", "boolean"][number]}]
            schema = json.dumps({"type": "record", "name": "R", "fields": fields})
            client.register_schema(f"topic{number}-value", Schema(schema, "AVRO"))
        settings = {"auto.register.schemas": False, "use.latest.version": True}
        ours = ConfluentAvro(url=url, settings=settings).open(SerdeContext())
        values: list[dict[str, Any]] = [{"f0": 1}, {"f1": "x"}, {"f2": 0.5}, {"f3": True}]
        wrong: list[Any] = []

        def write(number: int) -> None:
            for _ in range(100):
                payload, headers = ours.serialize(f"topic{number}", Headers(), values[number])
                found = AvroDeserializer(client)(payload, context("value", list(headers)))
                if found != values[number]:
                    wrong.append(found)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        finally:
            sys.setswitchinterval(interval)
        assert not wrong


class TestMissingParts:
    @pytest.mark.parametrize(
        ("missing", "serde"),
        [
            ("attrs", "ConfluentAvro(url='mock://x')"),
            ("attrs", "ConfluentAvro(url='mock://x', settings={'subject.name.strategy': 'topic'})"),
            ("fastavro", "ConfluentAvro(url='mock://x')"),
            ("jsonschema", "ConfluentJson(url='mock://x')"),
        ],
    )
    def test_the_error_says_what_to_install(self, missing: str, serde: str) -> None:
        program = f"""
import sys
sys.modules[{missing!r}] = None
from headerware import ConfigError
from headerware.serdes import ConfluentAvro, ConfluentJson, SerdeContext
try:
    {serde}.open(SerdeContext(side="consumer"))
except ConfigError as error:
    print(error)
"""
        done = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
        )
        assert install_command("confluent") in done.stdout
        assert missing in done.stdout
