from __future__ import annotations

import json
import pickle
import threading
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryError, header_schema_id_serializer
from confluent_kafka.serialization import (
    Deserializer,
    MessageField,
    SerializationContext,
    SerializationError,
    Serializer,
    StringDeserializer,
    StringSerializer,
)

from headerware import ConfigError, Headers, PluginError, SerdeError, UnknownSchemaError
from headerware.serdes import ConfluentDeserializer, ConfluentSerializer, Json, Serde, SerdeContext
from headerware.serdes.confluent.adapters import (
    ConfluentSerdeError,
    ConfluentUnknownSchemaError,
    as_confluent,
)
from headerware.serdes.confluent.client import shared_client
from headerware.serdes.confluent.functions import from_confluent

if TYPE_CHECKING:
    from headerware.serdes.confluent.functions import ConfluentFunction

VALUE_ID = "__value_schema_id"
KEY_ID = "__key_schema_id"


class SchemaId:
    """What confluent-kafka hands its id serializers."""

    def __init__(self, guid: bytes) -> None:
        self._guid = guid

    def guid_to_bytes(self) -> bytes:
        return b"\x01" + self._guid


def stamping(guid: bytes = b"g" * 16) -> Any:
    """Return a serializer that states an id as all of confluent-kafka's do."""

    def serializer(obj: Any, ctx: SerializationContext) -> bytes:
        return header_schema_id_serializer(json.dumps(obj).encode(), ctx, SchemaId(guid))

    return serializer


def adapted(function: Any, part: Any = "value") -> ConfluentFunction:
    return from_confluent(function, SerdeContext(part=part))


class TestFromConfluent:
    @pytest.mark.parametrize(("part", "field"), [("key", MessageField.KEY), ("value", MessageField.VALUE)])
    def test_the_function_gets_topic_part_and_headers_in_a_list_of_its_own(
        self, part: str, field: MessageField
    ) -> None:
        seen: list[SerializationContext] = []

        def serializer(obj: Any, ctx: SerializationContext) -> bytes:
            seen.append(ctx)
            return b"x"

        headers = Headers([("a", b"1")])
        assert adapted(serializer, part).serialize("orders", headers, {}) == (b"x", headers)
        adapted(serializer, part).serialize("orders", Headers(), {})
        assert [(ctx.topic, ctx.field, ctx.headers) for ctx in seen] == [
            ("orders", field, [("a", b"1")]),
            ("orders", field, []),
        ]

    @pytest.mark.parametrize("headers", [Headers(), Headers([("a", None), ("a", b"")])])
    def test_unchanged_headers_are_the_very_same(self, headers: Headers) -> None:
        function = adapted(lambda obj, ctx: b"x")
        assert function.serialize("t", headers, 1)[1] is headers
        assert function.deserialize("t", headers, b"x")[1] is headers

    def test_what_the_function_appends_is_taken_over(self) -> None:
        payload, headers = adapted(stamping()).serialize("t", Headers([("a", b"1")]), 7)
        assert payload == b"7"
        assert headers == Headers([("a", b"1"), (VALUE_ID, b"\x01" + b"g" * 16)])

    def test_an_id_that_was_there_is_replaced(self) -> None:
        given = Headers([(VALUE_ID, b"stale"), ("a", b"1"), (KEY_ID, b"of the key")])
        _, headers = adapted(stamping()).serialize("t", given, 7)
        assert headers == Headers([("a", b"1"), (KEY_ID, b"of the key"), (VALUE_ID, b"\x01" + b"g" * 16)])
        _, again = adapted(stamping(b"h" * 16)).serialize("t", headers, 8)
        assert again.all(VALUE_ID) == (b"\x01" + b"h" * 16,)
        _, key = adapted(stamping(b"k" * 16), "key").serialize("t", again, 8)
        assert (key.all(KEY_ID), len(key)) == ((b"\x01" + b"k" * 16,), 3)

    def test_other_names_may_stand_several_times(self) -> None:
        def serializer(obj: Any, ctx: Any) -> bytes:
            ctx.headers.append(("a", "grün"))
            return b""

        _, headers = adapted(serializer).serialize("t", Headers([("a", b"1")]), 1)
        assert headers == Headers([("a", b"1"), ("a", "grün".encode())])

    def test_ids_that_the_function_did_not_touch_stay_as_they_are(self) -> None:
        given = Headers([(VALUE_ID, b"1"), (VALUE_ID, b"2")])

        def serializer(obj: Any, ctx: Any) -> bytes:
            ctx.headers.append(("a", b""))
            return b""

        assert adapted(serializer).serialize("t", given, 1)[1].all(VALUE_ID) == (b"1", b"2")

    def test_what_a_deserializer_removes_is_gone(self) -> None:
        def deserializer(data: Any, ctx: Any) -> Any:
            ctx.headers[:] = [pair for pair in ctx.headers if pair[0] != "a"]
            return data.decode()

        found = adapted(deserializer).deserialize("t", Headers([("a", b"1"), ("b", b"2")]), b"x")
        assert found == ("x", Headers([("b", b"2")]))

    def test_a_serializer_of_a_registry_leaves_no_stale_id(self) -> None:
        from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: PLC0415 - heavy

        shared = shared_client("mock://stale", {})
        function = adapted(AvroSerializer(shared.client, '"string"'))
        given = Headers([(VALUE_ID, b"stale"), (KEY_ID, b"key's")])
        payload, headers = function.serialize("t", given, "text")
        assert payload is not None
        assert payload[0] == 0
        assert headers == Headers([(KEY_ID, b"key's")])
        assert function.serialize("t", given, None) == (None, headers)

    def test_a_serializer_of_a_registry_may_be_used_by_its_own_to_dict(self) -> None:
        """Such as one that reports on another topic what it is about to write."""
        from confluent_kafka.schema_registry.json_schema import JSONSerializer  # noqa: PLC0415 - heavy

        def to_dict(obj: Any, ctx: Any) -> Any:
            return obj if ctx.topic == "log" else {"a": len(writer.serialize("log", Headers(), obj)[0])}

        client = shared_client("mock://twice", {}).client
        writer: Any = adapted(JSONSerializer('{"title": "X", "type": "object"}', client, to_dict))
        found: list[Any] = []
        thread = threading.Thread(
            target=lambda: found.append(writer.serialize("t", Headers(), {})[0]), daemon=True
        )
        thread.start()
        thread.join(60)
        assert [json.loads(payload[5:]) for payload in found] == [{"a": 7}]

    def test_a_tombstone_goes_through_as_the_function_says(self) -> None:
        assert adapted(StringSerializer()).serialize("t", Headers(), None) == (None, Headers())
        assert adapted(StringDeserializer()).deserialize("t", Headers(), None) == (None, Headers())

    @pytest.mark.parametrize(
        ("function", "given", "expected"),
        [
            (str.encode, "grün", "grün".encode()),
            (zlib.compress, b"x", zlib.compress(b"x")),
            (lambda obj: obj.upper(), b"x", b"X"),
            (lambda obj, level=3: obj * level, b"x", b"xxx"),
            (lambda obj, ctx=None: ctx.topic.encode() + obj, b"x", b"tx"),
            (lambda *given: given[1].topic, b"x", b"t"),
            (lambda obj, whatever: whatever.topic, b"x", b"t"),
        ],
    )
    def test_a_function_is_called_as_it_can_be(self, function: Any, given: Any, expected: bytes) -> None:
        assert adapted(function).serialize("t", Headers(), given) == (expected, Headers())

    @pytest.mark.parametrize("result", [5, bytearray(b"x"), ["x"]])
    def test_a_result_that_cannot_be_sent_is_refused(self, result: Any) -> None:
        with pytest.raises(SerdeError, match="expected bytes, text or None") as raised:
            adapted(lambda obj, ctx: result).serialize("t", Headers(), 1)
        assert raised.value.part == "value"

    def test_text_that_cannot_be_sent_is_refused(self) -> None:
        with pytest.raises(SerdeError, match="returned text that UTF-8 cannot express"):
            adapted(lambda obj, ctx: "\ud800").serialize("t", Headers(), 1)

    def test_headers_that_are_none_are_refused(self) -> None:
        def serializer(obj: Any, ctx: Any) -> bytes:
            ctx.headers.append(("a", 5))
            return b""

        with pytest.raises(SerdeError, match="left invalid headers"):
            adapted(serializer).serialize("t", Headers(), 1)

    def test_coroutines_are_refused(self) -> None:
        async def serializer(obj: Any, ctx: Any) -> bytes:
            return b""

        with pytest.raises(PluginError, match="expected one that blocks"):
            adapted(serializer)
        with pytest.raises(SerdeError, match="returned a coroutine"):
            adapted(lambda obj, *ctx: serializer(obj, ctx)).deserialize("t", Headers(), b"")


class TestRefusals:
    @pytest.mark.parametrize("part", ["key", "value"])
    def test_say_what_happened_but_not_the_payload(self, part: str) -> None:
        def deserializer(data: bytes, ctx: Any) -> Any:
            raise SerializationError(f"{data!r} is not of type 'object'")

        with pytest.raises(SerdeError) as raised:
            adapted(deserializer, part).deserialize("t", Headers(), b"secret")
        assert raised.value.part == part
        assert f"deserialize the {part}: SerializationError; the cause says more" in str(raised.value)
        assert "secret" not in str(raised.value)
        assert isinstance(raised.value.__cause__, SerializationError)

    @pytest.mark.parametrize(
        ("error", "shown"),
        [
            (SerializationError("Invalid magic byte"), "SerializationError: Invalid magic byte"),
            (ConnectionRefusedError(111, "refused"), "refused"),
            (SchemaRegistryError(409, 40901, "incompatible"), "incompatible (HTTP status code 409"),
            (SchemaRegistryError(500, 1, "x" * 9999), "xxx..."),
        ],
    )
    def test_show_texts_that_hold_no_payload(self, error: Exception, shown: str) -> None:
        def serializer(obj: Any, ctx: Any) -> bytes:
            raise error

        with pytest.raises(SerdeError) as raised:
            adapted(serializer).serialize("t", Headers(), 1)
        assert shown in str(raised.value)
        assert len(str(raised.value)) < 600
        assert not isinstance(raised.value, UnknownSchemaError)

    def test_a_schema_that_the_registry_does_not_have_is_told_apart(self) -> None:
        def deserializer(data: Any, ctx: Any) -> Any:
            raise SchemaRegistryError(404, 40403, "Schema not found")

        with pytest.raises(UnknownSchemaError, match="Schema not found"):
            adapted(deserializer).deserialize("t", Headers(), b"")

    def test_our_own_errors_pass_with_their_part(self) -> None:
        own = UnknownSchemaError("nobody knows it")

        def deserializer(data: Any, ctx: Any) -> Any:
            raise own

        with pytest.raises(UnknownSchemaError) as raised:
            adapted(deserializer, "key").deserialize("t", Headers(), b"")
        assert raised.value is own
        assert own.part == "key"


class Stamped(Serde, frozen=True, kw_only=True):
    """JSON, with headers that say so; a list of words sets several of one name."""

    closed: list[str] = []  # noqa: RUF012 - an option, for the test to look at

    def open(self, context: SerdeContext) -> Any:
        return StampedFunctions(self, context)


class StampedFunctions:
    def __init__(self, options: Stamped, context: SerdeContext) -> None:
        self._closed, self._part = options.closed, context.part

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        if value is None:
            return None, headers
        if value == "boom":
            raise UnknownSchemaError("no schema")
        if value == "twice":
            headers = headers.add("made", b"1").add("made", b"2")
        return json.dumps(value).encode(), headers.put(f"by-{self._part}", topic)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        return payload and json.loads(payload), headers.remove(f"by-{self._part}")

    def close(self) -> None:
        self._closed.append("closed")


def value_context(headers: Any, field: MessageField = MessageField.VALUE) -> SerializationContext:
    return SerializationContext("orders", field, headers)


class TestConfluentSerializer:
    def test_is_confluent_kafkas(self) -> None:
        assert isinstance(ConfluentSerializer(Json()), Serializer)
        assert isinstance(ConfluentDeserializer(Json()), Deserializer)

    def test_headers_go_into_the_list_that_was_passed(self) -> None:
        headers: list[Any] = [("own", "text"), ("own", b"2")]
        assert ConfluentSerializer(Stamped())([1], value_context(headers)) == b"[1]"
        assert headers == [("own", b"text"), ("own", b"2"), ("by-value", b"orders")]

    def test_a_list_that_is_used_again_does_not_grow(self) -> None:
        key, value = ConfluentSerializer(Stamped(), "key"), ConfluentSerializer(Stamped(), "value")
        headers: list[Any] = [("own", b"1")]
        for number in range(3):
            ctx = value_context(headers, MessageField.KEY)
            key(number, ctx)
            ctx.field = MessageField.VALUE
            value(number, ctx)
        assert sorted(headers) == [("by-key", b"orders"), ("by-value", b"orders"), ("own", b"1")]

    def test_headers_go_into_a_dict(self) -> None:
        headers: dict[str, Any] = {"own": "text"}
        ConfluentSerializer(Stamped())(1, value_context(headers))
        assert headers == {"own": b"text", "by-value": b"orders"}

    def test_headers_that_a_dict_cannot_hold_are_refused(self) -> None:
        headers: dict[str, Any] = {"own": "text"}
        with pytest.raises(ConfluentSerdeError, match=r"expected a list, found dict"):
            ConfluentSerializer(Stamped())("twice", value_context(headers))
        assert headers == {"own": "text"}

    @pytest.mark.parametrize("ctx", [None, value_context(None), value_context((("own", b"1"),))])
    def test_headers_that_would_be_lost_are_refused(self, ctx: Any) -> None:
        with pytest.raises(SerializationError, match=r"\(by-value\).*pass headers=\[\] to produce"):
            ConfluentSerializer(Stamped())(1, ctx)

    @pytest.mark.parametrize("ctx", [None, value_context(None), value_context((("own", b"1"),))])
    def test_no_headers_are_needed_where_none_are_added(self, ctx: Any) -> None:
        assert ConfluentSerializer(Json(content_type=""))({"a": 1}, ctx) == b'{"a":1}'
        assert ConfluentSerializer(Stamped())(None, ctx) is None

    def test_headers_stay_as_they_are_where_none_are_added(self) -> None:
        in_dict, in_list = {"own": "text"}, [("own", "text")]
        serializer = ConfluentSerializer(Json(content_type=""))
        serializer(1, value_context(in_dict))
        serializer(1, value_context(in_list))
        assert (in_dict, in_list) == ({"own": "text"}, [("own", "text")])

    @pytest.mark.parametrize("headers", [[("a", 5)], [("a",)], {"a": 5}, 5])
    def test_headers_of_a_wrong_type_are_refused(self, headers: Any) -> None:
        with pytest.raises(ConfluentSerdeError, match="HeaderError"):
            ConfluentSerializer(Stamped())(1, value_context(headers))

    def test_a_serde_may_be_given_by_its_word(self) -> None:
        assert ConfluentSerializer("text")("grün", value_context([])) == "grün".encode()

    @pytest.mark.parametrize(("serde", "problem"), [("txt", "did you mean"), (5, "expected a serde")])
    def test_an_object_that_is_not_a_serde_is_refused(self, serde: Any, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            ConfluentSerializer(serde)

    def test_a_serde_for_the_other_direction_is_refused(self) -> None:
        class OnlyReads:
            def deserialize(self, topic: str, headers: Headers, payload: Any) -> Any:
                return payload, headers

        with pytest.raises(PluginError, match="expected an object with serialize"):
            ConfluentSerializer(OnlyReads())

    def test_a_serde_of_the_other_part_is_refused(self) -> None:
        with pytest.raises(ConfluentSerdeError, match="for the value of records, and is used for the key"):
            ConfluentSerializer(Stamped())(1, value_context([], MessageField.KEY))

    def test_errors_are_ours_and_theirs(self) -> None:
        with pytest.raises(SerializationError) as raised:
            ConfluentSerializer(Stamped(), "key")("boom", value_context([], MessageField.KEY))
        error: Any = raised.value
        assert isinstance(error, UnknownSchemaError)
        assert (error.part, error.message, str(error)) == ("key", "no schema", "no schema")

    def test_errors_of_others_keep_their_text_to_themselves(self) -> None:
        with pytest.raises(
            ConfluentSerdeError, match=r"the value's serde raised TypeError at \w+\.py:\d+ in "
        ) as raised:
            ConfluentSerializer(Stamped())({"secret"}, value_context([]))
        assert isinstance(raised.value.__cause__, TypeError)

    def test_closing_closes_the_serde(self) -> None:
        closed: list[str] = []
        ConfluentSerializer(Stamped(closed=closed)).close()
        ConfluentDeserializer(Stamped(closed=closed)).close()
        ConfluentSerializer(Json()).close()
        assert closed == ["closed"] * 2


class TestConfluentDeserializer:
    def test_what_a_serde_takes_off_is_gone_from_the_list(self) -> None:
        headers = [("by-value", b"orders"), ("own", b"1")]
        assert ConfluentDeserializer(Stamped())(b"[1]", value_context(headers)) == [1]
        assert headers == [("own", b"1")]

    @pytest.mark.parametrize("headers", [None, (("by-value", b""),), [], {"by-value": b""}])
    def test_any_headers_will_do(self, headers: Any) -> None:
        assert ConfluentDeserializer(Stamped())(b"[1]", value_context(headers)) == [1]

    def test_no_context_will_do(self) -> None:
        assert ConfluentDeserializer(Stamped())(b"[1]") == [1]

    def test_errors_are_ours_and_theirs(self) -> None:
        with pytest.raises(SerializationError, match="JSONDecodeError") as raised:
            ConfluentDeserializer(Stamped())(b"secret", value_context([]))
        assert isinstance(raised.value, SerdeError)
        assert "secret" not in str(raised.value)

    def test_theirs_inside_ours_inside_theirs(self) -> None:
        serializer = ConfluentSerializer(StringSerializer("utf_16"))
        deserializer = ConfluentDeserializer(StringDeserializer("utf_16"))
        assert deserializer(serializer("grün", value_context(None)), value_context(None)) == "grün"


class TestConfluentErrors:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (SerdeError("it"), ConfluentSerdeError),
            (UnknownSchemaError("it"), ConfluentUnknownSchemaError),
        ],
    )
    def test_survive_pickling(self, error: SerdeError, kind: type[SerdeError]) -> None:
        error.topic, error.partition, error.offset = "orders", 3, 1042
        made = pickle.loads(pickle.dumps(as_confluent(error, "key")))  # noqa: S301 - our own bytes
        assert type(made) is kind
        assert isinstance(made, SerializationError)
        assert (made.part, made.topic, made.offset) == ("key", "orders", 1042)
        assert str(made) == "orders[3]@1042: it"
