from __future__ import annotations

from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.converters.string import StringConverter
from headerware.connect.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Decimal,
    Int32,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
)
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, PluginError, SerdeError
from headerware.core.headers import Headers
from headerware.core.options import from_option
from headerware.core.record import Record
from headerware.interceptors.serialize import Serialize
from headerware.serdes import Connect
from headerware.serdes.plugins import serde_type
from headerware.serdes.serde import SerdeContext

HEADERS = Headers([("a", b"1")])
ORDER = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()
AN_ORDER = Struct.of(ORDER, {"id": 7, "name": "x"})


def both_ways(serde: Connect, value: Any) -> Any:
    functions = serde.open(SerdeContext())
    payload, headers = functions.serialize("t", HEADERS, value)
    assert headers is HEADERS
    found, headers = functions.deserialize("t", headers, payload)
    assert headers is HEADERS
    return found


class TestConnect:
    def test_gives_structs_back(self) -> None:
        assert both_ways(Connect(), AN_ORDER) == AN_ORDER

    def test_returns_other_values_with_their_schema(self) -> None:
        pair = SchemaAndValue(INT32_SCHEMA, Int32(5))
        assert both_ways(Connect(), pair) == pair
        assert both_ways(Connect(converter="StringConverter"), "x") == SchemaAndValue(
            OPTIONAL_STRING_SCHEMA, "x"
        )

    def test_gives_schemaless_values_back_as_they_are(self) -> None:
        assert both_ways(Connect(options={"schemas.enable": False}), {"a": [1, None]}) == {"a": [1, None]}

    def test_gives_plain_values_where_asked_to(self) -> None:
        assert both_ways(Connect(plain=True), AN_ORDER) == {"id": 7, "name": "x"}
        assert type(both_ways(Connect(plain=True), SchemaAndValue(INT32_SCHEMA, Int32(5)))) is int

    def test_a_tombstone_stays_one(self) -> None:
        assert both_ways(Connect(), None) is None
        assert Connect().open(SerdeContext()).serialize("t", HEADERS, None) == (None, HEADERS)

    def test_a_null_in_an_envelope_keeps_its_schema(self) -> None:
        pair = SchemaAndValue(OPTIONAL_STRING_SCHEMA, None)
        assert both_ways(Connect(), pair) == pair

    @pytest.mark.parametrize("mode", ["strict", "kafka_4_3"])
    def test_refuses_with_a_serde_error_that_tells_no_payload(self, mode: Any) -> None:
        functions = Connect(mode=mode).open(SerdeContext())
        with pytest.raises(SerdeError) as written:
            functions.serialize("t", HEADERS, SchemaAndValue(INT32_SCHEMA, "secret"))
        with pytest.raises(SerdeError) as read:
            functions.deserialize("t", HEADERS, b'{"secret":1')
        for error in (written.value, read.value):
            assert "JsonConverter" in str(error)
            assert "secret" not in str(error)

    def test_turns_every_connect_error_into_its_own(self) -> None:
        schema = SchemaBuilder.bytes().name(Decimal.LOGICAL_NAME).build()
        functions = Connect(mode="kafka_4_3").open(SerdeContext())
        with pytest.raises(SerdeError):
            functions.serialize("t", HEADERS, SchemaAndValue(schema, DecimalNumber(1)))

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"options": {"schemas.enabled": "true"}}, "options.schemas.enabled"),
            ({"options": {"schema.content": "x"}}, "options.schema.content"),
            ({"options": {"schema.content": "x"}, "mode": "kafka_4_3"}, "options"),
            (
                {"converter": "StringConverter", "options": {"converter.encoding": "x"}},
                "options.converter.encoding",
            ),
        ],
    )
    def test_refuses_wrong_options_when_it_is_made(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Connect(**options)
        assert caught.value.path == path

    def test_refuses_an_unknown_converter(self) -> None:
        with pytest.raises(PluginError, match="StringConverter"):
            Connect(converter="StringConvertor")
        with pytest.raises(PluginError):
            Connect(converter="SimpleHeaderConverter")

    def test_is_found_by_its_word(self) -> None:
        option = {
            "type": "connect",
            "converter": "StringConverter",
            "options": {"converter.encoding": "latin1"},
        }
        serde = from_option(option, serde_type, path="value")
        assert serde == Connect(converter="StringConverter", options={"converter.encoding": "latin1"})
        assert serde_type("connect") is Connect

    def test_closes_its_converter_once_with_the_session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[Any] = []
        serde = Connect(converter="StringConverter")
        monkeypatch.setattr(StringConverter, "close", lambda converter: closed.append(converter))  # noqa: PLW0108 - a method
        step = Serialize(value=serde).open(Context(side="producer"))
        assert step.on_send(Record("t", value=SchemaAndValue(STRING_SCHEMA, "x"))).value == b"x"
        assert closed == []
        step.close()
        assert len(closed) == 1

    def test_tells_the_converter_what_it_is_for(self) -> None:
        functions = Connect().open(SerdeContext(part="key"))
        assert functions._converter.options["converter.type"] == "key"


class TestDeadLetters:
    def test_say_which_converter_in_connects_words(self) -> None:
        published: list[Record] = []
        name = "org.apache.kafka.connect.json.JsonConverter"
        chain = Chain([Serialize(value=Connect(converter=name), on_error="dead_letter")])
        chain.open(Context(publish=published.append)).consume([Record("t", b"{", partition=0, offset=3)])
        (letter,) = published
        reason = {key.removeprefix("__connect.errors."): value for key, value in letter.headers}
        assert reason["stage"] == b"VALUE_CONVERTER"
        assert reason["class.name"] == name.encode()
        assert reason["exception.class.name"] == b"org.apache.kafka.connect.errors.DataException"
        assert letter.value == b"{"
